-- SPDX-License-Identifier: MIT
-- The mixes of llama-quantize: which tensor gets which type. A policy, so it is Lua; `--rules FILE.lua` overrides it.
--
-- Source of the rules: llama-quant.cpp of llama.cpp (0c1e57098); whole files are byte-equal in tests/lua/test_quantize.lua.
local mixes = {}

-- {name, number of the file type, type of most weights}
local LIST <const> = {
  { "F32", 0, "F32" }, { "F16", 1, "F16" }, { "BF16", 32, "BF16" },
  { "Q4_0", 2, "Q4_0" }, { "Q4_1", 3, "Q4_1" }, { "Q5_0", 8, "Q5_0" }, { "Q5_1", 9, "Q5_1" }, { "Q8_0", 7, "Q8_0" },
  { "Q2_K", 10, "Q2_K" }, { "Q2_K_S", 21, "Q2_K" }, { "Q3_K_S", 11, "Q3_K" }, { "Q3_K_M", 12, "Q3_K" }, { "Q3_K_L", 13, "Q3_K" },
  { "Q4_K_S", 14, "Q4_K" }, { "Q4_K_M", 15, "Q4_K" }, { "Q5_K_S", 16, "Q5_K" }, { "Q5_K_M", 17, "Q5_K" }, { "Q6_K", 18, "Q6_K" },
  { "IQ4_NL", 25, "IQ4_NL" }, { "IQ4_XS", 30, "IQ4_XS" },
  { "IQ3_M", 27, "IQ3_S" }, { "IQ3_S", 26, "IQ3_S" }, { "IQ3_XS", 22, "IQ3_S" }, { "IQ3_XXS", 23, "IQ3_XXS" },
  { "IQ2_M", 29, "IQ2_S" }, { "IQ2_S", 28, "IQ2_XS" }, { "IQ2_XS", 20, "IQ2_XS" }, { "IQ2_XXS", 19, "IQ2_XXS" },
  { "IQ1_M", 31, "IQ1_M" }, { "IQ1_S", 24, "IQ1_S" }, { "TQ1_0", 36, "TQ1_0" }, { "TQ2_0", 37, "TQ2_0" },
}
local ALIASES <const> = { Q3_K = "Q3_K_M", Q4_K = "Q4_K_M", Q5_K = "Q5_K_M" }
local PLAIN <const> = { F32 = true, F16 = true, BF16 = true }

function mixes.names()
  local out = {}
  for i, m in ipairs(LIST) do out[i] = m[1] end
  return out
end

-- A mix by its name in any case -> {name, file_type, base} | nil
function mixes.find(text)
  local name = text:upper()
  name = ALIASES[name] or name
  for _, m in ipairs(LIST) do
    if m[1] == name then return { name = name, file_type = m[2], base = m[3] } end
  end
end

-- ---------------------------------------------------------------- what a tensor is

local ROLES <const> = { { "attn_qkv.weight", "value" }, { "attn_kv_b.weight", "value" }, { "attn_v.weight", "value" }, { "attn_k.weight", "key" },
  { "attn_q.weight", "query" }, { "attn_output.weight", "attention_output" }, { "ffn_up", "up" }, { "ffn_gate", "gate" }, { "ffn_down", "down" } }

-- "output", "embedding", "value", "key", "query", "attention_output", "up", "gate", "down" or "other"
function mixes.role(name)
  if name == "output.weight" then return "output" end
  if name == "token_embd.weight" or name == "per_layer_token_embd.weight" then return "embedding" end
  for _, r in ipairs(ROLES) do
    if name:find(r[1], 1, true) then return r[2] end
  end
  return "other"
end

-- Parts of names whose weights are too small or too delicate.
local KEPT <const> = { "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel", "per_layer_model_proj", "ssm_conv1d",
  "shortconv.conv.weight", "indexer.k_proj.weight", "indexer.q_proj.weight", "time_mix_first.weight", "time_mix_w0.weight", "time_mix_w1.weight",
  "time_mix_w2.weight", "time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight", "time_mix_a0.weight", "time_mix_a1.weight",
  "time_mix_a2.weight", "time_mix_g1.weight", "time_mix_g2.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight",
  "time_mix_lerp_fused.weight", "attn_rel_b.weight", ".position_embd", "sam.pos_embd", "sam.neck.", "sam.net_", ".rel_pos", ".patch_embd",
  ".patch_merger", "a.rvq.codebook", "mm.a.code_embd" }

-- May the tensor change its type at all? Vectors, norms and the like may not.
function mixes.may_change(tensor)
  local n_dims = #tensor.shape
  while n_dims > 1 and tensor.shape[n_dims] == 1 do n_dims = n_dims - 1 end
  local name = tensor.name
  if n_dims < 2 or name:sub(-6) ~= "weight" or name == "position_embd.weight" or name == "token_types.weight" then return false end
  for _, part in ipairs(KEPT) do
    if name:find(part, 1, true) then return false end
  end
  return true
