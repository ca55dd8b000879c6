-- SPDX-License-Identifier: MIT
-- OpenAI's replies (api.md, 2.2 and 2.3): writers turn neutral events into SSE
-- frames, or a finished result into one object. What stays the same in every
-- chunk of a stream is put together once.
local custom_tool = require("mtx.api.custom_tool")
local stream = require("mtx.http.stream")
local wire = require("mtx.api.wire")

local reply = {}

local quote, null, list = wire.quote, wire.null, wire.list

-- Neutral -> OpenAI finish reasons.
local FINISH = { stop = "stop", length = "length", tool_calls = "tool_calls", cancelled = "stop" }

local function bytes_of(s) return list({ s:byte(1, -1) }) end

-- engine logprobs [{id, text, logprob, top}] -> {content = [...]}.
local function chat_logprobs(entries)
  local content = list()
  for i, e in ipairs(entries) do
    local top = list()
    for j, t in ipairs(e.top or {}) do top[j] = { id = t.id, token = wire.clean(t.text), logprob = t.logprob, bytes = bytes_of(t.text) } end
    content[i] = { id = e.id, token = wire.clean(e.text), logprob = e.logprob, bytes = bytes_of(e.text), top_logprobs = top }
  end
  return { content = content }
end

-- The shape of the old completions: parallel arrays.
local function text_logprobs(entries, offset)
  local o = { tokens = list(), token_logprobs = list(), top_logprobs = list(), text_offset = list() }
  for i, e in ipairs(entries) do
    o.tokens[i] = wire.clean(e.text)
    o.token_logprobs[i] = e.logprob or null
    local top
    for _, t in ipairs(e.top or {}) do
      top = top or {}
      top[wire.clean(t.text)] = t.logprob
    end
    o.top_logprobs[i] = e.logprob and (top or {}) or null
    o.text_offset[i] = offset
    offset = offset + (utf8.len(e.text) or #e.text)
  end
  return o, offset
end

function reply.usage(u)
  local n = u.n_drafted or 0
  return { prompt_tokens = u.n_prompt, completion_tokens = u.n_generated, total_tokens = u.n_prompt + u.n_generated,
    prompt_tokens_details = { cached_tokens = u.n_cached },
    completion_tokens_details = n > 0 and { accepted_prediction_tokens = u.n_draft_accepted, rejected_prediction_tokens = n - u.n_draft_accepted } or nil }
end

-- llama-server's timings object.
function reply.timings(u)
  local n_new = math.max(0, u.n_prompt - u.n_cached)
  local p_ms, d_ms = u.prefill_ms or 0, u.decode_ms or 0
  local drafted = (u.n_drafted or 0) > 0
  return { cache_n = u.n_cached, prompt_n = n_new, prompt_ms = p_ms, prompt_per_token_ms = n_new > 0 and p_ms / n_new or 0,
    prompt_per_second = p_ms > 0 and n_new / p_ms * 1000 or 0, predicted_n = u.n_generated, predicted_ms = d_ms,
    predicted_per_token_ms = u.n_generated > 0 and d_ms / u.n_generated or 0,
    predicted_per_second = d_ms > 0 and u.n_generated / d_ms * 1000 or 0,
    draft_n = drafted and u.n_drafted or nil, draft_n_accepted = drafted and u.n_draft_accepted or nil }
end

-- What timings_per_token adds to the JSON object of an event's chunk.
function reply.timed(ev) return ev.usage and ',"timings":' .. wire.encode(reply.timings(ev.usage)) or "" end

-- llama-server's prompt_progress of a progress event, as the last field of a chunk.
function reply.progress(ev)
  return ',"prompt_progress":' .. wire.encode({ total = ev.total, cache = ev.cache, processed = ev.processed, time_ms = ev.time_ms }) .. "}"
end

local Chat = {}
Chat.__index = Chat

-- meta: {id, created, model, fingerprint, reasoning_fields}. See answer.lua for the writer's face.
function reply.chat(req, meta)
  local head = '{"id":' .. quote(meta.id) .. ',"object":"chat.completion.chunk","created":' .. meta.created
    .. ',"model":' .. quote(meta.model) .. ',"system_fingerprint":' .. quote(meta.fingerprint) .. ',"choices":['
  local fields = meta.reasoning_fields
  return setmetatable({ req = req, meta = meta, head = head, ctype = stream.SSE, opened = {}, prefix = {}, ping = stream.COMMENT,
    reason_a = fields ~= "reasoning", reason_b = fields ~= "reasoning_content", input = {} }, Chat)
end

-- ev: what it tells of, with the logprobs and the usage that go with it.
local function chunk(self, ev, delta, finish)
  return "data: " .. self.head .. '{"index":' .. ev.choice .. ',"delta":' .. delta
    .. (ev.logprobs and ',"logprobs":' .. wire.encode(chat_logprobs(ev.logprobs)) or "")
    .. ',"finish_reason":' .. (finish and quote(finish) or "null") .. "}]" .. reply.timed(ev) .. "}\n\n"
end

function Chat:open()
  local out = {}
  for c = 0, self.req.n - 1 do out[#out + 1] = chunk(self, { choice = c }, '{"role":"assistant","content":""}') end
  return table.concat(out)
end

function Chat:event(ev)
  local kind, c = ev.kind, ev.choice
  if kind == "text" then
    if not ev.logprobs and not ev.usage then
      local p = self.prefix[c]
      if not p then
        p = "data: " .. self.head .. '{"index":' .. c .. ',"delta":{"content":'
        self.prefix[c] = p
      end
      return p .. quote(ev.text) .. '},"finish_reason":null}]}\n\n'
    end
    return chunk(self, ev, '{"content":' .. quote(ev.text) .. "}")
  elseif kind == "thinking" then
    local q = quote(ev.text)
    local delta = (self.reason_a and '"reasoning_content":' .. q or "") .. (self.reason_a and self.reason_b and "," or "")
      .. (self.reason_b and '"reasoning":' .. q or "")
    return chunk(self, ev, "{" .. delta .. "}")
  elseif kind == "call" and self.req.custom and self.req.custom[ev.name] then
    self.input[c] = {} -- JSON around the text: its parts are no parts of the text
    return chunk(self, ev, '{"tool_calls":[{"index":' .. ev.index .. ',"id":' .. quote(ev.id)
      .. ',"type":"custom","custom":{"name":' .. quote(ev.name) .. ',"input":""}}]}')
  elseif kind == "call" then
    return chunk(self, ev, '{"tool_calls":[{"index":' .. ev.index .. ',"id":' .. quote(ev.id)
      .. ',"type":"function","function":{"name":' .. quote(ev.name) .. ',"arguments":""}}]}')
  elseif kind == "arguments" and self.input[c] then
    table.insert(self.input[c], ev.text)
    return (ev.logprobs or ev.usage) and chunk(self, ev, "{}") or ""
  elseif (kind == "call_end" or kind == "call_cut") and self.input[c] then
    local input = custom_tool.input(table.concat(self.input[c]))
    self.input[c] = nil
    return chunk(self, ev, '{"tool_calls":[{"index":' .. ev.index .. ',"custom":{"input":' .. quote(input) .. "}}]}")
  elseif kind == "arguments" then
    return chunk(self, ev, '{"tool_calls":[{"index":' .. ev.index .. ',"function":{"arguments":' .. quote(ev.text) .. "}}]}")
  elseif kind == "progress" then
    return stream.sse(self.head .. '{"index":' .. c .. ',"delta":{},"finish_reason":null}]' .. reply.progress(ev))
  elseif kind == "done" then
    return chunk(self, ev, "{}", FINISH[ev.reason] or "stop")
  end
  return ""
end

function Chat:close(result)
  local tail = ""
  if self.req.include_usage then
    tail = "data: " .. self.head .. '],"usage":' .. wire.encode(reply.usage(result.usage))
      .. ',"timings":' .. wire.encode(reply.timings(result.usage)) .. "}\n\n"
  end
  return tail .. stream.DONE
end

function Chat:fault(body) return stream.sse(wire.encode(body)) end

-- custom: the set of names of tools that take a text (custom_tool.lua), or nil.
function reply.calls(calls, custom)
  local out = list()
  for i, c in ipairs(calls) do
    if custom and custom[c.name] then
      out[i] = { id = c.id, type = "custom", custom = { name = c.name, input = custom_tool.input(c.arguments) } }
    else
      out[i] = { id = c.id, type = "function", ["function"] = { name = c.name, arguments = c.arguments } }
    end
  end
  return out
end

function Chat:whole(result)
  local choices = list()
  for i, c in ipairs(result.choices) do
    local message = { role = "assistant", content = c.text }
    if c.calls then
      message.tool_calls = reply.calls(c.calls, self.req.custom)
      if c.text == "" then message.content = null end
    end
    if c.thinking then
      if self.reason_a then message.reasoning_content = c.thinking end
      if self.reason_b then message.reasoning = c.thinking end
    end
    choices[i] = { index = i - 1, message = message, finish_reason = FINISH[c.reason] or "stop",
      logprobs = c.logprobs and chat_logprobs(c.logprobs) or null }
  end
  local m = self.meta
  return { id = m.id, object = "chat.completion", created = m.created, model = m.model, system_fingerprint = m.fingerprint,
    choices = choices, usage = reply.usage(result.usage), timings = reply.timings(result.usage) }
end

local Text = {}
Text.__index = Text

-- Writer of /v1/completions.
function reply.text(req, meta)
  local head = '{"id":' .. quote(meta.id) .. ',"object":"text_completion","created":' .. meta.created
    .. ',"model":' .. quote(meta.model) .. ',"system_fingerprint":' .. quote(meta.fingerprint) .. ',"choices":['
  return setmetatable({ req = req, meta = meta, head = head, ctype = stream.SSE, offset = {}, ping = stream.COMMENT }, Text)
end

function Text:open() return "" end

local function text_chunk(self, ev, text, finish)
  local choice, lp = ev.choice, ""
  if ev.logprobs then
    local o
    o, self.offset[choice] = text_logprobs(ev.logprobs, self.offset[choice] or 0)
    lp = ',"logprobs":' .. wire.encode(o)
  end
  return "data: " .. self.head .. '{"text":' .. quote(text) .. ',"index":' .. choice .. lp .. ',"finish_reason":'
    .. (finish and quote(finish) or "null") .. "}]" .. reply.timed(ev) .. "}\n\n"
end

function Text:event(ev)
  if ev.kind == "text" then return text_chunk(self, ev, ev.text) end
  if ev.kind == "progress" then return stream.sse(self.head .. '{"text":"","index":' .. ev.choice .. ',"finish_reason":null}]' .. reply.progress(ev)) end
  if ev.kind == "done" then return text_chunk(self, ev, "", FINISH[ev.reason] or "stop") end
  return ""
end

Text.close, Text.fault = Chat.close, Chat.fault

function Text:whole(result)
  local choices = list()
  for i, c in ipairs(result.choices) do
    choices[i] = { text = c.text, index = i - 1, finish_reason = FINISH[c.reason] or "stop",
      logprobs = c.logprobs and text_logprobs(c.logprobs, 0) or null }
  end
  local m = self.meta
  return { id = m.id, object = "text_completion", created = m.created, model = m.model, system_fingerprint = m.fingerprint,
    choices = choices, usage = reply.usage(result.usage), timings = reply.timings(result.usage) }
end

-- vectors -> the reply of /v1/embeddings.
function reply.embeddings(req, vectors, model, n_tokens)
  local data = list()
  for i, v in ipairs(vectors) do
    local e = v
    if req.base64 then
      local bytes = string.pack("<" .. ("f"):rep(#v), table.unpack(v))
      e = reply.to_base64(bytes)
    else
      e = list(v)
    end
    data[i] = { object = "embedding", index = i - 1, embedding = e }
  end
  return { object = "list", data = data, model = model, usage = { prompt_tokens = n_tokens, total_tokens = n_tokens } }
end

local LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local PAIR = {} -- 12 bits -> two letters
for i = 0, 4095 do
  local a, b = (i >> 6) + 1, (i & 63) + 1
  PAIR[i] = LETTERS:sub(a, a) .. LETTERS:sub(b, b)
end

function reply.to_base64(s)
  local out, n = {}, 0
  for i = 1, #s - 2, 3 do
    local a, b, c = s:byte(i, i + 2)
    n = n + 1
    out[n] = PAIR[a << 4 | b >> 4] .. PAIR[(b & 15) << 8 | c]
  end
  local rest = #s % 3
  if rest == 1 then
    out[n + 1] = PAIR[s:byte(#s) << 4] .. "=="
  elseif rest == 2 then
    local a, b = s:byte(#s - 1, #s)
    out[n + 1] = PAIR[a << 4 | b >> 4] .. PAIR[(b & 15) << 8]:sub(1, 1) .. "="
  end
  return table.concat(out)
end

return reply
