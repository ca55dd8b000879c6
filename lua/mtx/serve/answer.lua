-- SPDX-License-Identifier: MIT
-- Joins one HTTP exchange with one generation: streams events through the
-- dialect's writer, or gathers them into one reply. A writer has: ctype, ping
-- (bytes or nil), open(), event(ev), close(result), fault(body), whole(result).
local uv = require("luv")
local best_of = require("mtx.serve.generate.best_of")
local check = require("mtx.api.check")
local errors = require("mtx.api.errors")
local generate = require("mtx.serve.generate")
local wire = require("mtx.api.wire")

local answer = {}

-- The model's name in a reply: the one that the request gave, or, where it gave none, that of the model which answered.
function answer.name_told(req, loaded) return req.model ~= "" and req.model or loaded.name end

-- Gathers events: result = {choices = {{text, thinking, calls, logprobs, reason, stop_string, tokens}}, usage, fault}.
function answer.collector()
  local c = { choices = {} }
  local function of(ev)
    local i = ev.choice + 1
    local s = c.choices[i]
    if not s then
      s = { parts = {}, thought = {} }
      c.choices[i] = s
    end
    return s
  end
  function c.add(ev)
    local s, kind = of(ev), ev.kind
    if ev.logprobs then
      s.logprobs = s.logprobs or {}
      table.move(ev.logprobs, 1, #ev.logprobs, #s.logprobs + 1, s.logprobs)
    end
    if kind == "text" then s.parts[#s.parts + 1] = ev.text
    elseif kind == "thinking" then s.thought[#s.thought + 1] = ev.text
    elseif kind == "call" then
      s.call = { id = ev.id, name = ev.name, index = ev.index, parts = {} }
    elseif kind == "arguments" then
      local p = s.call.parts
      p[#p + 1] = ev.text
    elseif kind == "call_end" then
      s.calls = s.calls or {}
      s.calls[#s.calls + 1] = s.call
    elseif kind == "call_cut" then s.parts[#s.parts + 1] = ev.text
    elseif kind == "done" then
      s.reason, s.stop_string = ev.reason, ev.stop_string
      c.fault = c.fault or ev.fault
    end
  end
  function c.result(job)
    for i, s in ipairs(c.choices) do
      s.text = table.concat(s.parts)
      s.thinking = #s.thought > 0 and table.concat(s.thought) or nil
      for _, call in ipairs(s.calls or {}) do call.arguments = table.concat(call.parts) end
      s.tokens = job.choices[i] and job.choices[i].tokens
    end
    return { choices = c.choices, usage = job.usage, job = job, seed = job.seed }
  end
  return c
end

-- prompt and answer token ids, for Ollama's `context`.
local function add_context(result, job)
  local tokens = job.choices[1].tokens
  if not tokens then return end
  local all = table.move(job.prompts[1], 1, #job.prompts[1], 1, {})
  result.context = table.move(tokens, 1, #tokens, #all + 1, all)
end

-- The reply to one exchange while its generation runs.
local Reply = {}
Reply.__index = Reply

function Reply:put(bytes)
  if self.kept then self.kept:append(bytes) end
  if not self.x.gone then self.x:write(bytes) end
end

function Reply:begin()
  if self.begun then return end
  self.begun = true
  if self.kept then self.kept.ctype = self.writer.ctype end
  if not self.x.gone then self.x:start(200, self.writer.ctype) end
  self:put(self.writer:open())
end

function Reply:start_ping(seconds)
  if not self.writer.ping or seconds < 0 then return end
  self.ping = uv.new_timer()
  self.ping:start(seconds * 1000, seconds * 1000, function()
    if self.x.gone then return end
    self:begin()
    self.x:write(self.writer.ping)
  end)
end

function Reply:stop_ping()
  if self.ping and not self.ping:is_closing() then self.ping:close() end
end

function Reply:fail_late(fault)
  local _, body = errors.of(self.x.route.dialect, fault, self.x.id)
  self:put(self.writer:fault(body))
  if self.kept then self.kept:finish() end
  if not self.x.gone then self.x:finish(true) end
end

-- However far the answer has come; nobody waits for more of it.
function Reply:fail(fault)
  if self.kept and self.kept.done then return end
  if self.begun then return self:fail_late(fault) end
  if self.kept then self.ctx.streams:remove(self.kept) end
  self.ctx.app:fail(self.x, fault)
end

function Reply:finish()
  local ctx, x, req, job = self.ctx, self.x, self.req, self.job
  self:stop_ping()
  if x.gone and not self.kept then return end
  local result = self.collect.result(job)
  if self.collect.fault then return self:fail(self.collect.fault) end
  if req.keep then best_of.choose(result, req) end
  add_context(result, job)
  if ctx.script then ctx.script:response(result, req) end
  if self.on_done then self.on_done(result, job) end
  if not self.streamed then return x:send(200, wire.encode(self.writer:whole(result))) end
  self:begin()
  self:put(self.writer:close(result))
  if self.kept then self.kept:finish() end
  if not x.gone then x:finish() end
end

function Reply:take(ev)
  if self.x.gone and not self.kept then
    if ev.last then self:stop_ping() end
    return
  end
  if self.streamed then
    if not (ev.kind == "done" and ev.fault) then self:begin() end
    if self.begun and not ev.fault then self:put(self.writer:event(ev)) end
  end
  if self.keep or ev.kind == "done" then self.collect.add(ev) end
  if ev.last then self:finish() end
end

-- The sink of a generation: an error in here ends it.
function Reply:sink()
  return function(ev)
    if self.failed then return end -- what still comes until the work has stopped
    local _, fault = self.ctx.app:try(self.x, self.take, self, ev)
    if not fault then return end
    self.failed = true
    self:stop_ping()
    self.job:cancel()
    self:fail(fault)
  end
end

-- Runs req for x. make_writer(job) -> writer; on_done(result, job) is optional and
-- runs before the reply is closed (to store it).
function answer.run(ctx, x, req, make_writer, on_done)
  req.key = x.key
  local streamed = req.stream
  -- A kept stream (routes/stream.lua) goes on without its client.
  local kept = streamed and ctx.keep_stream(x) or nil
  local reply = setmetatable({ ctx = ctx, x = x, req = req, on_done = on_done, collect = answer.collector(), kept = kept, streamed = streamed,
    keep = not streamed or on_done or (ctx.script and ctx.script:has("response")) }, Reply)
  local started, job = pcall(generate.start, ctx, req, reply:sink())
  if not started then
    if kept then ctx.streams:remove(kept) end
    error(job, 0)
  end
  reply.job, x.job = job, job
  if req.warning then x:header("X-Mtx-Warning", req.warning) end
  if kept then kept.job = job end
  reply.writer = make_writer(job)
  x.on_abort = function()
    if not kept then job:cancel() end
  end
  x.end_now = function()
    reply:stop_ping()
    local fault = check.fault(503, "the server stops", { kind = "unavailable" })
    if reply.begun then reply:fail_late(fault) else ctx.app:fail(x, fault) end
    x.gone = "server stops"
  end
  if streamed then reply:start_ping(req.ping_s or 30) end
  return job
end

-- x.body -> table, or raises the Fault of a bad body.
function answer.body(x)
  local body, message = require("mtx.api.body").decode(x.body)
  if not body then check.fail(400, message) end
  return body
end

-- The model that a body of Ollama's dialect names.
function answer.model_name(body)
  local name = check.string(body, "model") or check.string(body, "name")
  if not name or name == "" then check.fail(400, "model is required") end
  return name
end

return answer
