#!/bin/sh
# signalbox ROLE [ARGUMENTS]: become one process of Signalbox; it stops on SIGTERM.
set -eu

role=${1:-web}
[ $# -gt 0 ] && shift

case $role in
  setup) exec python manage.py setup "$@" ;;
  web) exec python -m uvicorn console.asgi:application --host 0.0.0.0 --port 8000 --no-access-log \
    --no-server-header --timeout-graceful-shutdown 5 "$@" ;;
  worker) exec python -m celery -A console worker -Q console -P threads -c 4 --without-gossip --without-mingle \
    --loglevel INFO "$@" ;;
  relay-worker) exec python -m celery -A console worker -Q relay -P threads -c 2 --prefetch-multiplier 1 \
    --without-gossip --without-mingle --loglevel INFO "$@" ;;
  beat) exec python -m celery -A console beat --schedule "$SIGNALBOX_DATA_DIR/beat/schedule" --pidfile= \
    --loglevel INFO "$@" ;;
  relay) exec python manage.py relay "$@" ;;
  consume) exec python manage.py consume "$@" ;;
  manage) exec python manage.py "$@" ;;
  *)
    echo "signalbox: unknown role '$role' (setup, web, worker, relay-worker, beat, relay, consume GROUP, manage ...)" >&2
    exit 2
    ;;
esac
