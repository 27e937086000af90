#!/usr/bin/env bash
# See to a Chromium for the browser tests: found, or installed by apt as root on Debian, else a clear text.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null; then
    exit 0
  fi
done
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  echo "Installing Chromium for the browser tests (once)"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium
  exit 0
fi
echo "The browser tests need Chromium. On Debian or Ubuntu: sudo apt-get install chromium" >&2
exit 1
