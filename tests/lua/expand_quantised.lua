-- SPDX-License-Identifier: MIT
-- `make golden`: writes the quantised models that C tests read (tests/golden/quantised/runs.txt names them) to the folder
-- given as argument. The golden datum is the SHA-256 of the file that llama-quantize wrote: what has another is not kept.
package.path = "tests/lua/?.lua;" .. package.path
local uv = require("luv")
local core = require("mtx.core")
local fixture = require("quantize_fixture")

local n_made, n_there = 0, 0

local function write(mix, path)
  local want, part = fixture.FILES[mix].sha256, path .. ".part"
  if uv.fs_stat(path) and core.sha256.file(path) == want then
    n_there = n_there + 1
    return
  end
  os.remove(path)
  fixture.write(mix, part)
  if core.sha256.file(part) ~= want then
    os.remove(part)
    error(path .. ": not the bytes that llama-quantize wrote", 0)
  end
  assert(os.rename(part, path))
  n_made = n_made + 1
end

for line in io.lines(fixture.GOLDEN .. "runs.txt") do
  local name = line:match("^run (%S+)")
  if name then write(name:upper(), ("%s/%s/q256-%s.gguf"):format(uv.cwd(), arg[1], name)) end
end
print(("quantised golden models: %d made, %d there already"):format(n_made, n_there))
