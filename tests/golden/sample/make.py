# SPDX-License-Identifier: MIT
"""Reference results of every sampler, written to cases.txt.

Plain Python on purpose: each sampler is its definition with full sorts, in
double, sharing nothing with the C code. Run: python3 make.py > cases.txt

A case: the options, the logits, the history, the candidates that must be left
with their probabilities, and the first draws with one seed (each draw from the
same row and history). Random numbers: xoshiro256** seeded by splitmix64.
"""
import math
import random

M64 = (1 << 64) - 1


class Rng:
    def __init__(self, seed):
        self.s = []
        for _ in range(4):
            seed = (seed + 0x9E3779B97F4A7C15) & M64
            z = seed
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
            self.s.append(z ^ (z >> 31))

    def next(self):
        s = self.s
        rot = lambda x, k: ((x << k) | (x >> (64 - k))) & M64
        out = (rot((s[1] * 5) & M64, 7) * 9) & M64
        t = (s[1] << 17) & M64
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rot(s[3], 45)
        return out

    def unit(self):
        return (self.next() >> 11) / 2.0**53


def softmax(c):
    m = max(x for _, x in c)
    e = [math.exp(x - m) for _, x in c]
    t = sum(e)
    return [v / t for v in e]


def falling(c):
    return sorted(range(len(c)), key=lambda i: (-c[i][1], c[i][0]))


def keep(c, idx):
    s = set(idx)
    return [v for i, v in enumerate(c) if i in s]


def entropy(p):
    return -sum(v * math.log(v) for v in p if v > 0)


DEFAULTS = dict(temperature=1, dynatemp_range=0, dynatemp_exponent=1, top_k=0, top_p=1, min_p=0, typical_p=1,
                top_n_sigma=0, top_a=0, epsilon=0, eta=0, xtc_probability=0, xtc_threshold=0.1, repeat_penalty=1,
                presence_penalty=0, frequency_penalty=0, repeat_last_n=64, dry_multiplier=0, dry_base=1.75,
                dry_allowed_length=2, dry_last_n=-1, mirostat=0, mirostat_tau=5, mirostat_eta=0.1,
                adaptive_target=-1, adaptive_decay=0.9)
ORDER = ["logit_bias", "penalties", "dry", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "top_a", "epsilon",
         "eta", "xtc", "temperature"]


def dry(c, hist, o, breakers):
    if o["dry_multiplier"] <= 0:
        return c
    if o["dry_last_n"] >= 0:
        hist = hist[len(hist) - o["dry_last_n"]:] if o["dry_last_n"] < len(hist) else hist
    n = len(hist)
    best = {}
    for end in range(n - 1):  # a repeat that ends at `end`, followed by hist[end + 1]
        k = 0
        while end - k >= 0 and hist[end - k] == hist[n - 1 - k] and hist[n - 1 - k] not in breakers:
            k += 1
        if k >= o["dry_allowed_length"]:
            best[hist[end + 1]] = max(best.get(hist[end + 1], 0), k)
    return [(i, x - o["dry_multiplier"] * o["dry_base"] ** (best[i] - o["dry_allowed_length"]) if i in best else x)
            for i, x in c]


