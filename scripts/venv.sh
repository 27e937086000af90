#!/usr/bin/env bash
# Make .venv from the hashed lock, once per lock. Plain `python3 -m venv`; uv inside it for speed, else pip.
set -euo pipefail
cd "$(dirname "$0")/.."

locked=$(cat requirements/dev.txt requirements/uv.txt | cksum)
stamp=.venv/.locked
if [[ -x .venv/bin/python && -f $stamp && $(<"$stamp") == "$locked" ]]; then
  exit 0
fi

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3.13 python3.12 python3.11 python3; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      echo "$candidate"
      return
    fi
  done
  echo "Signalbox needs Python 3.11 or later (it looked for python3.13, python3.12, python3.11 and python3)." >&2
  echo "Install one, or name yours: make PYTHON=/path/to/python ..." >&2
  return 1
}

make_venv() {
  local python=$1
  if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
      apt-get update -qq
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv
    else
      echo "Python's venv module is missing. On Debian or Ubuntu: sudo apt-get install python3-venv" >&2
      return 1
    fi
  fi
  "$python" -m venv .venv
}

# uv does not read pip's configuration: hand it the index that pip is set to.
use_pips_index() {
  local index
  index=${PIP_INDEX_URL:-$(.venv/bin/python -m pip config get global.index-url 2>/dev/null || true)}
  if [[ -n $index && -z ${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-} ]]; then
    export UV_DEFAULT_INDEX=$index
  fi
}

install_locked() {
  use_pips_index
  .venv/bin/python -m pip install -q --require-hashes --no-deps -r requirements/uv.txt &&
    .venv/bin/uv pip install -q --python .venv/bin/python --require-hashes -r requirements/dev.txt && return
  echo "uv could not install the packages; trying pip." >&2
  .venv/bin/python -m pip install -q --require-hashes --no-deps -r requirements/dev.txt
}

echo "Preparing .venv (once; about a minute)"
python=$(find_python)
if [[ ! -x .venv/bin/python ]] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  rm -rf .venv
  make_venv "$python"
fi
install_locked
echo "$locked" > "$stamp"
