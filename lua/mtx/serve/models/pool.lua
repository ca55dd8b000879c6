-- SPDX-License-Identifier: MIT
-- The models in memory: at most max_loaded_models, least recently used leaves
-- first, each with its engine, the poll on the engine's wake descriptor and the
-- table that brings events to their jobs. A model with work is never unloaded.
local uv = require("luv")
local check = require("mtx.api.check")
local fiber = require("mtx.serve.fiber")
local loading = require("mtx.serve.models.loading")
local memory = require("mtx.serve.models.memory")

-- Seconds without a request after which prompts are saved.
local IDLE_S = 5

local pool = {}

local Pool = {}
Pool.__index = Pool

-- ctx: {config, log, core = {start_load}, clock}
function pool.new(ctx)
  local self = setmetatable({ ctx = ctx, loaded = {}, n = 0, loads = {}, n_loads = 0, drops = {}, failed = {} }, Pool)
  self.timer = uv.new_timer()
  self.timer:start(250, 250, function() self:sweep() end)
  return self
end

-- f(...)'s value, or nil and a Fault; what is none is logged and hidden behind one.
local function attempt(self, f, ...)
  local ok, value, trace = check.guarded(f, ...)
  if ok then return value end
  if trace then self.ctx.log("error", "loading failed", { trace = trace }) end
  return nil, value
end

local function evict_one(self, now)
  local oldest
  for _, l in pairs(self.loaded) do
    if l.inflight == 0 and (not oldest or l.used < oldest.used) then oldest = l end
  end
  if not oldest then return false end
  self:unload(oldest, "to make room")
  return true
end

local function drain(self, l)
  local ok, err = xpcall(function()
    for _, ev in ipairs(l.engine:drain()) do
      local h = l.handlers[ev.id]
      if h then
        local fine, message = xpcall(h, debug.traceback, ev)
        if not fine then self.ctx.log("error", "event handler failed", { trace = message }) end
      end
    end
  end, debug.traceback)
  if not ok then self.ctx.log("error", "engine drain failed", { model = l.name, trace = err }) end
end

local function context_of(self, entry, wanted)
  local params, trained = entry.manifest and entry.manifest.parameters, self.ctx.catalog:info_of(entry).n_ctx_train
  local n = wanted and math.min(wanted, trained or wanted) or (params and params.num_ctx) or self.ctx.config.ctx
  return n and n > 0 and n or nil
end

-- The catalog's entry of a loaded model may have changed: new settings hold from the next request on, new weights or
-- another context once nobody uses the old. -> l, or nil when it is to be loaded anew
local function renewed(self, l, entry)
  if l.entry.weights == entry.weights and l.entry.settings == entry.settings then return l end
  if l.entry.weights ~= entry.weights or context_of(self, entry) ~= context_of(self, l.entry) then
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
  local load = self.loads[entry.key]
  if not load then
    local config = self.ctx.config
    while self.n + self.n_loads >= config.max_loaded_models do
      if not evict_one(self) then
        check.fail(503, "all " .. config.max_loaded_models .. " places for models are busy; try again, or raise --max-loaded-models", { kind = "unavailable", retry_after = 5 })
      end
    end
    load = loading.new(entry, context_of(self, entry, num_ctx), config.max_waiting)
    self.loads[entry.key], self.n_loads = load, self.n_loads + 1
    local _, fault = attempt(self, self.begin, self, load)
    if fault then
      self:forget(load)
      error(fault, 0)
    end
  end
  return load:join(options)
end

function Pool:forget(load)
  if self.loads[load.key] == load then self.loads[load.key], self.n_loads = nil, self.n_loads - 1 end
end

-- Ends a load: everybody who waits gets the model or the fault.
function Pool:finish(load, l, fault)
  self:forget(load)
  if l then self:hold(l) end -- none of them may unload it before the others have it
  load:finish(l, fault, function(trace) self.ctx.log("error", "handler failed after a load", { trace = trace }) end)
  if l then self:release(l) end
end

