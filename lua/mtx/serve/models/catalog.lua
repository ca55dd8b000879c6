-- SPDX-License-Identifier: MIT
-- What models there are: the models folder is scanned in place (nothing is
-- copied), plus manifests written by create and copy, plus what was pulled. One bad
-- file never hides the others.
local uv = require("luv")
local json = require("mtx.json")
local modelfile = require("mtx.serve.models.modelfile")
local names = require("mtx.serve.models.names")
local pulls = require("mtx.pull.store")
local settings = require("mtx.serve.models.settings")
local whole_file = require("mtx.whole_file")

local catalog = {}

local Catalog = {}
Catalog.__index = Catalog

local MAX_DEPTH, MAX_ENTRIES = 6, 10000

-- options: dir, describe(path) -> info table | nil, message (reads a file's
-- header), sha256 (core.sha256), clock() in seconds, warn(path, message) of files that
-- cannot be used: once each, nil = said to nobody.
function catalog.new(options)
  -- Absolute: manifests name files by path and must hold from any folder.
  local dir = uv.fs_realpath(options.dir) or options.dir
  return setmetatable({ dir = dir:gsub("(.)/+$", "%1"), describe = options.describe, sha256 = options.sha256, clock = options.clock,
    warn = options.warn, told = {}, entries = {}, order = {}, info = {}, claimed = {}, unusable = {} }, Catalog)
end

-- key: of the model that is not there for it, when its name is known.
local function problem(self, path, message, key)
  if key then self.unusable[key] = path .. ": " .. message end
  if self.told[path] == message then return end
  self.told[path] = message
  if self.warn then self.warn(path, message) end
end

local function add(self, entry)
  local old = self.entries[entry.key]
  if old then
    if old.manifest or not entry.manifest then return end
    for i, e in ipairs(self.order) do
      if e == old then table.remove(self.order, i) break end
    end
  end
  self.entries[entry.key] = entry
  self.order[#self.order + 1] = entry
end

local function file_entry(self, path, relative, stat)
  local base = relative:gsub("%.gguf$", "")
  local stem, i, n = base:match("^(.*)%-(%d%d%d%d%d)%-of%-(%d%d%d%d%d)$")
  local size = stat.size
  if stem and tonumber(n) > 1 then
    if tonumber(i) ~= 1 then return end
    base = stem
    for part = 2, math.min(tonumber(n), 1000) do
      local s = uv.fs_stat(string.format("%s-%05d-of-%s.gguf", path:gsub("%-%d+%-of%-%d+%.gguf$", ""), part, n))
      size = size + (s and s.size or 0)
    end
  elseif stem then
    base = stem
  end
  local name = names.parse((base:gsub("[^%w%._%-/]", "-")))
  if not name then return end
  add(self, { name = name.full, key = name.key, path = path, size = math.tointeger(size) or size, modified = stat.mtime.sec })
end

-- Bytes of a model folder's weights, or nil when it has none that are read. (Shards by their names: other weights may
-- lie beside them, and the index is too long to be read at every scan.)
local function weight_bytes(dir)
  local single = uv.fs_stat(dir .. "/model.safetensors")
  if single then return math.tointeger(single.size) or single.size end
  local handle = uv.fs_stat(dir .. "/model.safetensors.index.json") and uv.fs_scandir(dir)
  local size = handle and 0
  while handle do
    local name = uv.fs_scandir_next(handle)
    if not name then break end
    local s = name:find("^[^.].*%-%d+%-of%-%d+%.safetensors$") and uv.fs_stat(dir .. "/" .. name)
    if s then size = size + (math.tointeger(s.size) or s.size) end
  end
  return size
end

