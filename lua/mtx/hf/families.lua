-- SPDX-License-Identifier: MIT
-- What the `model_type` of a config.json means: one entry a family.
--
--   arch      the architecture in GGUF's names (csrc/model/arch_NAME.c)
--   tied      does the output read the embedding table when config.json does not say
--   act       activations that the architecture computes
--   layer     name of a part of a layer -> GGUF's, beside those of DECODER_LAYER
--   settings  function(config, put): metadata beyond what all decoders have; put(key, type, value) adds "<arch>.KEY"
--   tensor    function(config, use): last word on a tensor, e.g. the order of its rows
--   top, prefix, decoder: for families that are built otherwise (bert)
-- A config is a plain table without nulls. What a family cannot do it refuses with error(text, 0).
local rope = require("mtx.hf.rope")

local families = {}

local SILU = { silu = true, swish = true }
local TANH_GELU = { gelu_pytorch_tanh = true, gelu_new = true }

families.DECODER_TOP = { ["embed_tokens.weight"] = "token_embd.weight", ["norm.weight"] = "output_norm.weight", ["lm_head.weight"] = "output.weight" }
families.DECODER_LAYER = {
  input_layernorm = "attn_norm", post_attention_layernorm = "ffn_norm", ["self_attn.q_proj"] = "attn_q", ["self_attn.k_proj"] = "attn_k",
  ["self_attn.v_proj"] = "attn_v", ["self_attn.o_proj"] = "attn_output", ["self_attn.q_norm"] = "attn_q_norm", ["self_attn.k_norm"] = "attn_k_norm",
  ["mlp.gate_proj"] = "ffn_gate", ["mlp.up_proj"] = "ffn_up", ["mlp.down_proj"] = "ffn_down", ["mlp.gate"] = "ffn_gate_inp",
}
-- Parts of one expert (layer.EXPERTS.N.part), stacked to one tensor each.
families.EXPERT = { gate_proj = "ffn_gate_exps", up_proj = "ffn_up_exps", down_proj = "ffn_down_exps",
  w1 = "ffn_gate_exps", w3 = "ffn_up_exps", w2 = "ffn_down_exps" }

local function need(config, key)
  local v = config[key]
  if v == nil then error("config.json lacks " .. key, 0) end
  return v
end

-- Sizes that others are divided by.
local function positive(config, key)
  local v = need(config, key)
  if math.type(v) ~= "integer" or v < 1 then error(("%s is %s in config.json; it must be a whole number above 0"):format(key, tostring(v)), 0) end
  return v
end

local function refuse(yes, what)
  if yes then error(what .. " is not supported for this family", 0) end
end

function families.head_dim(config) return config.head_dim or positive(config, "hidden_size") // positive(config, "num_attention_heads") end

-- What every decoder of Llama's shape has.
function families.decoder_settings(config, put)
  local n_head, head = positive(config, "num_attention_heads"), families.head_dim(config)
  put("block_count", "u32", need(config, "num_hidden_layers"))
  put("embedding_length", "u32", need(config, "hidden_size"))
  put("context_length", "u32", need(config, "max_position_embeddings"))
  put("feed_forward_length", "u32", need(config, "intermediate_size"))
  put("attention.head_count", "u32", n_head)
  put("attention.head_count_kv", "u32", config.num_key_value_heads or n_head)
  put("attention.key_length", "u32", head)
  put("attention.value_length", "u32", head)
  put("attention.layer_norm_rms_epsilon", "f32", config.rms_norm_eps or 1e-6)
end

local function plain_rope(config, put)
  return rope.put(put, rope.read(config), families.head_dim(config), need(config, "max_position_embeddings"))
end

-- Llama's converter interleaves the rows of queries and keys for GGUF's rotary pairs, and so do we.
local function interleave(config, use)
  local part = use.name:match("^blk%.%d+%.attn_([qk])%.")
  if part then use.heads = part == "q" and config.num_attention_heads or config.num_key_value_heads or config.num_attention_heads end
end

-- One window for all layers, or none; layers of different kinds are not this architecture's.
local function one_window(config, put)
  local kinds = config.layer_types or {}
  for _, kind in ipairs(kinds) do refuse(kind ~= kinds[1], "a mixture of attention windows") end
  if config.sliding_window and kinds[1] ~= "full_attention" then put("attention.sliding_window", "u32", config.sliding_window) end
end

local LLAMA = { arch = "llama", act = SILU, tensor = interleave, settings = plain_rope }

families.llama = LLAMA
families.mistral = { arch = "llama", act = SILU, tensor = interleave, settings = function(config, put)
  one_window(config, put)
  return plain_rope(config, put)
end }
families.mixtral = { arch = "llama", act = SILU, tensor = interleave, layer = { ["block_sparse_moe.gate"] = "ffn_gate_inp" },
  experts = { "block_sparse_moe.experts", "mlp.experts" },
  settings = function(config, put)
    one_window(config, put)
    put("expert_count", "u32", need(config, "num_local_experts"))
    put("expert_used_count", "u32", need(config, "num_experts_per_tok"))
    return plain_rope(config, put)
  end }
