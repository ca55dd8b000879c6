-- SPDX-License-Identifier: MIT
-- What pulls leave in the models folder DIR:
--
--   DIR/hf.co/USER/REPO/...   the files of a model of the hub, under their own names
--   DIR/ollama.com/NS/MODEL/  those of Ollama's registry
--   DIR/.mtx/pins/ID.json     a pulled model: {name, source, revision, from, folder, files = [{path, size, sha256, etag}], pulled, modelfile}
--   DIR/.mtx/pulls/ID/        a pull that is not complete: plan.json (as a pin, `pulled` only once files get their places), parts, lock.PID
--
-- ID follows from the model's name. Paths are relative to DIR; none leads out of it.
local uv = require("luv")
local core = require("mtx.core")
local check = require("mtx.api.check")
local fiber = require("mtx.serve.fiber")
local infile = require("mtx.infile")
local json = require("mtx.json")
local names = require("mtx.serve.models.names")
local part = require("mtx.pull.part")
local pid_file = require("mtx.pid_file")
local whole_file = require("mtx.whole_file")

local store = {}

local Store = {}
Store.__index = Store

local MAX_DOCUMENT_BYTES = 4 << 20

function store.new(dir) return setmetatable({ dir = dir }, Store) end

-- A path of a remote file that may become one of ours: no way up, nothing hidden, no odd characters.
function store.safe(path)
  if type(path) ~= "string" or #path > 400 or path:sub(1, 1) == "/" or path:sub(-1) == "/" then return false end
  for name in path:gmatch("[^/]*") do
    if #name > 200 or not name:find("^[%w_][%w%._%-%+ @,=~%(%)%[%]]*$") or name:find("..", 1, true) then return false end
  end
  return true
end

local function id_of(key) return core.sha256.of(key):sub(1, 32) end

-- A document of ours, checked: files of the folder can be anybody's.
local function read_document(path)
  local text = infile.read(path, MAX_DOCUMENT_BYTES)
  local doc = text and json.decode(text)
  if not json.is_object(doc) or not json.is_array(doc.files) or type(doc.source) ~= "string" then return nil end
  local name = names.parse(doc.name)
  if not name then return nil end
  for _, f in ipairs(doc.files) do
    if not json.is_object(f) or not store.safe(f.path) or math.type(f.size) ~= "integer" then return nil end
  end
  if not store.safe(doc.from) then return nil end
  doc.model = name
  return doc
end

local function document_of(plan, more)
  local files = json.array()
  for i, f in ipairs(plan.files) do files[i] = json.object("path", f.path, "size", f.size, "sha256", f.sha256, "etag", f.etag) end
  return json.encode(json.object("name", plan.model.full, "source", plan.source, "revision", plan.revision, "from", plan.from,
    "folder", plan.folder, "files", files, "modelfile", plan.modelfile, "pulled", more))
end

local function unwritten(message)
  check.fail(message:find("ENOSPC", 1, true) and 507 or 500, "cannot write into the models folder: " .. message:gsub(": /.*$", ""))
end

-- fsync off the event loop: it may wait for other people's bytes.
local function synced(fd) return fiber.uv(uv.fs_fsync, fd) end

local function each_name(dir, f)
  local handle = uv.fs_scandir(dir)
  while handle do
    local name = uv.fs_scandir_next(handle)
    if not name then break end
    f(name)
  end
end

function Store:path(relative) return self.dir .. "/" .. relative end
local function pin_path(self, key) return self.dir .. "/.mtx/pins/" .. id_of(key) .. ".json" end
function Store:pull_dir(key) return self.dir .. "/.mtx/pulls/" .. id_of(key) end
local function plan_path(self, key) return self:pull_dir(key) .. "/plan.json" end

-- Where the bytes of a file gather. By content where that is known: another revision may share it; else by the
-- address and its ETag, so that nothing is put behind the beginning of another file.
function Store:part_path(key, file)
  return self:pull_dir(key) .. "/" .. (file.sha256 or id_of(file.url .. "\0" .. (file.etag or ""))) .. ".part"
end

-- The pin of a model | nil.
function Store:pin(key) return read_document(pin_path(self, key)) end

