#!/bin/sh
# SPDX-License-Identifier: MIT
# The server as a process that may write no file beyond 64 KiB: every write that
# fails is answered or logged, once, with its path and the reason; no part of a file stays,
# requests go on, and it ends in order.
: "${BUILD:=build}"
tmp=$(mktemp -d) || exit 1
pid=
trap 'kill $pid 2>/dev/null; rm -rf "$tmp"' EXIT
passed=0 failed=0
name=SmolLM2-135M-Instruct.Q4_1
models=$(cd "${MTX_MODELS_DIR:-models}" && pwd)
mkdir "$tmp/models"
ln -s "$models/$name.gguf" "$tmp/models/" || exit 1

# is NAME WANTED GOT
is() {
  if [ "$2" = "$3" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "$1: expected '$2', got '$3'"; fi
}
until_true() {
  for _ in $(seq 300); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.1
  done
  return 1
}
# status PATH CURL-OPTIONS...: the answer's status; its body in $tmp/body.
status() { path=$1; shift; curl -s -o "$tmp/body" -w '%{http_code}' "$url$path" "$@"; }
logged() { grep -c "error \"cannot write\".*$1" "$tmp/log"; }

(
  ulimit -f 128
  exec "$BUILD/mtx" serve --port 0 --models-dir "$tmp/models" --ctx 1024 --persist --persist-dir "$tmp/prompts" --persist-every 1 \
    --slot-save-path "$tmp/slots" --files-dir "$tmp/files" >"$tmp/log" 2>&1
) &
pid=$!
until_true grep -q ' listening ' "$tmp/log" || cat "$tmp/log"
url=http://127.0.0.1:$(sed -n 's/.* listening .*port=\([0-9]*\).*/\1/p' "$tmp/log")
words=$(for _ in $(seq 90); do printf 'The river runs on. '; done)

is 'a prompt' 200 "$(status /completion -d "{\"prompt\":\"$words\",\"n_predict\":4,\"temperature\":0}")"
until_true grep -q 'the prompt cache' "$tmp/log"
is 'the prompt cache is logged' 1 "$(logged 'path=.*prompts.*File too large.*what="the prompt cache"')"
is 'a slot' 507 "$(status '/slots/0?action=save' -d '{"filename":"a"}')"
is 'its answer names no path' 0 "$(grep -c "$tmp" "$tmp/body")"
is 'a slot is logged' 1 "$(logged "what=\"a slot's state\"")"
head -c 100000 /dev/zero >"$tmp/zeros"
sum=$(sha256sum "$tmp/zeros" | cut -d' ' -f1)
is 'a blob' 507 "$(status "/api/blobs/sha256:$sum" --data-binary @"$tmp/zeros")"
is 'a file' 507 "$(status /v1/files -F purpose=batch -F file=@"$tmp/zeros")"
is 'a small file' 200 "$(status /v1/files -F purpose=batch -F "file=@$0")"
is 'a blob and a file are logged' 2 "$(logged 'EFBIG')"
is 'no part is left' '' "$(find "$tmp/slots" "$tmp/prompts" "$tmp/models" "$tmp/files" -name '*.part*')"
is 'no slot is left' '' "$(ls "$tmp/slots")"
is 'a prompt again' 200 "$(status /completion -d "{\"prompt\":\"$words\",\"n_predict\":4,\"temperature\":0}")"
is 'alive' 200 "$(status /health)"
sleep 1.5
is 'the prompt cache is logged once' 1 "$(logged 'the prompt cache')"
kill -TERM "$pid"
wait "$pid"
is 'the end' 0 $?
pid=

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
