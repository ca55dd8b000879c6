# SPDX-License-Identifier: MIT
"""Reference results of beam search, written to cases.jsonl.

Plain Python: every live hypothesis is extended by the whole vocabulary and all
extensions are sorted; nothing is cut early. Run: python3 make.py > cases.jsonl

The model is a table: the logits of the next token given the last one. Line 1 of
each model: {"logits": [[next by next] by last]}; token 0 ends a text. Then cases.

Definition: hypotheses are extended together, best sum of log-probabilities first
(equals: the older hypothesis, then the lower id). Of the ranked extensions those
that end a text are finished when they stand among the first n_beams; the first
n_beams others live on. Score = sum / length ** length_penalty, the end counted.
The search is over at max_tokens (what lives is finished by length), or when
n_beams texts are finished and no living one could still score better than the
worst of the best n_beams.
"""
import json
import math
import random


def log_softmax(row):
    m = max(row)
    t = math.log(sum(math.exp(v - m) for v in row))
    return [v - m - t for v in row]


def search(table, prompt, n_beams, n_best, max_tokens, length_penalty, ignore_eos):
    live = [((), 0.0)]
    done = []
    for step in range(1, max_tokens + 1):
        ranked = []
        for order, (ids, total) in enumerate(live):
            last = ids[-1] if ids else prompt[-1]
            for token, lp in enumerate(log_softmax(table[last])):
                if not (ignore_eos and token == 0):
                    ranked.append((-(total + lp), order, token))
        ranked.sort()
        live_before, live = live, []
        for rank, (minus, order, token) in enumerate(ranked):
            ids = live_before[order][0]
            if token == 0:
                if rank < n_beams:
                    done.append((-minus / step**length_penalty, ids, -minus, "stop"))
            elif len(live) < n_beams:
                live.append((ids + (token,), -minus))
        done = sorted(done, key=lambda d: -d[0])[:n_beams]
        longest = max_tokens if length_penalty > 0 else step
        if len(done) == n_beams and all(t / longest**length_penalty <= done[-1][0] for _, t in live):
            live = []
        if not live:
            break
    done += [(t / len(ids) ** length_penalty, ids, t, "length") for ids, t in live]
    done = sorted(done, key=lambda d: -d[0])[:n_best]
    return [{"score": s, "ids": list(ids), "logprob": t, "finish_reason": why} for s, ids, t, why in done]


def main():
    r = random.Random(5)
    for scale, end in ((1.0, 0.0), (2.5, 1.5), (0.6, 2.0)):
        n = 40
        table = [[round((r.gauss(0, scale) + (end if t == 0 else 0)) * 64) / 64 for t in range(n)] for _ in range(n)]
        print(json.dumps({"logits": table}))
        for n_beams in (1, 2, 4, 7):
            for penalty in (0.0, 1.0, 2.0, -0.5):
                for max_tokens in (1, 5, 12):
                    o = dict(prompt=[r.randrange(n), 1 + r.randrange(n - 1)], n_beams=n_beams, n_best=r.randint(1, n_beams),
                             max_tokens=max_tokens, length_penalty=penalty, ignore_eos=r.random() < 0.2)
                    print(json.dumps(dict(o, result=search(table, **o))))


main()
