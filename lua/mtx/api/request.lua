-- SPDX-License-Identifier: MIT
-- The neutral forms every dialect is translated to and from. One form inside
-- means that a dialect is one pure file and that equal requests behave equally
-- on every API (temperature 0 gives the same bytes on all).
--
-- A request:
--   dialect        "ollama" | "openai" | "anthropic" | "llama"
--   task           "chat" | "text"
--   model          name as the client wrote it
--   messages       chat: list of {role = system|user|assistant|tool, content = text,
--                  reasoning_content, images = {bytes}, tool_call_id, name,
--                  tool_calls = {{id, type = "function", ["function"] = {name, arguments = table}}}}
--   tools          list of {type = "function", ["function"] = {name, description, parameters}}
--   tool_choice    nil | "auto" | "none" | "required" | {name = text}
--   parallel_tool_calls  false = at most one call
--   prompt         text: string, or list of token ids
--   suffix         text: fill in the middle up to this
--   raw            text: no template around the prompt
--   system, template, images, context   Ollama's generate
--   format         nil | {kind = "json"} | {kind = "schema", schema = table, strict = refuse what cannot be enforced} | {kind = "gbnf", text = text}
--   think          nil (model decides) | true | false | "low" | "medium" | "high" | "max"
--   think_budget   tokens a thought may have; then it is ended, behind think_message when there is one
--   template_args  extra variables for the template
--   continue       chat: the last assistant message is to be continued
--   max_tokens     nil = up to the context; n (choices), stop (list of text)
--   keep           nil, or how many of the n are given: those with the best logprobs (drop_logprobs: without them)
--   sampler        only what the client set; see SAMPLER_DEFAULTS. Beside the engine's own options: cfg_scale and
--                  negative_prompt (model/guidance.lua), banned_strings, dry_sequence_breakers, script (the field "sampler":
--                  a name of the owner's script) and script_options ("sampler_options")
--   logprobs       nil = none | number of alternatives (0 = chosen token only)
--   echo           text: the prompt's text comes back first
--   stream, include_usage, keep_alive (seconds, math.huge = for ever)
--   shift, n_keep  at a full context go on with the first n_keep tokens and the younger half of the rest
--   merge_turns    chat: neighbouring turns of one role become one
--   return_progress, timings, reasoning_control  llama-server's: progress events; events carry `usage` (what it cost
--                  so far: n_prompt, n_cached, n_generated, prefill_ms, decode_ms); thoughts can be ended by order
--   unknown_options  nil, or names in Ollama's options that mean nothing here (cleaned, sorted)
--   num_ctx, truncate, priority, deadline_ms, cache_key, request_id, ignore_eos
--   draft          nil = the server's choice | false = no drafts | {max}: drafts of at most so many tokens (nil = as usual)
--   prediction     text that the reply will mostly repeat: drafts are made of it
--   lora           nil = the server's choice | list of {name or id (from 0), scale}: the LoRA adapters, all others are off
--
-- Events, in order, each with `choice` (from 0):
--   {kind = "start", n_prompt, n_cached}; {kind = "progress", total, cache, processed, time_ms} when asked for
--   {kind = "text", text, logprobs} ; {kind = "thinking", text}
--   {kind = "call", index (from 0), id, name}, then {kind = "arguments", index, text} (parts of a
--   JSON text, they only append), then {kind = "call_end", index} or, when the call was cut off or is broken,
--   {kind = "call_cut", index, text}: what the model wrote of it
--   {kind = "done", reason = "stop" | "length" | "tool_calls" | "cancelled" | "error", stop_string, fault,
--    n_prompt, n_cached, n_generated, queue_ms, prefill_ms, decode_ms}
-- A job's usage has n_drafted and n_draft_accepted as well, where there were drafts.
--
-- Fault.kind (api/check.lua), the neutral name of an error: "invalid", "auth", "forbidden",
-- "not_found", "conflict", "too_large", "rate_limit", "queue_full", "context", "unsupported",
-- "unavailable", "internal".
local check = require("mtx.api.check")

local request = {}

