#!/usr/bin/env bash
# Updates the image digests in a Dockerfile to those that the registries have for its tags now.
# Usage: tools/digests.sh [Dockerfile]
set -euo pipefail
file=${1:-Dockerfile}
crane=github.com/google/go-containerregistry/cmd/crane@v0.22.1

# An image that is a stage of this Dockerfile has no tag and is left out.
images=$(sed -nE 's/^FROM (--platform=\S+ )?([^ @]+:[^ @]+)(@\S+)?( AS .*)?$/\2/p' "$file")
[ -n "$images" ] || { echo "digests: no FROM with a tag in $file" >&2; exit 1; }
for image in $images; do
  digest=$(go run "$crane" digest "$image")
  [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "digests: $image: not a digest: $digest" >&2; exit 1; }
  sed -i -E "s|^(FROM .*)?${image//./\\.}(@sha256:[0-9a-f]+)?|\1$image@$digest|" "$file"
  echo "$image $digest"
done
