#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the adapters of this folder and the logits that llama.cpp gives with them.

  make golden && LLAMA_CPP_LIB_PATH=... python3 tests/golden/lora/make.py

Needs the Python packages numpy, gguf and llama_cpp_python (0.3.36). Adapters of F32 are applied by llama.cpp itself; where
it would round activations to an adapter's type (F16, BF16, Q8_0) the reference is the model with W + scale B A in its place.
"""
import ctypes
import os
import sys
import tempfile

import gguf
import llama_cpp as L
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ARCH = os.path.join(HERE, "..", "..", "..", "build", "golden", "arch")
Q = gguf.GGMLQuantizationType

ATTENTION = ["attn_q", "attn_k", "attn_v", "attn_output"]
FFN = ["ffn_gate", "ffn_up", "ffn_down"]

# name: model, rank, alpha (None: no key), type, tensors (per layer, whole names)
ADAPTERS = {
    "llama-all": ("llama", 4, 8.0, Q.F32, ATTENTION + FFN, ["output.weight", "token_embd.weight"]),
    "llama-qv": ("llama", 3, None, Q.F32, ["attn_q", "attn_v"], []),
    "llama-f16": ("llama", 16, 16.0, Q.F16, ATTENTION, ["token_embd.weight"]),
    "llama-bf16": ("llama", 5, 10.0, Q.BF16, FFN, []),
    "llama-q8_0": ("llama", 32, 32.0, Q.Q8_0, ["attn_q", "ffn_up"], []),
    "llama-bias": ("llama-bias", 4, 8.0, Q.F32, ATTENTION + FFN, []),
    "qwen2": ("qwen2", 2, 4.0, Q.F32, ATTENTION + FFN, []),
    "gemma3": ("gemma3", 2, 4.0, Q.F32, ["attn_q", "attn_output", "ffn_down"], []),
    "qwen3moe": ("qwen3moe", 4, 4.0, Q.F32, ["attn_k", "attn_output", "ffn_gate_inp"], []),
    "qwen35": ("qwen35", 4, 8.0, Q.F32, ["attn_qkv", "attn_q", "attn_gate", "ssm_out", "ffn_gate"], []),
    # a quantised base; the reference has its weights expanded to F32
    "q256": ("q256-q4_k_m", 4, 8.0, Q.F32, ["attn_q", "attn_v", "ffn_gate", "ffn_down"], []),
    # for stacks (tests/c/test_lora_engine)
    "gemma3-b": ("gemma3", 1, 1.0, Q.F32, ["attn_v", "ffn_up"], []),
    "qwen35-b": ("qwen35", 1, 1.0, Q.F16, ["attn_qkv", "attn_k", "ffn_down"], []),
}
# name: model, [(adapter, scale)], merged?
CASES = {
    "llama-all": ("llama", [("llama-all", 1.0)], False),
    "llama-all-half": ("llama", [("llama-all", -0.5)], False),
    "llama-qv": ("llama", [("llama-qv", 1.0)], False),
    "llama-stack": ("llama", [("llama-all", 0.75), ("llama-qv", 1.5)], False),
    "llama-f16": ("llama", [("llama-f16", 1.0)], True),
    "llama-bf16": ("llama", [("llama-bf16", 1.0)], True),
    "llama-q8_0": ("llama", [("llama-q8_0", 1.0)], True),
    "llama-types": ("llama", [("llama-f16", 0.5), ("llama-bf16", 2.0), ("llama-q8_0", 1.0)], True),
    "llama-bias": ("llama-bias", [("llama-bias", 1.0)], False),
    "qwen2": ("qwen2", [("qwen2", 1.0)], False),
    "gemma3": ("gemma3", [("gemma3", 1.0)], False),
    "qwen3moe": ("qwen3moe", [("qwen3moe", 1.0)], False),
    "qwen35": ("qwen35", [("qwen35", 1.0)], False),
    "gemma3-stack": ("gemma3", [("gemma3", 1.0), ("gemma3-b", 2.0)], False),
    "qwen35-stack": ("qwen35", [("qwen35", 1.0), ("qwen35-b", 2.0)], True),
    "q256": ("q256-q4_k_m", [("q256", 1.0)], False),
}


def model_path(name):
    if name.startswith("q256"):
        return os.path.join(HERE, "..", "..", "..", "build", "golden", "quantised", name + ".gguf")
    return os.path.join(ARCH, name + ".gguf")


def tensors(model):
    return {t.name: t for t in gguf.GGUFReader(model_path(model)).tensors}


def stored(x, t):
    """x as the file holds it, and what that decodes to."""
    if t == Q.F32:
        return x, x
    raw = gguf.quants.quantize(x, t)
    return raw, gguf.quants.dequantize(raw, t).astype(np.float32)


def make_adapter(name):
    model, rank, alpha, qtype, per_layer, whole = ADAPTERS[name]
    rng = np.random.default_rng(sum(name.encode()))
    base = tensors(model)
    arch = bytes(gguf.GGUFReader(model_path(model)).fields["general.architecture"].contents(), "ascii").decode()
    w = gguf.GGUFWriter(os.path.join(HERE, name + ".gguf"), arch)
    w.add_string("general.type", "adapter")
    w.add_string("general.name", name)
    w.add_string("adapter.type", "lora")
    if alpha is not None:
        w.add_float32("adapter.lora.alpha", alpha)
    w.add_string("adapter.lora.task_name", "task of " + name)
    delta = {}
    for tname, t in base.items():
        part = tname.split(".")[2] if tname.startswith("blk.") else None
        if not tname.endswith(".weight") or not (part in per_layer or tname in whole):
            continue
        k, n_out = int(t.shape[0]), int(t.shape[1])
        a = rng.standard_normal((rank, k)).astype(np.float32) * np.float32(0.7 / np.sqrt(k))
        b = rng.standard_normal((n_out, rank)).astype(np.float32) * np.float32(0.7 / np.sqrt(rank))
        scale = alpha / rank if alpha else 1.0
        if tname == "token_embd.weight":  # the table: lora_a is transposed, lora_b gives the row's floats
            a, b = rng.standard_normal((n_out, rank)).astype(np.float32) * np.float32(0.2), rng.standard_normal((k, rank)).astype(np.float32) * np.float32(0.2)
        raw_a, a = stored(a, qtype)
        raw_b, b = stored(b, qtype)
        w.add_tensor(tname + ".lora_a", raw_a, raw_dtype=qtype)
        w.add_tensor(tname + ".lora_b", raw_b, raw_dtype=qtype)
        ab = a.astype(np.float64) @ b.T.astype(np.float64) if tname == "token_embd.weight" else b.astype(np.float64) @ a.astype(np.float64)
        delta[tname] = scale * ab
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return delta


def merged(model, parts, dst):
    """The model's file with its weights changed in place: the header stays as it is."""
    data = bytearray(open(model_path(model), "rb").read())
    for tname, t in tensors(model).items():
        d = sum((s * delta[tname] for delta, s in parts if tname in delta), np.zeros(()))
        if d.shape == ():
            continue
        x = (t.data.astype(np.float64).reshape(d.shape) + d).astype(np.float32).tobytes()
        data[t.data_offset:t.data_offset + len(x)] = x
    open(dst, "wb").write(data)


