-- SPDX-License-Identifier: MIT
-- The sampler's options, shared by every command that generates text.
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
  { name = "seed", kind = "integer", value = "N", help = "same seed, same answer; negative = random" },
  { name = "logit-bias", kind = "list", value = "ID=X", help = "add X to the logit of a token (repeatable)" },
  { name = "samplers", kind = "string", value = "A,B", help = "order of the samplers" },
}

local FIELDS = {
  temp = "temperature", top_k = "top_k", top_p = "top_p", min_p = "min_p", typical = "typical_p", top_n_sigma = "top_n_sigma",
  repeat_penalty = "repeat_penalty", repeat_last_n = "repeat_last_n", presence_penalty = "presence_penalty",
  frequency_penalty = "frequency_penalty", seed = "seed",
}

-- Parsed values -> the sampler table of model:generate | nil, message
function sampling.table(values, defaults)
  local out = {}
  for k, v in pairs(defaults or {}) do out[k] = v end
  for from, to in pairs(FIELDS) do
    if values[from] ~= nil then out[to] = values[from] end
  end
  for _, pair in ipairs(values.logit_bias or {}) do
    local id, x = pair:match("^(%d+)=([%+%-]?[%d%.einf]+)$")
    if not id then return nil, "--logit-bias needs ID=NUMBER, not '" .. pair .. "'" end
    out.logit_bias = out.logit_bias or {}
    out.logit_bias[math.tointeger(id)] = x == "-inf" and -math.huge or tonumber(x)
  end
  if values.samplers then
    out.order = {}
    for name in values.samplers:gmatch("[^,;%s]+") do out.order[#out.order + 1] = name end
  end
  return out
end

return sampling
