-- SPDX-License-Identifier: MIT
-- mtx tests/bench/tiny_model.lua MODEL OUT: a llama GGUF with MODEL's vocabulary and chat template and one small layer of
-- made-up weights. Its steps cost next to nothing, so what a server does around them can be measured.
local core = require("mtx.core")

local WIDTH, FF, HEADS, CTX = 32, 64, 2, 4096
local source = assert(core.gguf.open(arg[1]))

local seed = 1
local function weights(n)
  local out = {}
  for i = 1, n do
    seed = (seed * 1103515245 + 12345) % 2147483648
    out[i] = string.pack("<f", seed / 2147483648 - 0.5)
  end
  return table.concat(out)
end

local n_vocab = #assert(source:metadata("tokenizer.ggml.tokens"), "the model has no vocabulary")
local tensors = {}
local function add(name, ...)
  local n = 1
  for _, d in ipairs({ ... }) do n = n * d end
  tensors[#tensors + 1] = { name = name .. ".weight", type = "F32", shape = { ... }, data = weights(n) }
end
add("token_embd", WIDTH, n_vocab)
add("output_norm", WIDTH)
add("blk.0.attn_norm", WIDTH)
add("blk.0.ffn_norm", WIDTH)
for _, name in ipairs({ "q", "k", "v", "output" }) do add("blk.0.attn_" .. name, WIDTH, WIDTH) end
add("blk.0.ffn_gate", WIDTH, FF)
add("blk.0.ffn_up", WIDTH, FF)
add("blk.0.ffn_down", FF, WIDTH)

local function u32(key, value) return { key = key, type = "u32", value = value } end
assert(core.gguf.write({ path = arg[2], from = source, tensors = tensors, kv = {
  { key = "general.architecture", type = "string", value = "llama" }, { key = "general.name", type = "string", value = "tiny" },
  u32("llama.vocab_size", n_vocab), u32("llama.block_count", 1), u32("llama.context_length", CTX), u32("llama.embedding_length", WIDTH),
  u32("llama.feed_forward_length", FF), u32("llama.attention.head_count", HEADS), u32("llama.attention.head_count_kv", HEADS),
  u32("llama.rope.dimension_count", WIDTH // HEADS), { key = "llama.attention.layer_norm_rms_epsilon", type = "f32", value = 1e-5 },
} }))