local function walk(self, dir, relative, depth)
  local handle = uv.fs_scandir(dir)
  if not handle then return end
  while true do
    local name, kind = uv.fs_scandir_next(handle)
    if not name or #self.order > MAX_ENTRIES then break end
    local path, rel = dir .. "/" .. name, relative == "" and name or relative .. "/" .. name
    if kind == "link" or kind == "unknown" then
      local s = uv.fs_stat(path)
      kind = s and s.type
    end
    if name:sub(1, 1) == "." then -- hidden: ours or somebody's private files
    elseif self.claimed[path] then -- pulled: listed under the name that it was pulled by
    elseif kind == "directory" then
      local config, stat = uv.fs_stat(path .. "/config.json"), uv.fs_stat(path)
      local size = config and weight_bytes(path)
      local parsed = size and names.parse(rel)
      if parsed then
        add(self, { name = parsed.full, key = parsed.key, path = path, size = size, modified = stat.mtime.sec, folder = true })
      elseif depth < MAX_DEPTH then
        walk(self, path, rel, depth + 1)
      end
    elseif name:find("%.gguf$") then
      local s = uv.fs_stat(path)
      if s then file_entry(self, path, rel, s) end
    elseif name:find("%.[mM]odelfile$") or name:lower() == "modelfile" then
      local f = io.open(path)
      local m, message = modelfile.parse(f and f:read("a") or "")
      if f then f:close() end
      local parsed = names.parse((rel:gsub("%.[mM]odelfile$", "")))
      if not m then problem(self, path, f and message or "cannot be read", parsed and parsed.key) end
      if m and parsed then
        local s = uv.fs_stat(path)
        if not m.from:find("^/") and uv.fs_stat(dir .. "/" .. m.from) then m.from = dir .. "/" .. m.from end
        for i, a in ipairs(m.adapters or {}) do
          if not a:find("^/") then m.adapters[i] = dir .. "/" .. a end
        end
        add(self, { name = parsed.full, key = parsed.key, manifest = m, modelfile_path = path, modified = s.mtime.sec })
      end
    end
  end
end

function Catalog:manifest_dir() return self.dir .. "/.mtx/manifests" end
function Catalog:blob_dir() return self.dir .. "/.mtx/blobs" end

local function read_manifests(self)
  local handle = uv.fs_scandir(self:manifest_dir())
  while handle do
    local name = uv.fs_scandir_next(handle)
    if not name then break end
    local path = self:manifest_dir() .. "/" .. name
    local f = name:find("%.json$") and io.open(path)
    local m = f and json.decode(f:read("a"))
    if f then f:close() end
    local parsed = json.is_object(m) and type(m.from) == "string" and names.parse(m.name)
    local good, message = parsed, "this is no description of a model"
    if parsed then good, message = settings.check_shape(m) end
    if f and not good then problem(self, path, message, parsed and parsed.key) end
    if good then
      local s = uv.fs_stat(path)
      add(self, { name = parsed.full, key = parsed.key, manifest = m, manifest_path = path, modified = s.mtime.sec })
    end
  end
end

-- Pulled models whose files are all there. Their files and folders are then no models of their own.
local function read_pins(self)
  local store = pulls.new(self.dir)
  for _, pin in ipairs(store:pins()) do
    local path, size = store:path(pin.from), 0
    local stat = store:intact(pin) and uv.fs_stat(path)
    if stat then
      for _, f in ipairs(pin.files) do
        size = size + f.size
        self.claimed[store:path(f.path)] = true
      end
      self.claimed[path] = true
      local manifest = json.is_object(pin.modelfile) and settings.check_shape(pin.modelfile) and pin.modelfile or nil
      if manifest then manifest.from = path end
      add(self, { name = pin.model.full, key = pin.model.key, path = path, size = size, modified = stat.mtime.sec, folder = pin.folder, pin = pin, manifest = manifest })
    end
  end
end

-- Pulls that have not come to their end: {{name, key, size, total}}.
function Catalog:partials() return pulls.new(self.dir):partials() end

-- Removes one of them. -> its name | nil, why not (nil: there is none)
function Catalog:remove_partial(text)
  local parsed, store = names.parse(text), pulls.new(self.dir)
  for _, p in ipairs(parsed and store:partials() or {}) do
    if p.key == parsed.key then
      local pid = store:puller(p.key)
      if pid then return nil, p.name .. " is being pulled by process " .. pid .. "; end that first" end
      if store:drop_partial(p.key) then return p.name end
    end
  end
end

-- A manifest's FROM is a path or the name of another entry; follows names, not in circles.
local function resolve(self, entry, seen)
  if entry.path then return true end
  seen = seen or {}
  if seen[entry.key] then return nil end
  seen[entry.key] = true
  local from = entry.manifest.from
  if from:find("^/") then
    local s = uv.fs_stat(from)
    if not s then return nil end
    entry.path, entry.size = from, s.type == "directory" and weight_bytes(from) or math.tointeger(s.size) or s.size
    entry.file_modified, entry.parent = s.mtime.sec, entry.manifest.parent
    return true
  end
  local parsed = names.parse(from)
  local base = parsed and self.entries[parsed.key]
  if not base or base == entry or not resolve(self, base, seen) then return nil end
  entry.path, entry.size, entry.parent, entry.file_modified = base.path, base.size, base.name, base.file_modified or base.modified
  if base.manifest then settings.inherit(entry.manifest, base.manifest) end
  return true
