-- SPDX-License-Identifier: MIT
-- llama-server's router: models listed, loaded, unloaded, deleted, and their
-- changes as a stream of events.
local uv = require("luv")
local answer = require("mtx.serve.answer")
local check = require("mtx.api.check")
local routes = require("mtx.serve.routes")
local stream = require("mtx.http.stream")
local wire = require("mtx.api.wire")

local M = {}

local NO_DOWNLOAD = "models are fetched with POST /api/pull; a GGUF file of your own can be put under the models folder (--models-dir), where it is "
  .. "found at once, or sent to POST /api/blobs/sha256:DIGEST and named with POST /api/create"

local LOOK_MS, PING_S, MAX_READERS = 200, 30, 64

local function status_of(ctx, e) return ctx.pool.loaded[e.key] and "loaded" or ctx.pool.loads[e.key] and "loading" or "unloaded" end

local function list(ctx)
  return function(x)
    local data = wire.list()
    for i, e in ipairs(ctx.catalog:list()) do data[i] = { id = e.name, object = "model", status = { value = status_of(ctx, e) } } end
    x:send(200, wire.encode({ object = "list", data = data }))
  end
end

local function find(ctx, name)
  if not name or name == "" then check.fail(400, "model is required", { param = "model" }) end
  local entry, message = ctx.catalog:find(name)
  if not entry then check.fail(404, message) end
  return entry
end

local function named(ctx, x)
  local body = answer.body(x)
  return find(ctx, check.string(body, "model") or check.string(body, "id"))
end

local function load_model(ctx)
  return function(x)
    ctx.pool:acquire(named(ctx, x), {})
    x:send(200, '{"success":true}')
  end
end

local function unload(ctx)
  return function(x)
    local entry = named(ctx, x)
    local l = ctx.pool.loaded[entry.key]
    if not l then check.fail(400, entry.name .. " is not loaded") end
    if l.inflight > 0 then check.fail(409, entry.name .. " is in use") end
    ctx.pool:unload(l, "admin")
    x:send(200, '{"success":true}')
  end
end

local function delete(ctx)
  return function(x)
    local entry = find(ctx, routes.query(x.req.query).model)
    local l = ctx.pool.loaded[entry.key]
    if l and l.inflight > 0 or ctx.pool.loads[entry.key] then check.fail(409, entry.name .. " is in use") end
    if l then ctx.pool:unload(l, "deleted") end
    local ok, message = ctx.catalog:remove(entry)
    if not ok then check.fail(500, (tostring(message):gsub(entry.path:gsub("%p", "%%%0"), entry.name))) end
    x:send(200, '{"success":true}')
  end
end

local function snapshot(ctx)
  local now = {}
  for _, e in ipairs(ctx.catalog:list()) do now[e.name] = status_of(ctx, e) end
  return now
end

-- The events that lead from one snapshot to the next.
local function changes(before, now)
  local out, names = {}, {}
  for name in pairs(now) do names[#names + 1] = name end
  for name in pairs(before) do
    if not now[name] then names[#names + 1] = name end
  end
  table.sort(names)
  local new = false
  for _, name in ipairs(names) do
    if not now[name] then out[#out + 1] = { model = name, event = "model_remove" }
    elseif not before[name] then new = true end
    if now[name] and now[name] ~= (before[name] or "unloaded") then
      out[#out + 1] = { model = name, event = "model_status", data = { status = now[name] } }
    end
  end
  if new then out[#out + 1] = { model = "*", event = "models_reload" } end
  return out
end

-- The state is looked at while somebody reads; nothing runs otherwise.
local function events(ctx)
  local readers = 0
  return function(x)
    if readers >= MAX_READERS then check.fail(429, "at most " .. MAX_READERS .. " clients read model events") end
    readers = readers + 1
    local before, quiet, timer = snapshot(ctx), 0, uv.new_timer()
    local function close()
      if timer:is_closing() then return end
      timer:close()
      readers = readers - 1
    end
    x:start(200, stream.SSE)
    for name, status in pairs(before) do
      if status ~= "unloaded" then x:write(stream.sse(wire.encode({ model = name, event = "model_status", data = { status = status } }))) end
    end
    x:write(stream.COMMENT)
    x.on_abort = close
    x.end_now = function()
      close()
      x:finish()
    end
    timer:start(LOOK_MS, LOOK_MS, function()
      if x.gone then return close() end
      if ctx.draining then return x.end_now() end
      local now = snapshot(ctx)
      local found = changes(before, now)
      before, quiet = now, #found > 0 and 0 or quiet + 1
      for _, ev in ipairs(found) do x:write(stream.sse(wire.encode(ev))) end
      if quiet * LOOK_MS >= PING_S * 1000 then
        quiet = 0
        x:write(stream.COMMENT)
      end
    end)
  end
end

function M.add(ctx)
  local function native(method, path, scope, handler) ctx.routes:add(method, path, { scope = scope, dialect = "llama", handler = handler }) end
  native("GET", "/models", "infer", list(ctx))
  native("GET", "/models/sse", "infer", events(ctx))
  native("POST", "/models", "admin", function() check.fail(501, NO_DOWNLOAD) end)
  native("DELETE", "/models", "admin", delete(ctx))
  native("POST", "/models/load", "admin", load_model(ctx))
  native("POST", "/models/unload", "admin", unload(ctx))
end

return M
