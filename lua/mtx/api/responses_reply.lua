-- SPDX-License-Identifier: MIT
-- Replies of /v1/responses: output items are built while events come in, the
-- same way for streams and whole replies, so that both store the same thing.
local custom_tool = require("mtx.api.custom_tool")
local ids = require("mtx.ids")
local stream = require("mtx.http.stream")
local wire = require("mtx.api.wire")

local reply = {}

local list, null = wire.list, wire.null

local Writer = {}
Writer.__index = Writer

-- meta: {id, created, model}.
function reply.writer(req, meta)
  local base = { id = meta.id, object = "response", created_at = meta.created, model = meta.model, error = null, incomplete_details = null }
  for k, v in pairs(req.echo_fields) do base[k] = v end
  return setmetatable({ req = req, meta = meta, base = base, ctype = stream.SSE, ping = stream.COMMENT, output = list(), seq = -1, calls = {} }, Writer)
end

local function frame(self, name, fields)
  self.seq = self.seq + 1
  fields.type, fields.sequence_number = name, self.seq
  return stream.sse_event(name, wire.encode(fields))
end

local function object(self, status, usage)
  local o = {}
  for k, v in pairs(self.base) do o[k] = v end
  o.status, o.output = status, self.output
  o.usage = usage and { input_tokens = usage.n_prompt, input_tokens_details = { cached_tokens = usage.n_cached }, output_tokens = usage.n_generated,
    output_tokens_details = { reasoning_tokens = usage.n_reasoning or 0 }, total_tokens = usage.n_prompt + usage.n_generated } or null
  if usage then o.completed_at = os.time() end
  return o
end

function Writer:open()
  return frame(self, "response.created", { response = object(self, "in_progress") })
    .. frame(self, "response.in_progress", { response = object(self, "in_progress") })
end

local function add(self, item)
  self.output[#self.output + 1] = item
  self.at, self.item, self.parts = #self.output - 1, item, {}
  return frame(self, "response.output_item.added", { output_index = self.at, item = item })
end

-- Closes the open item: its *.done events, then output_item.done.
local function close(self, status)
  local item = self.item
  if not item then return "" end
  local text, out = table.concat(self.parts), ""
  local where = { item_id = item.id, output_index = self.at }
  local function with(t)
    for k, v in pairs(where) do t[k] = v end
    return t
  end
  if item.type == "message" then
    local part = { type = "output_text", text = text, annotations = list(), logprobs = list() }
    out = frame(self, "response.output_text.done", with({ content_index = 0, text = text, logprobs = list() }))
      .. frame(self, "response.content_part.done", with({ content_index = 0, part = part }))
    item.content = list({ part })
  elseif item.type == "reasoning" then
    local part = { type = "summary_text", text = text }
    out = frame(self, "response.reasoning_summary_text.done", with({ summary_index = 0, text = text }))
      .. frame(self, "response.reasoning_summary_part.done", with({ summary_index = 0, part = part }))
    item.summary = list({ part })
  elseif item.type == "custom_tool_call" then
    item.input = custom_tool.input(text)
    out = frame(self, "response.custom_tool_call_input.delta", with({ delta = item.input }))
      .. frame(self, "response.custom_tool_call_input.done", with({ input = item.input }))
  else
    item.arguments = text
    out = frame(self, "response.function_call_arguments.done", with({ arguments = text, name = item.name }))
  end
  if item.type ~= "reasoning" then item.status = status or "completed" end
  self.item = nil
  return out .. frame(self, "response.output_item.done", { output_index = self.at, item = item })
end

local function open_message(self)
  local out = close(self) .. add(self, { id = "msg_" .. ids.random(24), type = "message", status = "in_progress", role = "assistant", content = list() })
  return out .. frame(self, "response.content_part.added", { item_id = self.item.id, output_index = self.at, content_index = 0,
    part = { type = "output_text", text = "", annotations = list(), logprobs = list() } })
end

local function open_reasoning(self)
  local out = close(self) .. add(self, { id = "rs_" .. ids.random(24), type = "reasoning", summary = list(), encrypted_content = null })
  return out .. frame(self, "response.reasoning_summary_part.added", { item_id = self.item.id, output_index = self.at, summary_index = 0,
    part = { type = "summary_text", text = "" } })
end

local function delta(self, name, text, fields)
  self.parts[#self.parts + 1] = text
  fields.item_id, fields.output_index, fields.delta = self.item.id, self.at, text
  return frame(self, name, fields)
end

function Writer:event(ev)
  local kind, out = ev.kind, ""
  if kind == "text" then
    if ev.text == "" then return "" end
    if not self.item or self.item.type ~= "message" then out = open_message(self) end
    return out .. delta(self, "response.output_text.delta", ev.text, { content_index = 0, logprobs = list() })
  elseif kind == "thinking" then
    if not self.item or self.item.type ~= "reasoning" then out = open_reasoning(self) end
    return out .. delta(self, "response.reasoning_summary_text.delta", ev.text, { summary_index = 0 })
  elseif kind == "call" and self.req.custom and self.req.custom[ev.name] then
    return close(self) .. add(self, { id = "ctc_" .. ids.random(24), type = "custom_tool_call", status = "in_progress", call_id = ev.id, name = ev.name, input = "" })
  elseif kind == "call" then
    return close(self) .. add(self, { id = "fc_" .. ids.random(24), type = "function_call", status = "in_progress", call_id = ev.id, name = ev.name, arguments = "" })
  elseif kind == "arguments" and self.item.type == "custom_tool_call" then
    self.parts[#self.parts + 1] = ev.text -- JSON around the text: its parts are no parts of the text
    return ""
  elseif kind == "arguments" then
    return delta(self, "response.function_call_arguments.delta", ev.text, {})
  elseif kind == "call_end" then
    return close(self)
  elseif kind == "call_cut" then
    return close(self, "incomplete")
  elseif kind == "done" then
    self.reason = ev.reason
    return close(self, ev.reason == "length" and "incomplete" or nil)
  end
  return ""
end

-- The finished object; also what is stored.
function Writer:object(result)
  local status = self.reason == "length" and "incomplete" or "completed"
  local o = object(self, status, result.usage)
  if status == "incomplete" then o.incomplete_details = { reason = "max_output_tokens" } end
  return o
end

function Writer:close(result)
  local o = self:object(result)
  return frame(self, "response." .. o.status, { response = o })
end

function Writer:fault(body)
  local o = object(self, "failed")
  o.error = { code = "server_error", message = body.error.message }
  return close(self, "incomplete") .. frame(self, "response.failed", { response = o })
end

-- A whole reply is the stream played silently.
function Writer:whole(result)
  for i, c in ipairs(result.choices) do
    if c.thinking then self:event({ kind = "thinking", text = c.thinking }) end
    if c.text ~= "" then self:event({ kind = "text", text = c.text }) end
    for _, call in ipairs(c.calls or {}) do
      self:event({ kind = "call", id = call.id, name = call.name })
      self:event({ kind = "arguments", text = call.arguments })
      self:event({ kind = "call_end" })
    end
    self:event({ kind = "done", reason = c.reason, choice = i - 1 })
  end
  return self:object(result)
end

return reply
