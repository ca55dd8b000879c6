#!/bin/sh
# SPDX-License-Identifier: MIT
# The server as a process under signals: told to its service manager, drained on
# SIGTERM, ended at once by the second, its policy replaced live by SIGHUP.
: "${BUILD:=build}"
tmp=$(mktemp -d) || exit 1
export TMPDIR="$tmp"
pid= ear=
trap 'kill $pid $ear 2>/dev/null; rm -rf "$tmp"' EXIT
passed=0 failed=0

# is NAME WANTED GOT
is() {
  if [ "$2" = "$3" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "$1: expected '$2', got '$3'"; fi
}
# until_true COMMAND...: at most 20 s.
until_true() {
  for _ in $(seq 200); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.1
  done
  return 1
}
# start OPTIONS...: a server over the scripted engine; sets pid and url.
start() {
  : >"$tmp/log"
  "$BUILD/mtx" tests/http/serve_fake.lua --port 0 --log-level info --pid-file "$tmp/pid" "$@" >"$tmp/log" 2>&1 &
  pid=$!
  until_true grep -q ' listening ' "$tmp/log" || cat "$tmp/log"
  url=http://127.0.0.1:$(sed -n 's/.* listening .*port=\([0-9]*\).*/\1/p' "$tmp/log")
}
# stream PROMPT: streams an answer in the background into $tmp/stream, from its first word on.
stream() {
  : >"$tmp/stream"
  curl -sN "$url/v1/chat/completions" -d "{\"model\":\"tiny\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"$1\"}]}" >"$tmp/stream" &
  reader=$!
  until_true grep -q word1 "$tmp/stream"
}
ended() { wait "$pid"; code=$?; pid=; }

# An ear on a datagram socket writes what it hears, a line each.
cat >"$tmp/ear.py" <<'PY'
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
out = open(sys.argv[2], "w", buffering=1)
while True:
    out.write(s.recv(4096).decode() + "\n")
PY
python3 "$tmp/ear.py" "$tmp/notify" "$tmp/heard" &
ear=$!
until_true test -S "$tmp/notify"

# A running answer is finished, then the server ends with 0.
export NOTIFY_SOCKET="$tmp/notify" WATCHDOG_USEC=100000
start --drain-timeout 60
is "READY" "READY=1" "$(until_true grep -q READY "$tmp/heard"; head -1 "$tmp/heard")"
is "the watchdog is told" "WATCHDOG=1" "$(until_true grep -q WATCHDOG "$tmp/heard"; grep -m 1 WATCHDOG "$tmp/heard")"
is "PID file" "$pid" "$(cat "$tmp/pid")"
stream "@slow{20}@long{60}"
kill -TERM "$pid"
until_true grep -q draining "$tmp/log"
is "STOPPING" "STOPPING=1" "$(until_true grep -q STOPPING "$tmp/heard"; grep STOPPING "$tmp/heard")"
is "no new connections" 7 "$(curl -s -o /dev/null "$url/health"; echo $?)"
ended
wait "$reader"
is "exit code after the drain" 0 "$code"
is "the answer is whole" 1 "$(grep -c 'word60' "$tmp/stream")"
is "and has its end" 1 "$(grep -c 'DONE' "$tmp/stream")"
is "PID file is gone" 1 "$([ -e "$tmp/pid" ]; echo $?)"
unset NOTIFY_SOCKET WATCHDOG_USEC

# The second signal does not wait for the answer.
start --drain-timeout 600
stream "@slow{50}@long{100000}"
kill -INT "$pid"
until_true grep -q draining "$tmp/log"
kill -TERM "$pid"
ended
wait "$reader"
is "exit code after two signals" 130 "$code"
is "the answer is cut" 0 "$(grep -c 'DONE' "$tmp/stream")"
is "PID file is gone at once" 1 "$([ -e "$tmp/pid" ]; echo $?)"

# A policy file is replaced live; a broken one leaves the old in place and serving goes on.
echo 'return function(view) return {} end' >"$tmp/policy.lua"
start --policy "$tmp/policy.lua"
chat() { curl -s "$url/v1/chat/completions" -d '{"model":"tiny","messages":[{"role":"user","content":"@say{a b}"}]}' | grep -c '"a b"'; }
is "answers under the first policy" 1 "$(chat)"
echo 'return function(view) error("from the second policy") end' >"$tmp/policy.lua"
kill -HUP "$pid"
until_true grep -q 'reload.*policy' "$tmp/log"
is "answers under a policy that fails" 1 "$(chat)"
is "which is logged" 1 "$(grep -c 'policy failed, fcfs answers.*from the second policy' "$tmp/log")"
echo 'this is no Lua' >"$tmp/policy.lua"
kill -HUP "$pid"
is "a file that does not load is logged" 0 "$(until_true grep -q 'error reload.*policy.lua:1' "$tmp/log"; echo $?)"
is "and serving goes on" 1 "$(chat)"
kill -TERM "$pid"
ended
is "exit code" 0 "$code"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
