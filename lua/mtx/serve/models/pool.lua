-- SPDX-License-Identifier: MIT
-- The models in memory: at most max_loaded_models, least recently used leaves
-- first, each with its engine, the poll on the engine's wake descriptor and the
-- table that brings events to their jobs. A model with work is never unloaded. How they get there: arrivals.lua.
local uv = require("luv")
local arrivals = require("mtx.serve.models.arrivals")
local check = require("mtx.api.check")
local fiber = require("mtx.serve.fiber")
local loading = require("mtx.serve.models.loading")

-- Seconds without a request after which prompts are saved.
local IDLE_S = 5

local pool = {}

local Pool = {}
Pool.__index = Pool
for name, method in pairs(arrivals) do Pool[name] = method end

-- ctx: {config, log, core = {start_load}, clock}
function pool.new(ctx)
  local self = setmetatable({ ctx = ctx, loaded = {}, n = 0, loads = {}, n_loads = 0, drops = {}, failed = {} }, Pool)
  self.timer = uv.new_timer()
  self.timer:start(250, 250, function() self:sweep() end)
  return self
end

-- Unloads the model without work that was used longest ago. -> whether there was one
function Pool:evict_one()
  local oldest
  for _, l in pairs(self.loaded) do
    if l.inflight == 0 and (not oldest or l.used < oldest.used) then oldest = l end
  end
  if not oldest then return false end
  self:unload(oldest, "to make room")
  return true
end

-- The catalog's entry of a loaded model may have changed: new settings hold from the next request on, new weights or
-- another context once nobody uses the old. -> l, or nil when it is to be loaded anew
local function renewed(self, l, entry)
  if l.entry.weights == entry.weights and l.entry.settings == entry.settings then return l end
  if l.entry.weights ~= entry.weights or self:context_of(entry) ~= self:context_of(l.entry) then
    if l.inflight > 0 then return l end
    self:unload(l, "it has changed")
    return nil
  end
  l.entry, l.can, l.compiled = entry, nil, nil -- what follows from settings is found anew (generate.model)
  return l
end

-- entry: catalog's. options: num_ctx (wanted context or nil) and those of Load:join.
-- Waits, within a handler, while the model loads. -> loaded model, ms waited; raises Faults.
function Pool:acquire(entry, options)
  local num_ctx = options.num_ctx
  local l = self.loaded[entry.key]
  l = l and renewed(self, l, entry)
  if l and num_ctx and l.inflight == 0 and math.min(num_ctx, l.n_ctx_train) > l.n_ctx then
    self:unload(l, "for a larger context")
    l = nil
  end
  if l then
    l.used = self.ctx.clock()
    return l, 0
  end
  local load = self.loads[entry.key] or self:start_load(entry, num_ctx)
  return load:join(options)
end

-- A call of l's engine that takes its time, on a thread of its own: done(its results). The model stays meanwhile.
-- -> true | nil, message, code
function Pool:start(l, done, name, ...)
  local task, message, code = l.engine:start(name, ...)
  if not task then return nil, message, code end
  self:hold(l)
  l.tasks[task] = loading.when_ended(task, function()
    l.tasks[task] = nil
    local result = table.pack(task:take())
    self:let_go(l)
    done(table.unpack(result, 1, result.n))
  end)
  return true
end

-- The same within a handler, which waits. -> the call's results
function Pool:call(l, name, ...)
  local go
  local ok, message, code = self:start(l, function(...) go(...) end, name, ...)
  if not ok then return nil, message, code end
  return fiber.wait(function(f)
    go = f
    return function() end
  end)
end

-- Opens an adapter of l's model on a thread: done(adapter | nil, message, code), which must not raise. The model
-- stays meanwhile. -> true | nil, message, code
function Pool:open_adapter(l, path, done)
  local task, message, code = l.model:start_adapter(path)
  if not task then return nil, message, code end
  self:hold(l)
  l.tasks[task] = loading.when_ended(task, function()
    l.tasks[task] = nil
    done(task:take())
    self:let_go(l)
  end)
  return true
