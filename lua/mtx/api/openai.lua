-- SPDX-License-Identifier: MIT
-- OpenAI's chat completions, completions and embeddings: body -> neutral request
-- (api.md, sections 2.1 and 2.4). The replies are in openai_reply.lua.
local check = require("mtx.api.check")
local custom_tool = require("mtx.api.custom_tool")
local messages = require("mtx.api.messages")
local request = require("mtx.api.request")

local openai = {}

local get, fail = check.get, check.fail
local ROLES = { system = "system", developer = "system", user = "user", assistant = "assistant", tool = "tool", ["function"] = "tool" }

-- The reader of content parts (messages.content) of an API of OpenAI's whose image parts are of type `image_type`.
function openai.part(image_type)
  return function(p, where)
    if p.type == image_type then
      local url = p.image_url
      if type(url) == "table" then url = url.url end
      return nil, messages.image(url, where .. ".image_url")
    end
    if p.type == "refusal" then return check.string(p, "refusal", where) end
    fail(400, where .. ": content part type " .. tostring(p.type):sub(1, 40) .. " is not supported")
  end
end
local part = openai.part("image_url")

local function read_calls(list, where)
  local calls = {}
  for j, c in ipairs(list) do
    local at = where .. ".tool_calls[" .. (j - 1) .. "]"
    if type(c) == "table" and c.type == "custom" and type(c.custom) == "table" then
      calls[j] = messages.call(c.custom.name, custom_tool.arguments(c.custom, at .. ".custom"), c.id, at)
    else
      if type(c) ~= "table" or type(c["function"]) ~= "table" then fail(400, at .. ".function must be an object") end
      calls[j] = messages.call(c["function"].name, c["function"].arguments, c.id, at)
    end
  end
  return #calls > 0 and calls or nil
end

-- body.messages -> neutral messages.
function openai.messages(body)
  local list = check.array(body, "messages", nil, request.MAX.messages)
  if not list then fail(400, "messages is required", { param = "messages" }) end
  if #list == 0 then fail(400, "[] is too short - 'messages'", { param = "messages" }) end
  local out = {}
  for i, m in ipairs(list) do
    local where = "messages[" .. (i - 1) .. "]"
    if type(m) ~= "table" then fail(400, where .. " must be an object") end
    local role = ROLES[check.string(m, "role", where .. ".role") or ""]
    if not role then fail(400, where .. ".role must be system, developer, user, assistant or tool") end
    local text, images = messages.content(get(m, "content"), where .. ".content", part)
    local calls = check.array(m, "tool_calls", where .. ".tool_calls")
    calls = calls and read_calls(calls, where)
    if not text and not calls and role ~= "assistant" then fail(400, where .. ".content is required") end
    out[i] = { role = role, content = text or "", images = images, tool_calls = calls,
      reasoning_content = check.string(m, "reasoning_content", where .. ".reasoning_content") or check.string(m, "reasoning", where .. ".reasoning"),
      tool_call_id = check.string(m, "tool_call_id", where .. ".tool_call_id"), name = check.string(m, "name", where .. ".name") }
  end
  return out
end

local EFFORT = { none = false, minimal = "low", low = "low", medium = "medium", high = "high", xhigh = "max", ultra = "max", max = "max" }

local function think(body)
  local effort = check.string(body, "reasoning_effort")
  local r = check.object(body, "reasoning")
  if r then effort = effort or check.string(r, "effort", "reasoning.effort") end
  if effort then
    if EFFORT[effort] == nil then fail(400, "reasoning_effort must be none, minimal, low, medium, high, xhigh or max", { param = "reasoning_effort" }) end
    return EFFORT[effort]
  end
  local kwargs = get(body, "chat_template_kwargs")
  local flag = check.boolean(body, "enable_thinking")
  if flag == nil and type(kwargs) == "table" then flag = check.boolean(kwargs, "enable_thinking", "chat_template_kwargs.enable_thinking") end
  return flag
end

