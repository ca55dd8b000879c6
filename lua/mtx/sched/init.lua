-- SPDX-License-Identifier: MIT
-- Runs the scheduling policy: builds the view, calls the policy under an
-- instruction limit, checks its answer, hands it to the engine. A policy that
-- fails or answers nonsense is logged and fcfs answers instead, until a reload.
local uv = require("luv")
local auth = require("mtx.serve.auth")
local forecast = require("mtx.sched.forecast")
local sandbox = require("mtx.serve.script.sandbox")

local sched = {}

local Policy = {}
Policy.__index = Policy

local SHIPPED = { fcfs = true, fair = true }
local INSTRUCTIONS = 5000000

local function load_policy(name)
  if SHIPPED[name] then return require("mtx.sched." .. name) end
  local f, message = sandbox.load_file(name)
  if not f then return nil, "policy: " .. message .. " (or fcfs, fair)" end
  local ok, result = sandbox.call(f, INSTRUCTIONS)
  if not ok then return nil, name .. ": " .. tostring(result) end
  if type(result) ~= "function" then return nil, name .. ": a policy file must return a function(view)" end
  return result
end

-- ctx: {config.policy, log, clock}. nil, message when the policy does not load.
function sched.new(ctx)
  local f, message = load_policy(ctx.config.policy)
  if not f then return nil, message end
  return setmetatable({ ctx = ctx, f = f, own = not SHIPPED[ctx.config.policy] }, Policy)
end

-- Loads the file again; on failure the old policy stays. -> true, or nil, message.
function Policy:reload()
  if not self.own then return true end
  local f, message = load_policy(self.ctx.config.policy)
  if not f then return nil, message end
  self.f, self.broken = f, nil
  return true
end

-- The requests of model l as policies and forecasts see them.
local function requests_of(l)
  local waiting, running = {}, {}
  for job in pairs(l.jobs) do
    for _, c in ipairs(job.choices or {}) do
      if c.id and job.by_id[c.id] then
        local list = c.started and running or waiting
        list[#list + 1] = { id = c.id, key = auth.owner(job.req.key), priority = job.req.priority or 0, arrived = job.arrived,
          deadline = job.deadline_ms and job.arrived + job.deadline_ms / 1000 or nil, n_prompt = c.n_prompt or 0, n_cached = c.n_cached or 0,
          n_generated = c.n_given, max_tokens = c.budget, reading = not c.first_ms }
      end
    end
  end
  return waiting, running
end

-- What is free when for model l, as forecast.lua says it, with `waiting`, the requests in the order in which they are let in.
-- nil while nothing has been measured.
function Policy:forecast(l)
  local waiting, running = requests_of(l)
  local ranks = l.ranks or {}
  table.sort(waiting, function(a, b) -- as the engine does
    local rank_a, rank_b = ranks[a.id] or math.huge, ranks[b.id] or math.huge
    if rank_a ~= rank_b then return rank_a < rank_b end
    if a.priority ~= b.priority then return a.priority > b.priority end
    return a.id < b.id
  end)
  table.sort(running, function(a, b) return a.id < b.id end)
  local f = forecast.of({ parallel = self.ctx.config.parallel, now = uv.hrtime() / 1e6, running = running, waiting = waiting }, l.rates)
  if f then f.waiting = waiting end
  return f
end

-- The same for policies: {wait_s, starts_s = {[id] = seconds}, prompt_rate, reply_rate (tokens/s), reply_tokens}.
local function told(self, l)
  local f = self:forecast(l)
  if not f then return nil end
  local starts, r = {}, l.rates:known()
  for i, job in ipairs(f.waiting) do starts[job.id] = f.starts[i] / 1000 end
  return { wait_s = f.place / 1000, starts_s = starts, prompt_rate = 1000 / r.prompt_ms, reply_rate = 1000 / r.reply_ms, reply_tokens = r.reply_tokens }
end

local function view_of(self, l, reason)
  local waiting, running = requests_of(l)
  return { waiting = waiting, running = running, stats = l.engine:stats(), reason = reason, now = self.ctx.clock(),
    forecast = sandbox.host(function() return told(self, l) end) }
end

local function checked(answer, view)
  if type(answer) ~= "table" then return nil, "a policy must return a table" end
  local known = {}
  for _, j in ipairs(view.waiting) do known[j.id] = "waiting" end
  for _, j in ipairs(view.running) do known[j.id] = "running" end
  local out = {}
  for _, field in ipairs({ "order", "preempt" }) do
    local list = answer[field]
    if list ~= nil then
      if type(list) ~= "table" then return nil, field .. " must be a list of ids" end
      out[field] = {}
      for _, id in ipairs(list) do
        if known[id] == (field == "order" and "waiting" or "running") then table.insert(out[field], id) end
      end
    end
  end
  for _, field in ipairs({ "step_tokens", "prefill_tokens" }) do
    local v = answer[field]
    if v ~= nil then
      v = type(v) == "number" and math.tointeger(v)
      if not v or v < 1 then return nil, field .. " must be a positive integer" end
      out[field] = v
    end
  end
  local ratio = answer.prefill_ratio
  if ratio ~= nil and not (type(ratio) == "number" and ratio >= 1 and ratio < math.huge) then return nil, "prefill_ratio must be a number of at least 1" end
  out.prefill_ratio = ratio
  return out
end

-- Something changed for model l: ask the policy, tell the engine.
function Policy:changed(l, reason)
  if not l.engine or l.gone then return end
  local view = view_of(self, l, reason)
  if #view.waiting < 2 and not self.own then return end -- nothing to order
  local answer, message
  if not self.broken then
    local ok, result = sandbox.call(self.f, self.own and INSTRUCTIONS or nil, view)
    if ok then answer, message = checked(result, view) else message = tostring(result) end
    if not answer then
      self.broken = true
      self.ctx.log("error", "policy failed, fcfs answers until it is reloaded", { policy = self.ctx.config.policy, error = message })
    end
  end
  if not answer then answer = checked(require("mtx.sched.fcfs")(view_of(self, l, reason)), view) end
  l.ranks = {}
  for i, id in ipairs(answer.order or {}) do l.ranks[id] = i end
  l.engine:set_policy(answer)
end

return sched
