-- SPDX-License-Identifier: MIT
-- Opens a tokenizer from whatever a model comes with: a GGUF file, a Hugging
-- Face tokenizer.json, a SentencePiece tokenizer.model, or a folder of them.
--
-- The last two are translated to the metadata a GGUF file would have, so there
-- is one implementation of every kind, in C.
local core = require("mtx.core").tokenizer

local tok = {}

local function exists(path)
  local f = io.open(path, "rb")
  if f then f:close() end
  return f ~= nil
end

-- kv: a list of {key, type, value}, arrays as "array:TYPE" -> the bytes of a GGUF file.
local PACK = { u32 = "<I4", i32 = "<i4", f32 = "<f", bool = "B", string = "<s8", u8 = "B" }
local CODE = { u8 = 0, u32 = 4, i32 = 5, f32 = 6, bool = 7, string = 8 }
function tok.gguf_bytes(kv)
  local out = { "GGUF" .. string.pack("<I4I8I8", 3, 0, #kv) }
  local function put(type, v)
    if type == "bool" then v = v and 1 or 0 end
    out[#out + 1] = string.pack(PACK[type], v)
  end
  for _, e in ipairs(kv) do
    local key, type, value = e[1], e[2], e[3]
    local of = type:match("^array:(.*)")
    out[#out + 1] = string.pack("<s8I4", key, of and 9 or CODE[type])
    if of == "u8" then  -- the bytes of a string
      out[#out + 1] = string.pack("<I4I8", CODE.u8, #value) .. value
    elseif of then
      out[#out + 1] = string.pack("<I4I8", CODE[of], #value)
      for _, v in ipairs(value) do put(of, v) end
    else
      put(type, value)
    end
  end
  local s = table.concat(out)
  return s .. ("\0"):rep(-#s % 32)
end

-- The tokenizer of a file or folder as GGUF metadata: a list for gguf_bytes | nil, message, code
function tok.read(path)
  local folder = path:gsub("/+$", "")
  if exists(folder .. "/tokenizer.json") then
    path = folder .. "/tokenizer.json"
  elseif exists(folder .. "/tokenizer.model") then
    path = folder .. "/tokenizer.model"
  end
  local reader = path:match("%.json$") and "mtx.tok.hf" or path:match("%.model$") and "mtx.tok.sentencepiece"
  if not reader then return nil, path .. ": no tokenizer.json and no tokenizer.model", "notfound" end
  local kv, message, code = require(reader).read(path)
  if not kv then return nil, path .. ": " .. message, code or "format" end
  return kv, path
end

-- -> tokenizer | nil, message, code
function tok.open(path)
  local kv, where, code = tok.read(path)
  if not kv then
    if code == "notfound" and not path:match("%.json$") and not path:match("%.model$") then return core.open(path) end
    return nil, where, code
  end
  local t, message
  t, message, code = core.open_bytes(tok.gguf_bytes(kv))
  if not t then return nil, where .. ": " .. message, code end
  return t
end

return tok
