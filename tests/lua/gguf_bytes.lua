-- SPDX-License-Identifier: MIT
-- Small GGUF files made by hand, right or wrong on purpose, for Lua tests. Shares
-- no code with the writer. kv: a list of {key, type, value}; type as in ITEM or
-- "array:TYPE".
local ITEM = { u32 = "<I4", i32 = "<i4", f32 = "<f", bool = "B", string = "<s8", u8 = "B", u64 = "<I8" }
local CODE = { u8 = 0, u32 = 4, i32 = 5, f32 = 6, bool = 7, string = 8, u64 = 10 }

local function item(type, v)
  if type == "bool" then v = v and 1 or 0 end
  return string.pack(ITEM[type], v)
end

local function make(kv)
  local out = { "GGUF", string.pack("<I4I8I8", 3, 0, #kv) }
  for _, e in ipairs(kv) do
    local key, type, value = e[1], e[2], e[3]
    out[#out + 1] = string.pack("<s8", key)
    local of = type:match("^array:(.*)")
    if of then
      out[#out + 1] = string.pack("<I4I4I8", 9, CODE[of], #value)
      for _, v in ipairs(value) do out[#out + 1] = item(of, v) end
    else
      out[#out + 1] = string.pack("<I4", CODE[type]) .. item(type, value)
    end
  end
  local s = table.concat(out)
  return s .. ("\0"):rep(-#s % 32)
end

return {
  make = make,
  -- Writes the file under build/ and returns its path.
  save = function(name, kv)
    os.execute("mkdir -p build/test")
    local path = "build/test/" .. name .. ".gguf"
    local f = assert(io.open(path, "wb"))
    f:write(make(kv))
    f:close()
    return path
  end,
}
