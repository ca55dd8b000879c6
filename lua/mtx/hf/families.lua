-- SPDX-License-Identifier: MIT
-- What the `model_type` of a config.json means: one entry a family.
--
--   arch      the architecture in GGUF's names (csrc/model/arch_NAME.c)
--   defaults  what config.json may leave out (the language part of a larger model does)
--   tied      does the output read the embedding table when config.json does not say
--   act       activations that the architecture computes
--   layer     name of a part of a layer -> GGUF's, beside those of DECODER_LAYER; `whole` the same with what follows it
--   experts   where a layer's experts are: their names go on with ".N.PART"
--   settings  function(config, put): metadata beyond what all decoders have; put(key, type, value) adds "<arch>.KEY"
--   tensor    function(config, use, add): last word on a tensor, e.g. the order of its rows; add(use) for one more
--   unused    patterns of tensors that have no part in what mtx computes
--   top, layers, parts, encoder, own_settings: for families that are built otherwise (bert)
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

local function experts_and_window(config, put)
  refuse((config.decoder_sparse_step or 1) ~= 1 or #(config.mlp_only_layers or {}) > 0, "a mixture of layers with and without experts")
  put("expert_count", "u32", config.num_experts or need(config, "num_local_experts"))
  put("expert_used_count", "u32", need(config, "num_experts_per_tok"))
  put("expert_feed_forward_length", "u32", need(config, "moe_intermediate_size"))
  return families.qwen2.settings(config, put)
end

families.qwen3_moe = { arch = "qwen3moe", act = SILU, experts = { "mlp.experts" }, settings = function(config, put)
  refuse(config.norm_topk_prob ~= true, "norm_topk_prob = false")
  return experts_and_window(config, put)
end }
families.qwen2_moe = { arch = "qwen2moe", act = SILU, experts = { "mlp.experts" },
  layer = { ["mlp.shared_expert.gate_proj"] = "ffn_gate_shexp", ["mlp.shared_expert.up_proj"] = "ffn_up_shexp",
    ["mlp.shared_expert.down_proj"] = "ffn_down_shexp", ["mlp.shared_expert_gate"] = "ffn_gate_inp_shexp" },
  settings = function(config, put)
    put("expert_shared_feed_forward_length", "u32", need(config, "shared_expert_intermediate_size"))
    put("expert_weights_norm", "bool", config.norm_topk_prob == true)
    return experts_and_window(config, put)
  end }

families.smollm3 = { arch = "smollm3", act = SILU, tied = true, tensor = interleave, settings = function(config, put)
  refuse(config.use_sliding_window == true, "use_sliding_window")
  for i, rotated in ipairs(config.no_rope_layers or {}) do refuse((rotated == 0) ~= (i % 4 == 0), "this choice of layers without positions") end
  return plain_rope(config, put)
end }

families.granite = { arch = "granite", act = SILU, tensor = interleave, settings = function(config, put)
  put("embedding_scale", "f32", config.embedding_multiplier or 1.0)
  put("residual_scale", "f32", config.residual_multiplier or 1.0)
  put("attention.scale", "f32", config.attention_multiplier or 1.0)
  put("logit_scale", "f32", config.logits_scaling or 1.0)
  return plain_rope(config, put)
end }

families.olmo2 = { arch = "olmo2", act = SILU, settings = plain_rope,
  layer = { post_attention_layernorm = "post_attention_norm", post_feedforward_layernorm = "post_ffw_norm" } }

-- ---- Gemma ---------------------------------------------------------------------------------

local function plus_one(_, use)  -- Gemma's norms hold what is to be added to 1
  if use.name:find("norm%.weight$") then use.change = "plus_one" end
end
local POST_NORMS = { post_attention_layernorm = "post_attention_norm", pre_feedforward_layernorm = "ffn_norm", post_feedforward_layernorm = "post_ffw_norm" }

-- Which layers see a window: config.json lists them; older ones say that every so many see all.
local function windows(config, put, period)
  local is_local = {}
  for i = 1, positive(config, "num_hidden_layers") do
    local kind = config.layer_types and config.layer_types[i]
    is_local[i] = i % period ~= 0
    if config.layer_types then
      refuse(kind ~= "sliding_attention" and kind ~= "full_attention", "a layer of type " .. tostring(kind))
      is_local[i] = kind == "sliding_attention"
    end
  end
  put("attention.sliding_window", "u32", need(config, "sliding_window"))
  put("attention.sliding_window_pattern", "array:bool", is_local)
end

-- Its first config.json files say "gelu" and mean the tanh form, as transformers knows.
families.gemma = { arch = "gemma", act = { gelu = true, gelu_pytorch_tanh = true, gelu_new = true }, tied = true, tensor = plus_one, settings = plain_rope }

families.gemma2 = { arch = "gemma2", act = TANH_GELU, tied = true, layer = POST_NORMS, tensor = plus_one, settings = function(config, put)
  windows(config, put, 2)
  put("attention.scale", "f32", need(config, "query_pre_attn_scalar") ^ -0.5)
  put("attn_logit_softcapping", "f32", config.attn_logit_softcapping or 0.0)
  put("final_logit_softcapping", "f32", config.final_logit_softcapping or 0.0)
  return plain_rope(config, put)
end }

families.gemma3_text = { arch = "gemma3", act = TANH_GELU, tied = true, layer = POST_NORMS, tensor = plus_one,
  defaults = { num_attention_heads = 8, num_key_value_heads = 4, head_dim = 256, max_position_embeddings = 131072, query_pre_attn_scalar = 256,
    rope_theta = 1000000.0, rope_local_base_freq = 10000.0, sliding_window = 4096, rms_norm_eps = 1e-6 },
  settings = function(config, put)
    refuse(config.attn_logit_softcapping ~= nil, "attn_logit_softcapping")
    refuse(config.use_bidirectional_attention == true, "attention in both directions")
    windows(config, put, config.sliding_window_pattern or 6)
    put("attention.scale", "f32", need(config, "query_pre_attn_scalar") ^ -0.5)
    if config.final_logit_softcapping then put("final_logit_softcapping", "f32", config.final_logit_softcapping) end
    local local_ = config.rope_parameters and rope.read(config, "sliding_attention") or { kind = "default", theta = config.rope_local_base_freq }
    refuse(local_.kind ~= "default", "rotary scaling inside the window")
    put("rope.freq_base_swa", "f32", local_.theta or 10000.0)
    local global = rope.read(config, "full_attention")
    refuse(global.kind ~= "default" and global.kind ~= "linear", "rotary scaling of this type")
    return rope.put(put, global, families.head_dim(config), need(config, "max_position_embeddings"))
  end }

-- ---- DeepSeek: latent attention ------------------------------------------------------------------

local LATENT = {
  ["self_attn.q_a_proj"] = "attn_q_a", ["self_attn.q_a_layernorm"] = "attn_q_a_norm", ["self_attn.q_b_proj"] = "attn_q_b",
  ["self_attn.kv_a_proj_with_mqa"] = "attn_kv_a_mqa", ["self_attn.kv_a_layernorm"] = "attn_kv_a_norm", ["self_attn.kv_b_proj"] = "attn_kv_b",
  ["mlp.shared_experts.gate_proj"] = "ffn_gate_shexp", ["mlp.shared_experts.up_proj"] = "ffn_up_shexp", ["mlp.shared_experts.down_proj"] = "ffn_down_shexp",
}

-- kv_b_proj holds for each head the rows of its keys and of its values: the former, turned round, map queries into the
-- latent space, the latter map results out of it.
local function split_latent(config, use, add)
  local layer = use.name:match("^(blk%.%d+%.)attn_kv_b%.weight$")
  if not layer then return end
  local heads, nope, v = positive(config, "num_attention_heads"), positive(config, "qk_nope_head_dim"), positive(config, "v_head_dim")
  use.name, use.split = layer .. "attn_k_b.weight", { heads, 0, nope, "transposed" }
  add({ name = layer .. "attn_v_b.weight", from = use.from, split = { heads, nope, v } })
end

local function latent_settings(config, put)
  local rank, n_rot, nope = positive(config, "kv_lora_rank"), positive(config, "qk_rope_head_dim"), positive(config, "qk_nope_head_dim")
  put("block_count", "u32", need(config, "num_hidden_layers"))
  put("embedding_length", "u32", need(config, "hidden_size"))
  put("context_length", "u32", need(config, "max_position_embeddings"))
  put("feed_forward_length", "u32", need(config, "intermediate_size"))
  put("attention.head_count", "u32", positive(config, "num_attention_heads"))
  put("attention.head_count_kv", "u32", 1)
  put("attention.layer_norm_rms_epsilon", "f32", config.rms_norm_eps or 1e-6)
  if config.q_lora_rank then put("attention.q_lora_rank", "u32", config.q_lora_rank) end
  put("attention.kv_lora_rank", "u32", rank)
  put("attention.key_length", "u32", rank + n_rot)
  put("attention.value_length", "u32", rank)
  put("attention.key_length_mla", "u32", nope + n_rot)
  put("attention.value_length_mla", "u32", positive(config, "v_head_dim"))
  put("leading_dense_block_count", "u32", config.first_k_dense_replace or 0)
  put("expert_count", "u32", need(config, "n_routed_experts"))
  put("expert_used_count", "u32", need(config, "num_experts_per_tok"))
  put("expert_feed_forward_length", "u32", need(config, "moe_intermediate_size"))
  put("expert_shared_count", "u32", config.n_shared_experts or 0)
  put("expert_weights_scale", "f32", config.routed_scaling_factor or 1.0)
  put("expert_weights_norm", "bool", config.norm_topk_prob == true)
  refuse((config.moe_layer_freq or 1) ~= 1, "a mixture of layers with and without experts")
  local r = rope.read(config)
  if r.kind == "yarn" and (r.scaling.mscale or r.scaling.mscale_all_dim) then
    refuse(r.scaling.mscale ~= r.scaling.mscale_all_dim, "YaRN with different mscale and mscale_all_dim")
    put("rope.scaling.yarn_log_multiplier", "f32", 0.1 * r.scaling.mscale_all_dim)
    r.scaling.mscale, r.scaling.mscale_all_dim = nil, nil
  end
  return rope.put(put, r, n_rot, need(config, "max_position_embeddings"))
end

families.deepseek_v2 = { arch = "deepseek2", act = SILU, own_settings = true, layer = LATENT, experts = { "mlp.experts" }, tensor = split_latent,
  settings = function(config, put)
    refuse(config.topk_method == "group_limited_greedy" and (config.n_group or 1) > 1, "the choice of experts by groups (group_limited_greedy)")
    put("expert_gating_func", "u32", 1)
    return latent_settings(config, put)
  end }
families.deepseek_v3 = { arch = "deepseek2", act = SILU, own_settings = true, layer = LATENT, experts = { "mlp.experts" }, tensor = split_latent,
  whole = { ["mlp.gate.e_score_correction_bias"] = "exp_probs_b.bias" },
  settings = function(config, put)
    refuse(config.rope_interleave == false, "rope_interleave = false")
    put("expert_gating_func", "u32", 2)
    put("expert_group_count", "u32", config.n_group or 1)
    put("expert_group_used_count", "u32", config.topk_group or 1)
    return latent_settings(config, put)
  end }

-- ---- Qwen 3.5: gated delta net, and every few layers attention ------------------------------------

families.qwen3_5_text = { arch = "qwen35", act = SILU,
  layer = { post_attention_layernorm = "post_attention_norm", ["linear_attn.in_proj_qkv"] = "attn_qkv", ["linear_attn.in_proj_z"] = "attn_gate",
    ["linear_attn.in_proj_b"] = "ssm_beta", ["linear_attn.in_proj_a"] = "ssm_alpha", ["linear_attn.conv1d"] = "ssm_conv1d",
    ["linear_attn.norm"] = "ssm_norm", ["linear_attn.out_proj"] = "ssm_out" },
  whole = { ["linear_attn.A_log"] = "ssm_a", ["linear_attn.dt_bias"] = "ssm_dt.bias" },
  tensor = function(config, use)
    if use.name:find("%.ssm_a$") then use.change = "minus_exp" elseif not use.name:find("ssm_norm") then plus_one(config, use) end
  end,
  settings = function(config, put)
    local n_k, n_v = positive(config, "linear_num_key_heads"), positive(config, "linear_num_value_heads")
    refuse(n_k ~= n_v, "more value heads than key heads (their order differs from GGUF's; a GGUF file runs)")
    local interval = config.full_attention_interval or 4
    for i, kind in ipairs(config.layer_types or {}) do
      if kind == "full_attention" then interval = i break end
    end
    for i, kind in ipairs(config.layer_types or {}) do
      refuse((kind == "full_attention") ~= (i % interval == 0), "an irregular order of attention and delta net layers")
    end
    put("full_attention_interval", "u32", interval)
    put("ssm.conv_kernel", "u32", need(config, "linear_conv_kernel_dim"))
    put("ssm.state_size", "u32", need(config, "linear_key_head_dim"))
    put("ssm.group_count", "u32", n_k)
    put("ssm.time_step_rank", "u32", n_v)
    put("ssm.inner_size", "u32", n_v * positive(config, "linear_value_head_dim"))
    local r = rope.read(config)
    local share = r.scaling.partial_rotary_factor or config.partial_rotary_factor or 0.25
    return rope.put(put, r, math.tointeger(families.head_dim(config) * share // 1), need(config, "max_position_embeddings"))
  end }

-- ---- no attention ----------------------------------------------------------------------------------

families.mamba2 = { arch = "mamba2", act = SILU, own_settings = true,
  top = { ["embeddings.weight"] = "token_embd.weight", ["norm_f.weight"] = "output_norm.weight", ["lm_head.weight"] = "output.weight" },
  layer = { norm = "attn_norm", ["mixer.in_proj"] = "ssm_in", ["mixer.conv1d"] = "ssm_conv1d", ["mixer.norm"] = "ssm_norm", ["mixer.out_proj"] = "ssm_out" },
  whole = { ["mixer.A_log"] = "ssm_a", ["mixer.D"] = "ssm_d", ["mixer.dt_bias"] = "ssm_dt.bias" },
  tensor = function(_, use)
    if use.name:find("%.ssm_a$") then use.change = "minus_exp" end
  end,
  settings = function(config, put)
    local inner = positive(config, "num_heads") * positive(config, "head_dim")
    refuse(config.use_bias == true, "use_bias")
    refuse(inner ~= (config.expand or 2) * positive(config, "hidden_size"), "a number of heads that does not fill expand * hidden_size")
    put("block_count", "u32", need(config, "num_hidden_layers"))
    put("embedding_length", "u32", config.hidden_size)
    put("context_length", "u32", 1 << 20)  -- its state has no end; what llama.cpp's converter writes
    put("feed_forward_length", "u32", 0)
    put("attention.head_count", "u32", 0)
    put("attention.layer_norm_rms_epsilon", "f32", config.layer_norm_epsilon or 1e-5)
    put("ssm.inner_size", "u32", inner)
    put("ssm.state_size", "u32", need(config, "state_size"))
    put("ssm.conv_kernel", "u32", need(config, "conv_kernel"))
    put("ssm.time_step_rank", "u32", config.num_heads)
    put("ssm.group_count", "u32", config.n_groups or 1)
  end }

-- ---- encoders --------------------------------------------------------------------------------------

local BERT_LAYER = {
  ["attention.self.query"] = "attn_q", ["attention.self.key"] = "attn_k", ["attention.self.value"] = "attn_v",
  ["attention.output.dense"] = "attn_output", ["attention.output.LayerNorm"] = "attn_output_norm", ["intermediate.dense"] = "ffn_up",
  ["output.dense"] = "ffn_down", ["output.LayerNorm"] = "layer_output_norm",
}
families.bert = { arch = "bert", encoder = true, own_settings = true, unused = { "^pooler%.", "^cls%." }, act = { gelu = true, gelu_new = true, gelu_pytorch_tanh = true }, layers = "encoder.layer", parts = BERT_LAYER,
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
