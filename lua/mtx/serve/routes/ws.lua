-- SPDX-License-Identifier: MIT
-- WebSocket /v1/chat/ws (api.md, section 6). A frame {messages, ...} starts a
-- reply; with an `id` several replies share the socket and frames carry it; a
-- first frame without `id` is the simple form: its reply ends with a close.
-- {type: "cancel", id} (or request_id) stops one reply.
local answer = require("mtx.serve.answer")
local body = require("mtx.api.body")
local check = require("mtx.api.check")
local fiber = require("mtx.serve.fiber")
local generate = require("mtx.serve.generate")
local openai = require("mtx.api.openai")
local websocket = require("mtx.http.websocket")
local wire = require("mtx.api.wire")

local M = {}

local MAX_MESSAGE, MAX_REPLIES, MAX_PINGS = 4 << 20, 32, 100

local Session = {}
Session.__index = Session

function Session:send(t)
  if self.closed then return end
  self.x.conn:push(websocket.text(wire.encode(t)))
end

function Session:close(code, reason)
  if self.closed then return end
  self.closed = true
  self.x.conn:push(websocket.close(code, reason))
  self.x.conn.on_bytes = function(bytes) if not bytes then self.gone = true end end
  self.x.conn:linger()
  for _, job in pairs(self.jobs) do job:cancel() end
end

local function label(id) return id ~= nil and id or wire.null end

-- Sends the frames of one event; `id` nil in the simple form.
local function event(s, id, ev, result, job)
  local function send(t)
    if id ~= nil then t.id = id end
    s:send(t)
  end
  if ev.kind == "text" then
    if ev.text ~= "" then send({ type = "token", delta = ev.text, index = ev.choice > 0 and ev.choice or nil }) end
  elseif ev.kind == "thinking" then send({ type = "reasoning", delta = ev.text })
  elseif ev.kind == "call" then send({ type = "tool_call", index = ev.index, call_id = ev.id, name = ev.name, arguments = "" })
  elseif ev.kind == "arguments" then send({ type = "tool_call", index = ev.index, arguments = ev.text })
  elseif ev.kind == "done" and ev.last then
    s.jobs[label(id)], s.n = nil, s.n - 1
    if ev.fault then
      send({ type = "error", message = ev.fault.message })
    else
      local u = result(job).usage
      send({ type = "done", finish_reason = ev.reason, usage = { prompt_tokens = u.n_prompt, completion_tokens = u.n_generated } })
    end
    if id == nil then s:close(1000, "") end
  end
end

local function cancel(s, frame)
  local id, by = check.get(frame, "id"), check.get(frame, "request_id")
  local reply = s.jobs[label(id ~= nil and id or by)]
  for _, r in pairs(s.jobs) do
    if id == nil and by ~= nil and r.request_id == by then reply = r end
  end
  if reply then reply.cancel() end
end

local function start(s, frame)
  if not s.ctx.auth:still(s.x.key, "infer") then return s:close(1008, "this key is no longer accepted") end
  local id = check.get(frame, "id")
  if id ~= nil and type(id) ~= "string" and type(id) ~= "number" then check.fail(400, "id must be a string or a number") end
  if s.jobs[label(id)] then check.fail(400, "a reply with this id is running") end
  if s.n >= MAX_REPLIES then check.fail(429, "at most " .. MAX_REPLIES .. " replies run on one socket", { kind = "rate_limit" }) end
  if check.get(frame, "max_tokens") == nil then frame.max_tokens = 512 end
  if check.get(frame, "temperature") == nil then frame.temperature = 0.7 end
  local ok, wait, why = s.ctx.limits:admit(s.x.key)
  if not ok then check.fail(429, why .. "; try again in " .. wait .. " s", { retry_after = wait }) end
  local req = openai.chat(frame)
  req.stream, req.key = true, s.x.key
  local collect, job = answer.collector(), nil
  s.n = s.n + 1
  req.on_wait = function(waiter) -- its model loads
    s.jobs[label(id)] = waiter and { request_id = req.request_id, cancel = function() waiter.leave(check.fault(499, "request canceled")) end }
  end
  local started, fault = check.try(generate.start, s.ctx, req, function(ev)
    if ev.kind == "done" then collect.add(ev) end
    event(s, id, ev, collect.result, job)
  end)
  if not started then
    s.n = s.n - 1
    error(fault, 0)
  end
  job = started
  s.jobs[label(id)] = { request_id = req.request_id, cancel = function() job:cancel() end }
end

local function on_text(s, text)
  local frame, message = body.decode(text)
  if not frame then return s:send({ type = "error", message = message }) end
  local kind = check.get(frame, "type")
  if kind == "cancel" then return cancel(s, frame) end
  if kind == "ping" then return s:send({ type = "pong" }) end
  fiber.start(nil, function()
    local _, fault = check.try(start, s, frame)
    if fault then s:send({ type = "error", id = check.get(frame, "id"), message = fault.message, retry_after = fault.retry_after }) end
  end)
end

local function on_bytes(s, bytes)
  if not bytes then
    s.closed = true
    for _, reply in pairs(s.jobs) do reply.cancel() end
    return
  end
  s.reader:feed(bytes)
  while not s.closed do
    local kind, a, b = s.reader:next()
    if not kind then return end
    if kind == "text" then on_text(s, a)
    elseif kind == "binary" then s:close(1003, "text frames only")
    elseif kind == "ping" then
      local now = s.ctx.clock()
      if now - (s.ping_since or 0) > 10 then s.ping_since, s.pings = now, 0 end
      s.pings = s.pings + 1
      if s.pings > MAX_PINGS then return s:close(1008, "too many pings") end
      s.x.conn:push(websocket.frame(10, a))
    elseif kind == "close" then s:close(a == 1005 and 1000 or a, "")
    elseif kind == "error" then s:close(a, b) end
  end
end

function M.add(ctx)
  ctx.routes:add("GET", "/v1/chat/ws", { scope = "infer", dialect = "openai", limited = false, handler = function(x)
    local status, message = websocket.check(x.req.headers)
    if status then
      x:header("Sec-WebSocket-Version", "13")
      return ctx.app:refuse(x, status, message)
    end
    local s = setmetatable({ ctx = ctx, x = x, reader = websocket.reader(MAX_MESSAGE), jobs = {}, n = 0 }, Session)
    x:upgrade("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " .. websocket.accept_key(x.req.headers["sec-websocket-key"]) .. "\r\n",
      function(bytes)
        local ok, err = xpcall(on_bytes, debug.traceback, s, bytes)
        if not ok then
          ctx.log("error", "websocket handler failed", { trace = err })
          s:close(1011, "internal error")
        end
      end)
    x.conn.on_drain = function() s:close(1001, "server stops") end
  end })
end

return M
