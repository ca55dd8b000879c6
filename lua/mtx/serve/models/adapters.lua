-- SPDX-License-Identifier: MIT
-- The LoRA adapters a server knows: those of --lora and of POST /admin/loras by name, those of a Modelfile by
-- the model that names them. A model opens an adapter when a request first wants it; requests
-- that use one keep it until they end, so adapters come and go while the server works.
local uv = require("luv")
local check = require("mtx.api.check")
local core = require("mtx.core")
local fiber = require("mtx.serve.fiber")
local kept_adapters = require("mtx.serve.models.kept_adapters")
local specs = require("mtx.model.adapters")

local adapters = {}

local Adapters = {}
Adapters.__index = Adapters

local MAX = 256 -- adapters a server knows
local MOST = 16 -- adapters of one request (csrc/graph/lora.h)

local ELEMENT_BYTES = { F16 = 2, BF16 = 2 } -- others are F32 in memory (csrc/model/adapter.h)

-- Bytes in memory, where rows stand in groups of 16.
local function resident(tensors)
  local n = 0
  for _, t in ipairs(tensors) do
    if #t.shape == 2 then n = n + (ELEMENT_BYTES[t.type] or 4) * t.shape[1] * ((t.shape[2] + 15) // 16 * 16) end
  end
  return n
end

-- What the file's head says -> {architecture, task_name, prompt_prefix, bytes (in memory)}; nil, message when it is no LoRA adapter.
function adapters.describe(path)
  local g, message = core.gguf.open(path, { vocab_only = true })
  if not g then return nil, message end
  local function get(key)
    local v = g:metadata(key)
    return type(v) == "string" and v or nil
  end
  local info = { architecture = get("general.architecture"), task_name = get("adapter.lora.task_name") or "", prompt_prefix = get("adapter.lora.prompt_prefix") or "",
    bytes = resident(g:tensors()) }
  local is_lora = get("general.type") == "adapter" and get("adapter.type") == "lora"
  g:close()
  if not is_lora then return nil, path .. ": this is no LoRA adapter" end
  return info
end

-- {name, path, scale, info}, or nil, message.
local function entry_of(name, path, scale)
  local info, message = adapters.describe(path)
  if not info then return nil, message end
  return { name = name, path = path, scale = scale, info = info }
end

local function position(self, name)
  for i, e in ipairs(self.list) do
    if e.name == name then return i end
  end
end

