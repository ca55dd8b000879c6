-- SPDX-License-Identifier: MIT
-- A file that is being fetched: bytes are written behind one another without holding
-- up the event loop; when the disk is slower than the network, the network waits.
local uv = require("luv")
local check = require("mtx.api.check")
local fiber = require("mtx.serve.fiber")
local wait = require("mtx.pull.wait")

local part = {}

local MAX_QUEUED_BYTES = 1 << 20

local Part = {}
Part.__index = Part

-- Bytes that are there.
function part.size(path)
  local stat = uv.fs_stat(path)
  return stat and math.tointeger(stat.size) or 0
end

local function failed(message)
  local full = message:find("ENOSPC", 1, true) or message:find("EDQUOT", 1, true) or message:find("EFBIG", 1, true)
  check.fail(full and 507 or 500, "cannot write into the models folder: " .. message:gsub(":? /%S*", "") .. "; what is there is kept, the next pull goes on from it")
end

-- Opens path to go on at byte `at`; what lies behind is cut off. Raises a Fault.
function part.open(path, at)
  local fd, message = uv.fs_open(path, "a", tonumber("644", 8))
  if not fd then failed(message) end
  local self = setmetatable({ fd = fd, at = at, queue = {}, queued = 0 }, Part)
  local ok, why = true, nil
  if part.size(path) > at then ok, why = uv.fs_ftruncate(fd, at) end
  if ok then return self end
  uv.fs_close(fd)
  failed(why)
end

local flush

local function wrote(self, bytes, err, n)
  if not err and n < #bytes then
    table.insert(self.queue, 1, bytes:sub(n + 1))
    if n == 0 then err = "no bytes were taken" end
  end
  self.at, self.queued = self.at + (n or 0), self.queued - (n or 0)
  self.writing = false
  if err then self.error = err end
  if not self.error and self.queue[1] then return flush(self) end
  if self.transfer then
    local transfer = self.transfer
    self.transfer = nil
    if self.error then transfer:stop() else transfer:resume() end
  end
  if self.idle then self.idle() end
end

function flush(self)
  local bytes = table.concat(self.queue)
  self.queue, self.writing = {}, true
  uv.fs_write(self.fd, bytes, -1, function(err, n) wrote(self, bytes, err, n) end)
end

-- Takes bytes of a transfer, which is paused while too many wait and stopped when the disk refuses them.
function Part:put(bytes, transfer)
  if self.error then return transfer:stop() end
  self.queue[#self.queue + 1] = bytes
  self.queued = self.queued + #bytes
  if not self.writing then flush(self) end
  if self.queued > MAX_QUEUED_BYTES then
    self.transfer = transfer
    transfer:pause()
  end
end

local function nothing() end

-- Waits until all is written, and closes (off the loop: a file system may write all of it then). Raises a Fault when
-- something could not be written. A pull that is being cancelled waits as well: a write still on its way would land
-- between what the next pull of the file counts and what it appends.
function Part:close()
  if self.writing then
    fiber.wait(function(go)
      self.idle = go
      return nothing
    end)
  end
  uv.fs_close(self.fd, nothing)
  if self.error then failed(self.error) end
end

-- Waits until a file is on the disk. Left to the pin's own small fsync, the loop would stand still for all these bytes.
function part.sync(job, path)
  local fd, message = uv.fs_open(path, "r", 0)
  if not fd then failed(message) end
  local err = wait.on(job, function(go)
    uv.fs_fsync(fd, function(e)
      uv.fs_close(fd, nothing)
      go(e)
    end)
    return function() end
  end)
  if err then failed(err) end
end

return part
