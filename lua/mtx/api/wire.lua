-- SPDX-License-Identifier: MIT
-- JSON for replies: plain tables are written with their keys in the dialects'
-- usual reading order, so that equal replies are equal bytes; `[]` and `{}` stay
-- apart (several contracts need it); values that came in as JSON go out as they came.
local json = require("mtx.json")

local wire = {}

wire.null = json.null
local LIST, RAW = json.array_mt, {}

-- Marks a table as a list, also when empty.
wire.list = json.array

-- Text that is JSON already, copied as it is.
function wire.raw(text) return setmetatable({ text = text }, RAW) end

-- Fields written first, in this order; the rest follows by name.
local ORDER = { "type", "event", "id", "object", "created", "created_at", "sequence_number", "status", "model",
  "system_fingerprint", "index", "role", "message", "delta", "name", "error", "code", "content", "response", "thinking",
  "reasoning_content", "reasoning", "text", "tool_calls", "function", "arguments", "input", "done", "done_reason",
  "finish_reason", "logprobs", "choices", "output", "usage" }
local RANK = {}
for i, k in ipairs(ORDER) do RANK[k] = i end

-- Any bytes as text (a string that is no UTF-8 would make the whole frame unreadable).
wire.clean = json.clean

local ESC = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\b"] = "\\b", ["\f"] = "\\f" }
for i = 0, 31 do
  local c = string.char(i)
  ESC[c] = ESC[c] or string.format("\\u%04x", i)
end
ESC["\127"] = "\\u007f"

-- A Lua string as JSON text, quotes included.
function wire.quote(s)
  if not s:find('[%c"\\\128-\255]') then return '"' .. s .. '"' end
  s = wire.clean(s)
  -- U+2028 and U+2029 end lines in JavaScript sources and in some SSE readers.
  s = s:gsub('[%c"\\]', ESC):gsub("\u{2028}", "\\u2028"):gsub("\u{2029}", "\\u2029")
  return '"' .. s .. '"'
end
local quote = wire.quote

local function number(v)
  if math.type(v) == "integer" then return tostring(v) end
  if v ~= v then return "null" end
  if v == math.huge then return "1.7976931348623157e308" end
  if v == -math.huge then return "-1.7976931348623157e308" end
  if v == math.floor(v) and v > -1e15 and v < 1e15 then return string.format("%d", v) end
  return string.format("%.9g", v)
end

local function key_less(a, b)
  local ra, rb = RANK[a], RANK[b]
  if ra and rb then return ra < rb end
  if ra or rb then return ra ~= nil end
  return a < b
end

local MAX_DEPTH = 300

-- A table with numbers among its keys (of a script, a logit bias) as an object.
local function with_text_keys(v)
  local out = {}
  for k, x in pairs(v) do
    if type(k) ~= "string" and type(k) ~= "number" then error("the keys of a JSON object must be texts or numbers, not of type " .. type(k)) end
    out[tostring(k)] = x
  end
  return out
end

local function encode(v, out, depth)
  local t = type(v)
  if t == "string" then
    out[#out + 1] = quote(v)
  elseif t == "number" then
    out[#out + 1] = number(v)
  elseif t == "boolean" then
    out[#out + 1] = v and "true" or "false"
  elseif t ~= "table" then
    out[#out + 1] = "null"
  else
    if depth > MAX_DEPTH then error("reply nests too deeply") end
    local mt = getmetatable(v)
    if mt == RAW then
      out[#out + 1] = v.text
    elseif mt and mt.kind and mt ~= LIST then
      out[#out + 1] = json.encode(v)
    elseif mt == LIST or #v > 0 then
      for i = 1, #v do
        out[#out + 1] = i == 1 and "[" or ","
        encode(v[i], out, depth + 1)
      end
      out[#out + 1] = #v == 0 and "[]" or "]"
    else
      local keys = {}
      for k in pairs(v) do
        if type(k) ~= "string" then return encode(with_text_keys(v), out, depth) end
        keys[#keys + 1] = k
      end
      table.sort(keys, key_less)
      local sep = "{"
      for _, k in ipairs(keys) do
        out[#out + 1] = sep .. quote(k) .. ":"
        encode(v[k], out, depth + 1)
        sep = ","
      end
      out[#out + 1] = #keys == 0 and "{}" or "}"
    end
  end
end

-- value -> JSON text.
function wire.encode(v)
  local out = {}
  encode(v, out, 0)
  return table.concat(out)
end

return wire