families.qwen2 = { arch = "qwen2", act = SILU, settings = function(config, put)
  refuse(config.use_sliding_window == true, "use_sliding_window")
  return plain_rope(config, put)
end }
families.qwen3 = { arch = "qwen3", act = SILU, settings = families.qwen2.settings }
families.qwen3_moe = { arch = "qwen3moe", act = SILU, experts = { "mlp.experts" }, settings = function(config, put)
  refuse(config.norm_topk_prob ~= true, "norm_topk_prob = false")
  refuse((config.decoder_sparse_step or 1) ~= 1 or #(config.mlp_only_layers or {}) > 0, "a mixture of layers with and without experts")
  put("expert_count", "u32", config.num_experts or need(config, "num_local_experts"))
  put("expert_used_count", "u32", need(config, "num_experts_per_tok"))
  put("expert_feed_forward_length", "u32", need(config, "moe_intermediate_size"))
  return families.qwen2.settings(config, put)
end }

-- Every so many layers one looks at the whole context: -> how many.
local function period_of(config)
  local kinds, period = config.layer_types, config.sliding_window_pattern or 6
  if not kinds then return period end
  for i, kind in ipairs(kinds) do
    if kind == "full_attention" then
      period = i
      break
    end
    period = #kinds + 1
  end
  for i, kind in ipairs(kinds) do
    refuse((kind == "full_attention") ~= (i % period == 0), "an irregular order of attention windows")
  end
  return period
end

families.gemma3_text = { arch = "gemma3", act = TANH_GELU, tied = true,
  layer = { post_attention_layernorm = "post_attention_norm", pre_feedforward_layernorm = "ffn_norm", post_feedforward_layernorm = "post_ffw_norm" },
  tensor = function(_, use)  -- the norms hold what is to be added to 1
    if use.name:find("norm%.weight$") then use.change = "plus_one" end
  end,
  settings = function(config, put)
    refuse(config.attn_logit_softcapping ~= nil, "attn_logit_softcapping")
    refuse(config.use_bidirectional_attention == true, "attention in both directions")
    put("attention.sliding_window", "u32", need(config, "sliding_window"))
    put("attention.sliding_window_pattern", "u32", period_of(config))
    put("attention.scale", "f32", need(config, "query_pre_attn_scalar") ^ -0.5)
    if config.final_logit_softcapping then put("final_logit_softcapping", "f32", config.final_logit_softcapping) end
    local local_ = config.rope_parameters and rope.read(config, "sliding_attention") or { kind = "default", theta = config.rope_local_base_freq }
    refuse(local_.kind ~= "default", "rotary scaling inside the window")
    put("rope.freq_base_swa", "f32", local_.theta or 10000.0)
    local global = rope.read(config, "full_attention")
    refuse(global.kind ~= "default" and global.kind ~= "linear", "rotary scaling of this type")
    return rope.put(put, global, families.head_dim(config), need(config, "max_position_embeddings"))
  end }

local BERT_LAYER = {
  ["attention.self.query"] = "attn_q", ["attention.self.key"] = "attn_k", ["attention.self.value"] = "attn_v",
  ["attention.output.dense"] = "attn_output", ["attention.output.LayerNorm"] = "attn_output_norm", ["intermediate.dense"] = "ffn_up",
  ["output.dense"] = "ffn_down", ["output.LayerNorm"] = "layer_output_norm",
}
families.bert = { arch = "bert", encoder = true, act = { gelu = true, gelu_new = true, gelu_pytorch_tanh = true }, layers = "encoder.layer", parts = BERT_LAYER,
  top = {
    ["embeddings.word_embeddings.weight"] = "token_embd.weight", ["embeddings.position_embeddings.weight"] = "position_embd.weight",
    ["embeddings.token_type_embeddings.weight"] = "token_types.weight", ["embeddings.LayerNorm.weight"] = "token_embd_norm.weight",
    ["embeddings.LayerNorm.bias"] = "token_embd_norm.bias",
  },
  settings = function(config, put)
    refuse((config.position_embedding_type or "absolute") ~= "absolute", "position_embedding_type " .. tostring(config.position_embedding_type))
    refuse(config.is_decoder == true, "a decoder (is_decoder)")
    put("block_count", "u32", need(config, "num_hidden_layers"))
    put("embedding_length", "u32", need(config, "hidden_size"))
    put("context_length", "u32", need(config, "max_position_embeddings"))
    put("feed_forward_length", "u32", need(config, "intermediate_size"))
    put("attention.head_count", "u32", need(config, "num_attention_heads"))
    put("attention.layer_norm_epsilon", "f32", config.layer_norm_eps or 1e-12)
    put("attention.causal", "bool", false)
    put("mtx.gelu_erf", "bool", (config.hidden_act or "gelu") == "gelu")
  end }

return families