end

-- Work begins and ends: keep_alive (seconds or nil for the default) counts from the end.
function Pool:hold(l) l.inflight = l.inflight + 1 end

function Pool:release(l, keep_alive)
  if keep_alive then l.keep = keep_alive end
  self:touch(l)
  self:let_go(l)
end

-- The same for the server's own work, from which no keep_alive counts.
function Pool:let_go(l)
  l.inflight = l.inflight - 1
  if l.keep == 0 and l.inflight == 0 then self:unload(l, "keep_alive 0") end
end

function Pool:touch(l)
  l.used = self.ctx.clock()
  l.expires = l.keep == math.huge and math.huge or l.used + l.keep
end

function Pool:unload(l, why)
  if self.loaded[l.key] ~= l then return end
  self.loaded[l.key] = nil
  self.n = self.n - 1
  self:leave(l)
  self.ctx.log("info", "model unloaded", { model = l.name, why = why })
end

function Pool:leave(l)
  l.poll:stop()
  l.poll:close()
  l.gone = true
  self.ctx.adapters:leave(l)
  self:drop(l.model)
end

-- Gives a model's memory back on a thread.
function Pool:drop(model)
  local task, message = model:drop()
  if not task then return self.ctx.log("warn", "a model was closed in the foreground", { message = message }) end
  self.drops[task] = loading.when_ended(task, function()
    self.drops[task] = nil
    self:dropped(task)
    self:retry()
  end)
end

-- What a model that has left could not save is said.
function Pool:dropped(task)
  local ok, lost = task:take()
  for _, line in ipairs(ok and lost or {}) do self.ctx.writes:failed("the prompt cache", self.ctx.persistence.dir, line) end
end

-- Saves the prompts that no file holds yet: what is idle after a while, what is busy now and then.
function Pool:save(l, now)
  local every = self.ctx.config.persist_every
  if l.saving or every == 0 then return end
  local due = (l.saved_at or l.loaded_at) + every
  if l.inflight == 0 then due = math.min(due, math.max(l.used, (l.saved_at or 0)) + IDLE_S) end
  if now < due then return end
  local n = l.engine:stats().n_finished
  l.saved_at = now
  if n == (l.n_saved or 0) then return end
  l.saving = self:start(l, function(files, message)
    l.saving = nil
    if self.ctx.writes:told("the prompt cache", self.ctx.persistence.dir, files, message) then l.n_saved = n end
  end, "store_disk")
end

function Pool:sweep()
  local now = self.ctx.clock()
  if self.ctx.persistence.enabled then
    for _, l in pairs(self.loaded) do self:save(l, now) end
  end
  for _, l in pairs(self.loaded) do
    if l.inflight == 0 and now >= l.expires then
      self:unload(l, "unused")
      break -- the table changed under pairs; the next sweep goes on
    end
  end
end

-- Loaded models, longest remaining first.
function Pool:list()
  local out = {}
  for _, l in pairs(self.loaded) do out[#out + 1] = l end
  table.sort(out, function(a, b)
    if a.expires ~= b.expires then return a.expires > b.expires end
    return a.key < b.key
  end)
  return out
end

-- Ends everything; waits for the threads, which stop soon.
function Pool:close()
  for _, load in ipairs(self:loading()) do
    self:finish(load, nil, check.fault(503, "the server stops", { kind = "unavailable" }))
    if load.task then
      load.poll:close()
      load.task:cancel()
      local model = load.task:take()
      if load.loaded then self:leave(load.loaded) elseif model then model:close() end
    end
  end
  for _, l in ipairs(self:list()) do
    for task, poll in pairs(l.tasks) do
      poll:close()
      task:take()
    end
    self:unload(l, "server stops")
  end
  for task, poll in pairs(self.drops) do
    poll:close()
    self:dropped(task)
  end
  self.drops = {}
  if not self.timer:is_closing() then self.timer:close() end
end

return pool
