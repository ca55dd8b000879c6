# SPDX-License-Identifier: MIT
"""Load on a running server, loopback only and bounded: tokens/s, time to first token, gaps.

usage: load.py PORT MODEL [--streams 1,4,8] [--burst 32] [--gap]
Works against any OpenAI-style server (mtx, llama-server), so that two can be compared in one hour.
Prompts of about 128 tokens, 96 tokens out. Prints a line per scenario; asserts nothing.
"""
import argparse
import asyncio
import json
import statistics
import time

WORDS = "river stone light winter harbour engine garden silver paper window mountain signal".split()


def prompt(seed, n_words=100):
    return " ".join(WORDS[(seed * 31 + i * 7 + i * i) % len(WORDS)] for i in range(n_words))


async def stream(port, model, text, n_tokens, stamps):
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


def report(name, runs, seconds, n_tokens):
    first = [r[0] for r in runs if r]
    gaps = [b - a for r in runs for a, b in zip(r, r[1:])]
    print(f"{name:12s} {n_tokens * len(runs) / seconds:8.1f} tokens/s  TTFT p50/p99 {percentile(first, 50) * 1e3:6.0f}/{percentile(first, 99) * 1e3:6.0f} ms"
          f"  between tokens p50/p99 {percentile(gaps, 50) * 1e3:5.1f}/{percentile(gaps, 99) * 1e3:5.1f} ms", flush=True)


async def parallel(name, a, n, seed):
    runs = [[] for _ in range(n)]
    t = time.perf_counter()
    await asyncio.gather(*(stream(a.port, a.model, prompt(seed + i), 96, runs[i]) for i in range(n)))
    report(name, runs, time.perf_counter() - t, 96)


async def long_prompt_gap(a):
    """Four running streams; then one long prompt arrives: their largest gap beside their median gap."""
    runs = [[] for _ in range(4)]
    tasks = [asyncio.create_task(stream(a.port, a.model, prompt(900 + i), 400, runs[i])) for i in range(4)]
    await asyncio.sleep(1.5)
    await stream(a.port, a.model, prompt(999, a.long_words), 4, [])
    await asyncio.gather(*tasks)
    gaps = [b - a for r in runs for a, b in zip(r, r[1:])]
    print(f"long prompt  largest gap {max(gaps) * 1e3:.0f} ms, median {statistics.median(gaps) * 1e3:.1f} ms: {max(gaps) / statistics.median(gaps):.1f}x")


async def main():
    p = argparse.ArgumentParser()
    p.add_argument("port", type=int)
    p.add_argument("model")
    p.add_argument("--streams", default="1,4,8")
    p.add_argument("--burst", type=int, default=32)
    p.add_argument("--gap", action="store_true")
    p.add_argument("--long-words", type=int, default=2500)
    a = p.parse_args()
    await parallel("warm-up", a, 1, 0)
    for i, n in enumerate(int(x) for x in a.streams.split(",")):
        await parallel(f"{n} streams", a, n, 100 * (i + 1))
    if a.burst:
        await parallel(f"burst of {a.burst}", a, a.burst, 5000)
    if a.gap:
        await long_prompt_gap(a)


asyncio.run(main())
