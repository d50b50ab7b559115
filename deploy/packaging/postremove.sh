#!/bin/sh
# After a removal. dpkg calls it with "remove" and later maybe "purge", rpm with 0. Data and backups stay, and
# so does the user that owns them.
set -e

case "$1" in
  remove | 0)
    if [ -d /run/systemd/system ]; then
      systemctl --system daemon-reload || :
    fi
    ;;
esac

case "$1" in
  purge | 0)
    for dir in /var/lib/dispatcher /var/backups/dispatcher; do
      if [ -d "$dir" ]; then
        rmdir --ignore-fail-on-non-empty "$dir"
      fi
      if [ -d "$dir" ]; then
        echo "dispatcher: $dir is left; remove it if you do not need the data"
      fi
    done
    rm -rf /var/cache/dispatcher /var/lib/systemd/timers/stamp-dispatcher-backup.timer
    ;;
esac
