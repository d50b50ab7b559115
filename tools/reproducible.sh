#!/usr/bin/env bash
# Builds the program twice with the flags of the Dockerfile and fails if one byte differs. Each build has its
# own copy of this checkout and its own build cache.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for side in one "a second"; do
  mkdir -p "$work/$side/src"
  git ls-files -z -co --exclude-standard | xargs -0 cp --parents -t "$work/$side/src"
  (
    cd "$work/$side/src"
    export CGO_ENABLED=0 GOFLAGS=-pgo=auto GOCACHE="$work/$side/cache"
    go build -trimpath -buildvcs=false -tags nomsgpack \
      -ldflags "-s -w -X main.version=test" -o "$work/$side/dispatcher" ./cmd/dispatcher
  )
  sha256sum "$work/$side/dispatcher"
  rm -rf "$work/$side/cache" "$work/$side/src"
done
cmp "$work/one/dispatcher" "$work/a second/dispatcher"

for side in one "a second"; do
  tools/sbom.sh "$work/$side/dispatcher" test "$work/$side"
done
cmp "$work/one/dispatcher.cdx.json" "$work/a second/dispatcher.cdx.json"
cmp "$work/one/licenses.txt" "$work/a second/licenses.txt"