-- ctx: {config, catalog, pool, log}. nil, message when an adapter of --lora cannot be used.
function adapters.new(ctx)
  local self = setmetatable({ ctx = ctx, list = {}, absent = {} }, Adapters)
  for _, text in ipairs(ctx.config.lora) do
    local path, scale = table.unpack(specs.spec(text))
    local name = path:match("([^/]+)$"):gsub("%.gguf$", "")
    if position(self, name) then return nil, "two adapters are called " .. name end
    local entry, message = entry_of(name, uv.fs_realpath(path) or path, scale)
    if not entry then return nil, "--lora: " .. message end
    self.list[#self.list + 1] = entry
  end
  self:recall()
  return self
end

-- Those that an earlier server over this models folder was told of. A name of --lora is --lora's. What cannot be used now (a disk
-- that is not there) is said and still kept.
function Adapters:recall()
  for _, k in ipairs(kept_adapters.read(self.ctx.catalog.dir)) do
    local entry, why
    if position(self, k.name) then why = "--lora has one of that name"
    elseif #self.list >= MAX then why = "there are " .. MAX .. " already" end
    if not why then
      local ok, path = check.guarded(self.inside, self, k.path)
      if ok then entry, why = entry_of(k.name, path, k.scale) else why = path.message end
    end
    if entry then
      entry.kept = k
      self.list[#self.list + 1] = entry
    else
      self.absent[#self.absent + 1] = k
      self.ctx.log("warn", "an adapter of an earlier server cannot be used", { adapter = k.name, file = k.path, why = why })
    end
  end
end

-- Notes for the next server what is here now. -> did it work? (the folder may be read-only)
function Adapters:keep()
  local list, dir = {}, self.ctx.catalog.dir
  for _, e in ipairs(self.list) do list[#list + 1] = e.kept end
  table.move(self.absent, 1, #self.absent, #list + 1, list)
  local path, ok, reason = kept_adapters.path(dir), kept_adapters.write(dir, list)
  return (self.ctx.writes:told("the list of adapters", path, ok, reason)) == true
end

-- A path that a client or a Modelfile names: it must lie under the models folder (links there are its owner's).
-- -> absolute path; raises a Fault.
function Adapters:inside(path)
  local dir = self.ctx.catalog.dir
  local full = path:find("^/") and path or dir .. "/" .. path
  local stat = full:sub(1, #dir + 1) == dir .. "/" and not (full .. "/"):find("/../", 1, true) and not path:find("\0", 1, true) and uv.fs_stat(full)
  if stat and stat.type == "file" then return full end
  check.fail(404, "no adapter file " .. path:sub(1, 200) .. " under the models folder", { param = "path" })
end

local function forget(l, id)
  local a = l.adapters and l.adapters[id]
  if a and a.adapter then a.adapter:close() end
  if a then l.adapters[id] = nil end
end

-- Every model forgets what it opened of the entry.
local function forget_everywhere(self, entry)
  for _, l in pairs(self.ctx.pool.loaded) do forget(l, entry) end
end

-- A model leaves memory.
function Adapters:leave(l)
  for id in pairs(l.adapters or {}) do forget(l, id) end
end

-- Adds an adapter, or puts it in the place of the one of that name; running requests keep the old one.
-- scale: for requests that name no adapters. -> entry, whether it outlasts this server; raises Faults
function Adapters:put(name, path, scale)
  local entry, message = entry_of(name, self:inside(path), scale)
  if not entry then check.fail(400, (tostring(message):gsub("/%S*/", ""))) end
  local i = position(self, name)
  if not i and #self.list >= MAX then check.fail(400, MAX .. " adapters are here already; remove one first") end
  if i then forget_everywhere(self, self.list[i]) end
  self.list[i or #self.list + 1] = entry
  self:forget_absent(name)
  entry.kept = { name = name, path = entry.path:sub(#self.ctx.catalog.dir + 2), scale = scale }
  return entry, self:keep()
end

function Adapters:forget_absent(name)
  for i = #self.absent, 1, -1 do
    if self.absent[i].name == name then table.remove(self.absent, i) end
  end
end

-- False when there is none of that name; then whether that outlasts this server.
function Adapters:remove(name)
  local i, n_absent = position(self, name), #self.absent
  self:forget_absent(name)
  if not i and n_absent == #self.absent then return false end
  if i then forget_everywhere(self, table.remove(self.list, i)) end
  return true, self:keep()
end

-- The adapter whose id (its place, from 0) or name a request gives; raises a Fault.
function Adapters:find(item)
  local i = item.id and item.id + 1 or position(self, item.name)
  if self.list[i] then return self.list[i] end
  local known = {}
  for k, e in ipairs(self.list) do known[k] = e.name end
  check.fail(400, "unknown adapter " .. (item.name and "'" .. item.name:sub(1, 100) .. "'" or "id " .. item.id)
    .. (known[1] and ": there are " .. table.concat(known, ", ", 1, math.min(#known, 20)) or ": no LoRA adapter is loaded"), { param = "lora" })
end

-- The scales of requests that name no adapters; those not in the list (of request.lora's form) become 0.
function Adapters:set_scales(list)
  local scales = {}
  for _, item in ipairs(list) do scales[self:find(item)] = item.scale end
  for _, e in ipairs(self.list) do e.scale = scales[e] or 0 end
end

-- Bytes that the adapters of a model need which every request to it uses.
function Adapters:bytes_of(entry)
  local n = 0
  for _, path in ipairs(entry.manifest and entry.manifest.adapters or {}) do
    local info = adapters.describe(path)
    n = n + (info and info.bytes or 0)
  end
  for _, e in ipairs(self.list) do
    if e.scale ~= 0 then n = n + e.info.bytes end
  end
  return n
end

-- ---- adapters of a loaded model ---------------------------------------------------------

-- What `l` has of the file at `path`, known there as `id`; waits within a handler while it is opened. One opening
-- serves all who want it meanwhile. -> adapter | nil, message, code
local function opened(self, l, id, path)
  l.adapters = l.adapters or {}
  local a = l.adapters[id]
  if not a then
    a = { waiters = {} }
    local ok, message, code = self.ctx.pool:open_adapter(l, path, function(adapter, why, kind)
      a.adapter, a.message, a.code = adapter, why, kind
      if l.adapters[id] ~= a then -- it was replaced or removed meanwhile
        if adapter then a.adapter, a.message, a.code = nil, "the adapter was removed", "notfound" end
      elseif not adapter and not (kind == "format" or kind == "unsupported") then
        l.adapters[id] = nil -- may go better the next time
      end
      local waiters = a.waiters
      a.waiters = nil
      for _, go in ipairs(waiters) do
        local fine, err = xpcall(go, debug.traceback)
        if not fine then self.ctx.log("error", "handler failed after an adapter was opened", { trace = err }) end
      end
    end)
    if not ok then return nil, message, code end
    l.adapters[id] = a
  end
  if a.waiters then
    local left = fiber.wait(function(go)
      local function on() go(nil) end
      a.waiters[#a.waiters + 1] = on
      return function()
        for i, w in ipairs(a.waiters or {}) do
          if w == on then table.remove(a.waiters, i) break end
        end
        go(check.fault(499, "request canceled"))
      end
    end)
    if left then error(left, 0) end
  end
  return a.adapter, a.message, a.code
end

local function refuse(name, path, message, code)
  local text = tostring(message):gsub(path:gsub("%p", "%%%0"), name)
  local theirs = code == "format" or code == "unsupported" or code == "invalid"
  check.fail(theirs and 400 or code == "nomem" and 503 or 500, "cannot use the adapter " .. name .. ": " .. text,
    { param = theirs and "lora" or nil, kind = theirs and "invalid" or code == "nomem" and "unavailable" or "internal" })
end

-- The set that a request to `l` uses: the model's own adapters, and those it names (request.lora) or, when it names none, those
-- with a scale of their own. Waits within a handler while one is opened. -> set, or nil for none; raises Faults
function Adapters:of(l, named)
  local list = {}
  for _, path in ipairs(l.entry.manifest and l.entry.manifest.adapters or {}) do
    local adapter, message, code = opened(self, l, path, path)
    if not adapter then refuse("of " .. l.name, path, message, code) end
    list[#list + 1] = { adapter, 1.0 }
  end
  local seen = {}
  for _, item in ipairs(named or {}) do
    local e = self:find(item)
    if seen[e] then check.fail(400, "lora names the adapter " .. e.name .. " twice", { param = "lora" }) end
    seen[e] = true
    if item.scale ~= 0 then
      local adapter, message, code = opened(self, l, e, e.path)
      if not adapter then refuse(e.name, e.path, message, code) end
      list[#list + 1] = { adapter, item.scale }
    end
  end
  for _, e in ipairs(not named and self.list or {}) do
    if e.scale ~= 0 then
      local adapter, message, code = opened(self, l, e, e.path)
      if adapter then
        list[#list + 1] = { adapter, e.scale }
      elseif code == "format" or code == "unsupported" then
        local a = l.adapters[e]
        if a and not a.told then self.ctx.log("warn", "an adapter does not fit", { model = l.name, adapter = e.name, why = message }) end
        if a then a.told = true end
      else
        refuse(e.name, e.path, message, code)
      end
    end
  end
  if not list[1] then return nil end
  if #list > MOST then check.fail(400, #list .. " adapters for one request, with those of the model; the limit is " .. MOST, { param = "lora" }) end
  local set, message = l.model.handle:lora(list)
  return set or check.fail(500, tostring(message), { kind = "internal" })
end

return adapters
