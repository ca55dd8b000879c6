-- SPDX-License-Identifier: MIT
-- Ollama's chat, generate and embed: body -> neutral request (api.md, 1.2 to 1.6).
local check = require("mtx.api.check")
local duration = require("mtx.duration")
local messages = require("mtx.api.messages")
local request = require("mtx.api.request")

local ollama = {}

local get, fail = check.get, check.fail

-- keep_alive in all its forms -> seconds, math.huge, or nil when absent.
function ollama.keep_alive(body)
  local v = get(body, "keep_alive")
  if v == nil then return nil end
  local s = v ~= math.huge and duration.parse(v) -- 1e400 in JSON
  if not s then
    if type(v) == "string" then fail(400, "keep_alive: invalid duration " .. string.format("%q", v:sub(1, 40)) .. "; use forms such as 5m, 1h30m or a number of seconds") end
    fail(400, "keep_alive must be a number of seconds or a duration string")
  end
  return s
end

local INTEGERS = { "num_predict", "num_keep", "seed", "top_k", "repeat_last_n", "num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "draft_num_predict" }
local NUMBERS = { "temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty" }
local BOOLEANS = { "use_mmap", "ignore_eos" }

local function typed(o, names, kind, ok)
  for _, k in ipairs(names) do
    local v = get(o, k)
    if v ~= nil and not ok(v) then fail(400, 'option "' .. k .. '" must be of type ' .. kind) end
  end
end

-- The keys of options that mean something here, filled in at the end.
local KNOWN = {}

local function unknown(o)
  local out = {}
  for k in pairs(o) do
    if not KNOWN[k] then out[#out + 1] = tostring(k):gsub("[^%w_.%-]", "?"):sub(1, 40) end
  end
  table.sort(out)
  return out[1] and table.move(out, 1, math.min(#out, 16), 1, {})
end

-- body.options -> fields of the request; types first, in Ollama's words.
function ollama.options(body, r)
  local o = check.object(body, "options")
  r.lora = request.lora(body)
  request.draft(r, body)
  if not o then
    r.sampler = {}
    return r
  end
  r.unknown_options = unknown(o)
  typed(o, INTEGERS, "integer", function(v) return type(v) == "number" and math.tointeger(v) ~= nil end)
  typed(o, NUMBERS, "float32", function(v) return type(v) == "number" end)
  typed(o, BOOLEANS, "boolean", function(v) return type(v) == "boolean" end)
  local stop = get(o, "stop")
  if stop ~= nil then
    if type(stop) ~= "string" and not check.is_array(stop) then fail(400, 'option "stop" must be of type array') end
    for _, s in ipairs(type(stop) == "table" and stop or {}) do
      if type(s) ~= "string" then fail(400, 'option "stop" must be of type array') end
    end
    r.stop = request.stop(o, "stop")
  end
  r.sampler = request.sampler(o)
  r.sampler.logit_bias = request.logit_bias(o)
  local n = check.integer(o, "num_predict")
  if n then r.max_tokens = n >= 0 and n or math.huge end -- -1 and -2: up to the context
  r.n_keep = check.integer(o, "num_keep")
  r.num_ctx = check.integer(o, "num_ctx", 0)
  if r.num_ctx == 0 then r.num_ctx = nil end
  r.ignore_eos = get(o, "ignore_eos")
  if r.draft == nil then request.draft(r, o) end
  r.priority = check.integer(o, "priority", -100, 100)
  return r
end

local LEVELS = { low = true, medium = true, high = true, max = true }

local function think(body)
  local v = get(body, "think")
  if v == nil or type(v) == "boolean" or LEVELS[v] then return v end
  fail(400, 'think must be true, false, "low", "medium", "high" or "max"')
end

-- "json" or a schema object; "" and null mean none.
function ollama.format(body)
  local f = get(body, "format")
  if f == nil or f == "" then return nil end
  if f == "json" then return { kind = "json" } end
  if check.is_object(f) then return { kind = "schema", schema = f } end
  fail(400, 'format must be "json" or a JSON schema object')
end

local function common(body, r)
  r.dialect = "ollama"
  r.model = check.string(body, "model") or check.string(body, "name") or ""
  r.n = 1
  r.stream = check.boolean(body, "stream")
  if r.stream == nil then r.stream = true end
  r.keep_alive = ollama.keep_alive(body)
  r.format = ollama.format(body)
  r.think = think(body)
  request.think_budget(r, body)
  r.truncate = check.boolean(body, "truncate")
  if r.truncate == nil then r.truncate = true end
  r.shift = check.boolean(body, "shift")
  r.merge_turns = check.boolean(body, "merge_turns")
  r.request_id = check.string(body, "request_id")
  r.cache_tag = check.string(body, "cache_tag")
  r.deadline_ms = check.integer(body, "deadline_ms", 1)
  local logprobs = check.boolean(body, "logprobs")
  local top = check.integer(body, "top_logprobs", 0, request.MAX.top_logprobs)
  if logprobs or (top and top > 0) then r.logprobs = top or 0 end
  ollama.options(body, r)
  r.priority = r.priority or check.integer(body, "priority", -100, 100)
  return r
end

local ROLES = { system = true, user = true, assistant = true, tool = true }

local function part(p, where)
  if p.type == "image_url" then
    local url = type(p.image_url) == "table" and p.image_url.url or p.image_url
    return nil, messages.image(url, where)
  end
  fail(400, where .. ": content part type " .. tostring(p.type):sub(1, 40) .. " is not supported")
end

local function images(list, where)
  local out = {}
  for i, image in ipairs(list or {}) do out[i] = messages.image(image, where .. "[" .. (i - 1) .. "]") end
  return #out > 0 and out or nil
end

local function message(m, where)
  if type(m) ~= "table" then fail(400, where .. " must be an object") end
  local role = (check.string(m, "role", where .. ".role") or ""):lower()
  if role == "developer" then role = "system" end
  if not ROLES[role] then fail(400, where .. ": invalid role " .. string.format("%q", role:sub(1, 40)) .. "; use system, user, assistant or tool") end
  local text, more = messages.content(get(m, "content"), where .. ".content", part)
  local calls
  for j, c in ipairs(check.array(m, "tool_calls", where .. ".tool_calls") or {}) do
    local at = where .. ".tool_calls[" .. (j - 1) .. "]"
    if type(c) ~= "table" or type(c["function"]) ~= "table" then fail(400, at .. ".function must be an object") end
    calls = calls or {}
    calls[j] = messages.call(c["function"].name, c["function"].arguments, c.id, at)
  end
  return { role = role, content = text or "", images = images(check.array(m, "images", where .. ".images", request.MAX.images), where .. ".images") or more,
    reasoning_content = check.string(m, "thinking", where .. ".thinking") or check.string(m, "reasoning_content", where .. ".reasoning_content"),
    tool_calls = calls, tool_call_id = check.string(m, "tool_call_id", where .. ".tool_call_id"),
    name = check.string(m, "tool_name", where .. ".tool_name") or check.string(m, "name", where .. ".name") }
end

-- POST /api/chat. Empty messages: load or unload (request.only = "load" | "unload").
function ollama.chat(body)
  local r = common(body, { task = "chat" })
  if r.model == "" then fail(400, "model is required") end
  r.messages = {}
  for i, m in ipairs(check.array(body, "messages", nil, request.MAX.messages) or {}) do
    r.messages[i] = message(m, "messages[" .. (i - 1) .. "]")
  end
  r.tools = messages.tools(body)
  if #r.messages == 0 then r.only = r.keep_alive == 0 and "unload" or "load" end
  local last = r.messages[#r.messages]
  if last and last.role == "assistant" and not last.tool_calls then r.continue = true end
  r.debug_render = check.boolean(body, "_debug_render_only")
  return r
end

-- POST /api/generate.
function ollama.generate(body)
  local r = common(body, { task = "text" })
  r.prompt = check.string(body, "prompt") or ""
  r.suffix = check.string(body, "suffix")
  if r.suffix == "" then r.suffix = nil end
  r.system, r.template = check.string(body, "system"), check.string(body, "template")
  if r.template == "" then r.template = nil end
  r.raw = check.boolean(body, "raw") or false
  r.images = images(check.array(body, "images", nil, request.MAX.images), "images")
  local context = check.array(body, "context")
  if context and #context > 0 then
    r.context = {}
    for i, id in ipairs(context) do
      local v = type(id) == "number" and math.tointeger(id)
      if not v or v < 0 then fail(400, "context[" .. (i - 1) .. "] must be a token id") end
      r.context[i] = v
    end
  end
  if r.raw and (r.template or r.context or (r.system and r.system ~= "")) then fail(400, "raw mode does not support template, system, or context") end
  if r.prompt == "" and not r.images and not r.suffix then r.only = r.keep_alive == 0 and "unload" or "load" end
  r.debug_render = check.boolean(body, "_debug_render_only")
  return r
end

-- POST /api/embed -> {model, inputs, truncate, dimensions, keep_alive}.
function ollama.embed(body)
  local r = { dialect = "ollama", model = check.string(body, "model") or "", keep_alive = ollama.keep_alive(body) }
  local input = get(body, "input")
  if input == nil and get(body, "prompt") ~= nil then fail(400, "/api/embed takes input, not prompt") end
  if input == nil then r.inputs = {}
  elseif type(input) == "string" then r.inputs = { input }
  elseif check.is_array(input) then
    if #input > request.MAX.inputs then fail(400, "input has " .. #input .. " entries, at most " .. request.MAX.inputs .. " are allowed") end
    r.inputs = {}
    for i, s in ipairs(input) do
      if type(s) ~= "string" then fail(400, "invalid input type") end
      r.inputs[i] = s
    end
  else fail(400, "invalid input type") end
  r.truncate = check.boolean(body, "truncate")
  if r.truncate == nil then r.truncate = true end
  r.dimensions = check.integer(body, "dimensions", 0)
  if r.dimensions == 0 then r.dimensions = nil end
  return ollama.options(body, r)
end

-- POST /api/embeddings (old): one prompt.
function ollama.embeddings(body)
  local model = check.string(body, "model")
  if not model or model == "" then fail(400, "model is required") end
  if get(body, "prompt") == nil and get(body, "input") ~= nil then fail(400, "/api/embeddings takes prompt, not input") end
  local prompt = check.string(body, "prompt") or ""
  local r = { dialect = "ollama", model = model, keep_alive = ollama.keep_alive(body), truncate = true, inputs = prompt ~= "" and { prompt } or {} }
  return ollama.options(body, r)
end

-- What is read is known: the readers are asked once, by a table that notes their questions.
ollama.options({ options = setmetatable({}, { __index = function(_, k) KNOWN[k] = true end }) }, {})

return ollama
