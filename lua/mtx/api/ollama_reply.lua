-- SPDX-License-Identifier: MIT
-- Ollama's replies (api.md, 1.4 and 1.5): one JSON object per line; durations in
-- nanoseconds; a tool call arrives whole in one object.
local uv = require("luv")
local stream = require("mtx.http.stream")
local wire = require("mtx.api.wire")

local reply = {}

local quote, list = wire.quote, wire.list

local last_second, last_text = nil, ""

-- Now as RFC 3339 in UTC with nanoseconds (the clock has microseconds).
function reply.timestamp()
  local s, us = uv.gettimeofday()
  if s ~= last_second then
    last_second, last_text = s, os.date("!%Y-%m-%dT%H:%M:%S", math.tointeger(s))
  end
  return string.format("%s.%06d000Z", last_text, us)
end

local function ns(ms)
  local v = math.floor((ms or 0) * 1e6)
  return v > 0 and v or nil
end

-- Counters of the last object; Ollama leaves zero values out.
local function metrics(o, u)
  o.total_duration, o.load_duration = ns(u.total_ms), ns(u.load_ms)
  o.prompt_eval_count = u.n_prompt > 0 and u.n_prompt or nil
  o.prompt_eval_duration = ns(u.prefill_ms)
  o.eval_count = u.n_generated > 0 and u.n_generated or nil
  o.eval_duration = ns(u.decode_ms)
  o.prompt_cached_count = u.n_cached > 0 and u.n_cached or nil
  o.truncated = u.n_truncated
  return o
end

local REASON = { stop = "stop", length = "length", tool_calls = "stop", cancelled = "cancelled" }

local function logprobs_of(entries)
  local out = list()
  for i, e in ipairs(entries) do
    local top = list()
    for j, t in ipairs(e.top or {}) do top[j] = { token = wire.clean(t.text), logprob = t.logprob, bytes = list({ t.text:byte(1, -1) }) } end
    out[i] = { token = wire.clean(e.text), logprob = e.logprob, bytes = list({ e.text:byte(1, -1) }), top_logprobs = top }
  end
  return out
end

local function call_object(c)
  return { id = c.id, ["function"] = { index = c.index, name = c.name, arguments = wire.raw(c.arguments) } }
end

local Writer = {}
Writer.__index = Writer

-- req.task decides between /api/chat and /api/generate.
function reply.writer(req, meta)
  return setmetatable({ req = req, meta = meta, chat = req.task == "chat", ctype = stream.NDJSON, calls = {},
    head = '{"model":' .. quote(meta.model) .. ',"created_at":"' }, Writer)
end

function Writer:open() return "" end

-- One line; `message` and `response` differ only in their wrapping.
local function line(self, field, text, logprobs)
  local mid
  if self.chat then
    mid = '","message":{"role":"assistant","content":' .. (field == "content" and text or '""')
      .. (field ~= "content" and ',"' .. field .. '":' .. text or "") .. "}"
  else
    mid = '","response":' .. (field == "content" and text or '""') .. (field ~= "content" and ',"' .. field .. '":' .. text or "")
  end
  return self.head .. reply.timestamp() .. mid .. (logprobs and ',"logprobs":' .. wire.encode(logprobs_of(logprobs)) or "") .. ',"done":false}\n'
end

function Writer:event(ev)
  local kind = ev.kind
  if kind == "text" then
    if ev.text == "" and not ev.logprobs then return "" end
    return line(self, "content", quote(ev.text), ev.logprobs)
  end
  if kind == "thinking" then return line(self, "thinking", quote(ev.text), ev.logprobs) end
  if kind == "call" then
    self.calls[ev.index] = { id = ev.id, name = ev.name, index = ev.index, arguments = "" }
  elseif kind == "arguments" then
    local c = self.calls[ev.index]
    c.arguments = c.arguments .. ev.text
  elseif kind == "call_end" then
    return line(self, "tool_calls", wire.encode(list({ call_object(self.calls[ev.index]) })), ev.logprobs)
  elseif kind == "call_cut" then
    return line(self, "content", quote(ev.text), ev.logprobs)
  end
  return ""
end

local function last(self, result)
  local c = result.choices[1]
  local o = { model = self.meta.model, created_at = reply.timestamp(), done = true, done_reason = REASON[c.reason] }
  if self.chat then
    o.message = { role = "assistant", content = "" }
  else
    o.response = ""
    if not self.req.raw and result.context then o.context = list(result.context) end
  end
  return metrics(o, result.usage)
end

function Writer:close(result) return wire.encode(last(self, result)) .. "\n" end

function Writer:fault(body) return wire.encode(body) .. "\n" end

function Writer:whole(result)
  local c = result.choices[1]
  local o = last(self, result)
  local target = o
  if self.chat then
    target = o.message
    target.content = c.text
  else
    o.response = c.text
  end
  target.thinking = c.thinking
  if c.calls then
    target.tool_calls = list()
    for i, call in ipairs(c.calls) do target.tool_calls[i] = call_object(call) end
  end
  if c.logprobs then o.logprobs = logprobs_of(c.logprobs) end
  return o
end

-- The answer to a request that only loads or unloads.
function reply.only(req, model, reason)
  local o = { model = model, created_at = reply.timestamp(), done = true, done_reason = reason }
  if req.task == "chat" then o.message = { role = "assistant", content = "" } else o.response = "" end
  return o
end

return reply
