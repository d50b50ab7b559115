#!/bin/sh
# Sends one callback every second to the dispatchers in turn. One that is not accepted is sent again with the
# same idempotency key, so it is created once.
set -eu
api=${API:-http://dispatcher:8080}
receiver=${RECEIVER:-http://receiver:9090}
key=$(cat "${KEY_FILE:-/admin-key/admin_key}")
count=0

post() {
  timeout 10 wget -q -O /dev/null --header "Authorization: Bearer $key" \
    --header "Content-Type: application/json" --header "Idempotency-Key: $1" \
    --post-data "{\"url\": \"$receiver/notify\", \"ref\": \"$1\", \"topic\": \"payment.succeeded\",
      \"payload\": {\"paid\": 10000}, \"policy\": {\"tiers\": [\"2s\", \"10s\", \"1m\"]}}" \
    "$api/v1/callbacks"
}

while sleep 1; do
  count=$((count + 1))
  order="order-$(date +%s)-$count"
  until post "$order"; do
    echo "$order was not accepted; it is sent again in a second" >&2
    sleep 1
  done
done
