#!/usr/bin/env bash
# Makes the deb and the rpm of a built binary: DIRECTORY/*.deb and DIRECTORY/*.rpm. The version of a build
# that is not a release, such as "dev", becomes 0.0.0~dev, which is lower than all releases.
# Usage: tools/packages.sh BINARY VERSION DIRECTORY
set -euo pipefail
BINARY=$(realpath "$1") VERSION=${2#v}
mkdir -p "$3"
out=$(realpath "$3")
cd "$(dirname "$0")/.."

[[ $VERSION =~ ^[0-9] ]] || VERSION=0.0.0~$VERSION
ARCH=$(go version -m "$BINARY" | sed -n 's/^\tbuild\tGOARCH=//p')
# All files get the time of the commit, so that the same commit gives the same bytes.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
FILES=$(mktemp -d)
trap 'rm -rf "$FILES"' EXIT
mkdir "$FILES/doc" "$FILES/man"

# The script of a shell is the same for all architectures, so this machine can make it for the others.
native=$BINARY
if ! "$native" version >/dev/null 2>&1; then
  native=$FILES/native
  CGO_ENABLED=0 go build -pgo=off -tags nomsgpack -o "$native" ./cmd/dispatcher
fi
for shell in bash zsh fish; do
  "$native" completion "$shell" >"$FILES/dispatcher.$shell"
done
tools/sbom.sh "$BINARY" "$VERSION" "$FILES/doc"
cp deploy/packaging/dispatcher.1 "$FILES/man"
cat >"$FILES/changelog" <<EOF
dispatcher ($VERSION) stable; urgency=medium

  * See CHANGELOG.md.

 -- $(sed -n 's/^maintainer: //p' deploy/packaging/nfpm.yaml)  $(date -Rud "@$SOURCE_DATE_EPOCH")
EOF
gzip -9n "$FILES"/changelog "$FILES"/doc/* "$FILES"/man/*
# The layout of the repository, so that the links between the pages work.
cp -a --parents {CHANGELOG,CONTRIBUTING,README,README.zh,SECURITY}.md docs \
  deploy/{compose,grafana,helm,kubernetes,prometheus} "$FILES/doc"
chmod -R u=rwX,go=rX "$FILES/doc"
find "$FILES" -exec touch -d "@$SOURCE_DATE_EPOCH" {} +

export BINARY VERSION ARCH FILES SOURCE_DATE_EPOCH
for packager in deb rpm; do
  go tool -modfile=tools/go.mod nfpm package --config deploy/packaging/nfpm.yaml --packager "$packager" \
    --target "$out"
done