-- response_format, json_schema and grammar -> neutral format.
function openai.format(body)
  local rf = check.object(body, "response_format")
  local schema, grammar = check.object(body, "json_schema"), check.string(body, "grammar")
  if schema and grammar then fail(400, "use json_schema or grammar, not both") end
  if grammar and grammar ~= "" then return { kind = "gbnf", text = grammar } end
  if schema then return { kind = "schema", schema = schema } end
  if not rf then return nil end
  local kind = check.string(rf, "type", "response_format.type")
  if kind == "text" then return nil end
  if kind == "json_object" then
    local s = check.object(rf, "schema", "response_format.schema")
    return s and { kind = "schema", schema = s } or { kind = "json" }
  end
  if kind == "json_schema" then
    local spec = check.object(rf, "json_schema", "response_format.json_schema")
    local s = spec and check.object(spec, "schema", "response_format.json_schema.schema")
    if not s then fail(400, "response_format.json_schema.schema is required", { param = "response_format" }) end
    return { kind = "schema", schema = s, strict = check.boolean(spec, "strict", "response_format.json_schema.strict") }
  end
  fail(400, "response_format.type must be text, json_object or json_schema", { param = "response_format" })
end

-- max_tokens under its several names: the smaller wins, -1 = no limit.
local function max_tokens(body, low, ...)
  local best
  for _, k in ipairs({ ... }) do
    local v = check.integer(body, k, -1)
    if v and v ~= -1 then
      if v < low then fail(400, k .. " must be at least " .. low, { param = k }) end
      best = best and math.min(best, v) or v
    elseif v == -1 then
      best = best or math.huge
    end
  end
  return best
end
openai.max_tokens = max_tokens

-- Fields that every generating endpoint of /v1 shares.
local function common(body, r)
  r.model = check.string(body, "model") or ""
  r.sampler = request.sampler(body)
  r.sampler.logit_bias, r.sampler.order = request.logit_bias(body), request.samplers(body)
  r.stop = request.stop(body, "stop")
  r.n = check.integer(body, "n", 1, request.MAX.n) or 1
  r.stream = check.boolean(body, "stream") or false
  local so = check.object(body, "stream_options")
  if so then r.include_usage = check.boolean(so, "include_usage", "stream_options.include_usage") end
  if check.boolean(body, "use_beam_search") then
    fail(400, "the server does not search with beams; best_of chooses among sampled answers, `mtx generate --beams` and model:beam search", { param = "use_beam_search" })
  end
  request.beyond(r, body)
  r.ignore_eos = check.boolean(body, "ignore_eos")
  r.ping_s = check.integer(body, "sse_ping_interval", -1)
  r.return_progress, r.timings = check.boolean(body, "return_progress"), check.boolean(body, "timings_per_token")
  return r
end
openai.common = common

-- prediction {type = "content", content = text or parts}: what the reply will mostly be.
local function prediction(body)
  local p = check.object(body, "prediction")
  if not p then return nil end
  check.one_of(p, "type", { "content" }, "prediction.type")
  local text = messages.content(get(p, "content"), "prediction.content", part)
  if not text then fail(400, "prediction.content is required", { param = "prediction" }) end
  return text
end

-- POST /v1/chat/completions.
function openai.chat(body)
  local r = common(body, { dialect = "openai", task = "chat" })
  r.messages = openai.messages(body)
  r.tools = messages.tools(body, function(t, where) return custom_tool.read(t, where, r, true) end)
  r.tool_choice = messages.tool_choice(get(body, "tool_choice"), r.tools)
  r.parallel_tool_calls = check.boolean(body, "parallel_tool_calls")
  r.format = openai.format(body)
  if r.tools and r.format and r.format.kind == "gbnf" then fail(400, "grammar cannot be combined with tools") end
  r.max_tokens = max_tokens(body, 1, "max_completion_tokens") or max_tokens(body, 1, "max_tokens", "n_predict") -- the newer name wins
  local best = check.integer(body, "best_of", 1, request.MAX.n)
  if best and best ~= r.n then fail(400, "best_of is for /v1/completions; ask for n answers and choose", { param = "best_of" }) end
  local logprobs = check.boolean(body, "logprobs")
  local top = check.integer(body, "top_logprobs", 0, request.MAX.top_logprobs)
  if top and not logprobs then fail(400, "top_logprobs requires logprobs", { param = "top_logprobs" }) end
  if logprobs then r.logprobs = top or 0 end
  r.think = think(body)
  local kwargs = check.object(body, "chat_template_kwargs")
  if kwargs then r.template_args = kwargs end
  local n, last = #r.messages, r.messages[#r.messages]
  if last.role == "assistant" and n > 1 and r.messages[n - 1].role == "assistant" then
    fail(400, "two assistant messages at the end; there is nothing to answer")
  end
  local continue = check.boolean(body, "continue_final_message")
  if continue == nil then continue = last.role == "assistant" and not last.tool_calls end
  if continue and last.role ~= "assistant" then fail(400, "continue_final_message needs a final assistant message") end
  r.continue, r.add_generation_prompt = continue or nil, check.boolean(body, "add_generation_prompt")
  r.reasoning_format = check.one_of(body, "reasoning_format", { "none", "deepseek", "deepseek-legacy", "auto" })
  r.reasoning_control = check.boolean(body, "reasoning_control")
  request.think_budget(r, body)
  r.merge_turns = check.boolean(body, "merge_turns")
  r.prediction = prediction(body)
  local modalities = check.array(body, "modalities")
  for _, m in ipairs(modalities or {}) do
    if m ~= "text" then fail(400, "modality " .. tostring(m):sub(1, 20) .. " is not supported", { param = "modalities" }) end
  end
  return r