end

-- ---------------------------------------------------------------- the mixes
--
-- ROLE[mix] is a type or a function(model, i, n) that gives one (nil: the mix's base), where the tensor is the i-th (from 0) of n
-- of its role. model: {architecture, n_layers, n_heads, n_kv_heads, n_experts, has_imatrix, mix}.

local function gqa(m) return m.n_kv_heads > 0 and m.n_heads // m.n_kv_heads or 0 end

-- The first and last eighth of the layers and every third between.
local function more_bits(i, n) return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2 end

local function when_shared(shared, else_type)
  return function(m) return gqa(m) >= 4 and shared or else_type end
end

local function tiny_value(else_type)
  return function(m) return (gqa(m) >= 4 or m.n_experts >= 4) and "Q4_K" or else_type end
end

local function first_eighth(to) return function(_, i, n) return i < n // 8 and to or nil end end
local function where_more_bits(to) return function(_, i, n) return more_bits(i, n) and to or nil end end

local VALUE <const> = {
  IQ1_S = tiny_value("Q2_K"), IQ1_M = tiny_value("Q2_K"), IQ2_XXS = tiny_value("Q2_K"), IQ2_XS = tiny_value("Q2_K"),
  IQ2_S = tiny_value("IQ3_S"), IQ2_M = tiny_value("IQ3_S"),
  Q2_K = when_shared("Q4_K", "Q3_K"), Q2_K_S = when_shared("Q4_K"), IQ3_XS = when_shared("Q4_K"), IQ3_S = when_shared("Q4_K"), IQ3_M = "Q4_K",
  IQ3_XXS = function(m) return gqa(m) >= 4 and "Q4_K" or m.has_imatrix and "IQ3_XXS" or "IQ3_S" end,
  Q3_K_M = function(_, i) return i < 2 and "Q5_K" or "Q4_K" end, Q3_K_L = "Q5_K",
  IQ4_NL = when_shared("Q5_K"), IQ4_XS = when_shared("Q5_K"),
  Q4_K_S = function(_, i) return i < 4 and "Q5_K" or nil end, Q4_K_M = where_more_bits("Q6_K"), Q5_K_M = where_more_bits("Q6_K"),
}

local function falcon(m) return m.architecture == "falcon" end

local function four_with_importance(to) return function(m, i, n) return m.has_imatrix and i < n // 8 and to or nil end end
local function five_without_importance(m, i, n) return not m.has_imatrix and i < n // 8 and "Q5_K" or nil end

local DOWN <const> = {
  IQ1_S = first_eighth("Q2_K"), IQ1_M = first_eighth("Q2_K"), IQ2_XXS = first_eighth("Q2_K"), IQ2_XS = first_eighth("Q2_K"),
  IQ2_S = first_eighth("IQ3_S"), IQ2_M = first_eighth("IQ3_S"),
  Q2_K = "Q3_K", Q2_K_S = first_eighth("Q4_K"),
  IQ3_XXS = function(m, i, n) return not m.has_imatrix and (i < n // 8 and "Q4_K" or "Q3_K") or nil end,
  IQ3_M = function(m, i, n) return (i < n // 8 or m.n_experts == 8 and more_bits(i, n)) and "Q4_K" or nil end,
  Q3_K_M = function(m, i, n) return i < n // 16 and "Q5_K" or (not falcon(m) or more_bits(i, n)) and "Q4_K" or nil end,
  Q3_K_L = function(m) return falcon(m) and "Q4_K" or "Q5_K" end,
  Q4_K_S = function(m, i, n) return not falcon(m) and i < n // 8 and "Q5_K" or nil end,
  Q4_K_M = function(m, i, n)
    if falcon(m) then return i < n // 16 and "Q6_K" or more_bits(i, n) and "Q5_K" or nil end
    return more_bits(i, n) and "Q6_K" or nil
  end,
  Q5_K_M = where_more_bits("Q6_K"), IQ4_NL = five_without_importance, IQ4_XS = five_without_importance,
  Q4_0 = four_with_importance("Q4_1"), Q5_0 = four_with_importance("Q5_1"),
}

-- Mixes that give the attention output of a model with eight experts more.
local EIGHT_EXPERTS <const> = { IQ1_S = true, IQ1_M = true, IQ2_XXS = true, IQ2_XS = true, IQ2_S = true, IQ2_M = true, Q2_K = true, IQ3_XS = true,
  IQ3_XXS = true, Q3_K_S = true, Q3_K_M = true, IQ4_NL = true, Q4_K_S = true, Q4_K_M = true, IQ3_S = true, IQ3_M = true, IQ4_XS = true }
local TINY <const> = { IQ1_S = true, IQ1_M = true, IQ2_XXS = true, IQ2_XS = true, IQ2_S = true, IQ2_M = true }

local ATTENTION_OUTPUT <const> = { IQ1_S = "IQ2_XXS", IQ1_M = "IQ2_XXS", IQ2_S = "IQ3_S", IQ2_M = "IQ3_S", Q2_K = "Q3_K", IQ3_XXS = "IQ3_S",
  Q3_K_M = "Q4_K", Q3_K_L = "Q5_K", IQ3_M = "Q4_K" }
local QUERY_KEY <const> = { IQ3_XS = "IQ3_XXS", IQ3_XXS = "IQ2_S" }
local EMBEDDING <const> = { IQ1_S = "Q2_K", IQ1_M = "Q2_K", IQ2_XXS = "Q2_K", IQ2_XS = "Q2_K", IQ2_S = "IQ3_S", IQ2_M = "IQ3_S", IQ3_XXS = "IQ3_S",
  TQ1_0 = "Q4_K", TQ2_0 = "Q4_K" }
local OUTPUT_Q5_K <const> = { IQ1_S = true, IQ1_M = true, IQ2_XXS = true, IQ2_XS = true, IQ2_S = true, IQ2_M = true, IQ3_XXS = true }

local function middle(m, i, n)
  return m.mix.name == "IQ3_XS" and i >= n // 8 and i < 7 * n // 8 and "IQ3_XXS" or nil
end

local function rule(of, m, i, n)
  local r = of[m.mix.name]
  if type(r) == "function" then return r(m, i, n) end
  return r
end

local ROLE <const> = {}

function ROLE.output(m, _, _, tensor, block)
  if falcon(m) or tensor.shape[1] % block ~= 0 then return "Q8_0" end
  if OUTPUT_Q5_K[m.mix.name] then return "Q5_K" end
  return m.mix.base ~= "Q8_0" and "Q6_K" or nil
end

function ROLE.embedding(m, i, n, tensor, block)
  if m.is_tied then return ROLE.output(m, i, n, tensor, block) end  -- the output's weights, too
  return EMBEDDING[m.mix.name]
end

function ROLE.value(m, i, n)
  local to = rule(VALUE, m, i, n)
  if TINY[m.mix.name] then return to end
  local to_or_base = to or m.mix.base
  local is_70b = m.architecture == "llama" and m.n_layers == 80 and m.n_heads ~= m.n_kv_heads
  if is_70b and (to_or_base == "Q3_K" or to_or_base == "Q4_K") then to = "Q5_K" end
  return m.n_experts == 8 and "Q8_0" or to
end

function ROLE.key(m)
  if m.n_experts == 8 then return TINY[m.mix.name] and "Q4_K" or "Q8_0" end
  return QUERY_KEY[m.mix.name]
end

function ROLE.query(m) return QUERY_KEY[m.mix.name] end

function ROLE.attention_output(m)
  if falcon(m) and not TINY[m.mix.name] then return m.mix.name == "Q3_K_L" and "Q4_K" or nil end
  if m.n_experts == 8 then return EIGHT_EXPERTS[m.mix.name] and "Q5_K" or nil end
  return ATTENTION_OUTPUT[m.mix.name]
end

function ROLE.down(m, i, n) return rule(DOWN, m, i, n) end
ROLE.up, ROLE.gate = middle, middle

-- The type that the model's mix gives to a tensor that may change. i, n: it is the i-th (from 0) of n of its role.
-- block: elements of a block of the mix's base.
function mixes.choose(model, tensor, role, i, n, block)
  local of = not PLAIN[model.mix.base] and ROLE[role]
  return of and of(model, i, n, tensor, block) or model.mix.base
end

-- Where rows do not divide into blocks.
local FALLBACK <const> = { IQ1_S = "IQ4_NL", IQ1_M = "IQ4_NL", IQ2_XXS = "IQ4_NL", IQ2_XS = "IQ4_NL", IQ2_S = "IQ4_NL", IQ3_XXS = "IQ4_NL",
  IQ3_S = "IQ4_NL", IQ4_XS = "IQ4_NL", Q2_K = "Q4_0", Q3_K = "Q4_0", TQ1_0 = "Q4_0", TQ2_0 = "Q4_0", Q4_K = "Q5_0", Q5_K = "Q5_1",
  Q6_K = "Q8_0" }

-- block_of(type) -> elements of a block. -> a type whose blocks divide rows of n
function mixes.that_fits(type_name, n, block_of)
  if n % block_of(type_name) == 0 then return type_name end
  local other = FALLBACK[type_name]
  return other and n % block_of(other) == 0 and other or "F16"
end

local NEEDS_IMPORTANCE <const> = { IQ1_S = true, IQ1_M = true, IQ2_XXS = true, IQ2_XS = true, IQ2_S = true, IQ3_XXS = true }

-- Would the tensor be garbage in this type without importance?
function mixes.needs_importance(mix, role, type_name)
  if role == "output" or role == "embedding" then return false end
  return NEEDS_IMPORTANCE[type_name] or type_name == "Q2_K" and mix.name == "Q2_K_S" or false
end

return mixes
