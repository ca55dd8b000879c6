-- SPDX-License-Identifier: MIT
-- llama-server's /slots: what runs where, and a slot's state to a file and back.
local uv = require("luv")
local answer = require("mtx.serve.answer")
local check = require("mtx.api.check")
local generate = require("mtx.serve.generate")
local routes = require("mtx.serve.routes")
local slots = require("mtx.serve.generate.slots")
local whole_file = require("mtx.whole_file")
local wire = require("mtx.api.wire")

local M = {}

local fail = check.fail

-- One entry per place in the batch of each loaded model, or of ?model=; prompts never appear.
local function list(ctx)
  return function(x)
    local query, out, n_busy = routes.query(x.req.query), wire.list(), 0
    local loaded = {}
    for _, l in ipairs(ctx.pool:list()) do
      if not query.model or l == ctx.pool.loaded[(ctx.catalog:find(query.model) or {}).key] then loaded[#loaded + 1] = l end
    end
    for _, l in ipairs(loaded) do
      for id = 0, ctx.config.parallel - 1 do
        local slot = slots.get(l, id)
        local c = slot.choice
        n_busy = n_busy + (c and 1 or 0)
        out[#out + 1] = { id = id, id_task = c and c.id or nil, n_ctx = l.n_ctx, speculative = c ~= nil and c.speculative, is_processing = c ~= nil, model = l.name,
          params = c and { seed = slot.seed } or nil }
      end
    end
    if not loaded[1] then
      for id = 0, ctx.config.parallel - 1 do out[id + 1] = { id = id, n_ctx = 0, speculative = false, is_processing = false } end
    end
    if query.fail_on_no_slot == "1" and n_busy >= #out then fail(503, "no slot available") end
    x:send(200, wire.encode(out))
  end
end

-- One part of a path that means the same everywhere.
local function safe_name(name)
  return name and #name >= 1 and #name <= 255 and utf8.len(name) and not name:find("[%c/\\]") and not name:find("..", 1, true) and name ~= "."
end

local function ms_since(t0) return (uv.hrtime() - t0) / 1e6 end

local function failed(message, code, path, name)
  local text = tostring(message):gsub(path:gsub("%p", "%%%0"), (name:gsub("%%", "%%%%")))
  fail((code == "io" or code == "nomem" or code == "internal") and 500 or code == "notfound" and 404 or 400, text)
end

local ACTIONS = {}

function ACTIONS.save(ctx, l, id, slot, path, name)
  if not slot.ids then fail(400, "slot " .. id .. " of " .. l.name .. " holds nothing; it has run no request yet") end
  local t0 = uv.hrtime()
  local n, bytes, code = ctx.pool:call(l, "save_prefix", slot.key or "", slot.ids, path)
  if not n and code == "io" then error(ctx.writes:failed("a slot's state", path, bytes), 0) end
  if not n then failed(bytes, code, path, name) end
  ctx.writes:worked("a slot's state")
  return { id_slot = id, filename = name, n_saved = n, n_written = bytes, timings = { save_ms = ms_since(t0) } }
end

function ACTIONS.restore(ctx, l, id, _, path, name)
  local t0 = uv.hrtime()
  local tokens, key, code = ctx.pool:call(l, "load_prefix", nil, path)
  if not tokens then failed(key, code, path, name) end
  slots.set(l, id, tokens, key)
  local stat = uv.fs_stat(path)
  return { id_slot = id, filename = name, n_restored = #tokens, n_read = stat and stat.size or 0, timings = { restore_ms = ms_since(t0) } }
end

function ACTIONS.erase(ctx, l, id, slot)
  local n = slot.ids and ctx.pool:call(l, "forget_prefix", slot.key or "", slot.ids) or 0
  slots.set(l, id, nil)
  return { id_slot = id, n_erased = n }
end

-- The model of the request, loaded: named, or the only one there is.
local function model_of(ctx, body)
  local name, loaded = check.string(body, "model"), ctx.pool:list()
  if not name and #loaded > 1 then fail(400, #loaded .. " models are loaded; name one in \"model\"") end
  return generate.model(ctx, { dialect = "llama", model = name or loaded[1] and loaded[1].name or "" }, "completion")
end

local function act(ctx)
  return function(x)
    local dir = ctx.config.slot_save_path
    if dir == "" then fail(501, "slots cannot be saved here; start with --slot-save-path DIR") end
    local action = ACTIONS[routes.query(x.req.query).action or ""]
    if not action then fail(400, "action must be save, restore or erase") end
    local id = math.tointeger(tonumber(x.params.id))
    if not id or id < 0 or id >= ctx.config.parallel then fail(400, "there are slots 0 to " .. ctx.config.parallel - 1) end
    local body = (x.body or "") ~= "" and answer.body(x) or {}
    local name
    if action ~= ACTIONS.erase then
      name = check.string(body, "filename")
      if not safe_name(name) then fail(400, "filename must be one plain name of at most 255 bytes, without a path", { param = "filename" }) end
    end
    local l = model_of(ctx, body)
    local slot = slots.get(l, id)
    if slot.choice then fail(503, "slot " .. id .. " is at work; try again", { kind = "unavailable", retry_after = 1 }) end
    x:send(200, wire.encode(action(ctx, l, id, slot, name and dir .. "/" .. name, name)))
  end
end

function M.add(ctx)
  local dir = ctx.config.slot_save_path
  if dir ~= "" then
    whole_file.make_dirs(dir)
    local stat = uv.fs_stat(dir)
    if not stat or stat.type ~= "directory" or not uv.fs_access(dir, "W") then return nil, "cannot write in the slots folder " .. dir end
  end
  ctx.routes:add("GET", "/slots", { scope = "admin", dialect = "llama", handler = list(ctx) })
  ctx.routes:add("POST", "/slots/:id", { scope = "admin", dialect = "llama", handler = act(ctx) })
end

return M
