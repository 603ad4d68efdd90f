#!/bin/sh
# One night, for cron. The exit code is the job's. What may go away by itself is tried again, five times: a run that
# holds the lock (5), one that did not finish (6), and a kill (137, 143).
cd "$(dirname "$0")" || exit 2
for pause in 60 120 240 480 960 0; do
  docker compose run --rm -T nightly
  code=$?
  case $code in
    5 | 6 | 137 | 143) [ $pause -eq 0 ] || sleep $pause ;;
    *) break ;;
  esac
done
exit "$code"