-- Starts the load when its memory is there, or later, when models on their way in or
-- out have ended; raises a Fault when it cannot be had.
function Pool:begin(load)
  local ctx, config, entry = self.ctx, self.ctx.config, load.entry
  local info, n_ctx = ctx.catalog:info_of(entry), load.n_ctx or 4096
  local others = 0
  for _, l in pairs(self.loads) do others = others + (l.task and l.wanted or 0) end
  entry.adapter_bytes = ctx.adapters:bytes_of(entry)
  load.wanted = memory.wanted(entry, info, n_ctx, config)
  local free = ctx.free_memory()
  while free > 0 and load.wanted + others > free do
    if next(self.drops) or others > 0 then return true end
    if not evict_one(self) then error(memory.refusal(entry, info, n_ctx, config, free), 0) end
    free = ctx.free_memory()
  end
  local task, message, code = ctx.core.start_load(entry.path, { ctx = load.n_ctx, threads = config.threads > 0 and config.threads or nil,
    kv_type = config.kv_type, n_parallel = config.parallel, max_waiting = config.max_waiting, cpu = config.cpu ~= "auto" and config.cpu or nil,
    cache_bytes = config.cache_mb << 20, kv_tokens = memory.kv_tokens(info, config), no_memory_check = true,
    warn = function(line) ctx.log("warn", "model", { model = entry.name, warning = line }) end })
  if not task then error(self:load_fault(load, message, code), 0) end
  load.task = task
  load.poll = loading.when_ended(task, function() self:ended(load) end)
  return true
end

-- Memory has come back: loads that wait for it try again.
function Pool:retry()
  for _, load in ipairs(self:loading()) do
    if not load.task then
      local _, fault = attempt(self, self.begin, self, load)
      if fault then self:finish(load, nil, fault) end
    end
  end
end

-- The loader's thread has ended.
function Pool:ended(load)
  local model, message, code = load.task:take()
  local fault
  if model then load.loaded, fault = attempt(self, self.open, self, load, model) else fault = self:load_fault(load, message, code) end
  if fault then
    self:finish(load, nil, fault)
    return self:retry()
  end
  local persistence, engine = self.ctx.persistence, load.loaded.engine
  load.disk = persistence.version
  if not persistence.enabled then return self:place(load) end
  load.task, message = engine:start("set_disk", persistence:options())
  local function known(ok, why)
    self.ctx.writes:told("the prompt cache", persistence.dir, ok, why)
    self:place(load)
  end
  if not load.task then return known(nil, message) end
  load.poll = loading.when_ended(load.task, function() known(load.task:take()) end)
end

-- A model that is ready gets its place.
function Pool:place(load)
  local ctx, l = self.ctx, load.loaded
  self.failed[l.key] = nil
  self.loaded[l.key] = l
  self.n = self.n + 1
  ctx.log("info", "model loaded", { model = l.name, ms = math.floor(l.load_ms), ctx = l.n_ctx, arch = l.info.architecture })
  self:touch(l)
  if load.disk ~= ctx.persistence.version then self:start(l, function() end, "set_disk", ctx.persistence:options()) end -- set meanwhile
  self:finish(load, l)
  self:retry()
end

function Pool:load_fault(load, message, code)
  local entry = load.entry
  self.ctx.log("error", "model does not load", { model = entry.name, message = message, code = code })
  self.failed[entry.key] = message
  local text = tostring(message):gsub(entry.path:gsub("%p", "%%%0"), entry.name)
  if code == "nomem" or code == "limit" then return check.fault(503, text, { kind = "unavailable" }) end
  return check.fault(code == "unsupported" and 400 or 500, "cannot load " .. entry.name .. ": " .. text, { kind = code == "unsupported" and "invalid" or "internal" })
end

-- A model that has loaded gets its engine.
function Pool:open(load, model)
  local ctx, entry = self.ctx, load.entry
  local l = { entry = entry, name = entry.name, key = entry.key, model = model, handlers = {}, inflight = 0, jobs = {}, tasks = {},
    used = ctx.clock(), loaded_at = ctx.clock(), size = entry.size, load_ms = (uv.hrtime() - load.started) / 1e6, keep = ctx.config.keep_alive }
  self:engine(l)
  l.info = ctx.facts(model)
  local n_engine = l.engine:stats().n_ctx
  l.n_ctx_train = l.info.n_ctx_train or n_engine or 2048
  l.n_ctx = n_engine or l.info.n_ctx
  return l
end

-- Starts the engine and listens to its wake descriptor.
function Pool:engine(l)
  local engine, message, code = l.model:engine()
  if not engine then
    self:drop(l.model)
    local short = code == "nomem" or code == "limit"
    check.fail(short and 503 or 500, "cannot start the engine of " .. l.name .. ": " .. tostring(message), { kind = short and "unavailable" or "internal" })
  end
  l.engine = engine
  l.poll = uv.new_poll(engine:fd())
  l.poll:start("r", function(err) if not err then drain(self, l) end end)
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

-- Models on their way in, by name.
function Pool:loading()
  local out = {}
  for _, load in pairs(self.loads) do out[#out + 1] = load end
  table.sort(out, function(a, b) return a.key < b.key end)
  return out
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

-- Whoever waits for a load is told the fault; the loads go on.
function Pool:cancel_waiters(fault)
  for _, load in ipairs(self:loading()) do load:finish(nil, fault, function(trace) self.ctx.log("error", "handler failed", { trace = trace }) end) end
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
