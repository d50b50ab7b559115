#!/usr/bin/env bash
# Fails if the program calls code with a known vulnerability, or if that cannot be found out. The database
# is vuln.go.dev or, where only a module proxy can be reached, the newest version of module
# golang.org/x/vulndb, from which vuln.go.dev is made. VULNDB=file:///DIR names another one. The compiler is
# that of the Dockerfile, because the standard library is searched too.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

GOTOOLCHAIN=$(sed -n 's/^ENV GOTOOLCHAIN=//p' Dockerfile)
export GOTOOLCHAIN
if ! go version; then
  echo "NOT CHECKED: the compiler $GOTOOLCHAIN, which the Dockerfile names, could not be fetched" >&2
  exit 1
fi

db=${VULNDB:-}
if [ -z "$db" ] && curl -fsS --max-time 10 -o /dev/null https://vuln.go.dev/index/db.json; then
  db=https://vuln.go.dev
fi
if [ -z "$db" ]; then
  module=$(mktemp)
  trap 'rm -f "$module"' EXIT
  if ! go mod download -json golang.org/x/vulndb@latest >"$module"; then
    echo "NOT CHECKED: neither vuln.go.dev nor module golang.org/x/vulndb can be had" >&2
    exit 1
  fi
  db=file://$(jq -r .Dir "$module")/data/osv
  echo "vuln.go.dev does not answer: checking by golang.org/x/vulndb $(jq -r .Version "$module")"
fi
echo "database: $db"
go tool -modfile="$root/tools/go.mod" govulncheck -db "$db" -tags nomsgpack ./cmd/dispatcher
