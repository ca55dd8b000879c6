-- SPDX-License-Identifier: MIT
-- The models in memory: at most max_loaded_models, least recently used leaves
-- first, each with its engine, the poll on the engine's wake descriptor and the
-- table that brings events to their jobs. A model with work is never unloaded.
local uv = require("luv")
local check = require("mtx.api.check")
local core = require("mtx.core")

local pool = {}

local Pool = {}
Pool.__index = Pool

-- ctx: {config, log, core = {load}, clock}; on_event(loaded) is called after each drain.
function pool.new(ctx)
  local self = setmetatable({ ctx = ctx, loaded = {}, n = 0, failed = {} }, Pool)
  self.timer = uv.new_timer()
  self.timer:start(250, 250, function() self:sweep() end)
  return self
end

local function mib(n) return string.format("%.1f MiB", n / 1048576) end

-- Weights, plus the KV cache of all parallel requests when the header tells its size.
function Pool:bytes_wanted(entry, info, n_ctx)
  local per_token = info.kv_bytes_per_token
  if not per_token then return entry.size end
  return entry.size + per_token * (self:kv_tokens(info) or n_ctx * self.ctx.config.parallel)
end

-- Tokens the KV budget holds, or nil for the engine's own choice.
function Pool:kv_tokens(info)
  local mb = self.ctx.config.kv_budget_mb
  if mb == 0 or not info.kv_bytes_per_token then return nil end
  return math.max(256, (mb << 20) // info.kv_bytes_per_token)
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
  local params = entry.manifest and entry.manifest.parameters
  local n = wanted or (params and params.num_ctx) or self.ctx.config.ctx
  return n and n > 0 and n or nil
end

-- entry: catalog's. num_ctx: wanted context or nil. Gives the loaded model or raises a Fault.
function Pool:acquire(entry, num_ctx)
  local key = entry.key
  local l = self.loaded[key]
  if l and num_ctx and num_ctx > l.n_ctx and l.inflight == 0 and num_ctx <= l.n_ctx_train then
    self:unload(l, "for a larger context")
    l = nil
  end
  if l then
    l.used = self.ctx.clock()
    return l
  end
  local config = self.ctx.config
  while self.n >= config.max_loaded_models do
    if not evict_one(self) then
      check.fail(503, "all " .. self.n .. " loaded models are busy; try again, or raise --max-loaded-models", { kind = "unavailable", retry_after = 5 })
    end
  end
  return self:load(entry, context_of(self, entry, num_ctx))
end

function Pool:load(entry, n_ctx)
  local ctx, config = self.ctx, self.ctx.config
  local info = ctx.catalog:info_of(entry)
  local wanted, free = self:bytes_wanted(entry, info, n_ctx or 4096), core.model.free_memory()
  while free and wanted * config.memory_margin > free and evict_one(self) do free = core.model.free_memory() end
  if free and wanted * config.memory_margin > free then
    check.fail(503, "not enough memory for " .. entry.name .. ": " .. mib(wanted * config.memory_margin) .. " wanted (margin "
      .. config.memory_margin .. "), " .. mib(free) .. " free; try a smaller num_ctx, a smaller --parallel or --kv-budget-mb, or a smaller model", { kind = "unavailable" })
  end
  local started = uv.hrtime()
  self.loading = entry.name
  local model, message, code = ctx.core.load(entry.path, { ctx = n_ctx, threads = config.threads > 0 and config.threads or nil,
    kv_type = config.kv_type, n_parallel = config.parallel, max_waiting = config.max_waiting, cpu = config.cpu ~= "auto" and config.cpu or nil,
    cache_bytes = config.cache_mb << 20, kv_tokens = self:kv_tokens(info), no_memory_check = true,
    warn = function(line) ctx.log("warn", "model", { model = entry.name, warning = line }) end })
  self.loading = nil
  if not model then
    ctx.log("error", "model does not load", { model = entry.name, message = message, code = code })
    self.failed[entry.key] = message
    local text = tostring(message):gsub(entry.path:gsub("%p", "%%%0"), entry.name)
    if code == "nomem" or code == "limit" then check.fail(503, text, { kind = "unavailable" }) end
    check.fail(code == "unsupported" and 400 or 500, "cannot load " .. entry.name .. ": " .. text, { kind = code == "unsupported" and "invalid" or "internal" })
  end
  local l = { entry = entry, name = entry.name, key = entry.key, model = model, info = ctx.facts(model), handlers = {}, inflight = 0, jobs = {},
    used = ctx.clock(), size = entry.size, load_ms = (uv.hrtime() - started) / 1e6, keep = config.keep_alive }
  self:engine(l)
  local n_engine = l.engine:stats().n_ctx
  l.n_ctx_train = l.info.n_ctx_train or n_engine or 2048
  l.n_ctx = n_engine or l.info.n_ctx
  self.failed[entry.key] = nil
  self.loaded[entry.key] = l
  self.n = self.n + 1
  ctx.log("info", "model loaded", { model = entry.name, ms = math.floor(l.load_ms), ctx = l.n_ctx, arch = l.info.architecture })
  self:touch(l)
  l.fresh = true
  return l
end

-- Starts the engine and listens to its wake descriptor.
function Pool:engine(l)
  local engine, message, code = l.model:engine()
  if not engine then
    l.model:close()
    local short = code == "nomem" or code == "limit"
    check.fail(short and 503 or 500, "cannot start the engine of " .. l.name .. ": " .. tostring(message), { kind = short and "unavailable" or "internal" })
  end
  l.engine = engine
  l.poll = uv.new_poll(engine:fd())
  l.poll:start("r", function(err) if not err then drain(self, l) end end)
end

-- Work begins and ends: keep_alive (seconds or nil for the default) counts from the end.
function Pool:hold(l) l.inflight = l.inflight + 1 end

function Pool:release(l, keep_alive)
  l.inflight = l.inflight - 1
  if keep_alive then l.keep = keep_alive end
  self:touch(l)
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
  if l.poll and not l.poll:is_closing() then
    l.poll:stop()
    l.poll:close()
  end
  if l.engine then l.engine:close() end
  l.model:close()
  l.gone = true
  self.ctx.log("info", "model unloaded", { model = l.name, why = why })
end

function Pool:sweep()
  local now = self.ctx.clock()
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

function Pool:close()
  for _, l in ipairs(self:list()) do self:unload(l, "server stops") end
  if not self.timer:is_closing() then self.timer:close() end
end

return pool
