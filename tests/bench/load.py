# SPDX-License-Identifier: MIT
"""Load on a server, loopback only and bounded: tokens/s, time to first token, gaps, /health requests/s.

usage: load.py MODEL.gguf [--mtx build/mtx] [--peer LLAMA_SERVER] [--only streams,burst,gap,health,alive,work] [--threads 2] [--slots 8]
       load.py --port PORT MODEL_NAME        a server that runs already

Starts each server in turn (same file, same slots, same threads), drives it over /v1/chat/completions and prints a
line per scenario; with --peer also a Markdown table with the ratios. Prompts of about 128 tokens, 96 tokens out, no
two alike, so that no cache helps. It asserts nothing; `build/tests/bench/bench_http` must be there for health.

`work` is the CPU time of mtx's event loop. With a real model that includes what it takes to fetch the server's code and
data anew after each step has filled the caches with weights; for the server's work alone give it a model that costs nothing:
`mtx tests/bench/tiny_model.lua MODEL.gguf DIR/tiny.gguf`, then `load.py DIR/tiny.gguf --only work --threads 1 --ctx 2048`.
"""
import argparse
import asyncio
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

WORDS = "river stone light winter harbour engine garden silver paper window mountain signal".split()
SCENARIOS = ["alive", "streams", "burst", "gap", "health", "work"]


POLL_SECONDS = 8


def prompt(seed, n_words=100):
    return f"{seed} " + " ".join(WORDS[(seed * 31 + i * 7 + i * i) % len(WORDS)] for i in range(n_words))


async def stream(port, model, text, n_tokens, stamps):
    """Streams one answer; appends the time of each piece of text to stamps."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": n_tokens, "temperature": 0,
                       "stream": True, "ignore_eos": True}).encode()
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
    start = time.perf_counter()
    while True:
        line = await reader.readline()
        if not line or b"[DONE]" in line:
            break
        if b'"content":"' in line and b'"content":""' not in line:
            stamps.append(time.perf_counter() - start)
    writer.close()


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p / 100))] if values else float("nan")


async def parallel(a, name, n, seed):
    runs = [[] for _ in range(n)]
    t = time.perf_counter()
    await asyncio.gather(*(stream(a.port, a.model, prompt(seed + i), 96, runs[i]) for i in range(n)))
    seconds = time.perf_counter() - t
    first = [r[0] for r in runs if r]
    gaps = [y - x for r in runs for x, y in zip(r, r[1:])]
    out = {"tokens/s": 96 * n / seconds, "TTFT p50, ms": percentile(first, 50) * 1e3, "TTFT p99, ms": percentile(first, 99) * 1e3}
    print(f"{a.name:12s} {name:12s} {out['tokens/s']:8.1f} tokens/s  TTFT p50/p99 {out['TTFT p50, ms']:6.0f}/{out['TTFT p99, ms']:6.0f} ms"
          f"  between tokens p50/p99 {percentile(gaps, 50) * 1e3:5.1f}/{percentile(gaps, 99) * 1e3:5.1f} ms", flush=True)
    return out


async def run_streams(a):
    result = {}
    for i, n in enumerate(a.streams):
        result[f"{n} streams" if n > 1 else "1 stream"] = await parallel(a, f"{n} streams", n, 100 * (i + 1))
    return result


async def run_burst(a):
    return {f"burst of {a.burst}": await parallel(a, f"burst of {a.burst}", a.burst, 5000)}


class Others:
    """What others take of this machine's cores from now on: other processes than these, and the host of a virtual machine."""

    def __init__(self, pids):
        self.pids = pids
        self.start = self.now()

    def now(self):
        with open("/proc/stat") as f:
            user, nice, system, _, _, irq, softirq, stolen = (int(x) * 1000 / os.sysconf("SC_CLK_TCK") for x in f.readline().split()[1:9])
        return user + nice + system + irq + softirq - sum(cpu_seconds(pid) * 1e3 for pid in self.pids), stolen

    def text(self):
        (others, stolen), (others_0, stolen_0) = self.now(), self.start
        return f"meanwhile other processes took {max(0, others - others_0):.0f} ms of the cores, the host {stolen - stolen_0:.0f} ms"


