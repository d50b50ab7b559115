#!/bin/sh
# Before a removal. dpkg calls it with "remove", rpm with 0. Both call it also for an upgrade: then the
# service keeps running until the new version restarts it.
set -e

case "$1" in
  remove | 0) ;;
  *) exit 0 ;;
esac

if [ -d /run/systemd/system ]; then
  # Waits until the service has drained.
  if command -v deb-systemd-invoke >/dev/null; then
    deb-systemd-invoke stop dispatcher-backup.timer dispatcher.service
  else
    systemctl stop dispatcher-backup.timer dispatcher.service
  fi
fi
if command -v systemctl >/dev/null; then
  systemctl --no-reload disable dispatcher-backup.timer dispatcher.service >/dev/null 2>&1 || :
fi
