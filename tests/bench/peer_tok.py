# SPDX-License-Identifier: MIT
"""mtx's tokenizer beside llama.cpp's (PyPI llama-cpp-python), same text, same vocabularies, one run.

usage: peer_tok.py TEXT VOCAB.gguf...   (TEXT about 1 MB; BUILD names the build folder)
Each vocabulary: A B A B A B, the best of each, their ratio; the number of ids must agree.
"""
import ctypes
import os
import re
import subprocess
import sys
import time

from llama_cpp import llama_cpp as llama

BENCH = os.path.join(os.environ.get("BUILD", "build"), "tests/bench/bench_tok")
PAIRS = 3


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def quiet(level, text, data):
    pass


def ours(text, vocab):
    out = subprocess.run([BENCH, text, vocab], check=True, capture_output=True, text=True).stdout
    speed, n = re.search(r"encode +([\d.]+) MB/s.* (\d+) ids", out).groups()
    return float(speed), int(n)


def theirs(data, vocab):
    n = len(data) + 64
    buf = (llama.llama_token * n)()
    start = time.perf_counter()
    k = llama.llama_tokenize(vocab, data, len(data), buf, n, False, False)
    return len(data) / (time.perf_counter() - start) / 1e6, k


def main():
    llama.llama_log_set(quiet, None)
    params = llama.llama_model_default_params()
    params.vocab_only = True
    with open(sys.argv[1], "rb") as f:
        data = f.read()
    print(f"{len(data)} bytes of text, MB/s (best of {PAIRS})")
    for path in sys.argv[2:]:
        model = llama.llama_model_load_from_file(path.encode(), params)
        vocab = llama.llama_model_get_vocab(model)
        a, b = [], []
        for _ in range(PAIRS):
            a.append(ours(sys.argv[1], path))
            b.append(theirs(data, vocab))
        x, y = max(s for s, _ in a), max(s for s, _ in b)
        same = "same number of ids" if a[0][1] == b[0][1] else f"DIFFERENT: {a[0][1]} and {b[0][1]} ids"
        print(f"{os.path.basename(path):36} mtx {x:7.2f}  llama.cpp {y:7.2f}  ratio {x / y:6.1f}  {same}", flush=True)
        llama.llama_model_free(model)


if __name__ == "__main__":
    main()
