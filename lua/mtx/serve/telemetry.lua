-- SPDX-License-Identifier: MIT
-- What the server measures about generations: Prometheus series, llama-server's
-- names beside our own, and the trace file with every stage of every request.
local uv = require("luv")
local figures = require("mtx.serve.figures")
local metrics = require("mtx.serve.metrics")
local whole_file = require("mtx.whole_file")
local wire = require("mtx.api.wire")

local telemetry = {}

local SECONDS = { 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60 }

local function over_models(ctx, read)
  return function()
    local sum = 0
    for _, l in pairs(ctx.pool.loaded) do
      sum = sum + (read(l.engine:stats()) or 0)
    end
    return sum
  end
end

local function gauges(ctx, m)
  m:gauge("mtx_models_loaded", "Models in memory", function() return ctx.pool.n end)
  m:gauge("mtx_queue_depth", "Requests waiting in the engines", over_models(ctx, function(s) return s.n_waiting end))
  m:gauge("mtx_batch_size", "Sequences decoding now", over_models(ctx, function(s) return s.n_running end))
  m:gauge("mtx_kv_pages_free", "Free KV pages", over_models(ctx, function(s) return s.pages_free end))
  m:gauge("mtx_kv_pages_total", "KV pages", over_models(ctx, function(s) return s.pages_total end))
  m:gauge("mtx_connections_open", "Open connections", function() return ctx.http.n_conns end)
  m:gauge("mtx_lua_bytes", "Memory of the Lua state", function() return math.floor(collectgarbage("count") * 1024) end)
  m:gauge("mtx_uptime_seconds", "Seconds since start", function() return os.time() - ctx.started end)
  m:gauge("llamacpp:requests_processing", "Requests processing", over_models(ctx, function(s) return s.n_running end))
  m:gauge("llamacpp:requests_deferred", "Requests waiting", over_models(ctx, function(s) return s.n_waiting end))
end

-- What llama-server and OxiLLaMa call further figures.
local function others(ctx, m, twins)
  local function rate(n, seconds)
    return function()
      local s = twins[seconds].series[""] or 0
      return s > 0 and (twins[n].series[""] or 0) / s or 0
    end
  end
  m:gauge("llamacpp:prompt_tokens_seconds", "Mean prompt speed, tokens/s", rate("prompt_tokens_total", "prompt_seconds_total"))
  m:gauge("llamacpp:predicted_tokens_seconds", "Mean decode speed, tokens/s", rate("tokens_predicted_total", "tokens_predicted_seconds_total"))
  m:gauge("llamacpp:n_tokens_max", "Most tokens of one sequence", function() return ctx.totals.longest or 0 end)
  m:gauge("llamacpp:n_decode_total", "Steps of the engines", over_models(ctx, function(s) return s.n_steps end))
  m:gauge("llamacpp:n_busy_slots_per_decode", "Sequences that got a token, mean per step", function()
    local tokens, steps = over_models(ctx, function(s) return s.n_generated_tokens end)(), over_models(ctx, function(s) return s.n_steps end)()
    return steps > 0 and tokens / steps or 0
  end)
  m:alias("oxillama_requests_total", m.families.mtx_requests_total)
  m:alias("oxillama_tokens_generated_total", m.families.mtx_tokens_generated_total)
  m:alias("oxillama_prompt_tokens_total", m.families.mtx_prompt_tokens_total)
  m:gauge("oxillama_active_requests", "Requests being answered now", m.families.mtx_requests_active.read)
  m:gauge("oxillama_queue_depth", "Requests waiting in the engines", m.families.mtx_queue_depth.read)
end

