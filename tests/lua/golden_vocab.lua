-- SPDX-License-Identifier: MIT
-- The vocabularies of tests/golden/tokenizer/vocab as files: NAME.gguf.gz is unpacked, NAME.parts (lines: KEY VALUE...) put
-- together of bytes of another one and of its own, once each, into build/golden/tokenizer.
local core = require("mtx.core")

local FROM <const>, TO <const> = "tests/golden/tokenizer/vocab/", "build/golden/tokenizer/"

local vocab = {}

local function exists(path)
  local f = io.open(path)
  if f then f:close() end
  return f ~= nil
end

local function read(path)
  local f <close> = assert(io.open(path, "rb"))
  return f:read("a")
end

local function put_together(parts)
  local base, sha256, out = nil, nil, {}
  for key, value in parts:gmatch("(%S+) ([^\n]*)\n") do
    if key == "of" then
      base = read(vocab.path(value))
    elseif key == "copy" then
      local offset, n = value:match("^(%d+) (%d+)$")
      out[#out + 1] = base:sub(offset + 1, offset + n)
    elseif key == "hex" then
      out[#out + 1] = value:gsub("%x%x", function(x) return string.char(tonumber(x, 16)) end)
    else
      assert(key == "sha256", key)
      sha256 = value
    end
  end
  local text = table.concat(out)
  assert(core.sha256.of(text) == sha256, "not the bytes that the vocabulary had")
  return text
end

function vocab.path(name)
  local path = TO .. name .. ".gguf"
  if exists(path) then return path end
  assert(os.execute("mkdir -p " .. TO))
  local part, parts = path .. ".part", FROM .. name .. ".parts"
  if exists(parts) then
    local text = put_together(read(parts))
    local f = assert(io.open(part, "wb"))
    assert(f:write(text) and f:close())
  else
    assert(os.execute(("gzip -dc '%s%s.gguf.gz' > '%s'"):format(FROM, name, part)), "cannot unpack " .. name)
  end
  assert(os.rename(part, path))
  return path
end

return vocab
