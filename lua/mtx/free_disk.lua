-- SPDX-License-Identifier: MIT
-- Room on the disk that a folder lies on.
local uv = require("luv")
local term = require("mtx.cli.term")

local free_disk = {}

free_disk.SPARE_BYTES = 64 << 20 -- what a large file leaves to others

-- Bytes an ordinary user can still write there | nil: not known
function free_disk.bytes(folder)
  local s = uv.fs_statfs(folder)
  return s and s.bavail * s.bsize
end

-- What to say when n bytes do not fit | nil: they do, or it is not known
function free_disk.short(folder, n)
  local free = free_disk.bytes(folder)
  if not free or n <= free then return nil end
  return ("%s are needed there, %s are free"):format(term.bytes(n), term.bytes(free))
end

return free_disk
