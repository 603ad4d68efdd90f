#!/bin/sh
# Makes what compose.yaml reads and no repository may hold: certificates and credentials in secrets/, the user of the
# containers in .env, and folders for data and metrics. Called again it renews the certificates and keeps the rest.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets data metrics
../certificates.sh secrets scheduler s3 localhost

cd secrets
if [ ! -e s3.json ]; then
  openssl rand -hex 16 > s3-access-key
  openssl rand -hex 32 > s3-secret-key
  printf '{"identities": [{"name": "bigkpca", "actions": ["Read:lake", "Write:lake", "List:lake"],
  "credentials": [{"accessKey": "%s", "secretKey": "%s"}]}]}\n' "$(cat s3-access-key)" "$(cat s3-secret-key)" > s3.json
fi
cd ..

# Files of root are for the image's own user, since nothing runs as root.
user=$(id -u):$(id -g)
if [ "$(id -u)" = 0 ]; then
  user=10001:10001
  chown -R "$user" secrets data metrics
fi
echo "BIGKPCA_USER=$user" > .env
chmod 755 metrics   # node_exporter reads it
