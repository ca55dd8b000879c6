-- SPDX-License-Identifier: MIT
-- Model folders in tests: those of tests/golden/hf, and copies of them that a test may change.
local infile = require("mtx.infile")
local temp = require("temp")

local folder = { GOLDEN = "tests/golden/hf/", SCRATCH = temp.dir() .. "/" }

function folder.read(path) return assert(infile.read(path)) end

function folder.write(path, text)
  local f = assert(io.open(path, "wb"))
  f:write(text)
  f:close()
end

-- A copy of the golden folder `name`, in place of an earlier one of the same name.
function folder.copy(name, to)
  local path = folder.SCRATCH .. to
  os.execute(("rm -rf %s && mkdir -p %s && cp %s%s/* %s/"):format(path, path, folder.GOLDEN, name, path))
  return path
end

return folder
