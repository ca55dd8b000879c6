-- SPDX-License-Identifier: MIT
-- Quantising in tests: what llama-quantize wrote (tests/golden/quantised), and what is refused.
local lu = require("luaunit")
local quantize = require("mtx.quantize")

local fixture = { GOLDEN = "tests/golden/quantised/" }

fixture.SOURCE, fixture.IMATRIX = fixture.GOLDEN .. "q256-f32.gguf", fixture.GOLDEN .. "q256.imatrix.gguf"

-- hashes.txt -> files {MIX -> {sha256, imatrix}}, tensors {MIX -> {NAME -> {type, sha256}}}
local function golden()
  local files, tensors = {}, {}
  for line in io.lines(fixture.GOLDEN .. "hashes.txt") do
    local mix, sha, imatrix = line:match("^file (%S+) (%x+) ?(%a*)$")
    if mix then files[mix] = { sha256 = sha, imatrix = imatrix == "imatrix" } end
    local m, name, type_name, hash = line:match("^tensor (%S+) (%S+) (%S+) (%x+)$")
    if m then
      tensors[m] = tensors[m] or {}
      tensors[m][name] = { type_name, hash }
    end
  end
  return files, tensors
end

fixture.FILES, fixture.TENSORS = golden()

-- Quantising with opts fails, and the message has all these parts.
function fixture.refused(opts, ...)
  local result, message = quantize.run(opts)
  lu.assertNil(result)
  for _, part in ipairs({ ... }) do lu.assertStrContains(message, part) end
  return message
end

return fixture