-- Defaults by dialect (the peers' documented ones); a model's own defaults rank
-- between these and the request.
request.SAMPLER_DEFAULTS = {
  ollama = { temperature = 0.8, top_k = 40, top_p = 0.9, min_p = 0.0, typical_p = 1.0, repeat_penalty = 1.0, repeat_last_n = 64 },
  openai = { temperature = 1.0, top_k = 0, top_p = 1.0, min_p = 0.0 },
  anthropic = { temperature = 1.0, top_k = 0, top_p = 1.0, min_p = 0.0 },
  llama = { temperature = 0.8, top_k = 40, top_p = 0.95, min_p = 0.05, repeat_penalty = 1.0, repeat_last_n = 64 },
}

-- Upper limits of what one request may ask for.
request.MAX = { n = 16, stop = 32, stop_bytes = 1024, logit_bias = 1024, top_logprobs = 20, tools = 512, messages = 8192,
  images = 64, lora = 16, draft = 32, inputs = 2048, prompts = 64 }

-- Further samplers under llama-server's names: {field, lowest, highest}.
local MORE_NUMBERS = { { "dynatemp_range", 0, 100 }, { "dynatemp_exponent", 0, 100 }, { "top_n_sigma", -1, 100 }, { "top_a", 0, 100 },
  { "epsilon", 0, 1 }, { "eta", 0, 1 }, { "xtc_probability", 0, 1 }, { "xtc_threshold", 0, 1 }, { "dry_multiplier", 0, 100 }, { "dry_base", 1, 100 },
  { "mirostat_tau", 0, 100 }, { "mirostat_eta", 0, 1 }, { "adaptive_target", -1, 1 }, { "adaptive_decay", 0, 1 } }
local MORE_INTEGERS = { { "dry_allowed_length", 1 }, { "dry_last_n", -1 }, { "mirostat", 0, 2 } }

-- Reads the sampler fields found under their common names in `t` into a new
-- table. `where` prefixes error texts ("options.").
function request.sampler(t)
  local s = {
    temperature = check.number(t, "temperature", 0, 100),
    top_k = check.integer(t, "top_k", -1),
    top_p = check.number(t, "top_p", 0, 1),
    min_p = check.number(t, "min_p", 0, 1),
    typical_p = check.number(t, "typical_p", 0, 1),
    repeat_penalty = check.number(t, "repeat_penalty", 0.000001, 100),
    repeat_last_n = check.integer(t, "repeat_last_n", -1),
    presence_penalty = check.number(t, "presence_penalty", -2, 2),
    frequency_penalty = check.number(t, "frequency_penalty", -2, 2),
    seed = check.integer(t, "seed"),
    cfg_scale = check.number(t, "cfg_scale", -100, 100),
    negative_prompt = check.string(t, "negative_prompt"),
    dry_sequence_breakers = check.strings(t, "dry_sequence_breakers", nil, 16, 100),
    banned_strings = check.strings(t, check.get(t, "banned_strings") == nil and "bad_words" or "banned_strings", nil, 64, request.MAX.stop_bytes),
    script = check.string(t, "sampler"),
    script_options = check.object(t, "sampler_options"),
  }
  for _, f in ipairs(MORE_NUMBERS) do s[f[1]] = check.number(t, f[1], f[2], f[3]) end
  for _, f in ipairs(MORE_INTEGERS) do s[f[1]] = check.integer(t, f[1], f[2], f[3]) end
  if s.top_k == -1 then s.top_k = 0 end
  if s.seed and s.seed < 0 then s.seed = nil end -- negative = a fresh one
  return s
end

-- Our stage names by llama-server's; false = known there, no stage of ours.
local STAGES = { typ_p = "typical_p", infill = false }
for _, name in ipairs({ "penalties", "dry", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "top_a", "epsilon", "eta", "xtc", "temperature" }) do
  STAGES[name] = name
end

-- llama-server's `samplers`: the stages in their order, or nil.
function request.samplers(body)
  local names = check.array(body, "samplers", nil, 16)
  if not names then return nil end
  local order = {}
  for i, n in ipairs(names) do
    if type(n) ~= "string" then check.fail(400, "samplers[" .. (i - 1) .. "] must be a string") end
    local known = STAGES[n]
    if known == nil then check.fail(400, "samplers[" .. (i - 1) .. "]: unknown sampler " .. n:sub(1, 40)) end
    if known then order[#order + 1] = known end
  end
  return #order > 0 and order or nil
end

-- {"5": -100} or {{5, -100}, {"text", false}, {5, -100, 20}} -> {id = bias or {bias, n}}: a third
-- number is how many generated tokens the bias acts on. Texts are left
-- as {text = bias} for the tokenizer (serve/generate).
function request.logit_bias(t, k)
  k = k or "logit_bias"
  local v = check.get(t, k)
  if v == nil then return nil end
  if type(v) ~= "table" then check.fail(400, k .. " must be an object or an array of pairs", { param = k }) end
  local out, n = {}, 0
  local function put(id, bias, n_tokens)
    if bias == false then bias = -math.huge end
    if type(bias) ~= "number" then check.fail(400, k .. ": a bias must be a number", { param = k }) end
    n = n + 1
    if n > request.MAX.logit_bias then check.fail(400, k .. " has more than " .. request.MAX.logit_bias .. " entries", { param = k }) end
    if n_tokens ~= nil then
      n_tokens = type(n_tokens) == "number" and math.tointeger(n_tokens)
      if not n_tokens or n_tokens < 1 then check.fail(400, k .. ": a bias expires after a whole number of tokens, at least 1", { param = k }) end
      bias = { bias, n_tokens }
    end
    out[id] = bias
  end
  if #v > 0 then
    for i, pair in ipairs(v) do
      if type(pair) ~= "table" or #pair < 2 then check.fail(400, k .. "[" .. (i - 1) .. "] must be a pair", { param = k }) end
      local id = type(pair[1]) == "number" and math.tointeger(pair[1]) or pair[1]
      if type(id) ~= "string" and math.type(id) ~= "integer" then check.fail(400, k .. "[" .. (i - 1) .. "] must name a token", { param = k }) end
      put(id, pair[2], pair[3])
    end
  else
    for id, bias in pairs(v) do
      local i = id:find("^%d+$") and #id < 10 and math.tointeger(tonumber(id))
      if not i then check.fail(400, k .. ": " .. string.format("%q", id:sub(1, 40)) .. " is no token id", { param = k }) end
      put(i, bias)
    end
  end
  return next(out) and out or nil
end

-- Adapters of a request: a name, or a list of names and of {name | id, scale = 1}. nil when absent or empty.
function request.lora(t)
  local v = check.get(t, "lora")
  if type(v) == "string" then return { { name = v, scale = 1.0 } } end
  local list, out = check.array(t, "lora", nil, request.MAX.lora), {}
  for i, item in ipairs(list or {}) do
    local where = "lora[" .. (i - 1) .. "]"
    if type(item) == "string" then item = { name = item } end
    if type(item) ~= "table" then check.fail(400, where .. " must be a name or an object with name or id, and scale", { param = "lora" }) end
    local name, id = check.string(item, "name", where .. ".name"), check.integer(item, "id", 0, nil, where .. ".id")
    if not name == not id then check.fail(400, where .. " needs a name or an id", { param = "lora" }) end
    out[i] = { name = name, id = id, scale = check.number(item, "scale", -1e6, 1e6, where .. ".scale") or 1.0 }
  end
  return out[1] and out or nil
end

-- Drafts of this request: `speculative`, or their length in llama-server's or Ollama's field (0 = none).
function request.draft(r, t)
  local on = check.boolean(t, "speculative")
  local max = check.integer(t, "speculative.n_max", 0) or check.integer(t, "draft_num_predict", 0)
  if on == false or max == 0 then r.draft = false
  elseif on or max then r.draft = { max = max and math.min(max, request.MAX.draft) } end
end

-- When an answer is an error, or with llama-server's field just over.
local function deadline(r, t)
  local most = check.integer(t, "t_max_predict_ms", 1)
  r.deadline_ms, r.soft_deadline = most or check.integer(t, "deadline_ms", 1), most ~= nil
end

-- What goes beyond the dialects and is the same in all but Ollama's, which has some of it among its options.
function request.beyond(r, t)
  r.priority = check.integer(t, "priority", -100, 100)
  deadline(r, t)
  r.request_id = check.string(t, "request_id")
  r.n_keep, r.shift = check.integer(t, "n_keep"), check.boolean(t, "shift")
  local options = check.object(t, "options")
  if options then r.num_ctx = check.integer(options, "num_ctx", 1, nil, "options.num_ctx") end
  if check.boolean(t, "cache_prompt") == false then r.no_cache = true end
  r.lora = request.lora(t)
  request.draft(r, t)
end

-- Budget and message of thoughts, llama-server's fields; -1 = no limit, 0 = do not think.
function request.think_budget(r, t)
  local n = check.integer(t, "thinking_budget_tokens", -1) or check.integer(t, "reasoning_budget_tokens", -1)
  if n == 0 and r.think == nil then r.think = false end
  if n and n > 0 then r.think_budget = n end
  r.think_message = check.string(t, "reasoning_budget_message")
end

-- The stop strings of a request; empty ones would stop at once and are refused.
function request.stop(t, k)
  local list = check.strings(t, k, k, request.MAX.stop, request.MAX.stop_bytes)
  if not list then return nil end
  local out = {}
  for _, s in ipairs(list) do
    if s ~= "" then out[#out + 1] = s end
  end
  return out
end

return request