def stage(name, c, o, hist, bias, breakers, rng):
    p = softmax(c)
    order = falling(c)
    if name == "logit_bias":
        return [(i, x + bias.get(i, 0)) for i, x in c]
    if name == "penalties":
        h = hist if o["repeat_last_n"] < 0 else hist[max(0, len(hist) - o["repeat_last_n"]):]
        out = []
        for i, x in c:
            n = h.count(i)
            if n:
                x = x / o["repeat_penalty"] if x > 0 else x * o["repeat_penalty"]
                x -= n * o["frequency_penalty"] + o["presence_penalty"]
            out.append((i, x))
        return out
    if name == "dry":
        return dry(c, hist, o, breakers)
    if name == "top_n_sigma" and o["top_n_sigma"] > 0:
        xs = [x for _, x in c]
        mean = sum(xs) / len(xs)
        sd = math.sqrt(sum((x - mean) ** 2 for x in xs) / len(xs))
        return [v for v in c if v[1] >= max(xs) - o["top_n_sigma"] * sd]
    if name == "top_k" and o["top_k"] > 0:
        return keep(c, order[:o["top_k"]])
    if name == "top_p" and o["top_p"] < 1:
        t, n = 0, 0
        for i in order:
            t += p[i]
            n += 1
            if t >= o["top_p"]:
                break
        return keep(c, order[:n])
    if name == "typical_p" and o["typical_p"] < 1:
        h = entropy(p)
        near = sorted(range(len(c)), key=lambda i: abs(-math.log(p[i]) - h))
        t, n = 0, 0
        for i in near:
            t += p[i]
            n += 1
            if t >= o["typical_p"]:
                break
        return keep(c, near[:n])
    if name == "min_p" and o["min_p"] > 0:
        return keep(c, order[:1]) if o["min_p"] >= 1 else keep(c, [i for i in order if p[i] >= o["min_p"] * max(p)])
    if name == "top_a" and o["top_a"] > 0:
        return keep(c, order[:1] + [i for i in order if p[i] >= o["top_a"] * max(p) ** 2])
    if name == "epsilon" and o["epsilon"] > 0:
        return keep(c, order[:1] + [i for i in order if p[i] >= o["epsilon"]])
    if name == "eta" and o["eta"] > 0:
        bound = min(o["eta"], math.sqrt(o["eta"]) * math.exp(-entropy(p)))
        return keep(c, order[:1] + [i for i in order if p[i] >= bound])
    if name == "xtc" and o["xtc_probability"] > 0 and o["xtc_threshold"] <= 0.5:
        if rng.unit() >= o["xtc_probability"]:
            return c
        above = [i for i in order if p[i] >= o["xtc_threshold"]]
        return [v for i, v in enumerate(c) if i not in above[:-1]]
    if name == "temperature":
        t = o["temperature"]
        if o["dynatemp_range"] > 0 and len(c) > 1:
            low, high = max(0, t - o["dynatemp_range"]), t + o["dynatemp_range"]
            t = low + (high - low) * (entropy(p) / math.log(len(c))) ** o["dynatemp_exponent"]
        return [(i, x / t) for i, x in c]
    return c


class Sampler:
    def __init__(self, o, seed, bias, breakers):
        self.o, self.rng, self.bias, self.breakers = o, Rng(seed), bias, breakers
        self.mu = 2 * o["mirostat_tau"]
        w = 1 / (1 - o["adaptive_decay"])
        self.ema = [o["adaptive_target"] * w, w]

    def chain(self, logits, hist, order):
        o, c = self.o, list(enumerate(logits))
        if "logit_bias" not in order:
            c = stage("logit_bias", c, o, hist, self.bias, self.breakers, self.rng)
        for name in order:
            plain = name in ("logit_bias", "penalties", "dry")
            if plain or (o["temperature"] > 0 and (not o["mirostat"] or name == "temperature")):
                c = stage(name, c, o, hist, self.bias, self.breakers, self.rng)
        if o["temperature"] == 0:
            c = keep(c, falling(c)[:1])
        return c

    def draw(self, c, p):
        u, t = self.rng.unit(), 0
        for (i, _), v in zip(c, p):
            t += v
            if t > u:
                return i
        return c[-1][0]

    def pick(self, logits, hist, order):
        """-> candidates, probabilities, token"""
        o, c = self.o, self.chain(logits, hist, order)
        if o["temperature"] == 0:
            return c, [1.0], c[0][0]
        if o["mirostat"]:
            p = softmax(c)
            rank = falling(c)
            if o["mirostat"] == 2:
                n = max(1, sum(-math.log2(v) <= self.mu for v in p))
            else:
                top = [p[i] for i in rank[:100]]
                t = [math.log((i + 2) / (i + 1)) for i in range(len(top) - 1)]
                b = [math.log(top[i] / top[i + 1]) for i in range(len(top) - 1)]
                s = sum(x * y for x, y in zip(t, b)) / sum(x * x for x in t)
                e = s - 1
                k = ((e * 2**self.mu) / (1 - len(logits) ** -e)) ** (1 / s)
                n = min(len(c), max(1, int(k)))
            c = keep(c, rank[:n])
            p = softmax(c)
            token = self.draw(c, p)
            got = p[[i for i, _ in c].index(token)]
            self.mu -= o["mirostat_eta"] * (-math.log2(got) - o["mirostat_tau"])
            return c, p, token
        p = softmax(c)
        if o["adaptive_target"] >= 0:
            target = min(1, max(0, 2 * o["adaptive_target"] - self.ema[0] / self.ema[1]))
            d = [abs(v - target) / 0.3 for v in p]
            q = softmax([(i, 5 - 10 * v * v / (1 + v)) for (i, _), v in zip(c, d)])
            token = self.draw(c, q)
            got = p[[i for i, _ in c].index(token)]
            self.ema = [got + o["adaptive_decay"] * self.ema[0], 1 + o["adaptive_decay"] * self.ema[1]]
            return c, q, token
        return c, p, self.draw(c, p)


