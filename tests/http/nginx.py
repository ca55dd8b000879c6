# SPDX-License-Identifier: MIT
"""What must pass through examples/deploy/nginx.conf, seen by a client outside.

usage: nginx.py PORT CA KEY       last line: "N passed, N failed"
"""
import base64
import json
import os
import socket
import ssl
import sys
import time

from harness import run, test

port, ca, key = int(sys.argv[1]), sys.argv[2], sys.argv[3]
HOST = "llm.example.com"
context = ssl.create_default_context(cafile=ca)


def connect():
    s = socket.create_connection(("127.0.0.1", port), timeout=20)
    return context.wrap_socket(s, server_hostname=HOST)


def send(s, method, path, body=None, **headers):
    data = json.dumps(body).encode() if body is not None else b""
    head = {"Host": HOST, "Authorization": "Bearer " + key}
    if body is not None:
        head.update({"Content-Type": "application/json", "Content-Length": len(data)})
    head.update({k.replace("_", "-"): v for k, v in headers.items()})
    s.sendall((f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in head.items() if v is not None) + "\r\n").encode() + data)


def head_of(s):
    data = b""
    while b"\r\n\r\n" not in data:
        more = s.recv(4096)
        assert more, data
        data += more
    head, rest = data.split(b"\r\n\r\n", 1)
    return head.decode(), rest


def status(*args, **kw):
    with connect() as s:
        send(s, *args, **kw)
        return int(head_of(s)[0].split()[1])


def arrivals(path, body):
    """The whole stream, and the times at which its pieces came."""
    with connect() as s:
        send(s, "POST", path, body)
        head, data = head_of(s)
        assert " 200 " in head and "chunked" in head.lower(), head
        times = [time.monotonic()]
        while b"\r\n0\r\n\r\n" not in data:
            more = s.recv(65536)
            assert more, data
            data += more
            times.append(time.monotonic())
        return data.decode(), times


def streamed(path, body, last):
    text, times = arrivals(path, body)
    assert last in text, text[-300:]
    # Ten words, one every 60 ms: buffered they would come in one piece.
    assert len(times) >= 8 and times[-1] - times[0] > 0.3, [t - times[0] for t in times]


CHAT = [{"role": "user", "content": "@slow{60}@long{10}"}]


@test
def tls_and_key():
    assert status("GET", "/health", Authorization=None) == 200
    assert status("GET", "/api/tags") == 200
    assert status("GET", "/api/tags", Authorization=None) == 401
    assert status("GET", "/api/tags", Authorization="Bearer wrong") == 401


@test
def sse_comes_unbuffered():
    streamed("/v1/chat/completions", {"model": "tiny", "messages": CHAT, "stream": True}, "[DONE]")


@test
def ndjson_comes_unbuffered():
    streamed("/api/chat", {"model": "tiny", "messages": CHAT}, '"done":true')


@test
def anthropic_events_come_unbuffered():
    streamed("/v1/messages", {"model": "tiny", "max_tokens": 100, "messages": CHAT, "stream": True}, "message_stop")


@test
def websocket_upgrades():
    with connect() as s:
        nonce = base64.b64encode(os.urandom(16)).decode()
        send(s, "GET", "/v1/chat/ws", Connection="Upgrade", Upgrade="websocket", Sec_WebSocket_Version="13", Sec_WebSocket_Key=nonce)
        head, data = head_of(s)
        assert " 101 " in head, head
        frame = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "@say{through the proxy}"}]}).encode()
        mask = os.urandom(4)
        s.sendall(bytes([0x81, 0x80 | len(frame)]) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(frame)))
        while b'"done"' not in data:
            more = s.recv(4096)
            assert more, data
            data += more
        assert b"proxy" in data


@test
def forwarded_addresses_open_nothing():
    for name in ("X_Forwarded_For", "X_Real_IP", "Forwarded"):
        value = "for=127.0.0.1" if name == "Forwarded" else "127.0.0.1"
        assert status("GET", "/admin/stats", Authorization=None, **{name: value}) == 404
        assert status("POST", "/models/unload", {"model": "tiny"}, Authorization=None, **{name: value}) == 401
        assert status("POST", "/models/unload", {"model": "tiny"}, **{name: value}) == 403


@test
def one_guesser_locks_nobody_out():
    with connect() as s:
        for i in range(40):
            send(s, "GET", "/api/version", Authorization="Bearer guess")
            head, data = head_of(s)
            assert " 401 " in head, head
            length = int([l for l in head.lower().splitlines() if l.startswith("content-length")][0].split(":")[1])
            while len(data) < length:
                data += s.recv(4096)
    assert status("GET", "/api/version") == 200


@test
def hang_up_cancels():
    with connect() as s:
        send(s, "POST", "/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "@slow{20}@long{2000}"}], "stream": True})
        head_of(s)
    for _ in range(100):
        with connect() as s:
            send(s, "GET", "/metrics", Connection="close")
            data = b""
            while more := s.recv(65536):
                data += more
        if b"\nmtx_batch_size 0\n" in data:
            return
        time.sleep(0.05)
    raise AssertionError("the generation goes on")


@test
def limits():
    assert status("POST", "/v1/chat/completions", None, Content_Length=30 << 20) == 413
    assert status("GET", "/api/tags", Host="other.example.com") in (403, 421)


run()
