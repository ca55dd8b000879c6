-- SPDX-License-Identifier: MIT
-- Runs the scheduling policy: builds the view, calls the policy under an
-- instruction limit, checks its answer, hands it to the engine. A policy that
-- fails or answers nonsense is logged and fcfs answers instead, until a reload.
local auth = require("mtx.serve.auth")
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

local function view_of(self, l, reason)
  local view = { waiting = {}, running = {}, stats = l.engine:stats(), reason = reason, now = self.ctx.clock() }
  for job in pairs(l.jobs) do
    for _, c in ipairs(job.choices or {}) do
      if c.id and job.by_id[c.id] then
        local list = c.started and view.running or view.waiting
        list[#list + 1] = { id = c.id, key = auth.owner(job.req.key), priority = job.req.priority or 0, arrived = job.arrived,
          deadline = job.deadline_ms and job.arrived + job.deadline_ms / 1000 or nil, n_prompt = c.n_prompt or 0 }
      end
    end
  end
  return view
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
  l.engine:set_policy(answer)
end

return sched