end

-- Scans again when the last scan is older than a second (or when told to).
function Catalog:refresh(force)
  local now = self.clock()
  if not force and self.scanned and now - self.scanned < 1 then return end
  self.scanned, self.entries, self.order, self.claimed = now, {}, {}, {}
  self.unusable = {}
  read_manifests(self)
  read_pins(self)
  walk(self, self.dir, "", 1)
  local good = {}
  for _, e in ipairs(self.order) do
    if resolve(self, e) then
      good[#good + 1] = e
      -- By these a loaded model is known to have changed: its weights, and what is set for it.
      e.weights = e.path .. "\0" .. tostring(e.size) .. "\0" .. tostring(e.file_modified or e.modified)
      e.settings = e.manifest and json.encode(e.manifest) or ""
    else
      problem(self, e.manifest_path or e.modelfile_path, "FROM " .. tostring(e.manifest.from):sub(1, 200) .. ": there is no such model or file", e.key)
      self.entries[e.key] = nil
    end
  end
  table.sort(good, function(a, b)
    if a.modified ~= b.modified then return a.modified > b.modified end
    return a.key < b.key
  end)
  self.order = good
end

-- name text -> entry, or nil, message, and why its description cannot be used (with paths: not for clients) when there is one.
function Catalog:find(text)
  local parsed, message = names.parse(text)
  if not parsed then return nil, message end
  self:refresh()
  local e = self.entries[parsed.key]
  if e then return e end
  -- A path-like last part also names a file: "qwen/x" finds "qwen/x:latest"; a
  -- bare file name with .gguf finds its entry.
  local bare = text:match("^(.*)%.gguf$")
  if bare then return self:find(bare) end
  return nil, "model '" .. parsed.short .. "' not found", self.unusable[parsed.key]
end

function Catalog:list()
  self:refresh()
  return self.order
end

-- The file's own description (architecture, sizes...), read once per file version.
function Catalog:info_of(entry)
  local key = entry.path .. "\0" .. tostring(entry.size) .. "\0" .. tostring(entry.modified)
  local i = self.info[key]
  if i == nil then
    local message
    i, message = self.describe(entry.path)
    if not i then i = { error = message or "unreadable" } end
    self.info[key] = i
  end
  return i
end

-- A digest that changes with the file or the manifest (64 hex digits, no prefix).
function Catalog:digest(entry)
  if not entry.digest then
    local text = entry.path .. "\0" .. tostring(entry.size) .. "\0" .. tostring(entry.modified)
    if entry.manifest then text = text .. "\0" .. modelfile.write(entry.manifest) end
    entry.digest = self.sha256.of(text)
  end
  return entry.digest
end

-- Stores a manifest under `name` (names.parse's result). m: {from, parameters, template, ...}. -> true | nil, reason
function Catalog:store(name, m)
  whole_file.make_dirs(self:manifest_dir())
  m.name = name.full
  local file = self.sha256.of(name.key):sub(1, 32) .. ".json"
  local ok, reason = whole_file.write(self:manifest_dir() .. "/" .. file, json.encode(m))
  self:refresh(true)
  return ok, reason
end

-- Removes a model: its manifest, or its file(s) when it is a plain file in the folder or was pulled.
function Catalog:remove(entry)
  local ok, message
  if entry.pin then
    ok, message = pulls.new(self.dir):remove(entry.pin)
  elseif entry.manifest_path or entry.modelfile_path then
    ok, message = os.remove(entry.manifest_path or entry.modelfile_path)
  elseif entry.folder then
    return nil, "a model folder is not removed by the server; delete " .. entry.name .. " by hand"
  else
    ok, message = os.remove(entry.path)
    local stem, n = entry.path:match("^(.*)%-00001%-of%-(%d%d%d%d%d)%.gguf$")
    for part = 2, tonumber(n or 0) do os.remove(string.format("%s-%05d-of-%s.gguf", stem, part, n)) end
  end
  self:refresh(true)
  return ok, message
end

return catalog
