#!/bin/sh
# After an installation or an upgrade. dpkg calls it with "configure" and the version before, rpm with the
# number of installed versions. The service is not started: it has no settings yet.
set -e

case "$1" in
  configure | 1 | 2) ;;
  *) exit 0 ;;
esac

if command -v systemd-sysusers >/dev/null; then
  systemd-sysusers dispatcher.conf
elif ! getent passwd dispatcher >/dev/null; then
  getent group dispatcher >/dev/null || groupadd --system dispatcher
  useradd --system --gid dispatcher --home-dir /var/lib/dispatcher --no-create-home \
    --shell /usr/sbin/nologin --comment Dispatcher dispatcher
fi
if command -v systemd-tmpfiles >/dev/null; then
  systemd-tmpfiles --create dispatcher.conf
else
  install -d -m 700 -o dispatcher -g dispatcher /var/lib/dispatcher /var/backups/dispatcher
fi

if [ -d /run/systemd/system ]; then
  systemctl --system daemon-reload || :
  # A running service drains, then starts with the new program. deb-systemd-invoke respects policy-rc.d. A
  # service that does not start is no failure of the installation, which would block the package manager.
  if command -v deb-systemd-invoke >/dev/null; then
    restart=deb-systemd-invoke
  else
    restart=systemctl
  fi
  $restart try-restart dispatcher.service ||
    echo "dispatcher: the service did not restart; see journalctl -u dispatcher" >&2
fi

# Only at the first installation.
if [ "$1" = 1 ] || { [ "$1" = configure ] && [ -z "$2" ]; }; then
  echo "dispatcher: the settings are in /etc/dispatcher/dispatcher.env; start it with:"
  echo "  systemctl enable --now dispatcher"
fi