def guided(cond, uncond, scale):
    """Log-probabilities u + scale * (c - u): what guidance makes of two rows."""
    c = [math.log(v) for v in softmax(list(enumerate(cond)))]
    u = [math.log(v) for v in softmax(list(enumerate(uncond)))]
    return [b + scale * (a - b) for a, b in zip(c, u)]


def emit(name, logits, hist=(), order=ORDER, bias=None, breakers=(), seed=42, **opts):
    o = dict(DEFAULTS)
    o.update(opts)
    hist, bias = list(hist), bias or {}
    print("case", name)
    for k, v in opts.items():
        print("opt", k, repr(float(v)))
    if order is not ORDER:
        print("order", len(order), *order)
    if logits is not emit.last:  # the row stays until the next "logits" line
        print("logits", len(logits), *logits)
        emit.last = logits
    print("history", len(hist), *hist)
    print("breakers", len(breakers), *breakers)
    print("bias", len(bias), *[w for i, b in bias.items() for w in (i, b)])
    s = Sampler(o, seed, bias, breakers)
    rows = [s.pick(logits, hist, order) for _ in range(24)]
    c, p, _ = rows[0]
    print("expect", len(c), *[w for (i, _), v in zip(c, p) for w in (i, "%.10g" % v)])
    print("draws", seed, len(rows), *[t for _, _, t in rows])


emit.last = None


