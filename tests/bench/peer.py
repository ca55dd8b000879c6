# SPDX-License-Identifier: MIT
"""mtx beside llama.cpp (PyPI llama-cpp-python) on the same files: A B A B ..., first pair dropped.

usage: peer.py [-t THREADS] [-r PAIRS] [-s SEQS] MODEL...
Prints both medians and the median of the pairwise ratios. Run by `make bench-peer`.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.join(os.environ.get("BUILD", "build"), "tests/bench/bench_model")


def ours(model, a):
    cmd = [BENCH, model, "-p", str(a.p), "-n", str(a.n), "-t", str(a.t), "-s", str(a.s), "-r", "1"]
    text = subprocess.run(cmd, check=True, capture_output=True, text=True).stdout
    pp, tg = re.search(r"pp\d+ ([\d.]+) tokens/s, tg\d+ x \d+ ([\d.]+)", text).groups()
    tier = re.search(r"tier (\w+)", text).group(1)
    return {"pp": float(pp), "tg": float(tg), "tier": tier}


def theirs(model, a):
    cmd = [sys.executable, os.path.join(HERE, "peer_llama.py"), model, str(a.p), str(a.n), str(a.t), str(a.s)]
    return json.loads(subprocess.run(cmd, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def cpu_name():
    with open("/proc/cpuinfo") as f:
        return next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "unknown")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-t", type=int, default=2)
    p.add_argument("-r", type=int, default=5)
    p.add_argument("-s", type=int, default=1)
    p.add_argument("-p", type=int, default=512)
    p.add_argument("-n", type=int, default=64)
    p.add_argument("models", nargs="+")
    a = p.parse_args()
    for model in a.models:
        pairs = [(ours(model, a), theirs(model, a)) for _ in range(a.r + 1)][1:]
        print(f"{os.path.basename(model)}: {cpu_name()}, tier {pairs[0][0]['tier']}, {a.t} threads, {a.s} sequences, {a.r} pairs")
        for what, label in (("pp", f"prefill {a.p}"), ("tg", f"decode {a.n}")):
            mine, other = [x[0][what] for x in pairs], [x[1][what] for x in pairs]
            ratio = statistics.median(m / o for m, o in zip(mine, other))
            print(f"  {label:12s} mtx {statistics.median(mine):8.1f}  llama.cpp {statistics.median(other):8.1f} tokens/s  ratio {ratio:.2f}")


main()
