-- SPDX-License-Identifier: MIT
-- all-MiniLM-L6-v2 from its safetensors folder to a GGUF in F32: the encoder of
-- the tests. usage: mtx scripts/minilm_gguf.lua FOLDER OUT.gguf
-- Tensor and key names: llama.cpp's converter for BertModel.
local core = require("mtx.core")
local cjson = require("cjson")

local folder, out = arg[1], arg[2]

local function read(name)
  local file = assert(io.open(folder .. "/" .. name, "rb"))
  local bytes = file:read("a")
  file:close()
  return bytes
end

local config = cjson.decode(read("config.json"))
local data = read("model.safetensors")
local header_bytes = ("<I8"):unpack(data)
local header = cjson.decode(data:sub(9, 8 + header_bytes))

local LAYER = {
  ["attention.self.query"] = "attn_q", ["attention.self.key"] = "attn_k", ["attention.self.value"] = "attn_v",
  ["attention.output.dense"] = "attn_output", ["attention.output.LayerNorm"] = "attn_output_norm", ["intermediate.dense"] = "ffn_up",
  ["output.dense"] = "ffn_down", ["output.LayerNorm"] = "layer_output_norm",
}
local TOP = {
  ["embeddings.word_embeddings.weight"] = "token_embd.weight", ["embeddings.position_embeddings.weight"] = "position_embd.weight",
  ["embeddings.token_type_embeddings.weight"] = "token_types.weight", ["embeddings.LayerNorm.weight"] = "token_embd_norm.weight",
  ["embeddings.LayerNorm.bias"] = "token_embd_norm.bias",
}

local function gguf_name(name)
  local layer, part, kind = name:match("^encoder%.layer%.(%d+)%.(.+)%.(%a+)$")
  if layer then return ("blk.%s.%s.%s"):format(layer, LAYER[part], kind) end
  return TOP[name]  -- the pooler is not part of the embedding
end

local tensors = {}
for name, t in pairs(header) do
  local new = gguf_name(name)
  if new then
    assert(t.dtype == "F32", name .. " is not F32")
    local shape = {}
    for i = #t.shape, 1, -1 do shape[#shape + 1] = math.tointeger(t.shape[i]) end
    local first = 8 + header_bytes + math.tointeger(t.data_offsets[1])
    tensors[#tensors + 1] = { name = new, type = "F32", shape = shape, data = data:sub(first + 1, 8 + header_bytes + math.tointeger(t.data_offsets[2])) }
  end
end
table.sort(tensors, function(a, b) return a.name < b.name end)

-- Word starts carry U+2581, continuations lose their "##"; [XXX] tokens stay.
local tokens, types = {}, {}
for word in read("vocab.txt"):gmatch("([^\n]*)\n") do
  local special = word:match("^%[.*%]$") and not word:match("^%[unused")
  tokens[#tokens + 1] = special and word or word:match("^##(.+)$") or ("\u{2581}" .. word)
  types[#types + 1] = special and 3 or 1
end

local function u32(key, value) return { key = key, type = "u32", value = math.tointeger(value) } end

assert(core.gguf.write({
  path = out,
  kv = {
    { key = "general.architecture", type = "string", value = "bert" },
    { key = "general.name", type = "string", value = "all-MiniLM-L6-v2" },
    { key = "general.license", type = "string", value = "apache-2.0" },
    u32("bert.block_count", config.num_hidden_layers), u32("bert.context_length", config.max_position_embeddings),
    u32("bert.embedding_length", config.hidden_size), u32("bert.feed_forward_length", config.intermediate_size),
    u32("bert.attention.head_count", config.num_attention_heads),
    { key = "bert.attention.layer_norm_epsilon", type = "f32", value = config.layer_norm_eps },
    { key = "bert.attention.causal", type = "bool", value = false },
    u32("bert.pooling_type", 1), u32("tokenizer.ggml.token_type_count", 2),
    { key = "tokenizer.ggml.model", type = "string", value = "bert" },
    { key = "tokenizer.ggml.tokens", type = "array", item_type = "string", value = tokens },
    { key = "tokenizer.ggml.token_type", type = "array", item_type = "i32", value = types },
    u32("tokenizer.ggml.bos_token_id", 101), u32("tokenizer.ggml.eos_token_id", 102), u32("tokenizer.ggml.unknown_token_id", 100),
    u32("tokenizer.ggml.seperator_token_id", 102), u32("tokenizer.ggml.padding_token_id", 0), u32("tokenizer.ggml.mask_token_id", 103),
    { key = "tokenizer.ggml.add_bos_token", type = "bool", value = true }, { key = "tokenizer.ggml.add_eos_token", type = "bool", value = true },
    { key = "tokenizer.ggml.normalizer.lowercase", type = "bool", value = true },
  },
  tensors = tensors,
}))
