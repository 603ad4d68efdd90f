#!/bin/sh
# Runs a command. Credentials may come in files: AWS_ACCESS_KEY_ID_FILE=/run/secrets/x sets AWS_ACCESS_KEY_ID to what
# that file holds.
set -eu
for name in AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY; do
  eval "file=\${${name}_FILE:-}"
  if [ -n "$file" ]; then
    value=$(cat "$file")
    export "$name=$value"
  fi
done
exec "$@"
