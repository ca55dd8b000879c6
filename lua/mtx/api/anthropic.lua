-- SPDX-License-Identifier: MIT
-- Anthropic's messages: body -> neutral request, events -> its block events
-- (api.md, section 3).
local check = require("mtx.api.check")
local json = require("mtx.json")
local messages = require("mtx.api.messages")
local request = require("mtx.api.request")
local stream = require("mtx.http.stream")
local wire = require("mtx.api.wire")

local anthropic = {}

local get, fail = check.get, check.fail
local quote, list = wire.quote, wire.list

local function image(p, where)
  local source = p.source
  if type(source) ~= "table" or source.type ~= "base64" then fail(400, where .. ".source must be base64; images are not fetched") end
  return messages.image(source.data, where .. ".source.data")
end

local function no_part(p, where) fail(400, where .. ": block type " .. tostring(p.type):sub(1, 40) .. " is not supported here") end

local function result_part(p, where)
  if p.type == "image" then return nil, image(p, where) end
  no_part(p, where)
end

-- The blocks of one message -> one or more neutral messages appended to `out`.
local function blocks(m, role, where, out)
  local texts, thoughts, images, calls = {}, {}, nil, nil
  for i, b in ipairs(m.content) do
    local at = where .. ".content[" .. (i - 1) .. "]"
    if type(b) ~= "table" then fail(400, at .. " must be an object") end
    local kind = b.type
    if kind == "text" then
      texts[#texts + 1] = check.string(b, "text", at .. ".text") or ""
    elseif kind == "image" then
      images = images or {}
      images[#images + 1] = image(b, at)
    elseif kind == "tool_use" and role == "assistant" then
      calls = calls or {}
      calls[#calls + 1] = messages.call(b.name, get(b, "input"), b.id, at)
    elseif kind == "tool_result" and role == "user" then
      local text, more = messages.content(get(b, "content"), at .. ".content", result_part)
      local id = check.string(b, "tool_use_id", at .. ".tool_use_id")
      if not id then fail(400, at .. ".tool_use_id is required") end
      text = text or ""
      if get(b, "is_error") == true and not text:find("^[Ee]rror") then text = "Error: " .. text end
      out[#out + 1] = { role = "tool", content = text, images = more, tool_call_id = id }
    elseif kind == "thinking" and role == "assistant" then
      thoughts[#thoughts + 1] = check.string(b, "thinking", at .. ".thinking") or ""
    elseif kind ~= "redacted_thinking" then
      no_part(b, at)
    end
  end
  if #texts > 0 or images or calls or #thoughts > 0 or role == "assistant" then
    out[#out + 1] = { role = role, content = table.concat(texts), images = images, tool_calls = calls,
      reasoning_content = #thoughts > 0 and table.concat(thoughts) or nil }
  end
end

local function read_messages(body)
  local list_in = check.array(body, "messages", nil, request.MAX.messages)
  if not list_in or #list_in == 0 then fail(400, "messages: at least one message is required") end
  local out = {}
  local system = messages.content(get(body, "system"), "system", no_part)
  if system and system ~= "" then out[1] = { role = "system", content = system } end
  for i, m in ipairs(list_in) do
    local where = "messages." .. (i - 1)
    if type(m) ~= "table" then fail(400, where .. " must be an object") end
    local role = check.one_of(m, "role", { "user", "assistant", "system" }, where .. ".role")
    if not role then fail(400, where .. ".role is required") end
    local content = get(m, "content")
    if type(content) == "string" then
      out[#out + 1] = { role = role, content = content }
    elseif check.is_array(content) then
      blocks(m, role, where, out)
    else
      fail(400, where .. ".content must be a string or an array of blocks")
    end
  end
  return out
end

local function read_tools(body)
  local tools = check.array(body, "tools", nil, request.MAX.tools)
  if not tools or #tools == 0 then return nil end
  local out = {}
  for i, t in ipairs(tools) do
    local where = "tools." .. (i - 1)
    if type(t) ~= "table" then fail(400, where .. " must be an object") end
    local kind = get(t, "type")
    if kind ~= nil and kind ~= "custom" and kind ~= "function" then fail(400, where .. ": server tools such as " .. tostring(kind):sub(1, 40) .. " are not supported") end
    local f = json.object("name", get(t, "name"), "description", get(t, "description"), "parameters", get(t, "input_schema"))
    messages.tool(f, where, "input_schema")
    out[i] = json.object("type", "function", "function", f)
  end
  return out
end

local function read_choice(body, r)
  local c = check.object(body, "tool_choice")
  if not c then return nil end
  local kind = check.one_of(c, "type", { "auto", "any", "tool", "none" }, "tool_choice.type")
  if get(c, "disable_parallel_tool_use") == true then r.parallel_tool_calls = false end
  if kind == "any" then return messages.tool_choice("required", r.tools) end
  if kind == "tool" then return messages.tool_choice({ name = c.name }, r.tools) end
  return kind
end

-- counting: the body of count_tokens has no max_tokens.
function anthropic.decode(body, counting)
  local r = { dialect = "anthropic", task = "chat", n = 1 }
  r.model = check.string(body, "model") or ""
  r.messages = read_messages(body)
  r.tools = read_tools(body)
  r.tool_choice = read_choice(body, r)
  r.max_tokens = check.integer(body, "max_tokens", 1)
  if not r.max_tokens and not counting then r.max_tokens = 4096 end
  r.sampler = request.sampler(body)
  request.beyond(r, body)
  r.stop = check.strings(body, "stop_sequences", nil, request.MAX.stop, request.MAX.stop_bytes)
  r.stream = check.boolean(body, "stream") or false
  local t = check.object(body, "thinking")
  local kind = t and check.one_of(t, "type", { "enabled", "disabled", "adaptive" }, "thinking.type")
  if t then r.think_budget = check.integer(t, "budget_tokens", 1, nil, "thinking.budget_tokens") end
  r.think = kind == "enabled" or kind == "adaptive"
  local output = check.object(body, "output_config")
  local effort = output and check.one_of(output, "effort", { "low", "medium", "high", "xhigh", "max" }, "output_config.effort")
  if effort and r.think then r.think = effort == "xhigh" and "max" or effort end
  local format = output and check.object(output, "format", "output_config.format")
  if format and format.type == "json_schema" then r.format = { kind = "schema", schema = check.object(format, "schema") } end
  check.object(body, "metadata")
  r.merge_turns = check.boolean(body, "merge_turns")
  local last = r.messages[#r.messages]
  if last.role == "assistant" and not last.tool_calls then r.continue = true end
  return r
end

local STOP = { stop = "end_turn", length = "max_tokens", tool_calls = "tool_use", cancelled = "end_turn" }

local Writer = {}
Writer.__index = Writer

-- meta: {id, model, job}.
function anthropic.writer(req, meta)
  return setmetatable({ req = req, meta = meta, ctype = stream.SSE, ping = stream.sse_event("ping", '{"type":"ping"}'), index = -1 }, Writer)
end

local function usage(u)
  return { input_tokens = u.n_prompt - u.n_cached, cache_creation_input_tokens = 0, cache_read_input_tokens = u.n_cached, output_tokens = u.n_generated }
end

function Writer:open()
  local c = self.meta.job.choices[1]
  local m = { id = self.meta.id, type = "message", role = "assistant", model = self.meta.model, content = list(), stop_reason = wire.null,
    stop_sequence = wire.null, usage = usage({ n_prompt = c.n_prompt or 0, n_cached = c.n_cached or 0, n_generated = 0 }) }
  return stream.sse_event("message_start", wire.encode({ type = "message_start", message = m }))
end

local function stop_block(self)
  if not self.kind then return "" end
  local tail = ""
  if self.kind == "thinking" then
    tail = stream.sse_event("content_block_delta", '{"type":"content_block_delta","index":' .. self.index .. ',"delta":{"type":"signature_delta","signature":"mtx"}}')
  end
  self.kind = nil
  return tail .. stream.sse_event("content_block_stop", '{"type":"content_block_stop","index":' .. self.index .. "}")
end

local function start_block(self, kind, block)
  local before = stop_block(self)
  self.kind, self.index = kind, self.index + 1
  self.delta = 'event: content_block_delta\ndata: {"type":"content_block_delta","index":' .. self.index .. ',"delta":'
  return before .. stream.sse_event("content_block_start", '{"type":"content_block_start","index":' .. self.index .. ',"content_block":' .. block .. "}")
end

function Writer:event(ev)
  local kind = ev.kind
  if kind == "text" then
    if ev.text == "" then return "" end
    local before = self.kind == "text" and "" or start_block(self, "text", '{"type":"text","text":""}')
    return before .. self.delta .. '{"type":"text_delta","text":' .. quote(ev.text) .. "}}\n\n"
  elseif kind == "thinking" then
    local before = self.kind == "thinking" and "" or start_block(self, "thinking", '{"type":"thinking","thinking":"","signature":""}')
    return before .. self.delta .. '{"type":"thinking_delta","thinking":' .. quote(ev.text) .. "}}\n\n"
  elseif kind == "call" then
    return start_block(self, "tool_use", '{"type":"tool_use","id":' .. quote(ev.id) .. ',"name":' .. quote(ev.name) .. ',"input":{}}')
  elseif kind == "arguments" then
    return self.delta .. '{"type":"input_json_delta","partial_json":' .. quote(ev.text) .. "}}\n\n"
  elseif kind == "call_end" or kind == "call_cut" or kind == "done" then
    return stop_block(self)
  end
  return ""
end

local function stop_of(choice)
  if choice.stop_string and choice.reason == "stop" then return "stop_sequence", choice.stop_string end
  return STOP[choice.reason] or "end_turn", wire.null
end

function Writer:close(result)
  local reason, text = stop_of(result.choices[1])
  return stream.sse_event("message_delta", wire.encode({ type = "message_delta", delta = { stop_reason = reason, stop_sequence = text }, usage = usage(result.usage) }))
    .. stream.sse_event("message_stop", '{"type":"message_stop"}')
end

function Writer:fault(body) return stop_block(self) .. stream.sse_event("error", wire.encode(body)) end

function Writer:whole(result)
  local c, content = result.choices[1], list()
  if c.thinking then content[1] = { type = "thinking", thinking = c.thinking, signature = "mtx" } end
  if c.text ~= "" then content[#content + 1] = { type = "text", text = c.text } end
  for _, call in ipairs(c.calls or {}) do
    content[#content + 1] = { type = "tool_use", id = call.id, name = call.name, input = wire.raw(call.arguments) }
  end
  local reason, text = stop_of(c)
  return { id = self.meta.id, type = "message", role = "assistant", model = self.meta.model, content = content, stop_reason = reason,
    stop_sequence = text, usage = usage(result.usage) }
end

return anthropic