end

-- One prompt of token ids and texts (llama-server's mixed ones): a list of ids, or {parts = {text or ids}}.
local function ids_and_texts(list, where, key)
  local parts, ids, mixed = {}, nil, false
  for i, v in ipairs(list) do
    if type(v) == "string" then
      parts[#parts + 1], ids, mixed = v, nil, true
    else
      local id = type(v) == "number" and math.tointeger(v)
      if not id or id < 0 then fail(400, where .. "[" .. (i - 1) .. "] must be a token id" .. (mixed and " or a string" or ""), { param = key }) end
      if not ids then
        ids = {}
        parts[#parts + 1] = ids
      end
      ids[#ids + 1] = id
    end
  end
  return mixed and { parts = parts } or parts[1]
end

-- prompt: string, token ids, both mixed, or a list of these -> list of prompts. An array of strings
-- alone is several prompts, one with a number in it is one. max: of prompts. Also gives whether it was a list of them.
function openai.prompts(body, key, max)
  local p = get(body, key)
  if p == nil then fail(400, key .. " is required", { param = key }) end
  if type(p) == "string" then return { p } end
  if not check.is_array(p) or #p == 0 then fail(400, key .. " must be a string or a non-empty array", { param = key }) end
  local flat, numbers = true, false
  for _, v in ipairs(p) do
    flat = flat and type(v) ~= "table"
    numbers = numbers or type(v) == "number"
  end
  if flat and numbers then return { ids_and_texts(p, key, key) } end
  max = max or request.MAX.prompts
  if #p > max then fail(400, key .. " has " .. #p .. " entries, at most " .. max .. " are allowed", { param = key }) end
  local out = {}
  for i, v in ipairs(p) do
    local where = key .. "[" .. (i - 1) .. "]"
    if type(v) == "string" then out[i] = v
    elseif check.is_array(v) and #v > 0 then out[i] = ids_and_texts(v, where, key)
    else fail(400, where .. " must be a string or an array of token ids", { param = key }) end
  end
  return out, true
end

-- POST /v1/completions.
function openai.completions(body)
  local r = common(body, { dialect = "openai", task = "text", raw = true })
  r.prompts = openai.prompts(body, "prompt")
  r.echo = check.boolean(body, "echo")
  r.max_tokens = max_tokens(body, 0, "max_tokens", "n_predict") or 16
  r.logprobs = check.integer(body, "logprobs", 0, request.MAX.top_logprobs)
  r.suffix = check.string(body, "suffix")
  if r.suffix == "" then r.suffix = nil end
  local best = check.integer(body, "best_of", 1, request.MAX.n)
  if best and best < r.n then fail(400, "best_of is " .. best .. ", which is less than n", { param = "best_of" }) end
  if best and best > r.n then
    if r.stream then fail(400, "best_of cannot be combined with stream: what is best is known at the end", { param = "best_of" }) end
    r.keep, r.n, r.drop_logprobs, r.logprobs = r.n, best, r.logprobs == nil, r.logprobs or 0
  end
  if #r.prompts * r.n > 128 then fail(400, "prompts times n is more than 128", { param = "n" }) end
  r.format = openai.format(body)
  return r
end

-- POST /v1/embeddings -> {model, inputs, dimensions, base64}.
function openai.embeddings(body)
  local r = { dialect = "openai", model = check.string(body, "model") or "", lora = request.lora(body) }
  local input = get(body, "input")
  if input == nil then fail(400, "input is required", { param = "input" }) end
  r.inputs = openai.prompts({ input = input }, "input", request.MAX.inputs)
  local f = check.string(body, "encoding_format")
  f = f and f:lower() or "float"
  if f ~= "float" and f ~= "base64" then fail(400, "encoding_format must be float or base64", { param = "encoding_format" }) end
  r.base64 = f == "base64"
  r.dimensions = check.integer(body, "dimensions", 1)
  return r
end

return openai
