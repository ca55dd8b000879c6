-- SPDX-License-Identifier: MIT
-- The sampler's options, shared by every command that generates text.
local core = require("mtx.core")

local sampling = {}

sampling.options = {
  { name = "temp", kind = "number", value = "T", help = "temperature; 0 takes the likeliest token" },
  { name = "top-k", kind = "integer", value = "N", help = "keep the N likeliest tokens, 0 = all" },
  { name = "top-p", kind = "number", value = "P", help = "keep the smallest set with probability P" },
  { name = "min-p", kind = "number", value = "P", help = "drop tokens below P times the best" },
  { name = "typical", kind = "number", value = "P", help = "locally typical sampling, 1 = off" },
  { name = "top-n-sigma", kind = "number", value = "N", help = "keep logits within N deviations of the best" },
  { name = "repeat-penalty", kind = "number", value = "X", help = "divide logits of recent tokens, 1 = off" },
  { name = "repeat-last-n", kind = "integer", value = "N", help = "tokens that count as recent, -1 = all" },
  { name = "presence-penalty", kind = "number", value = "X", help = "subtract X once from tokens seen" },
  { name = "frequency-penalty", kind = "number", value = "X", help = "subtract X for each time seen" },
  { name = "dynatemp-range", kind = "number", value = "X", help = "let temperature move by X with the entropy, 0 = off" },
  { name = "dynatemp-exp", kind = "number", value = "X", help = "exponent of that" },
  { name = "top-a", kind = "number", value = "A", help = "drop tokens below A times the best's square, 0 = off" },
  { name = "epsilon", kind = "number", value = "E", help = "drop tokens below probability E, 0 = off" },
  { name = "eta", kind = "number", value = "E", help = "the same, lower where the entropy is high" },
  { name = "xtc-probability", kind = "number", value = "P", help = "how often XTC drops the likeliest tokens, 0 = off" },
  { name = "xtc-threshold", kind = "number", value = "P", help = "those above P, all but the last" },
  { name = "dry-multiplier", kind = "number", value = "X", help = "DRY: penalty of a repeat, 0 = off" },
  { name = "dry-base", kind = "number", value = "X", help = "DRY: growth with its length" },
  { name = "dry-allowed-length", kind = "integer", value = "N", help = "DRY: tokens that may repeat" },
  { name = "dry-penalty-last-n", kind = "integer", value = "N", help = "DRY: tokens looked at, -1 = all" },
  { name = "dry-sequence-breaker", kind = "list", value = "TEXT", help = "DRY: repeats end here (repeatable)" },
  { name = "mirostat", kind = "integer", value = "N", help = "mirostat 1 or 2 instead of cuts, 0 = off" },
  { name = "mirostat-ent", kind = "number", value = "X", help = "mirostat: surprise aimed at, in bits" },
  { name = "mirostat-lr", kind = "number", value = "X", help = "mirostat: learning rate" },
  { name = "adaptive-target", kind = "number", value = "P", help = "prefer tokens near this probability, -1 = off" },
  { name = "adaptive-decay", kind = "number", value = "X", help = "how slowly that forgets" },
  { name = "banned-string", kind = "list", value = "TEXT", help = "never write this (repeatable)" },
  { name = "cfg-scale", kind = "number", value = "X", help = "guide away from the negative prompt, 1 = off" },
  { name = "negative-prompt", kind = "string", value = "TEXT", help = "in a chat it stands for the system message" },
  { name = "draft", kind = "string", value = "KIND", choices = { "lookup", "off" }, help = "guess tokens ahead: lookup (what followed the same text before), off; the answer is the same" },
  { name = "draft-max", also = { "spec-draft-n-max" }, kind = "integer", min = 1, max = 32, value = "N", help = "longest draft in tokens" },
  { name = "seed", also = { "s" }, kind = "integer", value = "N", help = "same seed, same answer; negative = random" },
  { name = "logit-bias", kind = "list", value = "ID=X[:N]", help = "add X to the logit of a token, for N tokens (repeatable)" },
  { name = "samplers", kind = "string", value = "A,B", help = "order of the samplers" },
}

local FIELDS = {
  temp = "temperature", top_k = "top_k", top_p = "top_p", min_p = "min_p", typical = "typical_p", top_n_sigma = "top_n_sigma",
  repeat_penalty = "repeat_penalty", repeat_last_n = "repeat_last_n", presence_penalty = "presence_penalty",
  frequency_penalty = "frequency_penalty", seed = "seed", dynatemp_range = "dynatemp_range", dynatemp_exp = "dynatemp_exponent", top_a = "top_a",
  epsilon = "epsilon", eta = "eta", xtc_probability = "xtc_probability", xtc_threshold = "xtc_threshold", dry_multiplier = "dry_multiplier",
  dry_base = "dry_base", dry_allowed_length = "dry_allowed_length", dry_penalty_last_n = "dry_last_n", dry_sequence_breaker = "dry_sequence_breakers",
  mirostat = "mirostat", mirostat_ent = "mirostat_tau", mirostat_lr = "mirostat_eta", adaptive_target = "adaptive_target",
  adaptive_decay = "adaptive_decay", banned_string = "banned_strings", cfg_scale = "cfg_scale", negative_prompt = "negative_prompt",
}

-- The core's own opinion of a sampler table, before a model is loaded; token ids
-- are looked at with the model. -> true | nil, message
local function check(t)
  local trial = {}
  for k, v in pairs(t) do trial[k] = v end
  trial.logit_bias = nil
  local ok, sampler, message = pcall(core.sampler, trial, 4096)
  if ok and sampler then return true end
  return nil, ok and message or sampler
end

-- Sets one number of a sampler table by its option's or its field's name.
-- -> the field's name | nil, message
function sampling.set(t, name, number)
  local wanted = name:gsub("%-", "_")
  for _, o in ipairs(sampling.options) do
    local key = o.name:gsub("%-", "_")
    local field = FIELDS[key]
    if field and (o.kind == "number" or o.kind == "integer") and (key == wanted or field == wanted) then
      local trial = {}
      for k, v in pairs(t) do trial[k] = v end
      trial[field] = number
      local ok, message = check(trial)
      if not ok then return nil, message end
      t[field] = number
      return field
    end
  end
  return nil, "no number is called " .. name .. "; `mtx run --help` lists them"
end

-- Parsed values -> the sampler table of model:generate | nil, message
function sampling.table(values, defaults)
  local out = {}
  for k, v in pairs(defaults or {}) do out[k] = v end
  for from, to in pairs(FIELDS) do
    local v = values[from]
    if v ~= nil and not (type(v) == "table" and #v == 0) then out[to] = v end
  end
  for _, pair in ipairs(values.logit_bias or {}) do
    local id, x, n = pair:match("^(%d+)=([%+%-]?[%d%.einf]+):?(%d*)$")
    x = x == "-inf" and -math.huge or tonumber(x)
    if not x then return nil, "--logit-bias needs ID=NUMBER or ID=NUMBER:TOKENS, not '" .. pair .. "'" end
    out.logit_bias = out.logit_bias or {}
    out.logit_bias[math.tointeger(id)] = n ~= "" and { x, math.tointeger(n) } or x
  end
  if values.draft then out.draft = values.draft ~= "off" and { kind = values.draft, max = values.draft_max } end
  if values.samplers then
    out.order = {}
    for name in values.samplers:gmatch("[^,;%s]+") do out.order[#out.order + 1] = name end
  end
  local ok, message = check(out)
  if not ok then return nil, message end
  return out
end

return sampling
