#!/bin/sh
# Generates the keys that are missing. Each container mounts only the volumes that it needs.
set -eu
umask 022

# make FILE VALUE writes the file unless it exists.
make() {
  [ -s "$1" ] && return
  printf '%s\n' "$2" >"$1.new"
  mv "$1.new" "$1"
}

hex() { head -c "$1" /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }

make /admin-key/admin_key "$(hex 24)"
make /keys/master_key "$(head -c 32 /dev/urandom | base64)"
make /postgres-key/password "$(hex 24)"
make /keys/database_url "postgres://dispatcher:$(cat /postgres-key/password)@postgres:5432/dispatcher"
