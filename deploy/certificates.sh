#!/bin/sh
# usage: certificates.sh FOLDER NAME...
#
# Makes ca.crt, tls.crt and tls.key in FOLDER, for servers that are reached under these names: one pair serves Dask's
# scheduler and workers, the job and an S3 server. The pair is valid for 398 days. Called again it makes another pair of
# the same authority, whose key (ca.key) is needed for nothing else: keep it away from the cluster.
# Whoever has tls.key can run code on the cluster.
set -eu
[ $# -ge 2 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
folder=$1
shift
umask 077
mkdir -p "$folder"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cat > "$scratch/settings" <<SETTINGS
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[pair]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = $(printf 'DNS:%s,' "$@" | sed 's/,$//')
SETTINGS

new_key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

if [ ! -e "$folder/ca.key" ]; then
  new_key "$scratch/ca.key"
  openssl req -new -x509 -days 3650 -subj /CN=bigkpca-authority -config "$scratch/settings" -extensions authority \
    -key "$scratch/ca.key" -out "$scratch/ca.crt"
  mv "$scratch/ca.crt" "$scratch/ca.key" "$folder"
fi
new_key "$scratch/tls.key"
openssl req -new -subj /CN=bigkpca -config "$scratch/settings" -key "$scratch/tls.key" -out "$scratch/tls.csr"
openssl x509 -req -days 398 -in "$scratch/tls.csr" -CA "$folder/ca.crt" -CAkey "$folder/ca.key" \
  -set_serial "0x$(openssl rand -hex 16)" -extfile "$scratch/settings" -extensions pair -out "$scratch/tls.crt" 2> "$scratch/said" ||
  { cat "$scratch/said" >&2; exit 1; }
mv "$scratch/tls.crt" "$scratch/tls.key" "$folder"