def main():
    r = random.Random(7)
    print("# made by make.py")
    for seed in (0, 1, 42, M64):
        g = Rng(seed)
        print("rng", seed, *[g.next() for _ in range(8)])

    def row(n, scale=2.0):  # multiples of 1/256: exact in float32, all different
        seen = set()
        while len(seen) < n:
            seen.add(round(r.gauss(0, scale) * 256) / 256)
        out = list(seen)
        r.shuffle(out)
        return out

    def hist(n, v):
        return [r.randrange(v) for _ in range(n)]

    for n, scale in ((40, 1.0), (300, 2.0), (1200, 3.0)):
        x = row(n, scale)
        h = hist(100, n)
        t = f"_{n}"
        emit("defaults" + t, x, h)
        for v in (0.3, 0.8, 2.0):
            emit(f"temperature_{v}{t}", x, temperature=v)
        emit("greedy" + t, x, h, temperature=0, top_k=40, min_p=0.05, xtc_probability=1)
        emit("greedy_top_k" + t, x, temperature=2, top_k=1)
        emit("greedy_min_p" + t, x, temperature=2, min_p=1)
        emit("dynatemp" + t, x, dynatemp_range=0.5)
        emit("dynatemp_exponent" + t, x, temperature=0.8, dynatemp_range=0.6, dynatemp_exponent=2)
        for k in (2, 5, 39, 290, 700):
            if k < n:
                emit(f"top_k_{k}{t}", x, top_k=k)
        for v in (0.0, 0.1, 0.5, 0.9, 0.99):
            emit(f"top_p_{v}{t}", x, top_p=v)
        for v in (0.02, 0.2, 0.7):
            emit(f"min_p_{v}{t}", x, min_p=v)
            emit(f"typical_p_{v}{t}", x, typical_p=v)
            emit(f"top_a_{v}{t}", x, top_a=v)
        for v in (0.5, 1.0, 2.0):
            emit(f"top_n_sigma_{v}{t}", x, top_n_sigma=v)
        for v in (0.0003, 0.01, 0.2):
            emit(f"epsilon_{v}{t}", x, epsilon=v)
            emit(f"eta_{v}{t}", x, eta=v)
        emit("xtc" + t, x, xtc_probability=1, xtc_threshold=0.01)
        emit("xtc_half" + t, x, xtc_probability=0.5, xtc_threshold=0.02)
        emit("xtc_none" + t, x, xtc_probability=1, xtc_threshold=0.9)
        emit("repeat" + t, x, h, repeat_penalty=1.3)
        emit("repeat_all" + t, x, h, repeat_penalty=1.1, repeat_last_n=-1)
        emit("repeat_none" + t, x, h, repeat_penalty=1.1, repeat_last_n=0)
        emit("presence" + t, x, h, presence_penalty=0.7)
        emit("frequency" + t, x, h + h, frequency_penalty=0.4, repeat_last_n=150)
        emit("bias" + t, x, bias={3: 2.5, 7: -100.0, 11: 0.25})
        loop = hist(9, n)
        emit("dry" + t, x, hist(30, n) + loop + hist(5, n) + loop + [1, 2] + loop[:6], dry_multiplier=0.8)
        emit("dry_long" + t, x, loop * 6, dry_multiplier=0.5, dry_base=1.2, dry_allowed_length=3)
        emit("dry_breakers" + t, x, loop * 4, breakers=(loop[3], loop[6]), dry_multiplier=0.8)
        emit("dry_last_n" + t, x, loop * 4, dry_multiplier=0.8, dry_last_n=14)
        for tau in (1.0, 3.0, 5.0):
            emit(f"mirostat2_{tau}{t}", x, mirostat=2, mirostat_tau=tau, mirostat_eta=0.3)
            emit(f"mirostat1_{tau}{t}", x, mirostat=1, mirostat_tau=tau, temperature=0.9)
        for v in (0.0, 0.1, 0.5):
            emit(f"adaptive_{v}{t}", x, adaptive_target=v, min_p=0.01)
        emit("usual" + t, x, h, temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, repeat_penalty=1.1)
        emit("all" + t, x, h, temperature=0.9, top_k=30, top_p=0.97, min_p=0.01, typical_p=0.98, top_n_sigma=3, top_a=0.01,
             epsilon=0.0001, eta=0.0001, repeat_penalty=1.05, presence_penalty=0.1, frequency_penalty=0.1,
             dry_multiplier=0.3, xtc_probability=0.3, xtc_threshold=0.1, dynatemp_range=0.2, bias={2: 1.0})
        emit("order" + t, x, h, order=["temperature", "min_p", "top_p", "penalties", "top_k"], temperature=0.6, top_k=20,
             top_p=0.9, min_p=0.001, repeat_penalty=1.5)
        emit("order_short" + t, x, h, order=["min_p", "temperature"], temperature=1.7, top_k=2, min_p=0.1, bias={5: 1.0})
        emit("order_empty" + t, x, h, order=[], temperature=0.5, top_k=2)
    for n, scale in ((40, 1.5), (40, 0.0), (40, -0.5), (300, 3.0)):
        x, y = row(n), row(n)
        print("guide", scale, n, *x, *y, *["%.10g" % v for v in guided(x, y, scale)])


main()