-- Adds ctx.on_first_token, ctx.on_finish, ctx.on_embed and ctx.totals.
function telemetry.attach(ctx)
  local m = ctx.metrics
  gauges(ctx, m)
  figures.attach(ctx, m)
  ctx.shed = m:counter("mtx_shed_total", "Requests turned away at the door (generate/admission.lua), by reason")
  local prompt = m:counter("mtx_prompt_tokens_total", "Prompt tokens")
  local cached = m:counter("mtx_prompt_tokens_cached_total", "Prompt tokens taken from the cache")
  local generated = m:counter("mtx_tokens_generated_total", "Tokens generated")
  local drafted = m:counter("mtx_draft_tokens_total", "Tokens drafted")
  local accepted = m:counter("mtx_draft_tokens_accepted_total", "Drafted tokens that came")
  local finished = m:counter("mtx_generations_total", "Generations ended, by reason")
  local queue = m:histogram("mtx_queue_seconds", "Time in the queue", SECONDS)
  local ttft = m:histogram("mtx_time_to_first_token_seconds", "Request head to first token", SECONDS)
  local itl = m:histogram("mtx_inter_token_seconds", "Mean time between tokens of one answer", { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1 })
  local rate = m:histogram("mtx_tokens_per_second", "Decode speed of one answer", { 1, 2, 5, 10, 20, 50, 100, 200, 500 })
  local batch = m:histogram("mtx_batch_sequences", "Sequences in the engine when an answer begins", { 1, 2, 4, 8, 16, 32, 64, 128 })
  local pages = m:histogram("mtx_kv_pages_used_ratio", "Share of the KV pages in use when an answer begins", { 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1 })
  local hits = m:histogram("mtx_prompt_cached_ratio", "Share of a request's prompt taken from the cache", { 0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1 })
  local embedded = m:counter("mtx_embedding_tokens_total", "Tokens embedded")
  local twins = {}
  for _, t in ipairs({ { "prompt_tokens_total", "Prompt tokens" }, { "tokens_predicted_total", "Tokens generated" },
    { "prompt_seconds_total", "Prompt time" }, { "tokens_predicted_seconds_total", "Decode time" } }) do
    twins[t[1]] = m:counter("llamacpp:" .. t[1], t[2])
  end
  ctx.totals = { requests = 0, prompt = 0, generated = 0 }
  others(ctx, m, twins)
  function ctx.on_first_token(job, choice)
    metrics.observe(ttft, choice.first_ms / 1000)
    local s = job.loaded.engine:stats()
    metrics.observe(batch, s.n_running)
    if s.pages_total > 0 then metrics.observe(pages, 1 - s.pages_free / s.pages_total) end
  end
  function ctx.on_embed(_, n) metrics.add(embedded, nil, n) end
  function ctx.on_finish(job, ev)
    local u = job.usage
    local totals = ctx.totals
    totals.longest = math.max(totals.longest or 0, u.n_prompt + u.n_generated)
    totals.requests, totals.prompt, totals.generated = totals.requests + 1, totals.prompt + u.n_prompt, totals.generated + u.n_generated
    metrics.add(prompt, nil, u.n_prompt)
    metrics.add(cached, nil, u.n_cached)
    metrics.add(generated, nil, u.n_generated)
    metrics.add(drafted, nil, u.n_drafted)
    metrics.add(accepted, nil, u.n_draft_accepted)
    metrics.add(finished, 'reason="' .. ev.reason .. '"')
    metrics.observe(queue, (u.queue_ms or 0) / 1000)
    if u.n_prompt > 0 then metrics.observe(hits, u.n_cached / u.n_prompt) end
    metrics.add(twins.prompt_tokens_total, nil, u.n_prompt)
    metrics.add(twins.tokens_predicted_total, nil, u.n_generated)
    metrics.add(twins.prompt_seconds_total, nil, (u.prefill_ms or 0) / 1000)
    metrics.add(twins.tokens_predicted_seconds_total, nil, (u.decode_ms or 0) / 1000)
    if u.n_generated > 1 and (u.decode_ms or 0) > 0 then
      metrics.observe(itl, u.decode_ms / 1000 / (u.n_generated - 1))
      metrics.observe(rate, u.n_generated / u.decode_ms * 1000)
    end
    telemetry.trace(ctx, job, ev)
  end
  return telemetry.open_trace(ctx)
end

-- Opens the trace file, or a new one after somebody has moved it away. It holds prompts: its owner's alone. -> true | nil, reason
function telemetry.open_trace(ctx)
  if ctx.config.trace == "" then return true end
  local fd, reason = uv.fs_open(ctx.config.trace, "a", tonumber("600", 8))
  if not fd then return nil, "cannot write the trace file: " .. reason end
  if ctx.trace_file then uv.fs_close(ctx.trace_file) end
  ctx.trace_file = fd
  return true
end

-- One line per generation with all its stages; enough to send it again.
function telemetry.trace(ctx, job, ev)
  if not ctx.trace_file then return end
  local req, u = job.req, job.usage
  local choices = wire.list()
  for i, c in ipairs(job.choices) do choices[i] = { first_token_ms = c.first_ms, n_calls = c.n_calls, n_prompt = c.n_prompt } end
  local line = wire.encode({ time = os.date("!%Y-%m-%dT%H:%M:%SZ"), model = job.loaded.name, dialect = req.dialect, task = req.task,
    key = req.key and req.key.name or nil, stream = req.stream, prompt = req.rendered, max_tokens = req.max_tokens ~= math.huge and req.max_tokens or nil,
    sampler = job.sampler, stop = wire.list(job.stop or {}), reason = ev.reason, error = ev.message, choices = choices, n_prompt = u.n_prompt,
    n_cached = u.n_cached, n_generated = u.n_generated, n_drafted = u.n_drafted, n_draft_accepted = u.n_draft_accepted, load_ms = u.load_ms, queue_ms = u.queue_ms, prefill_ms = u.prefill_ms, decode_ms = u.decode_ms,
    total_ms = (uv.hrtime() - job.t0) / 1e6 }) .. "\n"
  ctx.writes:told("the trace", ctx.config.trace, whole_file.put(ctx.trace_file, line))
end

return telemetry
