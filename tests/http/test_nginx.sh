#!/bin/sh
# SPDX-License-Identifier: MIT
# examples/deploy/nginx.conf as it is, with only its paths, port and certificate put
# elsewhere: TLS, streams that pass at once, WebSocket, keys, forged addresses.
: "${BUILD:=build}"
nginx=$(command -v nginx || echo /usr/sbin/nginx)
[ -x "$nginx" ] || { echo "nginx is missing; run scripts/setup.sh test"; echo "0 passed, 1 failed"; exit 1; }
tmp=$(mktemp -d) || exit 1
export TMPDIR="$tmp"
chmod 755 "$tmp"
server= proxy=
trap 'for p in $server $proxy; do kill "$p" 2>/dev/null; done; rm -rf "$tmp"' EXIT
fail() { echo "$1"; [ -s "$tmp/error.log" ] && tail -5 "$tmp/error.log"; [ -s "$tmp/log" ] && tail -5 "$tmp/log"; echo "0 passed, 1 failed"; exit 1; }

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=llm.example.com \
  -addext subjectAltName=DNS:llm.example.com -keyout "$tmp/key.pem" -out "$tmp/cert.pem" 2>"$tmp/openssl" || { cat "$tmp/openssl"; fail "openssl made no certificate"; }
key=$("$BUILD/mtx" keys add user infer,embed --keys-file "$tmp/keys")

# As root nginx drops to another user, which is what the socket's mode is for.
user= mode=600
if [ "$(id -u)" = 0 ]; then user="user www-data;" mode=666; fi
"$BUILD/mtx" tests/http/serve_fake.lua --host "" --listen "unix:$tmp/mtx.sock" --socket-mode "$mode" --keys-file "$tmp/keys" \
  --allowed-hosts llm.example.com >"$tmp/log" 2>&1 &
server=$!

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
sed -e "s|server unix:/run/mtx/mtx.sock|server unix:$tmp/mtx.sock|" -e "s|listen 443 ssl|listen 127.0.0.1:$port ssl|" \
    -e "s|/etc/ssl/llm.example.com.pem|$tmp/cert.pem|" -e "s|/etc/ssl/llm.example.com.key|$tmp/key.pem|" examples/deploy/nginx.conf >"$tmp/mtx.conf"
[ "$(diff examples/deploy/nginx.conf "$tmp/mtx.conf" | grep -c '^>')" = 4 ] || fail "the example has changed: the test no longer knows its four lines"
cat >"$tmp/nginx.conf" <<CONF
$user
daemon off;
pid $tmp/nginx.pid;
error_log $tmp/error.log;
events { }
http {
  access_log off;
  client_body_temp_path $tmp/body; proxy_temp_path $tmp/proxy; fastcgi_temp_path $tmp/f; uwsgi_temp_path $tmp/u; scgi_temp_path $tmp/s;
  include $tmp/mtx.conf;
}
CONF
"$nginx" -e "$tmp/error.log" -p "$tmp" -c "$tmp/nginx.conf" -t 2>"$tmp/check" || { cat "$tmp/check"; fail "nginx refuses the example"; }
"$nginx" -e "$tmp/error.log" -p "$tmp" -c "$tmp/nginx.conf" 2>>"$tmp/error.log" &
proxy=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do
  [ "$(curl -s -o /dev/null -w '%{http_code}' --cacert "$tmp/cert.pem" --resolve "llm.example.com:$port:127.0.0.1" "https://llm.example.com:$port/health")" = 200 ] && break
  sleep 0.2
done
python3 tests/http/nginx.py "$port" "$tmp/cert.pem" "$key" >"$tmp/out" 2>&1
grep -v '^ok ' "$tmp/out" | grep -v ' passed, '
line=$(tail -1 "$tmp/out")
case $line in
  *' passed, '*) ;;
  *) fail "the client's test did not end" ;;
esac
echo "$line"
[ "${line#*, }" = "0 failed" ]
