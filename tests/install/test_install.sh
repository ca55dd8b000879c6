#!/bin/sh
# SPDX-License-Identifier: MIT
# Installed copies work away from the checkout: `make install` and the LuaRocks module.
cd "$(dirname "$0")/../.." || exit 1
top=$PWD
: "${BUILD:=build}"
passed=0 failed=0

check() { # check NAME EXPECTED COMMAND...
  name=$1 expected=$2
  shift 2
  got=$(cd / && "$@" 2>&1)
  if [ "$got" = "$expected" ]; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo "$name: expected '$expected', got '$got'"
  fi
}

prefix=$top/$BUILD/prefix
rm -rf "$prefix"
make -s install BUILD="$BUILD" PREFIX="$prefix" >/dev/null 2>"$BUILD/install.log" || { cat "$BUILD/install.log"; failed=$((failed + 1)); }
check "installed program" "mtx 0.1.0" "$prefix/bin/mtx" --version
check "installed Lua files" "0.1.0" "$prefix/bin/mtx" -e 'print(require("mtx").VERSION)'
check "installed templates" "true" "$prefix/bin/mtx" -e 'print(require("mtx.chat.shipped").text("chatml") ~= nil)'

tree=$top/$BUILD/rocks
rm -rf "$tree"
if ! luarocks --lua-version 5.4 make --tree "$tree" mtx-scm-1.rockspec >"$BUILD/rocks.log" 2>&1; then
  tail -20 "$BUILD/rocks.log"
  failed=$((failed + 1))
fi
check "LuaRocks module" "3.0" env LUA_PATH="$tree/share/lua/5.4/?.lua;$tree/share/lua/5.4/?/init.lua" LUA_CPATH="$tree/lib/lua/5.4/?.so" \
  lua5.4 -e 'local mtx = require "mtx"; print(mtx.tensor({ 1, 3, 2 })[2])'
check "LuaRocks templates" "true" env LUA_PATH="$tree/share/lua/5.4/?.lua;$tree/share/lua/5.4/?/init.lua" LUA_CPATH="$tree/lib/lua/5.4/?.so" \
  lua5.4 -e 'print(require("mtx.chat.shipped").text("chatml") ~= nil)'

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
