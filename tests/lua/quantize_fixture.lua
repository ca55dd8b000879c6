-- SPDX-License-Identifier: MIT
-- Quantising in tests: what llama-quantize wrote (tests/golden/quantised), how to write it again, and what is refused.
local uv = require("luv")
local quantize = require("mtx.quantize")

local fixture = { GOLDEN = "tests/golden/quantised/" }

fixture.SOURCE, fixture.IMATRIX = fixture.GOLDEN .. "q256-f32.gguf", fixture.GOLDEN .. "q256.imatrix.gguf"

-- llama-quantize has no mix for these two: every matrix was forced to the type.
local FORCED <const> = { MXFP4 = true, NVFP4 = true }

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

-- Writes what llama-quantize wrote for the mix to `to` (a whole path), with more of quantize.run's options if given. The
-- source's name is part of what is written, and the reference used it from its own folder.
function fixture.write(mix, to, more)
  local opts = { from = "q256-f32.gguf", to = to, type = FORCED[mix] and "Q8_0" or mix }
  if fixture.FILES[mix].imatrix then opts.imatrix = "q256.imatrix.gguf" end
  if FORCED[mix] then opts.tensor_types = { "attn_=" .. mix, "ffn_=" .. mix, "^token_embd=" .. mix, "^output%.=" .. mix:lower() } end
  for k, v in pairs(more or {}) do opts[k] = v end
  local here = uv.cwd()
  assert(uv.chdir(fixture.GOLDEN))
  local ok, result, message = pcall(quantize.run, opts)
  assert(uv.chdir(here))
  return assert(ok and result, message or result)
end

-- Quantising with opts fails, and the message has all these parts.
function fixture.refused(opts, ...)
  local result, message = quantize.run(opts)
  assert(not result, "nothing was refused")
  for _, part in ipairs({ ... }) do assert(message:find(part, 1, true), ("%q is not in: %s"):format(part, message)) end
  return message
end

return fixture
