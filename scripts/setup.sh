#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs the Debian packages that mtx needs, and says which. usage:
#   setup.sh build   to build, run and fetch models
#   setup.sh test    all of that, and what the tests need
# Nothing is missing: no network, no root.
set -eu

build="gcc make pkg-config liblua5.4-dev lua5.4 lua-cjson lua-luv curl python3 python3-pip unzip xz-utils"
tests="lua-unit python3-venv python3-jsonschema python3-jinja2 luarocks clang llvm libclang-rt-14-dev libomp-dev gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user procps nginx-light openssl"

case "${1:-build}" in
  build) want=$build ;;
  test) want="$build $tests" ;;
  *) echo "usage: setup.sh build|test" >&2; exit 2 ;;
esac

command -v dpkg-query >/dev/null || {
  echo "This is no Debian: install by hand what corresponds to: $want" >&2
  exit 1
}
missing=
for p in $want; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

sudo=
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "Run as root, or install sudo; missing packages:$missing" >&2; exit 1; }
  sudo=sudo
fi
echo "installing:$missing"
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing
