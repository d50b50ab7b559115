#!/usr/bin/env bash
# Makes what a release has beside a built binary: dist/doc/OS/ARCH, and for Linux dist/packages. goreleaser
# calls it for each binary.
# Usage: tools/release.sh BINARY VERSION OS ARCH
set -euo pipefail
cd "$(dirname "$0")/.."
# The tools run on this machine.
unset GOOS GOARCH GOARM64 GOAMD64
tools/sbom.sh "$1" "$2" "dist/doc/$3/$4"
if [ "$3" = linux ]; then
  tools/packages.sh "$1" "$2" dist/packages
fi