function Store:pins()
  local out = {}
  each_name(self.dir .. "/.mtx/pins", function(name)
    local doc = name:find("^%x+%.json$") and read_document(self.dir .. "/.mtx/pins/" .. name)
    if doc then out[#out + 1] = doc end
  end)
  return out
end

-- Are all files of a pin there, in their sizes?
function Store:intact(pin)
  for _, f in ipairs(pin.files) do
    local stat = uv.fs_stat(self:path(f.path))
    if not stat or stat.size ~= f.size then return false end
  end
  return true
end

-- path -> the pin's file, over all pins; with a key also of the pull of that model that ended while it gave files their places
function Store:claimed(key)
  local out, pins = {}, self:pins()
  local broken = key and read_document(plan_path(self, key))
  if broken and broken.pulled then table.insert(pins, 1, broken) end
  for _, pin in ipairs(pins) do
    for _, f in ipairs(pin.files) do out[f.path] = f end
  end
  return out
end

-- Pulls that are not complete: {name, key, size, total}.
function Store:partials()
  local out = {}
  each_name(self.dir .. "/.mtx/pulls", function(id)
    local dir = self.dir .. "/.mtx/pulls/" .. id
    local plan = read_document(dir .. "/plan.json")
    if plan then
      local size, total = 0, 0
      each_name(dir, function(name)
        if name:find("%.part$") then size = size + part.size(dir .. "/" .. name) end
      end)
      for _, f in ipairs(plan.files) do total = total + f.size end
      out[#out + 1] = { name = plan.model.full, key = plan.model.key, size = size, total = total }
    end
  end)
  table.sort(out, function(a, b) return a.key < b.key end)
  return out
end

-- The number of another process that pulls the model now | nil. A lock is a file lock.PID; that of a process that is gone is nobody's,
-- though its number may be another program's by now, or our own (in a container everybody is number 1).
function Store:puller(key)
  local found
  each_name(self:pull_dir(key), function(name)
    local pid = math.tointeger(tonumber(name:match("^lock%.(%d+)$")))
    if pid and pid ~= uv.os_getpid() and pid_file.runs(pid) then found = pid end
  end)
  return found
end

-- Only one process pulls a model at a time: everybody puts up a lock of its own and then looks for others'. Whoever looks last sees
-- all, so two never go on together; two that came at once both step back, and try again after waits (pause(ms)) of different lengths.
-- -> function that gives it back; raises a Fault.
function Store:lock(key, pause)
  local dir = self:pull_dir(key)
  local path = dir .. "/lock." .. math.tointeger(uv.os_getpid())
  local function unlock()
    os.remove(path)
    os.remove(dir) -- when nothing else is in it
  end
  local pid
  for try = 1, 4 do
    if try > 1 then pause(math.random(1, 10 * try)) end
    whole_file.make_dirs(dir)
    local fd, message, code = uv.fs_open(path, "w", tonumber("600", 8))
    if fd then
      uv.fs_close(fd)
      pid = self:puller(key)
      if not pid then return unlock end
      unlock()
    elseif code ~= "ENOENT" then -- that is somebody's unlock, between our two steps
      unwritten(message)
    end
  end
  check.fail(409, pid and "another process (" .. pid .. ") pulls this model already" or "other processes pull this model; try again")
end

local function write_document(path, doc, pulled)
  local ok, message = whole_file.write(path, document_of(doc, pulled), nil, synced)
  if not ok then unwritten(message) end
end

-- Notes what is about to be fetched, and forgets parts that no longer belong to it.
function Store:begin(plan)
  local dir, parts = self:pull_dir(plan.model.key), {}
  for _, f in ipairs(plan.files) do parts[self:part_path(plan.model.key, f):match("[^/]+$")] = true end
  each_name(dir, function(name)
    if name:find("%.part$") and not parts[name] then os.remove(dir .. "/" .. name) end
  end)
  local before = read_document(plan_path(self, plan.model.key))
  write_document(plan_path(self, plan.model.key), plan, before and before.pulled) -- what has its place already stays ours
end

-- Folders that are empty now, from that of `path` upwards; never DIR itself.
local function prune(self, path)
  local folder = path:match("^(.*)/")
  while folder and os.remove(self:path(folder)) do folder = folder:match("^(.*)/") end
end

-- Removes files of `old` that no pin names any more.
local function remove_unclaimed(self, old)
  local claimed = self:claimed()
  for _, f in ipairs(old.files) do
    if not claimed[f.path] then
      os.remove(self:path(f.path))
      prune(self, f.path)
    end
  end
end

-- Removes what there is of an incomplete pull, files that have their places already too. -> was there one?
function Store:drop_partial(key)
  local dir, plan = self:pull_dir(key), read_document(plan_path(self, key))
  each_name(dir, function(name) os.remove(dir .. "/" .. name) end)
  local gone = os.remove(dir) ~= nil
  if plan and plan.pulled then remove_unclaimed(self, plan) end
  return gone
end

-- Other names of files that have just been replaced go over to the new revision with them.
local function follow(self, plan)
  local new = {}
  for _, f in ipairs(plan.files) do new[f.path] = f end
  for _, pin in ipairs(self:pins()) do
    local changed = false
    for _, f in ipairs(pin.model.key ~= plan.model.key and pin.files or {}) do
      local n = new[f.path]
      if n and n.sha256 ~= f.sha256 then
        f.size, f.sha256, f.etag, pin.revision, changed = n.size, n.sha256, n.etag, plan.revision, true
      end
    end
    if changed then write_document(pin_path(self, pin.model.key), pin, pin.pulled) end
  end
end

-- All parts are whole and right: gives the files (f.part; f.here: it has its place) their names and pins them. What an older pin had is
-- replaced only now; processes that have it open keep it. Raises a Fault.
function Store:place(plan)
  local key = plan.model.key
  local old, now = self:pin(key), os.date("!%Y-%m-%dT%H:%M:%SZ")
  if uv.fs_stat(plan_path(self, key)) then write_document(plan_path(self, key), plan, now) end
  for _, f in ipairs(plan.files) do
    local to = self:path(f.path)
    if not f.here then
      whole_file.make_dirs(to:match("^(.*)/"))
      local ok, message = uv.fs_rename(f.part, to)
      if not ok then unwritten(message) end
    end
  end
  whole_file.make_dirs(self.dir .. "/.mtx/pins")
  write_document(pin_path(self, key), plan, now)
  follow(self, plan)
  if old then remove_unclaimed(self, old) end
end

-- Removes a pulled model: its pin, and the files that no other pin names.
function Store:remove(pin)
  local ok, message = os.remove(pin_path(self, pin.model.key))
  if not ok then return nil, message end
  remove_unclaimed(self, pin)
  self:drop_partial(pin.model.key)
  return true
end

return store
