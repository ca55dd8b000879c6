#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs every test program and adds up their counts. A program that prints no
# count, or exits with an error and no failure counted, counts as one failure:
# nothing that did not run looks green. A test that leaves something in its TMPDIR
# fails. What a failing program printed is shown again at the end. Last line:
# "N passed, N failed".
# TESTS=c runs only the C programs, TESTS=kern only those of the kernels; RUNNER
# is put before a C program (an emulator for another CPU).
cd "$(dirname "$0")/.." || exit 1
: "${BUILD:=build}" "${LUA:=lua5.4}" "${TESTS:=all}" "${RUNNER:=}"
# clang 14 guesses the bounds of thread-local blocks from the bytes before them; its leak
# check then sometimes read where nothing is. What was freed is kept for a while: 256 MB of
# it would hide in test_http_growth whether anything stays behind.
export ASAN_OPTIONS="${ASAN_OPTIONS:-intercept_tls_get_addr=0:quarantine_size_mb=16}"
passed=0 failed=0
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
chmod 755 "$tmp"  # a test's proxy may run as another user
out=$tmp/out
export TMPDIR="$tmp/left"
mkdir "$TMPDIR"

run() { # run NAME COMMAND...
  name=$1; shift
  start=$(date +%s)
  "$@" >"$out" 2>&1; rc=$?
  line=$(grep -Eo '^[0-9]+ passed, [0-9]+ failed' "$out" | tail -1)
  p=${line%% *}; f=${line#*, }; f=${f%% *}
  if [ -z "$line" ] || { [ "$p" = 0 ] && [ "$f" = 0 ]; }; then p=0 f=1; fi
  if [ "$rc" != 0 ] && [ "$f" = 0 ]; then f=1; fi
  if [ -n "$(ls -A "$TMPDIR")" ]; then
    { echo "left in TMPDIR:"; ls -A "$TMPDIR"; } >>"$out"
    rm -rf "$TMPDIR"; mkdir "$TMPDIR"; f=$((f + 1))
  fi
  passed=$((passed + p)) failed=$((failed + f))
  printf '%-40s %6d passed %4d failed  %3ds\n' "$name" "$p" "$f" $(($(date +%s) - start))
  if [ "$f" != 0 ]; then
    { echo "-- $name failed:"; grep -v '^ok' "$out" | tail -40; } | tee -a "$tmp/failures"
  fi
}

for t in tests/c/test_*.c tests/kern/test_*.c; do
  [ -e "$t" ] || continue
  t=${t#tests/}; t=${t%.c}
  case $TESTS-$t in kern-c/*) continue ;; esac
  # shellcheck disable=SC2086
  run "$t" $RUNNER "$BUILD/tests/$t"
done
for t in tests/lua/test_*.lua; do
  [ -e "$t" ] && [ "$TESTS" = all ] || continue
  run "${t#tests/}" "$BUILD/mtx" tests/lua/run.lua "$t"
done
for t in tests/http/test_*.sh tests/tty/test_*.sh tests/install/test_*.sh; do
  [ -e "$t" ] && [ "$TESTS" = all ] || continue
  run "${t#tests/}" sh "$t"
done

[ "$failed" = 0 ] || { echo "== failures"; cat "$tmp/failures"; }
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
