#!/usr/bin/env bash
# Checks that the programs that the tests need are installed:
#   redis-server, PostgreSQL, PgBouncer, MariaDB
#   a C compiler, for the race detector
#   Chromium and a font with Chinese, for the admin pages
#   curl and jq, for the recipes of the documents
# Usage: tools/setup.sh [test|full|long]. For full it also checks:
#   debootstrap, dpkg-deb, lintian, rpm, systemd, strace and shellcheck, for the packages and the units
#   Prometheus with promtool and Alertmanager, for the alert rules
#   a JDK, Node, PHP, Python and openssl, for the programs and commands of the documents
#   Spring, and the libraries of these languages for PostgreSQL and MariaDB, for the outbox programs
# As root on Debian or Ubuntu the script installs missing packages. Otherwise it lists them and fails. Valkey
# is optional: it is installed if the release has it. The script starts no service: the tests start their own
# servers on free ports.
set -euo pipefail
size=${1:-test}
case $size in
  test | full | long) ;;
  *) echo "usage: tools/setup.sh [test|full|long]" >&2; exit 2 ;;
esac

have_postgres() {
  command -v initdb >/dev/null && command -v postgres >/dev/null && return 0
  local dir
  for dir in /usr/lib/postgresql/*/bin; do
    [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ] && return 0
  done
  return 1
}

have_compiler() {
  printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | gcc -x c - -o /dev/null 2>/dev/null
}

# The server packages put their programs there. The PATH of a user may lack it.
have_daemon() {
  command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ]
}

# The browser tests look for the same names.
have_chromium() {
  local name
  for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" >/dev/null && return 0
  done
  return 1
}

have_chinese() {
  [ -n "$(fc-list :lang=zh 2>/dev/null)" ]
}

missing() {
  command -v redis-server >/dev/null || echo redis-server
  have_postgres || echo postgresql
  have_daemon pgbouncer || echo pgbouncer
  have_daemon mariadbd || echo mariadb-server-core
  command -v my_print_defaults >/dev/null || echo mariadb-client-core
  command -v curl >/dev/null || echo curl
  command -v jq >/dev/null || echo jq
  have_chromium || echo chromium
  have_chinese || printf '%s\n' fontconfig fonts-wqy-microhei
  have_compiler || printf '%s\n' gcc libc6-dev
  if [ "$size" = full ]; then
    missing_full
  fi
}

# node_has reports whether Node finds a module where apt or npm puts it.
node_has() {
  local places=/usr/share/nodejs:/usr/lib/nodejs
  if command -v npm >/dev/null; then
    places=$places:$(npm root --global)
  fi
  NODE_PATH=$places node -e "require('$1')" 2>/dev/null
}

# python_has reports whether the system's Python has a module; another Python in the PATH does not count.
python_has() {
  /usr/bin/python3 -c "import $1" 2>/dev/null
}

# missing_libraries lists the packages with libraries of the outbox programs.
missing_libraries() {
  local jar driver
  for jar in postgresql:libpostgresql-jdbc-java mariadb-java-client:libmariadb-java \
    spring3-jdbc:libspring-jdbc-java spring3-context:libspring-context-java; do
    [ -e "/usr/share/java/${jar%%:*}.jar" ] || echo "${jar##*:}"
  done
  for driver in pgsql mysql; do
    php -r "exit(extension_loaded('pdo_$driver') ? 0 : 1);" 2>/dev/null || echo "php-$driver"
  done
  python_has psycopg || echo python3-psycopg
  python_has pymysql || echo python3-pymysql
  # Debian's modules need Debian's Node. A Node from elsewhere has npm.
  if ! command -v npm >/dev/null; then
    node_has pg || echo node-pg
    node_has mysql || echo node-mysql
  fi
}

# missing_modules lists the modules of Node that npm must install.
missing_modules() {
  if [ "$size" = full ] && command -v npm >/dev/null; then
    node_has pg || echo pg@8
    node_has mysql || echo mysql@2
  fi
}

# missing_full lists what make test-full needs in addition: a package for each program that is missing.
missing_full() {
  local program package
  while read -r program package; do
    command -v "$program" >/dev/null || echo "$package"
  done <<'EOF'
debootstrap debootstrap
dpkg-deb dpkg
lintian lintian
rpm rpm
rpm2cpio rpm2cpio
cpio cpio
nsenter util-linux
ip iproute2
strace strace
shellcheck shellcheck
systemd-analyze systemd
prometheus prometheus
promtool prometheus
prometheus-alertmanager prometheus-alertmanager
javac default-jdk-headless
node nodejs
php php-cli
python3 python3
openssl openssl
EOF
  compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null || echo libfaketime
  missing_libraries
}

# wanted prints the package of Valkey if it is not installed and the package lists have it.
wanted() {
  command -v valkey-server >/dev/null && return 0
  command -v apt-cache >/dev/null || return 0
  local name
  for name in valkey-server valkey; do
    if apt-cache show "$name" >/dev/null 2>&1; then
      echo "$name"
      return 0
    fi
  done
}

packages=$(missing | sort -u | tr '\n' ' ')
modules=$(missing_modules | tr '\n' ' ')
can_install=no
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && can_install=yes
if [ -z "$packages$modules" ] && { [ $can_install = no ] || [ -z "$(wanted)" ]; }; then
  exit 0
fi

if [ $can_install = no ]; then
  echo "the tests need these packages: $packages" >&2
  install="sudo apt-get update && sudo apt-get install -y --no-install-recommends $packages"
  if [ -n "$modules" ]; then
    echo "and these modules of Node: $modules" >&2
    install="$install && sudo npm install --global --ignore-scripts $modules"
  fi
  echo "install them; on Debian or Ubuntu: $install" >&2
  exit 1
fi

# Server packages start their servers on the default ports. Exit code 101 of policy-rc.d prevents that. An
# existing policy-rc.d is left alone.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
fi

log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
if [ -n "$packages" ]; then
  echo "installing for the tests: $packages"
  # shellcheck disable=SC2086 # the list is words
  if ! { apt-get update && apt-get install -y --no-install-recommends $packages; } >"$log" 2>&1; then
    cat "$log" >&2
    echo "apt-get could not install: $packages" >&2
    exit 1
  fi
fi
if [ -n "$modules" ]; then
  # shellcheck disable=SC2086 # the list is words
  if ! npm install --global --ignore-scripts --no-audit --no-fund $modules >"$log" 2>&1; then
    cat "$log" >&2
    echo "npm could not install: $modules" >&2
    exit 1
  fi
fi
valkey=$(wanted)
if [ -n "$valkey" ]; then
  options="-o Acquire::Retries=0 -o Acquire::http::Timeout=10"
  # shellcheck disable=SC2086 # the options are words
  apt-get install -y --no-install-recommends $options "$valkey" >"$log" 2>&1 ||
    echo "apt-get could not install $valkey: the tests of Valkey are left out" >&2
fi
rm -f "$log"

still=$({ missing; missing_modules; } | tr '\n' ' ')
if [ -n "$still" ]; then
  echo "installed, but still not found: $still" >&2
  exit 1
fi
