-- SPDX-License-Identifier: MIT
-- Where a test writes: one folder of the process in $TMPDIR (or /tmp), which run.lua
-- removes with all that is in it. tests/run.sh fails a test that leaves something.
local uv = require("luv")

local temp = {}

local folder, n = nil, 0

-- The path of something that is not there yet.
function temp.path(suffix)
  folder = folder or assert(uv.fs_mkdtemp((os.getenv("TMPDIR") or "/tmp") .. "/mtx-test-XXXXXX"))
  n = n + 1
  return folder .. "/" .. n .. (suffix or "")
end

-- A new folder, empty.
function temp.dir()
  local path = temp.path()
  assert(uv.fs_mkdir(path, tonumber("700", 8)))
  return path
end

-- A new file that holds text.
function temp.file(text, suffix)
  local path = temp.path(suffix)
  local f = assert(io.open(path, "wb"))
  f:write(text)
  f:close()
  return path
end

function temp.remove()
  if folder then os.execute("rm -rf '" .. folder .. "'") end
  folder = nil
end

return temp
