-- SPDX-License-Identifier: MIT
-- The engine's events of one choice (one of the n answers to a prompt), through the
-- output parser to the neutral events of api/request.lua.
--
-- job: generate.start's. choice: {index, prompt, id = the engine's, parser, ids, tokens}.
local uv = require("luv")
local call_texts = require("mtx.serve.generate.call_texts")
local chats = require("mtx.serve.models.chats")
local check = require("mtx.api.check")
local ids = require("mtx.ids")
local json = require("mtx.json")
local resume = require("mtx.serve.generate.resume")
local slots = require("mtx.serve.generate.slots")

local choices = {}

-- Token entries of the engine get their text: {id, text, logprob, top}.
local function named(loaded, entries)
  local model, out = loaded.model, {}
  local lowest = -3.4028235e38
  local function fix(v) return v and (v < lowest and lowest or v) end
  for i, e in ipairs(entries) do
    local top
    if e.top then
      top = {}
      for j, t in ipairs(e.top) do top[j] = { id = t.id, text = model:piece(t.id), logprob = fix(t.logprob) } end
    end
    out[i] = { id = e.id, text = model:piece(e.id), logprob = fix(e.logprob), top = top }
  end
  return out
end

-- The engine tells the prompt's logprobs from the second token on.
local function named_prompt(job, choice, entries)
  local first = job.prompts[choice.prompt][1]
  local all = { { id = first, text = first == job.loaded.info.bos and "" or job.loaded.model:piece(first) } }
  return table.move(named(job.loaded, entries), 1, #entries, 2, all)
end

local function emit(job, ev, choice)
  ev.choice = choice.index
  if ev.kind == "call_end" then choice.n_calls = choice.n_calls + 1 end
  if ev.kind == "arguments" then
    choice.call_parts[#choice.call_parts + 1] = ev.text
  elseif ev.kind == "call_end" then
    call_texts.keep(job.ctx.call_texts, choice.call_id, table.concat(choice.call_parts))
  end
  if ev.kind == "call" then
    choice.call_parts = {}
    ev.id = ev.id or ((job.req.dialect == "anthropic" and "toolu_" or "call_") .. ids.random(24))
    choice.call_id = ev.id
  end
  job.sink(ev)
end

-- Events of the parser. The first call may be the last (parallel_tool_calls).
local function emit_parsed(job, events, choice)
  for _, e in ipairs(events) do
    if choice.one_call then return end
    emit(job, e, choice)
    if e.kind == "call_end" and job.req.parallel_tool_calls == false then
      choice.one_call, choice.stopped = true, true
      if job.by_id[choice.id] then job.loaded.engine:cancel(choice.id) end
    end
  end
end

-- Gives back what a job held, however it ended; once.
function choices.release(job)
  if job.released then return end
  job.released = true
  local ctx, l = job.ctx, job.loaded
  l.jobs[job] = nil
  if job.lora then job.lora:close() end
  if job.place and ctx.jobs[job.place] == job then ctx.jobs[job.place] = nil end
  if job.req.controlled_as then ctx.controlled[job.req.controlled_as] = nil end
  ctx.n_jobs = ctx.n_jobs - 1
  ctx.pool:release(l, job.req.keep_alive)
  ctx.policy:changed(l, "finish")
end

-- Its prompt waits no longer.
function choices.left_queue(job, choice)
  if not choice.n_queued then return end
  job.loaded.n_queued = job.loaded.n_queued - choice.n_queued
  choice.n_queued = nil
end

-- Its prompt is through, or broken off.
local function stops_reading(job, choice, whole)
  if not choice.reading then return end
  choice.reading = nil
  job.loaded.rates.prompts:ends(uv.hrtime() / 1e6, whole and choice.n_prompt - choice.n_cached or nil)
end

local ON = {}

-- How far the prompt is: at admission, and after each step that read some of it.
function ON.progress(job, choice, ev)
  if choice.first_ms or not choice.started then return end -- after a resume; before a start that waits for the prompt's logprobs
  emit(job, { kind = "progress", total = choice.n_prompt, cache = choice.n_cached, processed = ev.n_processed, time_ms = ev.t_prefill_ms }, choice)
end

-- What a choice has cost so far, in the form of a job's usage.
local function so_far(choice)
  local now = uv.hrtime()
  return { n_prompt = choice.n_prompt, n_cached = choice.n_cached, n_generated = choice.n_out, prefill_ms = (choice.first_at - choice.started) / 1e6,
    decode_ms = (now - choice.first_at) / 1e6 }
end

function ON.start(job, choice, ev)
  choices.left_queue(job, choice)
  if choice.started then return end -- it goes on after a resume
  choice.started = uv.hrtime()
  choice.n_prompt, choice.n_cached = ev.n_prompt, ev.n_cached
  choice.reading = true
  -- The event comes with the end of a step, which may be that of the whole prompt.
  job.loaded.rates:let_in(choice.submitted / 1e6 + (ev.t_queue_ms or 0), ev.n_prompt, ev.n_cached)
  slots.take(job.loaded, choice, job.seed, job.ctx.config.slot_save_path ~= "" and job.prompts[choice.prompt], job.lora and job.cache_key and job.lora:key(job.cache_key) or job.cache_key)
  local out = { kind = "start", n_prompt = ev.n_prompt, n_cached = ev.n_cached }
  emit(job, out, choice)
  local req = job.req
  if req.return_progress then ON.progress(job, choice, { n_processed = ev.n_cached, t_prefill_ms = 0 }) end
  if req.echo then
    local text = req.prompt_texts[choice.prompt]
    emit(job, { kind = "text", text = text, logprobs = ev.logprobs and named_prompt(job, choice, ev.logprobs) }, choice)
  end
  job.ctx.policy:changed(job.loaded, "start")
end

function ON.token(job, choice, ev)
  if choice.stopped then return end
  choice.n_given = choice.n_given + #ev.tokens
  if not choice.first_ms then
    stops_reading(job, choice, true)
    choice.first_ms = (uv.hrtime() - job.t0) / 1e6
    job.ctx.on_first_token(job, choice)
    if job.req.timings then choice.first_at, choice.n_out = uv.hrtime(), 0 end
  end
  if choice.n_out then choice.n_out = choice.n_out + #ev.tokens end
  if job.keep_tokens then table.move(ev.tokens, 1, #ev.tokens, #choice.tokens + 1, choice.tokens) end
  slots.add(job.loaded, choice, ev.tokens)
  if choice.ids then table.move(ev.tokens, 1, #ev.tokens, #choice.ids + 1, choice.ids) end
  local logprobs = ev.logprobs and named(job.loaded, ev.logprobs)
  if job.token_hook then
    local ok, text, fault = pcall(job.ctx.script.token, job.ctx.script, ev.text, job.req)
    if not ok then
      fault = text
      if not check.is_fault(fault) then error(fault, 0) end
    end
    if fault or text == false then
      choice.fault = choice.fault or fault
      choice.stopped = true
      return job.loaded.engine:cancel(choice.id)
    end
    ev.text = text
  end
  local parser = choice.parser
  if not parser then
    local with_tokens = job.req.return_tokens
    if ev.text == "" and not logprobs and not with_tokens then return end
    local out = { kind = "text", text = ev.text, logprobs = logprobs }
    if with_tokens then out.tokens = ev.tokens end
    if choice.n_out then out.usage = so_far(choice) end
    return emit(job, out, choice)
  end
  local events = parser:feed(ev.text)
  if choice.n_out then
    local usage = so_far(choice)
    for _, e in ipairs(events) do e.usage = usage end
  end
  if logprobs then
    if not events[1] then
      choice.held = choice.held or {}
      table.move(logprobs, 1, #logprobs, #choice.held + 1, choice.held)
      return
    end
    if choice.held then
      logprobs = table.move(logprobs, 1, #logprobs, #choice.held + 1, choice.held)
      choice.held = nil
    end
    events[1].logprobs = logprobs
  end
  emit_parsed(job, events, choice)
  if job.req.think_budget and parser.thinking then resume.count_thought(job, choice, #ev.tokens) end
end

local function fault_of(ev)
  local kind = ev.code == "limit" and "queue_full" or ev.code == "deadline" and "unavailable" or "internal"
  return check.fault(kind == "internal" and 500 or 503, ev.message or "the model failed", { kind = kind })
end

-- The text that the engine held when it ended.
local function rest_of(ev) return ev.rest and json.clean(ev.rest) or "" end

-- True when the generation goes on after the engine's end of it.
local function resumed(job, choice, ev)
  local on, more = pcall(resume.at_done, job, choice, ev, job.submit)
  if not on then
    if not check.is_fault(more) then error(more, 0) end
    choice.fault = more
    return false
  end
  if more and choice.thought_mark then
    if choice.parser then emit_parsed(job, choice.parser:feed(rest_of(ev) .. choice.thought_mark), choice) end
    choice.thought_mark = nil
  end
  return more
end

-- A conversation with a tag is noted, so that it can be dropped; one that has been dropped meanwhile leaves nothing.
local function note_chat(job, choice)
  local ctx, l, req = job.ctx, job.loaded, job.req
  if job.dropped then return ctx.pool:start(l, function() end, "forget_prefix", job.cache_key, choice.ids) end
  local path, ok, reason = chats.remember(ctx.persistence.dir, req.cache_tag, l.key, job.cache_key, choice.ids)
  ctx.writes:told("a conversation's tag", path, ok, reason)
end

function ON.done(job, choice, ev)
  choices.left_queue(job, choice)
  stops_reading(job, choice, false)
  job.loaded.rates:replied(ev.n_generated or 0, ev.t_decode_ms or 0)
  job.by_id[choice.id] = nil
  job.loaded.handlers[choice.id] = nil
  local u = job.usage
  u.n_drafted, u.n_draft_accepted = u.n_drafted + (ev.n_drafted or 0), u.n_draft_accepted + (ev.n_draft_accepted or 0)
  if resumed(job, choice, ev) then return end
  if job.tagged then note_chat(job, choice) end
  slots.leave(job.loaded, choice)
  local rest = not choice.stopped and rest_of(ev) or ""
  if rest ~= "" and not choice.parser then emit(job, { kind = "text", text = rest }, choice) end
  if choice.parser and ev.reason ~= "error" then
    if rest ~= "" then emit_parsed(job, choice.parser:feed(rest), choice) end
    local events = choice.parser:finish()
    if choice.held and events[1] then events[1].logprobs = choice.held end
    emit_parsed(job, events, choice)
  end
  local reason = ev.reason
  if reason == "stop_string" or (choice.stopped and reason == "cancelled") then reason = choice.fault and "error" or "stop" end
  if reason == "stop" and choice.n_calls > 0 then reason = "tool_calls" end
  local timed_out = job.req.soft_deadline and ev.reason == "error" and ev.code == "deadline"
  if timed_out then reason = "length" end
  if choice.fault then reason = "error" end
  job.n_left, choice.over = job.n_left - 1, true
  if not u.counted[choice.prompt] then
    u.counted[choice.prompt] = true
    u.n_prompt = u.n_prompt + (not choice.round and ev.n_prompt or choice.n_prompt or 0)
    u.n_cached = u.n_cached + (not choice.round and ev.n_cached or choice.n_cached or 0)
  end
  u.n_generated = u.n_generated + (ev.n_generated or 0) + (choice.n_before or 0)
  for _, k in ipairs({ "queue", "prefill", "decode" }) do
    local before = choice.ms_before and choice.ms_before[k] or 0
    u[k .. "_ms"] = math.max(u[k .. "_ms"] or 0, (ev["t_" .. k .. "_ms"] or 0) + before)
  end
  u.total_ms = (uv.hrtime() - job.t0) / 1e6
  local last = job.n_left == 0
  if last then
    job.ctx.on_finish(job, ev)
    job.ctx.limits:charge(job.req.key, u.n_prompt + u.n_generated)
    choices.release(job)
  end
  emit(job, { kind = "done", reason = reason, stop_string = ev.stop_string, last = last,
    fault = choice.fault or ev.reason == "error" and not timed_out and fault_of(ev) or nil, n_generated = ev.n_generated,
    usage = choice.n_out and so_far(choice) }, choice)
end

-- An error of our own while an event is dealt with ends the choice; nobody is left waiting for it.
local function broke(job, choice, trace)
  job.ctx.log("error", "an event of a generation failed", { trace = trace })
  choice.fault = choice.fault or check.fault(500, "the server failed while it wrote the answer", { kind = "internal" })
  choice.stopped = true
  if job.by_id[choice.id] then return job.loaded.engine:cancel(choice.id) end -- its done event follows
  if not choice.over then job.n_left, choice.over = job.n_left - 1, true end
  if job.n_left == 0 then choices.release(job) end
  emit(job, { kind = "done", reason = "error", last = job.n_left == 0, fault = choice.fault, n_generated = 0 }, choice)
end

-- What the engine tells: goes to job.sink as neutral events, or resumes the choice.
function choices.take(job, choice, ev)
  local ok, trace = xpcall(ON[ev.kind], debug.traceback, job, choice, ev)
  if not ok then broke(job, choice, trace) end
end

return choices
