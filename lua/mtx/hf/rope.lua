-- SPDX-License-Identifier: MIT
-- Rotary settings of a config.json as GGUF's metadata. Formulas: transformers'
-- modeling_rope_utils.
local rope = {}

-- The settings in either spelling: `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling`.
-- Some models have a set for each kind of layer: `kind` names one ("full_attention").
-- -> {theta, kind of scaling or "default", settings of it}
function rope.read(config, kind)
  local p = config.rope_parameters or config.rope_scaling or {}
  if kind and p[kind] then p = p[kind] end
  return { theta = p.rope_theta or config.rope_theta or 10000.0, kind = p.rope_type or p.type or "default", scaling = p }
end

-- Llama 3: long waves turn `factor` slower, short ones as ever, those between by a mixture. As divisors of the
-- frequencies, one for each rotary pair.
local function llama3_divisors(r, n_rot)
  local s = r.scaling
  local low, high, factor, original = s.low_freq_factor, s.high_freq_factor, s.factor, s.original_max_position_embeddings
  if not (low and high and factor and original) then error("the llama3 rotary scaling lacks a setting", 0) end
  local divisors = {}
  for i = 0, n_rot // 2 - 1 do
    local turns = original / (2 * math.pi * r.theta ^ (2 * i / n_rot))  -- within the original context
    local smooth = math.min(math.max((turns - low) / (high - low), 0), 1)
    divisors[i + 1] = 1 / ((1 - smooth) / factor + smooth)
  end
  return divisors
end

-- YaRN. The magnitude is what the file's settings give, or 1 + 0.1 ln(factor), which is the C side's own.
local function yarn(put, r, max_positions)
  local s = r.scaling
  if s.truncate == false then error("YaRN without truncation is not supported", 0) end
  local original = s.original_max_position_embeddings or max_positions
  local factor = s.factor or max_positions / original
  local function magnitude(scale) return factor > 1 and 0.1 * (scale or 1) * math.log(factor) + 1 or 1 end
  put("rope.scaling.type", "string", "yarn")
  put("rope.scaling.factor", "f32", factor)
  put("rope.scaling.original_context_length", "u32", original)
  put("rope.scaling.yarn_beta_fast", "f32", s.beta_fast or 32)
  put("rope.scaling.yarn_beta_slow", "f32", s.beta_slow or 1)
  local want = s.attention_factor
  if not want and s.mscale and s.mscale_all_dim then want = magnitude(s.mscale) / magnitude(s.mscale_all_dim) end
  if want then put("rope.scaling.attn_factor", "f32", want / magnitude()) end
end

-- Puts the settings; -> divisors of the frequencies where they need some, as a list of numbers.
-- put(key, type, value) adds "<architecture>.KEY".
function rope.put(put, r, n_rot, max_positions)
  put("rope.dimension_count", "u32", n_rot)
  put("rope.freq_base", "f32", r.theta)
  if r.kind == "default" then return nil end
  if r.kind == "linear" then
    put("rope.scaling.type", "string", "linear")
    put("rope.scaling.factor", "f32", r.scaling.factor)
  elseif r.kind == "llama3" then
    return llama3_divisors(r, n_rot)
  elseif r.kind == "yarn" then
    yarn(put, r, max_positions)
  else
    error("rotary scaling of type '" .. tostring(r.kind) .. "' is not supported", 0)
  end
end

return rope
