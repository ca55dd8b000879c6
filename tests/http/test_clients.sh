#!/bin/sh
# SPDX-License-Identifier: MIT
# The real Python clients (openai, ollama, anthropic, langchain-ollama, websockets)
# against `mtx serve`: over the scripted engine, and over each real chat model that
# lies in MTX_MODELS_DIR (default ./models; `make models` fetches them).
# The clients come from MTX_CLIENT_PYTHON, else from a virtual environment in
# build/clients, made once for the pinned versions in requirements.txt.
: "${BUILD:=build}" "${MTX_MODELS_DIR:=models}"
py=${MTX_CLIENT_PYTHON:-}
want=tests/http/requirements.txt
if [ -n "$py" ]; then
  "$py" -c 'import openai, ollama, anthropic, langchain_ollama, websockets' || {
    echo "MTX_CLIENT_PYTHON=$py lacks a client; it needs what $want lists"; echo "0 passed, 1 failed"; exit 1; }
else
  py=build/clients/bin/python
  if ! cmp -s "$want" build/clients/installed.txt; then
    log=build/clients-pip.log try=1 rc=1
    mkdir -p build
    while [ "$rc" != 0 ] && [ "$try" -le 3 ]; do # the network may be slow: what pip has fetched stays in its cache
      echo "installing the clients into build/clients (try $try of 3)"
      { [ -x "$py" ] || python3 -m venv build/clients; } >"$log" 2>&1 &&
        "$py" -m pip install -q --disable-pip-version-check --timeout 60 --retries 5 -r "$want" >>"$log" 2>&1
      rc=$? try=$((try + 1))
    done
    [ "$rc" = 0 ] || {
      tail -5 "$log"
      echo "the clients could not be installed (build/clients-pip.log); with the network back run this test again, or set"
      echo "MTX_CLIENT_PYTHON to a Python that has what $want lists"
      echo "0 passed, 1 failed"
      exit 1
    }
    cp "$want" build/clients/installed.txt
  fi
fi
tmp=$(mktemp -d) || exit 1
export TMPDIR="$tmp"
pid=
trap 'if [ -n "$pid" ]; then kill "$pid" 2>/dev/null; fi; rm -rf "$tmp"' EXIT
passed=0 failed=0

# start COMMAND...: starts a server on a free port; sets pid and port.
start() {
  : >"$tmp/log"
  "$@" --port 0 --log-level info >"$tmp/log" 2>&1 &
  pid=$! port=
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    port=$(sed -n 's/.* listening .*port=\([0-9]*\).*/\1/p' "$tmp/log")
    [ -n "$port" ] && return
    sleep 0.2
  done
  cat "$tmp/log"
  failed=$((failed + 1))
}

# clients CHAT_MODEL EMBED_MODEL MODE: every client test against the running server.
clients() {
  "$py" tests/http/clients.py "$port" "$@" >"$tmp/out" 2>&1
  grep -v '^ok ' "$tmp/out" | sed "s/^/$1 ($3): /"
  line=$(tail -1 "$tmp/out")
  p=${line%% *}; f=${line#*, }; f=${f%% *}
  case $p$f in *[!0-9]*|'') p=0 f=1;; esac
  passed=$((passed + p)) failed=$((failed + f))
}

# end: SIGTERM must end the server with exit code 0; the log must hold no error.
end() {
  kill "$pid"; wait "$pid"; rc=$?
  pid=
  if [ "$rc" = 0 ]; then passed=$((passed + 1)); else echo "exit code $rc after SIGTERM"; failed=$((failed + 1)); fi
  if grep -q ' error ' "$tmp/log"; then grep ' error ' "$tmp/log" | head -5; failed=$((failed + 1)); fi
}

start "$BUILD/mtx" tests/http/serve_fake.lua --files-dir "$tmp/files"
if [ -n "$port" ]; then clients tiny minilm scripted; end; fi

# Real models are seen through links, so that what the tests create is not left among them.
mkdir "$tmp/models"
for f in "$MTX_MODELS_DIR"/*.gguf; do
  if [ -e "$f" ]; then ln -s "$(realpath "$f")" "$tmp/models/"; fi
done
names() { # names CAPABILITY
  "$py" -c "
import json, urllib.request
for m in json.load(urllib.request.urlopen('http://127.0.0.1:$port/api/tags'))['models']:
    if '$1' in m['capabilities']: print(m['name'].removesuffix(':latest'))"
}
if [ -n "$(ls "$tmp/models")" ]; then
  start "$BUILD/mtx" serve --models-dir "$tmp/models" --files-dir "$tmp/files"
  if [ -n "$port" ]; then
    embed=$(names embedding | head -1)
    if [ -z "$embed" ]; then echo "no embedding model in $MTX_MODELS_DIR"; failed=$((failed + 1)); fi
    for chat in $(names completion); do clients "$chat" "$embed" real; done
    end
  fi
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