async def four_streams(a, long_words):
    """Four streams; once each has 40 tokens, a prompt of long_words arrives (0: none). Gives their median gap before, and
    their median and largest gap from then on, in ms. A gap that is open when the time is up counts as far as it is known."""
    runs, begun = [[] for _ in range(4)], time.perf_counter()
    tasks = [asyncio.create_task(stream(a.port, a.model, prompt(900 + i), 400, runs[i])) for i in range(4)]
    while min(len(r) for r in runs) < 40:
        await asyncio.sleep(0.01)
    median = statistics.median([y - x for r in runs for x, y in zip(r, r[1:])]) * 1e3
    arrived = time.perf_counter() - begun
    late = [asyncio.create_task(stream(a.port, a.model, prompt(999, long_words), 4, []))] if long_words else []
    _, open_ones = await asyncio.wait(tasks, timeout=a.gap_seconds)
    gaps = [y - x for r in runs for x, y in zip(r, r[1:]) if y > arrived]
    gaps += [time.perf_counter() - begun - r[-1] for t, r in zip(tasks, runs) if t in open_ones and r]
    for t in [*late, *open_ones]:
        t.cancel()
    await asyncio.gather(*late, *open_ones, return_exceptions=True)
    return median, statistics.median(gaps) * 1e3, max(gaps) * 1e3


async def run_gap(a):
    """The largest gap of four running streams while a long prompt is read, beside their median gap before. Steps of a few
    milliseconds feel every neighbour, so the same without a prompt is measured right before, over as many tokens, and what
    others took of the cores is told too."""
    median, _, worst = await four_streams(a, 0)
    print(f"{a.name:12s} no prompt    median gap {median:.1f} ms, largest {worst:.0f} ms: {worst / median:.1f}x", flush=True)
    others = Others([a.pid, os.getpid()]) if a.pid else None
    median, meanwhile, worst = await four_streams(a, a.long_words)
    taken = "; " + others.text() if others else ""
    print(f"{a.name:12s} long prompt  median gap {median:.1f} ms before, {meanwhile:.1f} ms while it is read, largest {worst:.0f} ms:"
          f" {worst / median:.1f}x the first{taken}", flush=True)
    return {"8k prompt beside 4 streams": {"worst gap, ms": worst, "worst gap / median": worst / median}}


async def run_health(a):
    if not os.path.exists(a.bench_http):
        print(f"{a.name:12s} health: there is no {a.bench_http}; `make {a.bench_http}` builds it", flush=True)
        return {}
    text = subprocess.run([a.bench_http, str(a.port), "/health", "64", "3"], capture_output=True, text=True).stdout
    found = re.search(r"(\d+) requests/s.*p99 ([\d.]+) ms", text)
    if not found:
        print(f"{a.name:12s} health: {a.bench_http} gave no figure", flush=True)
        return {}
    print(f"{a.name:12s} {text.strip()}", flush=True)
    return {"/health, 64 connections": {"requests/s": float(found[1])}}


