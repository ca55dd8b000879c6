# SPDX-License-Identifier: MIT
"""Tiny random model folders as `save_pretrained` writes them, and what transformers makes of them.

usage: python3 make.py [NAME...]   (torch 2.15.0, transformers 5.24.0, safetensors 0.8.0; CPU)

Writes NAME/config.json, NAME/*.safetensors (and an index when sharded), NAME/reference.json
(tokens, shape and tolerance) and NAME/reference.f32: float32 logits of every token, or for
encoders the last hidden states, from the saved folder read back in float32 with eager attention.
"""
import json
import os
import shutil
import sys

import torch
import transformers as tf

HERE = os.path.dirname(os.path.abspath(__file__))
VOCAB, HIDDEN, N_TOKENS = 128, 32, 24

COMMON = dict(vocab_size=VOCAB, hidden_size=HIDDEN, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2,
              intermediate_size=48, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
# original 32 and 2 to 24 tokens: the ramp of YaRN lies within the frequencies of eight floats
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32)

MLA = dict(q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8, num_key_value_heads=4)

MODELS = {
    # name: (config, dtype on disk, changes of config.json, save arguments)
    "llama": (lambda: tf.LlamaConfig(**COMMON, rope_parameters=LLAMA3), torch.float32, {}, {}),
    "llama-bias": (lambda: tf.LlamaConfig(**COMMON, head_dim=16, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
                   torch.bfloat16, {"rope_parameters": None, "rope_theta": 20000.0, "rope_scaling": {"type": "linear", "factor": 2.0},
                                    "dtype": None, "torch_dtype": "bfloat16"}, dict(max_shard_size="12KB")),
    "mistral": (lambda: tf.MistralConfig(**COMMON, sliding_window=8), torch.float16, {}, {}),
    "mixtral": (lambda: tf.MixtralConfig(**COMMON, num_local_experts=4, num_experts_per_tok=2, sliding_window=None), torch.float32, {}, {}),
    "qwen2": (lambda: tf.Qwen2Config(**COMMON, rope_parameters=YARN), torch.float32, {}, {}),
    "qwen3": (lambda: tf.Qwen3Config(**COMMON, head_dim=16, tie_word_embeddings=True), torch.bfloat16, {}, {}),
    "qwen3-moe": (lambda: tf.Qwen3MoeConfig(**COMMON, head_dim=16, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=16,
                                            norm_topk_prob=True, decoder_sparse_step=1), torch.float32, {}, dict(max_shard_size="60KB")),
    "gemma3": (lambda: tf.Gemma3TextConfig(**{**COMMON, "num_hidden_layers": 4}, head_dim=16, sliding_window=8, query_pre_attn_scalar=24,
                                           layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
                                           rope_parameters={"full_attention": dict(rope_type="linear", rope_theta=1000000.0, factor=8.0),
                                                            "sliding_attention": dict(rope_type="default", rope_theta=10000.0)}),
               torch.float32, {}, {}),
    "deepseek-v2": (lambda: tf.DeepseekV2Config(**{**COMMON, **MLA, "q_lora_rank": None}, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=2,
                                                moe_intermediate_size=16, first_k_dense_replace=1, n_group=1, topk_group=1, topk_method="greedy",
                                                norm_topk_prob=False, routed_scaling_factor=1.5), torch.float32, {}, {}),
    "deepseek-v3": (lambda: tf.DeepseekV3Config(**{**COMMON, **MLA}, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1,
                                                moe_intermediate_size=8, first_k_dense_replace=1, n_group=4, topk_group=2, norm_topk_prob=True,
                                                routed_scaling_factor=2.5, rope_parameters=dict(YARN, mscale=0.8, mscale_all_dim=0.8)),
                    torch.float32, {}, {}),
    # one group: transformers normalises over all of them together, the original and GGUF each alone
    "mamba2": (lambda: tf.Mamba2Config(vocab_size=VOCAB, hidden_size=HIDDEN, num_heads=8, head_dim=8, state_size=16, n_groups=1, num_hidden_layers=2,
                                       expand=2, conv_kernel=4, chunk_size=8), torch.float32, {}, {}),
    # as many value heads as key heads: otherwise their order differs from GGUF's
    "qwen3-5": (lambda: tf.Qwen3_5TextConfig(**{**COMMON, "num_hidden_layers": 4}, head_dim=16, linear_num_key_heads=4, linear_num_value_heads=4,
                                             linear_key_head_dim=8, linear_value_head_dim=8), torch.bfloat16, {}, {}),
    "gemma": (lambda: tf.GemmaConfig(**COMMON, head_dim=16), torch.bfloat16, {}, {}),
    "gemma2": (lambda: tf.Gemma2Config(**COMMON, head_dim=16, sliding_window=8, query_pre_attn_scalar=24), torch.bfloat16, {}, {}),
    "qwen2-moe": (lambda: tf.Qwen2MoeConfig(**COMMON, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                                            shared_expert_intermediate_size=24, norm_topk_prob=False), torch.float32, {}, {}),
    "smollm3": (lambda: tf.SmolLM3Config(**{**COMMON, "num_hidden_layers": 4}), torch.bfloat16, {}, {}),
    "granite": (lambda: tf.GraniteConfig(**COMMON, embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.3, logits_scaling=2.0),
                torch.bfloat16, {}, {}),
    "olmo2": (lambda: tf.Olmo2Config(**COMMON), torch.bfloat16, {}, {}),
    "bert": (lambda: tf.BertConfig(**{k: v for k, v in COMMON.items() if k != "num_key_value_heads"}), torch.float32, {}, {}),
}


def fill(model, seed):
    """Weights with some weight: the default initialisation gives nearly flat logits."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            near_one = "norm" in name.lower() and name.endswith("weight") and "gemma" not in model.config.model_type and ("qwen3_5" not in model.config.model_type or "linear_attn" in name)
            std = 0.1 if p.dim() < 2 else 1.5 / p.shape[-1] ** 0.5
            p.copy_(torch.randn(p.shape, generator=g) * std + (1.0 if near_one else 0.0))


def make(name):
    make_config, dtype, changes, save = MODELS[name]
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(0)
    config = make_config()
    encoder = config.model_type == "bert"
    auto = tf.AutoModel if encoder else tf.AutoModelForCausalLM
    model = auto.from_config(config)
    fill(model, sum(map(ord, name)))
    model.to(dtype).save_pretrained(folder, **save)
    if changes:  # older spellings, which transformers still reads
        path = os.path.join(folder, "config.json")
        with open(path) as f:
            written = json.load(f)
        for key, value in changes.items():
            if value is None:
                written.pop(key, None)
            else:
                written[key] = value
        with open(path, "w") as f:
            json.dump(written, f, indent=2, sort_keys=True)
            f.write("\n")
    model = auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    g = torch.Generator().manual_seed(7)
    tokens = torch.randint(3, VOCAB, (1, N_TOKENS), generator=g)
    with torch.no_grad():
        out = model(tokens)
    result = out.last_hidden_state[0] if encoder else out.logits[0]
    result.to(torch.float32).numpy().tofile(os.path.join(folder, "reference.f32"))
    with open(os.path.join(folder, "reference.json"), "w") as f:
        json.dump({"tokens": tokens[0].tolist(), "rows": N_TOKENS, "width": result.shape[1], "tolerance_nmse": 1e-9}, f)
        f.write("\n")
    for extra in ("generation_config.json",):
        if os.path.exists(os.path.join(folder, extra)):
            os.remove(os.path.join(folder, extra))
    print(name, tuple(result.shape), float(result.std()))


CHAT_TEMPLATE = """{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}</s>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def make_chat(name="chat"):
    """A whole folder: tokenizer, chat template and two ends of generation; what a user does with it."""
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    source = os.path.join(HERE, "..", "tokenizer", "hf", "qwen2")
    tokenizer = tf.PreTrainedTokenizerFast(tokenizer_file=os.path.join(source, "tokenizer.json"), bos_token="<s>", eos_token="</s>")
    config = tf.Qwen3Config(**{**COMMON, "vocab_size": len(tokenizer), "bos_token_id": 0, "eos_token_id": 1}, head_dim=16, tie_word_embeddings=True)
    model = tf.AutoModelForCausalLM.from_config(config)
    fill(model, 4)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    model = tf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    messages = [{"role": "user", "content": "The quick brown fox"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(text)["input_ids"]  # with the tokenizer's own BOS
    made, margins = list(prompt), []
    with torch.no_grad():
        for _ in range(24):
            top = torch.topk(model(torch.tensor([made])).logits[0, -1], 2)
            made.append(int(top.indices[0]))
            margins.append(float(top.values[0] - top.values[1]))
    made = made[len(prompt):]
    # An end that only generation_config.json knows: the first token from the sixth on that is new.
    at = next(i for i in range(5, 24) if made[i] not in made[:i])
    tf.GenerationConfig(bos_token_id=0, eos_token_id=[1, made[at]]).save_pretrained(folder)
    with open(os.path.join(folder, "reference.json"), "w") as f:
        json.dump({"messages": messages, "prompt": text, "prompt_ids": prompt, "ids": made[:at], "smallest_margin": min(margins[: at + 1]),
                   "end": made[at]}, f)
        f.write("\n")
    print(name, len(tokenizer), made, at, min(margins))


if __name__ == "__main__":
    for each in sys.argv[1:] or [*MODELS, "chat"]:
        make_chat() if each == "chat" else make(each)
    for folder, _, files in os.walk(HERE):
        for file in files:
            os.chmod(os.path.join(folder, file), 0o644)
