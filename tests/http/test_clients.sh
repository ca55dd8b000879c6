#!/bin/sh
# SPDX-License-Identifier: MIT
# The real Python clients (openai, ollama, anthropic, langchain-ollama, websockets)
# against `mtx serve`: over the scripted engine, and over real models when
# MTX_MODELS_DIR (default ./models) has a chat and an embedding model.
# The clients come from MTX_CLIENT_PYTHON, else from a virtual environment made here.
: "${BUILD:=build}" "${MTX_MODELS_DIR:=models}"
py=${MTX_CLIENT_PYTHON:-$BUILD/clients/bin/python}
if [ ! -x "$py" ]; then
  python3 -m venv "$BUILD/clients" &&
    "$BUILD/clients/bin/pip" -q install openai ollama anthropic langchain-ollama websockets ||
    { echo "the clients could not be installed; set MTX_CLIENT_PYTHON to a Python that has them"; echo "0 passed, 1 failed"; exit 1; }
  py=$BUILD/clients/bin/python
fi
tmp=$(mktemp -d) || exit 1
pid=
trap 'if [ -n "$pid" ]; then kill "$pid" 2>/dev/null; fi; rm -rf "$tmp"' EXIT
passed=0 failed=0

# run_with NAME CHAT EMBED MODE COMMAND...: starts a server, runs the clients, ends it by SIGTERM.
run_with() {
  name=$1 chat=$2 embed=$3 mode=$4; shift 4
  "$@" --port 0 --log-level info >"$tmp/log" 2>&1 &
  pid=$!
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    port=$(sed -n 's/.* listening .*port=\([0-9]*\).*/\1/p' "$tmp/log")
    [ -n "$port" ] && break
    sleep 0.2
  done
  if [ -z "$port" ]; then
    cat "$tmp/log"; failed=$((failed + 1)); return
  fi
  "$py" tests/http/clients.py "$port" "$chat" "$embed" "$mode" >"$tmp/out" 2>&1
  grep -v '^ok ' "$tmp/out" | sed "s/^/$name: /"
  line=$(tail -1 "$tmp/out")
  p=${line%% *}; f=${line#*, }; f=${f%% *}
  case $p$f in *[!0-9]*|'') p=0 f=1;; esac
  passed=$((passed + p)) failed=$((failed + f))
  kill "$pid"; wait "$pid"; rc=$?
  pid=
  if [ "$rc" = 0 ]; then passed=$((passed + 1)); else echo "$name: exit code $rc after SIGTERM"; failed=$((failed + 1)); fi
  if grep -q ' error ' "$tmp/log"; then grep ' error ' "$tmp/log" | head -5; failed=$((failed + 1)); fi
}

run_with scripted tiny minilm scripted "$BUILD/mtx" tests/http/serve_fake.lua
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
