# SPDX-License-Identifier: MIT
"""One timing of the public peer: prefill and decode through llama-cpp-python's low-level API.

usage: peer_llama.py MODEL N_PROMPT N_DECODE THREADS [N_SEQS]   -> one JSON line of tokens/s
"""
import json
import sys
import time

import llama_cpp as lc

QUIET = lc.llama_log_callback(lambda *a: None)  # kept: the library holds only its address


def step(ctx, batch, ids, pos0, seqs, want_last):
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i] = token
        batch.pos[i] = pos0[i]
        batch.n_seq_id[i] = 1
        batch.seq_id[i][0] = seqs[i]
        batch.logits[i] = 1 if not want_last or i == len(ids) - 1 else 0
    if lc.llama_decode(ctx, batch) != 0:
        raise SystemExit("llama_decode failed")


def main():
    path, n_prompt, n_decode, threads = sys.argv[1], *map(int, sys.argv[2:5])
    n_seqs = int(sys.argv[5]) if len(sys.argv) > 5 else 1
    lc.llama_log_set(QUIET, None)
    lc.llama_backend_init()
    model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
    p = lc.llama_context_default_params()
    p.n_ctx = (n_prompt + n_decode + 64) * n_seqs
    p.n_batch = p.n_ubatch = max(512, n_prompt)
    p.n_threads = p.n_threads_batch = threads
    p.n_seq_max = n_seqs
    ctx = lc.llama_init_from_model(model, p)
    n_vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    batch = lc.llama_batch_init(max(512, n_prompt), 0, 1)
    out = {}
    for warm in (True, False):
        lc.llama_memory_clear(lc.llama_get_memory(ctx), True)
        ids = [(i * 7919 + 13) % n_vocab for i in range(n_prompt)]
        t = time.perf_counter()
        step(ctx, batch, ids, list(range(n_prompt)), [0] * n_prompt, True)
        lc.llama_synchronize(ctx)
        out["pp"] = n_prompt / (time.perf_counter() - t)
        for s in range(1, n_seqs):
            step(ctx, batch, ids[:16], list(range(16)), [s] * 16, True)
        lens = [n_prompt] + [16] * (n_seqs - 1)
        t = time.perf_counter()
        for i in range(4 if warm else n_decode):
            step(ctx, batch, [(i * 31 + s * 7 + 5) % n_vocab for s in range(n_seqs)], [n + i for n in lens], list(range(n_seqs)), False)
        lc.llama_synchronize(ctx)
        out["tg"] = n_seqs * n_decode / (time.perf_counter() - t)
    print(json.dumps(out))


main()
