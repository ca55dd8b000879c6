#!/bin/sh
# SPDX-License-Identifier: MIT
# The server's commands as a user runs them: keys, config, serve with a PID file
# and a Unix socket, status, reload of keys, stop; and the exit codes of each.
: "${BUILD:=build}"
mtx=$BUILD/mtx
tmp=$(mktemp -d) || exit 1
export TMPDIR="$tmp"
pid=
trap 'if [ -n "$pid" ]; then kill "$pid" 2>/dev/null; fi; rm -rf "$tmp"' EXIT
passed=0 failed=0

# is NAME WANTED GOT
is() {
  if [ "$2" = "$3" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "$1: expected '$2', got '$3'"; fi
}
code() { "$@" >"$tmp/out" 2>&1; echo $?; }
get() { curl -s -o "$tmp/body" -w '%{http_code}' "$@"; }

mkdir "$tmp/models"
key=$("$mtx" keys add alice infer,embed --keys-file "$tmp/keys")
admin=$("$mtx" keys add root admin --keys-file "$tmp/keys")
is "keys are long" 44 "${#key}"
is "the file holds no key" 1 "$(grep -c "$key" "$tmp/keys" >/dev/null; echo $?)"
is "the file is private" 600 "$(stat -c %a "$tmp/keys")"
is "a limit that is no number" 2 "$(code "$mtx" keys add bob infer many --keys-file "$tmp/keys")"
is "a key without a scope" 2 "$(code "$mtx" keys add bob , --keys-file "$tmp/keys")"
is "names are unique" 2 "$(code "$mtx" keys add alice --keys-file "$tmp/keys")"
is "list" "alice infer,embed" "$("$mtx" keys list --keys-file "$tmp/keys" | head -1 | tr '\t' ' ')"

is "config shows the source" MTX_PORT "$(MTX_PORT=4711 "$mtx" config | awk '$1 == "port" {print $3}')"
is "bad option" 2 "$(code "$mtx" serve --no-such-option)"
is "bad socket mode" 2 "$(code "$mtx" serve --socket-mode 999)"
is "public address without a key" 1 "$(code "$mtx" serve --host 0.0.0.0 --port 0)"
is "status of nothing" 1 "$(code "$mtx" status --port 1)"
is "stop of nothing" 1 "$(code "$mtx" stop --pid-file "$tmp/none")"
is "list an empty folder" 0 "$(code "$mtx" list --models-dir "$tmp/models")"
is "list a folder that is not there" 1 "$(code "$mtx" list --models-dir "$tmp/none")"
is "show a missing model" 1 "$(code "$mtx" show nope --models-dir "$tmp/models")"

: >"$tmp/log"
"$mtx" serve --port 0 --listen "unix:$tmp/sock" --models-dir "$tmp/models" --keys-file "$tmp/keys" --pid-file "$tmp/pid" >"$tmp/log" 2>&1 &
pid=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  port=$(sed -n 's/.* listening .*port=\([0-9]*\).*/\1/p' "$tmp/log")
  [ -n "$port" ] && break
  sleep 0.2
done
url=http://127.0.0.1:$port
is "PID file" "$pid" "$(cat "$tmp/pid")"
is "health" 200 "$(get "$url/health")"
is "no key" 401 "$(get "$url/api/tags")"
is "user's key" 200 "$(get -H "Authorization: Bearer $key" "$url/api/tags")"
is "user's key on an admin route" 403 "$(get -H "x-api-key: $key" "$url/admin/stats")"
is "admin's key" 200 "$(get -H "x-api-key: $admin" "$url/admin/stats")"
is "preflight" 204 "$(get -X OPTIONS -H 'Origin: http://localhost:3000' "$url/v1/chat/completions")"
is "metrics" 200 "$(get -H "Authorization: Bearer $key" "$url/metrics")"
is "socket mode" 600 "$(stat -c %a "$tmp/sock")"
is "unix socket" 200 "$(get --unix-socket "$tmp/sock" http://localhost/health)"
is "status" 0 "$(code "$mtx" status --port "$port" --api-key "$key")"
is "ps" 0 "$(code "$mtx" ps --port "$port" --api-key "$key")"
is "ps --json" "[]" "$("$mtx" ps --json --port "$port" --api-key "$key")"
is "status --json" '{"running":true,"ready":true,"models":[]}' "$("$mtx" status --json --port "$port" --api-key "$key")"
"$mtx" keys rm alice --keys-file "$tmp/keys"
kill -HUP "$pid"
sleep 0.5
is "removed key after SIGHUP" 401 "$(get -H "Authorization: Bearer $key" "$url/api/tags")"
is "other key after SIGHUP" 200 "$(get -H "Authorization: Bearer $admin" "$url/api/tags")"
for _ in $(seq 30); do get -H 'x-api-key: guess' "$url/api/tags" >/dev/null; done
is "guessing is limited (SEC-21)" 429 "$(get -H 'x-api-key: guess' "$url/api/tags")"
is "health for whoever has guessed" 200 "$(get "$url/health")"
is "second server on the port" 1 "$(code "$mtx" serve --port "$port" --models-dir "$tmp/models")"
is "second server with the PID file" 1 "$(code "$mtx" serve --port 0 --models-dir "$tmp/models" --pid-file "$tmp/pid")"
is "the PID file is the first one's" "$pid" "$(cat "$tmp/pid")"
is "stop" 0 "$(code "$mtx" stop --pid-file "$tmp/pid")"
wait "$pid"
is "exit code" 0 "$?"
pid=
sleep 60 &
other=$!
echo "$other" >"$tmp/stale" # what a crash leaves: the number is another process's by now
is "stop with a stale PID file" 1 "$(code "$mtx" stop --pid-file "$tmp/stale")"
is "ends nobody else" 0 "$(kill -0 "$other"; echo $?)"
is "and the file is gone" 1 "$([ -e "$tmp/stale" ]; echo $?)"
echo "$other" >"$tmp/stale"
: >"$tmp/log"
"$mtx" serve --port 0 --models-dir "$tmp/models" --pid-file "$tmp/stale" >"$tmp/log" 2>&1 &
pid=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  grep -q ' listening ' "$tmp/log" && break
  sleep 0.2
done
is "a stale PID file does not keep a server from starting" "$pid" "$(cat "$tmp/stale")"
echo "$other" >"$tmp/stale"
kill "$pid"
wait "$pid"
is "a server removes only its own PID file" "$other" "$(cat "$tmp/stale")"
pid=
kill "$other"
is "PID file is gone" 1 "$([ -e "$tmp/pid" ]; echo $?)"
is "socket is gone" 1 "$([ -e "$tmp/sock" ]; echo $?)"
is "log holds no key" 1 "$(grep -q "$key" "$tmp/log"; echo $?)"

# T75: SIGTERM ends running streams with a last word and exits 0; a second one ends at once.
stream() { # stream TEXT: a server with one running stream of that text
  : >"$tmp/log"
  "$mtx" tests/http/serve_fake.lua --port 0 --drain-timeout "$2" >"$tmp/log" 2>&1 &
  pid=$! port=
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do
    port=$(sed -n 's/.* listening .*port=\([0-9]*\).*/\1/p' "$tmp/log")
    [ -n "$port" ] && break
    sleep 0.2
  done
  : >"$tmp/stream"
  curl -sN "http://127.0.0.1:$port/v1/chat/completions" -d '{"model":"tiny","stream":true,"messages":[{"role":"user","content":"'"$1"'"}]}' >"$tmp/stream" &
  curl=$!
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do
    grep -q word2 "$tmp/stream" && break
    sleep 0.2
  done
}
stream "@slow{20}@long{60}" 600
kill -TERM "$pid"
sleep 0.1
is "new connections are refused while draining" 000 "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/health")"
wait "$pid"
is "exit code after a drain" 0 "$?"
wait "$curl"
is "the stream ended whole" 1 "$(grep -c '^data: \[DONE\]' "$tmp/stream")"
stream "@slow{20}@long{5000}" 0.3
kill -TERM "$pid"
wait "$pid"
is "exit code when the grace is over" 0 "$?"
wait "$curl"
is "the stream has a last word" 1 "$(tail -n 3 "$tmp/stream" | grep -c 'data: ')"
stream "@slow{20}@long{5000}" 600
kill -TERM "$pid"
sleep 0.3
kill -TERM "$pid"
wait "$pid"
is "second signal" 130 "$?"
pid=
wait "$curl"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
