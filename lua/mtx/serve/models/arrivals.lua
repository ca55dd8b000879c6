-- SPDX-License-Identifier: MIT
-- Models on their way into the pool: methods of pool.lua's Pool, from the place that is made for a model to the
-- engine it gets. A load that is short of memory waits for models that are leaving or arriving.
local uv = require("luv")
local admission = require("mtx.serve.generate.admission")
local check = require("mtx.api.check")
local loading = require("mtx.serve.models.loading")
local memory = require("mtx.serve.models.memory")
local rates = require("mtx.sched.rates")

local arrivals = {}

-- f(...)'s value, or nil and a Fault; what is none is logged and hidden behind one.
local function attempt(self, f, ...)
  local ok, value, trace = check.guarded(f, ...)
  if ok then return value end
  if trace then self.ctx.log("error", "loading failed", { trace = trace }) end
  return nil, value
end

-- The context of a model: as wanted, as its settings say, as the server's. -> tokens, nil for the engine's choice
function arrivals:context_of(entry, wanted)
  local params, trained = entry.manifest and entry.manifest.parameters, self.ctx.catalog:info_of(entry).n_ctx_train
  local n = wanted and math.min(wanted, trained or wanted) or (params and params.num_ctx) or self.ctx.config.ctx
  return n and n > 0 and n or nil
end

-- Begins a load of the entry, when its memory is there or later. -> Load; raises a Fault when no place or memory can be had.
function arrivals:start_load(entry, num_ctx)
  local config = self.ctx.config
  while self.n + self.n_loads >= config.max_loaded_models do
    if not self:evict_one() then
      check.fail(503, "all " .. config.max_loaded_models .. " places for models are busy; try again, or raise --max-loaded-models", { kind = "unavailable", retry_after = admission.retry_after(admission.next_idle(self.ctx)) })
    end
  end
  local load = loading.new(entry, self:context_of(entry, num_ctx), config.max_waiting)
  self.loads[entry.key], self.n_loads = load, self.n_loads + 1
  local _, fault = attempt(self, self.begin, self, load)
  if fault then
    self:forget(load)
    error(fault, 0)
  end
  return load
end

function arrivals:forget(load)
  if self.loads[load.key] == load then self.loads[load.key], self.n_loads = nil, self.n_loads - 1 end
end

-- Ends a load: everybody who waits gets the model or the fault.
function arrivals:finish(load, l, fault)
  self:forget(load)
  if l then self:hold(l) end -- none of them may unload it before the others have it
  load:finish(l, fault, function(trace) self.ctx.log("error", "handler failed after a load", { trace = trace }) end)
  if l then self:release(l) end
end

-- The first of `list` (loaded models, or loads that have begun) over the same weights as the load's.
local function over_same_weights(list, load)
  for _, l in pairs(list) do
    if l ~= load and l.entry.weights == load.entry.weights and (l.model or l.task) then return l end
  end
end

-- Starts the load when its memory is there, or later, when models on their way in or out have ended; raises a Fault when
-- it cannot be had. What another model has of the same file is shared: a model and those made of it have one copy of the weights.
function arrivals:begin(load)
  local ctx, config, entry = self.ctx, self.ctx.config, load.entry
  local info, n_ctx = ctx.catalog:info_of(entry), load.n_ctx or 4096
  local others, twin = 0, nil
  for _, l in pairs(self.loads) do others = others + (l.task and l.wanted or 0) end
  if over_same_weights(self.loads, load) then return true end
  entry.adapter_bytes = ctx.adapters:bytes_of(entry)
  while true do
    twin = over_same_weights(self.loaded, load)
    entry.new_bytes = twin and 0 or nil
    load.wanted = memory.wanted(entry, info, n_ctx, config)
    local free = ctx.free_memory()
    if free <= 0 or load.wanted + others <= free then break end
    if next(self.drops) or others > 0 then return true end
    if not self:evict_one() then error(memory.refusal(entry, info, n_ctx, config, free), 0) end
  end
  local options = { ctx = load.n_ctx, threads = config.threads > 0 and config.threads or nil,
    kv_type = config.kv_type, n_parallel = config.parallel, max_waiting = config.max_waiting, cpu = config.cpu ~= "auto" and config.cpu or nil,
    cache_bytes = config.cache_mb << 20, kv_tokens = memory.kv_tokens(info, config), no_memory_check = true,
    warn = function(line) ctx.log("warn", "model", { model = entry.name, warning = line }) end }
  local function ended() self:ended(load) end
  if twin then
    load.shares = twin.name
    load.task, load.poll = loading.there(twin.model:share(options), ended)
    return true
  end
  local task, message, code = ctx.core.start_load(entry.path, options)
  if not task then error(self:load_fault(load, message, code), 0) end
  load.task, load.poll = task, loading.when_ended(task, ended)
  return true
end

-- Memory has come back: loads that wait for it try again.
function arrivals:retry()
  for _, load in ipairs(self:loading()) do
    if not load.task then
      local _, fault = attempt(self, self.begin, self, load)
      if fault then self:finish(load, nil, fault) end
    end
  end
end

-- The loader's thread has ended.
function arrivals:ended(load)
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
function arrivals:place(load)
  local ctx, l = self.ctx, load.loaded
  self.failed[l.key] = nil
  self.loaded[l.key] = l
  self.n = self.n + 1
  ctx.log("info", "model loaded", { model = l.name, ms = math.floor(l.load_ms), ctx = l.n_ctx, arch = l.info.architecture, weights_of = load.shares })
  self:touch(l)
  if load.disk ~= ctx.persistence.version then self:start(l, function() end, "set_disk", ctx.persistence:options()) end -- set meanwhile
  self:finish(load, l)
  self:retry()
end

function arrivals:load_fault(load, message, code)
  local entry = load.entry
  self.ctx.log("error", "model does not load", { model = entry.name, message = message, code = code })
  self.failed[entry.key] = message
  local text = tostring(message):gsub(entry.path:gsub("%p", "%%%0"), entry.name)
  if code == "nomem" or code == "limit" then return check.fault(503, text, { kind = "unavailable" }) end
  return check.fault(code == "unsupported" and 400 or 500, "cannot load " .. entry.name .. ": " .. text, { kind = code == "unsupported" and "invalid" or "internal" })
end

-- A model that has loaded gets its engine.
function arrivals:open(load, model)
  local ctx, entry = self.ctx, load.entry
  local l = { entry = entry, name = entry.name, key = entry.key, model = model, handlers = {}, inflight = 0, jobs = {}, tasks = {}, rates = rates.new(),
    used = ctx.clock(), loaded_at = ctx.clock(), size = entry.size, load_ms = (uv.hrtime() - load.started) / 1e6, keep = ctx.config.keep_alive }
  self:engine(l)
  l.info = ctx.facts(model)
  local n_engine = l.engine:stats().n_ctx
  l.n_ctx_train = l.info.n_ctx_train or n_engine or 2048
  l.n_ctx = n_engine or l.info.n_ctx
  return l
end

-- Brings an engine's events to their jobs.
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

-- Starts the engine and listens to its wake descriptor.
function arrivals:engine(l)
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

-- Models on their way in, by name.
function arrivals:loading()
  local out = {}
  for _, load in pairs(self.loads) do out[#out + 1] = load end
  table.sort(out, function(a, b) return a.key < b.key end)
  return out
end

-- Whoever waits for a load is told the fault; the loads go on.
function arrivals:cancel_waiters(fault)
  for _, load in ipairs(self:loading()) do load:finish(nil, fault, function(trace) self.ctx.log("error", "handler failed", { trace = trace }) end) end
end

return arrivals
