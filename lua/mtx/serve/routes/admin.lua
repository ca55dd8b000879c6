-- SPDX-License-Identifier: MIT
-- /admin/*: models, statistics, health, sessions, adapters. Every route here has
-- the admin scope; without keys only callers on this machine get in.
local answer = require("mtx.serve.answer")
local check = require("mtx.api.check")
local fiber = require("mtx.serve.fiber")
local figures = require("mtx.serve.figures")
local ids = require("mtx.ids")
local kept_adapters = require("mtx.serve.models.kept_adapters")
local wire = require("mtx.api.wire")

local M = {}

local list = wire.list

local function stats(ctx)
  local waiting, running, models = 0, 0, list()
  for i, l in ipairs(ctx.pool:list()) do
    models[i] = figures.of(ctx, l)
    waiting, running = waiting + models[i].waiting, running + models[i].running
  end
  return { requests_total = ctx.totals.requests, tokens_generated_total = ctx.totals.generated, prompt_tokens_total = ctx.totals.prompt,
    active_requests = ctx.n_jobs, queue_depth = waiting, running = running, models = models }
end

local function models(ctx)
  return function(x)
    local out = list()
    for i, load in ipairs(ctx.pool:loading()) do
      out[i] = { id = load.name, status = "loading", mem_bytes = 0, last_used_secs_ago = 0, inflight = #load.waiters }
    end
    for _, l in ipairs(ctx.pool:list()) do
      out[#out + 1] = { id = l.name, status = "ready", mem_bytes = l.info.memory_bytes or l.size, last_used_secs_ago = math.floor(ctx.clock() - l.used),
        inflight = l.inflight, n_ctx = l.n_ctx }
    end
    for key in pairs(ctx.pool.failed) do out[#out + 1] = { id = key, status = "failed", mem_bytes = 0, last_used_secs_ago = 0, inflight = 0 } end
    x:send(200, wire.encode({ object = "list", models = out }))
  end
end

local function id_of(body)
  local id = check.string(body, "id") or check.string(body, "model")
  if not id then check.fail(400, "id is required") end
  return id
end

-- Answers 202 while the model loads. A path is not taken: only what lies under the
-- models folder can be loaded.
local function load_model(ctx)
  return function(x)
    local body = answer.body(x)
    local id = id_of(body)
    if check.string(body, "path") then check.fail(400, "path is not taken; put the file under the models folder and name it by id") end
    local entry, message = ctx.catalog:find(id)
    if not entry then check.fail(404, message) end
    local num_ctx = check.integer(body, "num_ctx", 1)
    local batch = "batch_" .. ids.random(24)
    fiber.start(nil, function()
      local loaded, fault = check.try(ctx.pool.acquire, ctx.pool, entry, { num_ctx = num_ctx })
      if not loaded then ctx.log("warn", "admin load failed", { model = id, fault = fault.message }) end
    end)
    x:send(202, wire.encode({ batch_id = batch, model_id = entry.name, status = "loading", message = "poll GET /admin/models" }))
  end
end

local function unload(ctx)
  return function(x)
    local entry, message = ctx.catalog:find(id_of(answer.body(x)))
    local l = entry and ctx.pool.loaded[entry.key]
    if not l then check.fail(404, message or entry.name .. " is not loaded") end
    if l.inflight > 0 then check.fail(409, entry.name .. " is in use") end
    ctx.pool:unload(l, "admin")
    x:send(200, wire.encode({ model_id = entry.name, status = "unloaded" }))
  end
end

local function loras(ctx)
  return function(x)
    local out = list()
    for i, e in ipairs(ctx.adapters.list) do out[i] = e.name end
    x:send(200, wire.encode({ object = "list", loras = out }))
  end
end

-- {name, path under the models folder, scale = 0}: a new adapter, or a new file for one.
local function put_lora(ctx)
  return function(x)
    local body = answer.body(x)
    local name, path = check.string(body, "name"), check.string(body, "path")
    if not kept_adapters.good_name(name) then check.fail(400, "name must be 1 to 128 letters, digits, '.', '_' or '-'", { param = "name" }) end
    if not path or path == "" then check.fail(400, "path is required", { param = "path" }) end
    local e, kept = ctx.adapters:put(name, path, check.number(body, "scale", -1e6, 1e6) or 0.0)
    x:send(200, wire.encode({ object = "lora", name = name, architecture = e.info.architecture, scale = e.scale, task_name = e.info.task_name, prompt_prefix = e.info.prompt_prefix,
      kept = kept }))
  end
end

function M.add(ctx)
  local function route(method, path, handler) ctx.routes:add(method, path, { scope = "admin", dialect = "openai", handler = handler }) end
  route("GET", "/admin/models", models(ctx))
  route("POST", "/admin/models/load", load_model(ctx))
  route("POST", "/admin/models/unload", unload(ctx))
  route("GET", "/admin/stats", function(x) x:send(200, wire.encode(stats(ctx))) end)
  route("GET", "/admin/health", function(x)
    x:send(200, wire.encode({ status = "ok", version = ctx.version, pool = { loaded = ctx.pool.n, loading = ctx.pool.n_loads, total = #ctx.catalog:list() } }))
  end)
  route("GET", "/admin/loras", loras(ctx))
  route("POST", "/admin/loras", put_lora(ctx))
  route("DELETE", "/admin/loras/:name", function(x)
    local deleted, kept = ctx.adapters:remove(x.params.name)
    if not deleted then check.fail(404, "no adapter is called " .. x.params.name:sub(1, 100)) end
    x:send(200, wire.encode({ name = x.params.name, deleted = true, kept = kept }))
  end)
  route("POST", "/admin/reload", function(x)
    local done, message = ctx.reload()
    if not done then check.fail(400, message) end
    x:send(200, wire.encode({ reloaded = list(done) }))
  end)
end

return M
