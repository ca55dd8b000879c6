-- SPDX-License-Identifier: MIT
-- Files with a process id: a running server's, and the locks of pulls. A crash leaves one behind, and its number may be another
-- process's by then: a process counts as ours only when it runs the program that asks (its name in /proc, which any user may read).
local uv = require("luv")
local infile = require("mtx.infile")
local whole_file = require("mtx.whole_file")

local pid_file = {}

local function program(pid)
  local text = infile.read("/proc/" .. pid .. "/comm", 64)
  return text and text:match("^[^\n]*")
end

-- Does a process of this program run under the number?
function pid_file.runs(pid)
  local _, _, code = uv.kill(pid, 0)
  local own, theirs = program("self"), program(pid)
  return code ~= "ESRCH" and (own == theirs or not own)
end

-- The id in the file at `path` -> pid, whether a server runs under it; nil, reason when there is none to read.
function pid_file.read(path)
  local text, message = infile.read(path, 32)
  if not text then return nil, message end
  local pid = math.tointeger(tonumber(text:match("^(%d+)\n$")))
  if not pid or pid <= 1 then return nil, path .. ": this is no PID file" end
  return pid, pid_file.runs(pid)
end

-- This process becomes the server of the file. A server that still runs keeps it. -> true | nil, reason
function pid_file.take(path)
  local pid, runs = pid_file.read(path)
  if pid and runs and pid ~= uv.os_getpid() then return nil, "a server runs under it already, process " .. pid end
  return whole_file.write(path, math.tointeger(uv.os_getpid()) .. "\n", tonumber("644", 8))
end

-- Removes the file while it is this process's.
function pid_file.leave(path)
  if pid_file.read(path) == uv.os_getpid() then os.remove(path) end
end

return pid_file