def expanded(model, dst):
    """A quantised model as F32: the reference then rounds nothing."""
    r = gguf.GGUFReader(model_path(model))
    w = gguf.GGUFWriter(dst, r.fields["general.architecture"].contents())
    for f in r.fields.values():
        if not f.name.startswith("GGUF.") and f.name != "general.architecture":
            w.add_key_value(f.name, f.contents(), f.types[0], f.types[-1] if f.types[0] == gguf.GGUFValueType.ARRAY else None)
    for t in r.tensors:
        w.add_tensor(t.name, gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def logits(path, adapters, tokens):
    mp = L.llama_model_default_params()
    mp.use_extra_bufts = False
    model = L.llama_load_model_from_file(path.encode(), mp)
    cp = L.llama_context_default_params()
    cp.n_ctx, cp.n_batch, cp.n_ubatch, cp.n_threads, cp.n_threads_batch = 256, 256, 256, 1, 1
    cp.type_k = cp.type_v = 0
    cp.flash_attn_type = 0
    ctx = L.llama_new_context_with_model(model, cp)
    loaded = []
    for file, scale in adapters:
        a = L.llama_adapter_lora_init(model, os.path.join(HERE, file + ".gguf").encode())
        assert a, file
        loaded.append((a, scale))
    if loaded:
        handles = (L.llama_adapter_lora_p_ctypes * len(loaded))(*[a for a, _ in loaded])
        scales = (ctypes.c_float * len(loaded))(*[s for _, s in loaded])
        assert L.llama_set_adapters_lora(ctx, handles, len(loaded), scales) == 0
    batch = L.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, t in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = t, i, 1, 1
        batch.seq_id[i][0] = 0
    assert L.llama_decode(ctx, batch) == 0
    n = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    out = np.ctypeslib.as_array(L.llama_get_logits(ctx), shape=(len(tokens), n)).copy()
    L.llama_batch_free(batch)
    L.llama_free(ctx)
    L.llama_free_model(model)
    return out


def runs():
    found, name = {}, None
    for line in open(os.path.join(HERE, "..", "arch", "runs.txt")):
        f = line.split()
        if f[0] == "run":
            name = f[1]
        elif f[0] == "tokens":
            found[name] = [int(x) for x in f[1:]]
    for line in open(os.path.join(HERE, "..", "quantised", "runs.txt")):
        if line.startswith("tokens "):
            found["q256-q4_k_m"] = [int(x) for x in line.split()[1:]]
    return found


def nmse(ref, x):
    return float(((ref.astype(np.float64) - x) ** 2).sum() / (ref.astype(np.float64) ** 2).sum())


def main():
    deltas = {name: make_adapter(name) for name in ADAPTERS}
    tokens = runs()
    with open(os.path.join(HERE, "cases.txt"), "w") as out, tempfile.TemporaryDirectory() as tmp:
        out.write("# case NAME MODEL TOLERANCE | ADAPTER SCALE ... ; written by make.py\n")
        for name, (model, parts, by_merging) in CASES.items():
            path = os.path.join(tmp, "merged.gguf")
            if model.startswith("q256"):
                expanded(model, path)
                one = two = logits(path, parts, tokens[model])
            else:
                one = logits(model_path(model), parts, tokens[model])
                merged(model, [(deltas[a], s) for a, s in parts], path)
                two = logits(path, [], tokens[model])
            base = logits(model_path(model), [], tokens[model])
            ref = two if by_merging else one
            ref.astype("<f4").tofile(os.path.join(HERE, name + ".logits.f32"))
            tolerance = {"gemma3": "1e-6", "q256-q4_k_m": "3e-3"}.get(model, "1e-9")
            out.write(f"case {name} {model} {tolerance} | {' '.join(f'{a} {s:g}' for a, s in parts)}\n")
            print(f"{name}: applied against merged {nmse(two, one):.2g}, against the base {nmse(base, ref):.2g}", file=sys.stderr)


main()
