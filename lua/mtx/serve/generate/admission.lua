-- SPDX-License-Identifier: MIT
-- Who is turned away at the door: when a queue is full, or when a request cannot meet its own deadline. Whoever is turned
-- away is told when it is worth trying again, by what the engine did lately (sched/forecast.lua).
local uv = require("luv")
local check = require("mtx.api.check")
local metrics = require("mtx.serve.metrics")

local admission = {}

-- Seconds: what is said before anything has been measured, and at most.
local UNMEASURED, MOST = 2, 600

-- Retry-After for something expected in so many ms (nil: nobody knows).
function admission.retry_after(ms)
  if not ms then return UNMEASURED end
  return math.max(1, math.min(MOST, math.ceil(ms / 1000)))
end

local function full(ctx, l, why, ms)
  metrics.add(ctx.shed, 'reason="queue_full"')
  check.fail(503, "the queue of " .. l.name .. " is full: " .. why, { kind = "queue_full", retry_after = admission.retry_after(ms) })
end

-- The queue of requests is full: the place of the first that waits is the next that comes free.
local function no_place(ctx, l, why)
  local f = ctx.policy:forecast(l)
  full(ctx, l, why, f and (f.starts[1] or f.place))
end

-- Requests that wait are bounded in number.
function admission.check_places(ctx, l)
  local waiting, limit = l.engine:stats().n_waiting, ctx.config.max_waiting
  if waiting >= limit then no_place(ctx, l, waiting .. " requests wait, the limit is " .. limit) end
end

-- ms until prompts of so many tokens have left the queue.
local function time_to_leave(f, n_tokens)
  for i, job in ipairs(f.waiting) do
    n_tokens = n_tokens - job.n_prompt
    if n_tokens <= 0 then return f.starts[i] end
  end
  return f.place
end

-- Prompts that wait are bounded in tokens, too; one alone may always come.
function admission.check_tokens(ctx, l, prompts, n)
  local queued, tokens, limit = l.n_queued or 0, 0, ctx.config.max_waiting_tokens
  for _, p in ipairs(prompts) do tokens = tokens + #p * n end
  if queued == 0 or queued + tokens <= limit then return end
  local f = ctx.policy:forecast(l)
  full(ctx, l, "prompts of " .. queued .. " tokens wait, the limit is " .. limit, f and time_to_leave(f, math.min(queued, queued + tokens - limit)))
end

-- The engine's own word that its queue is full, which may come first.
admission.engine_full = no_place

-- Requests for embeddings have a queue of their own; the first of n ends after its share of the tokens that are left.
function admission.check_embeds(ctx, l)
  local n, limit = l.n_embeds or 0, ctx.config.max_waiting
  if n < limit then return end
  local left, ms = 0, l.rates.inputs:ms_per_token()
  for job in pairs(l.jobs) do left = left + (job.lists and job.n_tokens - job.n_done or 0) end
  full(ctx, l, n .. " requests for embeddings are under way, the limit is " .. limit, ms and left * ms / n)
end

-- ms until a model that is in memory has nothing left to do, so that another can have its place; nil when none can tell.
function admission.next_idle(ctx)
  local soonest
  for _, l in pairs(ctx.pool.loaded) do
    local f = ctx.policy:forecast(l)
    if f and (not soonest or f.over < soonest) then soonest = f.over end
  end
  return soonest
end

-- A time in words: below a second in ms, as deadlines are given.
local function span(ms) return ms < 1000 and ("%d ms"):format(math.max(0, math.floor(ms))) or ("%.1f s"):format(ms / 1000) end

-- A job that has just been queued: when its turn comes after its deadline, it has no business there. What of its own prompt is
-- cached is not known yet, so its reading counts only where nothing can be, and only beside others: an engine that has
-- nothing else to do may as well try, and learns its speed by it. (The engine looks once more when it lets a request in.)
function admission.check_deadline(job)
  local ctx, l = job.ctx, job.loaded
  if not job.deadline_ms or job.req.soft_deadline then return end
  local f = ctx.policy:forecast(l)
  if not f or #f.waiting == 0 then return end
  local turn, n_ahead, ahead_tokens, own = nil, 0, 0, 0
  local cached = job.cache_key and ctx.config.cache_mb > 0
  for i, w in ipairs(f.waiting) do
    if job.by_id[w.id] then
      turn, n_ahead = f.turns[i], i - 1
      if not cached and f.turns[i] > 0 then own = w.n_prompt * l.rates:known().prompt_ms end
    end
  end
  for i = 1, n_ahead do ahead_tokens = ahead_tokens + f.waiting[i].n_prompt end
  local left = job.deadline_ms - (uv.hrtime() - job.t0) / 1e6
  if not turn or turn + own <= left then return end
  metrics.add(ctx.shed, 'reason="deadline"')
  check.fail(503, ("the deadline cannot be met: it is in %s, a first token is expected in %s (%d requests with prompts of %d tokens wait before it)")
    :format(span(left), span(turn + own), n_ahead, ahead_tokens), { kind = "queue_full", code = "deadline", retry_after = admission.retry_after(turn + own - left) })
end

return admission
