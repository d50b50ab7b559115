#!/usr/bin/env bash
# Writes the bill of materials of a built binary: dispatcher.cdx.json (CycloneDX), and licenses.txt with the
# licence texts that must be distributed with it. The same binary gives the same bytes.
# Usage: tools/sbom.sh BINARY VERSION DIRECTORY
set -euo pipefail
binary=$(realpath "$1") version=$2
mkdir -p "$3"
out=$(realpath "$3")
cd "$(dirname "$0")"
go tool cyclonedx-gomod bin -json -noserial -notimestamp -version "$version" \
  -output "$out/dispatcher.cdx.json" "$binary"
go run ./licenses -binary "$binary" -texts "$out/licenses.txt"
