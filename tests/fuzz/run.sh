#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs every fuzz target for FUZZ_SECONDS, one per core at a time, each from its
# committed seeds (tests/fuzz/corpus/NAME) and from what earlier runs on this
# machine found (BUILD/corpus). A crash, leak, time-out or undefined behaviour
# fails; the input is kept and named. Last line: "N passed, N failed".
cd "$(dirname "$0")/../.." || exit 1
: "${BUILD:=build/fuzz}" "${FUZZ_SECONDS:=60}"
logs=$BUILD/log
mkdir -p "$logs" "$BUILD/findings"
export ASAN_OPTIONS="${ASAN_OPTIONS:-allocator_may_return_null=1:intercept_tls_get_addr=0}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"

one() { # one NAME: writes log/NAME.log and log/NAME.rc
  mkdir -p "$BUILD/corpus/$1"
  seeds=
  [ -d "tests/fuzz/corpus/$1" ] && seeds=tests/fuzz/corpus/$1
  dict=
  [ -f "tests/fuzz/$1.dict" ] && dict=-dict=tests/fuzz/$1.dict
  # shellcheck disable=SC2086
  "$BUILD/tests/fuzz/fuzz_$1" -max_total_time="$FUZZ_SECONDS" -timeout=30 -rss_limit_mb=2048 -max_len=65536 \
    -artifact_prefix="$BUILD/findings/$1-" $dict "$BUILD/corpus/$1" $seeds >"$logs/$1.log" 2>&1
  echo $? >"$logs/$1.rc"
}

names=
for f in tests/fuzz/fuzz_*.c; do
  [ -e "$f" ] || continue
  n=${f##*/fuzz_}
  names="$names ${n%.c}"
done
jobs=$(nproc) running=0
for n in $names; do
  rm -f "$logs/$n.rc"
  one "$n" &
  running=$((running + 1))
  if [ "$running" -ge "$jobs" ]; then wait; running=0; fi
done
wait

passed=0 failed=0
for n in $names; do
  rc=$(cat "$logs/$n.rc" 2>/dev/null || echo none)
  if [ "$rc" = 0 ]; then
    passed=$((passed + 1))
    printf 'fuzz %-24s ok    %s\n' "$n" "$(grep -Eo 'Done [0-9]+ runs in [0-9]+ second' "$logs/$n.log" | tail -1)"
  else
    failed=$((failed + 1))
    printf 'fuzz %-24s FAIL  (exit %s; %s)\n' "$n" "$rc" "$logs/$n.log"
    tail -40 "$logs/$n.log"
  fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
