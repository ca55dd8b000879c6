-- SPDX-License-Identifier: MIT
-- Joins one HTTP exchange with one generation: streams events through the
-- dialect's writer, or gathers them into one reply. A writer has: ctype, ping
-- (bytes or nil), open(), event(ev), close(result), fault(body), whole(result).
local uv = require("luv")
local check = require("mtx.api.check")
local errors = require("mtx.api.errors")
local generate = require("mtx.serve.generate")
local wire = require("mtx.api.wire")

local answer = {}

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

local function start_ping(x, writer, begin, seconds)
  if not writer.ping or seconds < 0 then return nil end
  local timer = uv.new_timer()
  timer:start(seconds * 1000, seconds * 1000, function()
    if x.gone then return end
    begin()
    x:write(writer.ping)
  end)
  return timer
end

-- Runs req for x. make_writer(job) -> writer; on_done(result, job) is optional and
-- runs before the reply is closed (to store it).
function answer.run(ctx, x, req, make_writer, on_done)
  req.key = x.key
  local collect = answer.collector()
  local job, writer, ping, begun
  -- A kept stream (routes/stream.lua) goes on without its client.
  local kept = req.stream and ctx.keep_stream(x) or nil
  local function put(bytes)
    if kept then kept:append(bytes) end
    if not x.gone then x:write(bytes) end
  end
  local function begin()
    if begun then return end
    begun = true
    if kept then kept.ctype = writer.ctype end
    if not x.gone then x:start(200, writer.ctype) end
    put(writer:open())
  end
  local streamed, keep = req.stream, not req.stream or on_done or (ctx.script and ctx.script:has("response"))
  local function fail_late(fault)
    local _, body = errors.of(x.route.dialect, fault, x.id)
    put(writer:fault(body))
    if kept then kept:finish() end
    if not x.gone then x:finish(true) end
  end
  -- However far the answer has come; nobody waits for more of it.
  local function fail(fault)
    if kept and kept.done then return end
    if begun then return fail_late(fault) end
    if kept then ctx.streams:remove(kept) end
    ctx.app:fail(x, fault)
  end
  local function finish()
    if ping and not ping:is_closing() then ping:close() end
    if x.gone and not kept then return end
    local result = collect.result(job)
    if collect.fault then return fail(collect.fault) end
    add_context(result, job)
    if ctx.script then ctx.script:response(result, req) end
    if on_done then on_done(result, job) end
    if streamed then
      begin()
      put(writer:close(result))
      if kept then kept:finish() end
      if not x.gone then x:finish() end
    else
      x:send(200, wire.encode(writer:whole(result)))
    end
  end
  local function sink(ev)
    if x.gone and not kept then
      if ev.last and ping and not ping:is_closing() then ping:close() end
      return
    end
    if streamed then
      if not (ev.kind == "done" and ev.fault) then begin() end
      if begun and not ev.fault then put(writer:event(ev)) end
      if keep or ev.kind == "done" then collect.add(ev) end
    else
      collect.add(ev)
    end
    if ev.last then finish() end
  end
  local failed
  local function guarded(ev)
    if failed then return end -- what still comes until the work has stopped
    local _, fault = ctx.app:try(x, sink, ev)
    if not fault then return end
    failed = true
    if ping and not ping:is_closing() then ping:close() end
    job:cancel()
    fail(fault)
  end
  local started, fault = pcall(generate.start, ctx, req, guarded)
  if not started then
    if kept then ctx.streams:remove(kept) end
    error(fault, 0)
  end
  job = fault
  x.job = job
  if kept then kept.job = job end
  writer = make_writer(job)
  x.on_abort = function()
    if not kept then job:cancel() end
  end
  x.end_now = function()
    if ping then ping:close() end
    local fault = check.fault(503, "the server stops", { kind = "unavailable" })
    if begun then fail_late(fault) else ctx.app:fail(x, fault) end
    x.gone = "server stops"
  end
  if streamed then ping = start_ping(x, writer, begin, req.ping_s or 30) end
  return job
end

-- x.body -> table, or raises the Fault of a bad body.
function answer.body(x)
  local body, message = require("mtx.api.body").decode(x.body)
  if not body then check.fail(400, message) end
  return body
end

return answer