def poll_health(port, seconds):
    """Asks /health every 5 ms on one connection; prints p50, p99 and the longest answer time, ms."""
    s = socket.create_connection(("127.0.0.1", port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end, times = time.perf_counter() + seconds, []
    while time.perf_counter() < end:
        t = time.perf_counter()
        s.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        s.recv(4096)
        times.append((time.perf_counter() - t) * 1e3)
        time.sleep(0.005)
    print(percentile(times, 50), percentile(times, 99), max(times))


async def run_alive(a):
    """/health while the model loads, streams run and a long prompt is read."""
    poller = subprocess.Popen([sys.executable, __file__, "--poll", str(a.port)], stdout=subprocess.PIPE, text=True)
    await asyncio.sleep(0.3)
    tasks = [asyncio.create_task(stream(a.port, a.model, prompt(40 + i), 96, [])) for i in range(8)]
    tasks.append(asyncio.create_task(stream(a.port, a.model, prompt(50, a.long_words), 4, [])))
    await asyncio.wait(tasks, timeout=POLL_SECONDS)
    figures = (await asyncio.to_thread(poller.communicate))[0].split()
    for t in tasks:
        t.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if not figures:
        print(f"{a.name:12s} /health: the server closed the connection", flush=True)
        return {}
    p50, p99, most = (float(x) for x in figures)
    print(f"{a.name:12s} /health while it loads, streams and reads a long prompt: p50 {p50:.1f} ms, p99 {p99:.1f} ms, longest {most:.1f} ms", flush=True)
    return {"/health under load": {"p99, ms": p99}}


def thread_seconds(pid, thread):
    """CPU time of a thread; 0 when it has ended."""
    try:
        with open(f"/proc/{pid}/task/{thread}/schedstat") as f:
            return int(f.read().split()[0]) / 1e9
    except OSError:
        return 0


def cpu_seconds(pid):
    return sum(thread_seconds(pid, t) for t in os.listdir(f"/proc/{pid}/task"))


def loop_seconds(pid):
    """CPU time of the process's first thread, which runs mtx's event loop."""
    return thread_seconds(pid, pid)


async def run_work(a):
    """The server's own work: what its event loop spends on a request and on a streamed token; mtx only."""
    if a.name != "mtx" or not a.pid:
        return {}
    n, n_tokens = 100, 300
    before = loop_seconds(a.pid)
    for i in range(n):
        await stream(a.port, a.model, prompt(7000 + i), 1, [])
    per_request = (loop_seconds(a.pid) - before) / n
    before = loop_seconds(a.pid)
    await asyncio.gather(*(stream(a.port, a.model, prompt(8000 + i), n_tokens, []) for i in range(8)))
    per_token = (loop_seconds(a.pid) - before - 8 * per_request) / (8 * n_tokens)
    print(f"{a.name:12s} own work: {per_request * 1e6:.0f} us per request, {per_token * 1e6:.1f} us per streamed token", flush=True)
    return {}


async def measure(a):
    result, warm = {}, False
    for name in a.only:
        if not warm and name not in ("alive", "health"):
            await stream(a.port, a.model, prompt(0), 96, [])  # the model is loaded by it
            warm = True
        result.update(await globals()["run_" + name](a))
    return result


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(command, port):
    log = tempfile.TemporaryFile()
    p = subprocess.Popen(command, stdout=log, stderr=log)
    for _ in range(600):
        try:
            if urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).status == 200:
                return p
        except OSError:
            time.sleep(0.05)
        if p.poll() is not None:
            break
    p.kill()
    log.seek(0)
    raise SystemExit(f"{command[0]} did not start:\n{log.read().decode()[-2000:]}")


def commands(a):
    """name -> (command, model name) of the servers to measure."""
    folder, file = os.path.split(os.path.abspath(a.model))
    out = {"mtx": lambda port: ([a.mtx, "serve", "--models-dir", folder, "--port", str(port), "--parallel", str(a.slots), "--threads", str(a.threads),
                                 "--ctx", str(a.ctx), "--log-level", "warn"], file.removesuffix(".gguf"))}
    if a.peer:
        out["llama-server"] = lambda port: ([a.peer, "-m", a.model, "--port", str(port), "-np", str(a.slots), "-t", str(a.threads),
                                             "-c", str(a.ctx * a.slots), "--threads-http", "66"], file)
    return out


def table(results):
    mtx, peer = results["mtx"], results["llama-server"]
    print("\n| load | mtx | llama-server | ratio |\n|---|---|---|---|")
    for load, values in mtx.items():
        for what, v in values.items():
            other = peer.get(load, {}).get(what)
            if other:
                print(f"| {load}: {what} | {v:.4g} | {other:.4g} | {v / other:.2f} |")


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    p.add_argument("model")
    p.add_argument("--port", type=int)
    p.add_argument("--mtx", default="build/mtx")
    p.add_argument("--peer")
    p.add_argument("--bench-http", default="build/tests/bench/bench_http")
    p.add_argument("--only", default=",".join(SCENARIOS), type=lambda s: s.split(","))
    p.add_argument("--streams", default="1,8", type=lambda s: [int(x) for x in s.split(",")])
    p.add_argument("--burst", type=int, default=32)
    p.add_argument("--long-words", type=int, default=8000, help="a token each")
    p.add_argument("--gap-seconds", type=int, default=20, help="of the gap scenario at most")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--slots", type=int, default=8)
    p.add_argument("--ctx", type=int, default=8192, help="per slot")
    a = p.parse_args()
    if set(a.only) - set(SCENARIOS):
        p.error("scenarios are " + ", ".join(SCENARIOS))
    if a.port:
        a.name, a.pid = "server", None
        asyncio.run(measure(a))
        return
    results, model = {}, a.model
    for a.name, command in commands(a).items():
        a.model = model
        a.port = free_port()
        words, name = command(a.port)
        server = start(words, a.port)
        a.pid = server.pid
        try:
            a.model = name
            results[a.name] = asyncio.run(measure(a))
        finally:
            server.terminate()
            try:
                server.wait(timeout=5)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
    if a.peer:
        table(results)


if sys.argv[1:2] == ["--poll"]:
    poll_health(int(sys.argv[2]), POLL_SECONDS)
else:
    main()
