-- SPDX-License-Identifier: MIT
-- The fields that a script may give: options of mtx.load, requests (model:generate, stream, beam), mtx.quantize's.
local misuse = require("mtx.model.misuse")
local nearest = require("mtx.nearest")

local fields = {}

fields.SAMPLER = {
  "temperature", "dynatemp_range", "dynatemp_exponent", "top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "top_a", "epsilon", "eta",
  "xtc_probability", "xtc_threshold", "repeat_penalty", "repeat_last_n", "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base",
  "dry_allowed_length", "dry_last_n", "dry_breakers", "mirostat", "mirostat_tau", "mirostat_eta", "adaptive_target", "adaptive_decay", "seed",
  "logit_bias", "order",
}

-- The fields a call takes: the names in `text` and in `more`, as a list and as a set.
local function fields_of(text, more)
  local list = { set = {} }
  for field in text:gmatch("%S+") do list[#list + 1] = field end
  table.move(more, 1, #more, #list + 1, list)
  for _, field in ipairs(list) do list.set[field] = true end
  return list
end

fields.REQUEST = fields_of([[messages prompt tokens tools kwargs add_generation_prompt continue_final_message max_tokens stop
  banned_strings grammar grammar_triggers grammar_opening logprobs ignore_eos shown priority deadline_ms cache_key lora draft cfg_scale
  negative_prompt sampler sampler_options dry_sequence_breakers]], fields.SAMPLER)
fields.BEAM = fields_of([[messages prompt tokens tools kwargs add_generation_prompt continue_final_message max_tokens ignore_eos lora]],
  { "n_beams", "n_best", "length_penalty" })
fields.LOAD = fields_of([[ctx threads kv_type n_parallel cache_bytes cpu no_memory_check progress warn lora template kv_tokens max_rows
  max_waiting]], {})
fields.QUANTIZE = fields_of("from to type tensor_types rules imatrix threads requantize dry_run force progress", {})

fields.PULL = fields_of("name models_dir hub hub_token pull_hosts pull_max_gb progress", {})

-- A misspelt field would be silently without effect.
function fields.check(request, what, known)
  if type(request) ~= "table" then misuse(("%s needs a table with %s, %s or %s"):format(what, known[1], known[2], known[3])) end
  for field in pairs(request) do
    if not known.set[field] then
      local near = type(field) == "string" and nearest(field, known)
      misuse(("%s has no field '%s'%s"):format(what, tostring(field), near and "; did you mean " .. near .. "?" or ""))
    end
  end
end

-- The same, and every option is of its kind (name -> type's name).
function fields.check_kinds(opts, what, known, kinds)
  fields.check(opts, what, known)
  for name, value in pairs(opts) do
    if type(value) ~= kinds[name] then fields.wrong(what, name, "a " .. kinds[name]) end
  end
end

function fields.wrong(what, name, kind) misuse(("%s: option '%s' must be %s"):format(what, name, kind)) end

return fields
