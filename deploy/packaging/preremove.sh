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
    stop=deb-systemd-invoke
  else
    stop=systemctl
  fi
  $stop stop dispatcher-backup.timer dispatcher.service ||
    echo "dispatcher: the service did not stop; see journalctl -u dispatcher" >&2
fi
if command -v systemctl >/dev/null; then
  systemctl --no-reload disable dispatcher-backup.timer dispatcher.service >/dev/null 2>&1 || :
fi
