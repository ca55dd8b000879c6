-- SPDX-License-Identifier: MIT
-- Files that clients leave with the server (/v1/files), and small records beside
-- them (batches). Everything lies in one folder under names made here, never
-- under names that clients chose; number and bytes are bounded.
local uv = require("luv")
local check = require("mtx.api.check")
local ids = require("mtx.ids")
local json = require("mtx.json")
local whole_file = require("mtx.whole_file")
local wire = require("mtx.api.wire")

local filestore = {}

-- One file, and how many there may be.
filestore.MAX_FILE, filestore.MAX_FILES = 512 << 20, 10000

local Store = {}
Store.__index = Store

-- dir is made when missing; max_bytes: of all files together; writes: who hears of those that fail (serve/writes.lua).
-- -> store, or nil, message.
function filestore.open(dir, max_bytes, writes)
  whole_file.make_dirs(dir)
  local real = uv.fs_realpath(dir)
  local stat = real and uv.fs_stat(real)
  if not stat or stat.type ~= "directory" or not uv.fs_access(real, "W") then return nil, "cannot write in the files folder " .. dir end
  local self = setmetatable({ dir = real, max = max_bytes, writes = writes, bytes = 0, n = 0, files = {}, order = {} }, Store)
  for record in self:records("file") do
    local stat = uv.fs_stat(self:path(record.id))
    if stat then
      record.bytes = math.tointeger(stat.size)
      self:keep(record)
    end
  end
  local handle = uv.fs_scandir(real) -- what a crash left half done
  while handle do
    local name = uv.fs_scandir_next(handle)
    if not name then break end
    if name:find("%.part$") then os.remove(real .. "/" .. name) end
  end
  return self
end

function Store:path(id) return self.dir .. "/" .. id end

-- Iterates over the stored records whose ids begin with `kind`-, oldest first.
function Store:records(kind)
  local list, handle = {}, uv.fs_scandir(self.dir)
  while handle do
    local name = uv.fs_scandir_next(handle)
    if not name then break end
    if name:find("^" .. kind .. "%-[%w]+%.json$") or name:find("^" .. kind .. "_[%w]+%.json$") then
      local f = io.open(self.dir .. "/" .. name)
      local record = f and json.decode(f:read("a") or "")
      if f then f:close() end
      if json.is_object(record) and record.id == name:gsub("%.json$", "") then list[#list + 1] = record end
    end
  end
  table.sort(list, function(a, b)
    if a.created_at ~= b.created_at then return (a.created_at or 0) < (b.created_at or 0) end
    return a.id < b.id
  end)
  local i = 0
  return function()
    i = i + 1
    return list[i]
  end
end

-- Writes a record so that a crash leaves the old or the new one. -> true | nil, Fault
function Store:save(record)
  local path = self:path(record.id) .. ".json"
  return self.writes:told("a record of files and batches", path, whole_file.write(path, wire.encode(record)))
end

function Store:keep(record)
  self.files[record.id] = record
  self.order[#self.order + 1] = record
  self.bytes, self.n = self.bytes + record.bytes, self.n + 1
end

-- Whether one more file may be begun: true | nil, message.
function Store:has_place()
  if self.n < filestore.MAX_FILES then return true end
  return nil, "the server keeps " .. self.n .. " files; delete some"
end

local Writer = {}
Writer.__index = Writer

local WHAT = "an uploaded file"

-- A file being written: write(bytes) -> true | nil, Fault; commit(fields) -> record | nil, Fault; drop(). -> writer | nil, Fault
function Store:create()
  local ok, message = self:has_place()
  if not ok then return nil, check.fault(507, message) end
  local id = "file-" .. ids.random(24)
  local path = self:path(id) .. ".part"
  local fd, reason = uv.fs_open(path, "wx", tonumber("600", 8))
  if not fd then return nil, self.writes:failed(WHAT, path, reason) end
  return setmetatable({ store = self, id = id, path = path, fd = fd, n = 0 }, Writer)
end

function Writer:write(bytes)
  local store = self.store
  if self.n + #bytes > filestore.MAX_FILE then return nil, check.fault(413, "the file is larger than " .. (filestore.MAX_FILE >> 20) .. " MiB") end
  if store.bytes + #bytes > store.max then return nil, check.fault(413, "the server's room for files (" .. (store.max >> 20) .. " MiB) is used up; delete some") end
  local ok, reason = whole_file.put(self.fd, bytes)
  if not ok then return nil, store.writes:failed(WHAT, self.path, reason) end
  self.n, store.bytes = self.n + #bytes, store.bytes + #bytes
  return true
end

-- fields: filename, purpose, key, created_at. The file is there only after this. sync: whole_file.finish's.
function Writer:commit(fields, sync)
  local store, fd = self.store, self.fd
  self.fd = nil
  fields.id, fields.bytes = self.id, self.n
  store.bytes = store.bytes - self.n
  local ok, fault = store:save(fields)
  if not ok then
    uv.fs_close(fd)
    uv.fs_unlink(self.path)
    return nil, fault
  end
  ok, fault = store.writes:told(WHAT, self.path, whole_file.finish(fd, self.path, store:path(self.id), sync))
  if not ok then
    uv.fs_unlink(store:path(self.id) .. ".json")
    return nil, fault
  end
  store:keep(fields)
  return fields
end

-- Makes a finished file of the server's own, in the store's folder, one of the store's; an empty one goes.
-- fields as for commit. -> record | nil (it was empty) | nil, Fault (it stays where it is).
function Store:adopt(path, fields)
  local stat = uv.fs_stat(path)
  if not stat or stat.size == 0 then
    os.remove(path)
    return nil
  end
  fields.id, fields.bytes = "file-" .. ids.random(24), math.tointeger(stat.size)
  local ok, fault = self:save(fields)
  if ok then ok, fault = self.writes:told("a batch's answers", path, uv.fs_rename(path, self:path(fields.id))) end
  if not ok then
    os.remove(self:path(fields.id) .. ".json")
    return nil, fault
  end
  self:keep(fields)
  return fields
end

function Writer:drop()
  if not self.fd then return end
  uv.fs_close(self.fd)
  self.fd = nil
  self.store.bytes = self.store.bytes - self.n
  os.remove(self.path)
end

function Store:remove(record)
  self.files[record.id] = nil
  for i, r in ipairs(self.order) do
    if r == record then
      table.remove(self.order, i)
      break
    end
  end
  self.bytes, self.n = self.bytes - record.bytes, self.n - 1
  os.remove(self:path(record.id))
  os.remove(self:path(record.id) .. ".json")
end

-- Lines of a file, one at a time, each at most max bytes: -> next() -> line | false (longer) | nil (the end).
function Store:lines(record, max)
  local f = io.open(self:path(record.id), "rb")
  if not f then return nil, "the file is gone" end
  local buf, from = "", 1 -- the unread bytes: buf from `from` on; f is nil behind its end
  return function()
    while true do
      local at = buf:find("\n", from, true)
      if at then
        local line = buf:sub(from, at - 1)
        from = at + 1
        if #line > max then return false end
        return (line:gsub("\r$", ""))
      end
      buf, from = buf:sub(from), 1
      if #buf > max then return false end
      local more = f and f:read(1 << 16)
      if more then
        buf = buf .. more
      elseif f then
        f:close()
        f = nil
      else
        local line = buf
        buf = ""
        return line ~= "" and line or nil
      end
    end
  end
end

return filestore
