#!/bin/sh
# SPDX-License-Identifier: MIT
# Tokenizer speed, a vocabulary of each kind: `tok.sh` for mtx alone, `tok.sh peer`
# beside llama.cpp. The text is 1 MB of this repository: code, prose, golden texts.
cd "$(dirname "$0")/../.." || exit 1
: "${BUILD:=build}" "${PYTHON:=python3}"
dir=build/golden/tokenizer golden=tests/golden/tokenizer
mkdir -p "$dir" || exit 1
vocabs=
for v in ggml-vocab-gpt-2 ggml-vocab-llama-bpe ggml-vocab-qwen2 ggml-vocab-deepseek-llm ggml-vocab-llama-spm ggml-vocab-bert-bge \
  ggml-vocab-nomic-bert-moe real-SmolLM2-135M-Instruct; do
  [ -e "$dir/$v.gguf" ] || { gzip -dc "$golden/vocab/$v.gguf.gz" >"$dir/$v.part" && mv "$dir/$v.part" "$dir/$v.gguf"; } || exit 1
  vocabs="$vocabs $dir/$v.gguf"
done
for v in gemma4 rwkv plamo2; do vocabs="$vocabs $golden/small/$v.gguf"; done
text=$dir/bench.txt
{ head -c 100000 $golden/pretok.jsonl; cat README.md lua/mtx/*/*.lua csrc/[a-s]*/*.[ch]; } | head -c 1000000 >"$text"
# shellcheck disable=SC2086
if [ "$1" = peer ]; then
  BUILD=$BUILD "$PYTHON" tests/bench/peer_tok.py "$text" $vocabs
else
  "$BUILD/tests/bench/bench_tok" "$text" $vocabs
fi
