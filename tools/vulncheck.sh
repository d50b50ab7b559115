#!/usr/bin/env bash
# Fails if the program calls code with a known vulnerability, or if the check is not possible. The database is
# vuln.go.dev. If only a module proxy can be reached, it is the newest version of the module
# golang.org/x/vulndb, the source of vuln.go.dev. VULNDB=file:///DIR selects another database. The compiler is
# that of the Dockerfile, because the standard library is checked too.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

GOTOOLCHAIN=$(sed -n 's/^ENV GOTOOLCHAIN=//p' Dockerfile)
export GOTOOLCHAIN
if ! go version; then
  echo "NOT CHECKED: cannot download the compiler $GOTOOLCHAIN of the Dockerfile" >&2
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
    echo "NOT CHECKED: cannot reach vuln.go.dev or download the module golang.org/x/vulndb" >&2
    exit 1
  fi
  db=file://$(jq -r .Dir "$module")/data/osv
  echo "cannot reach vuln.go.dev: the database is golang.org/x/vulndb $(jq -r .Version "$module")"
fi
echo "database: $db"
go tool -modfile="$root/tools/go.mod" govulncheck -db "$db" -tags nomsgpack ./cmd/dispatcher
