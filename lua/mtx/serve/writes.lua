-- SPDX-License-Identifier: MIT
-- Writes to disk that fail. Each kind is logged with its path and the reason when it
-- begins to fail, then not again before it has worked in between; what a client
-- learns names the reason, not the path.
local check = require("mtx.api.check")

local writes = {}

local Writes = {}
Writes.__index = Writes

function writes.new(log) return setmetatable({ log = log, failing = {} }, Writes) end

-- As libuv, the C library and C code of ours say it.
local FULL = { "ENOSPC", "EDQUOT", "EFBIG", "[Nn]o space left", "quota exceeded", "[Ff]ile too large" }

-- what: the kind of write, in words; reason: the system's. -> the Fault of whoever depends on it
function Writes:failed(what, path, reason)
  reason = tostring(reason)
  if not self.failing[what] then
    self.failing[what] = true
    self.log("error", "cannot write", { what = what, path = path, reason = reason })
  end
  local status = 500
  for _, words in ipairs(FULL) do
    if reason:find(words) then status = 507 end
  end
  local told = reason:gsub("/%S*", ""):gsub("cannot write: ", ""):gsub("^[%s:]+", ""):gsub("[%s:]+$", "")
  return check.fault(status, "cannot write " .. what .. ": " .. told)
end

function Writes:worked(what)
  if not self.failing[what] then return end
  self.failing[what] = nil
  self.log("info", "writing works again", { what = what })
end

-- Takes what a write gave. -> true | nil, Fault
function Writes:told(what, path, ok, reason)
  if not ok then return nil, self:failed(what, path, reason) end
  self:worked(what)
  return true
end

return writes
