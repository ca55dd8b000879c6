-- SPDX-License-Identifier: MIT
-- JSON that keeps the order of keys and the kind of every value.
--
-- Prompts show JSON to a model byte for byte, so what a plain Lua table forgets
-- matters here: key order, {} against [], null against absent, 2.0 against 2,
-- and integers beyond 64 bits. lua-cjson stays the choice where none of this shows.
--
-- Shapes
--   object   a table with plain string keys (obj.name works, also in lua-cjson);
--            its own metatable lists the keys in order. pairs(obj) walks in that
--            order; obj.new = v appends; obj.old = nil removes.
--   array    a sequence with the metatable json.array_mt; null is json.null, so
--            there are no holes and #t is the length.
--   null     json.null (the same value as cjson.null where lua-cjson is present).
--   number   a Lua integer, a Lua float, or, beyond 64 bits, a json.bigint: a
--            table {digits = "123..."} that prints and encodes as its digits.
--   string   UTF-8. A lone surrogate escape becomes U+FFFD.
--
-- json.decode(text) -> value | nil, "message at line L column C"
-- json.encode(value, options) -> text | nil, message
-- json.object{} / json.object(k, v, ...), json.array{...}: make values by hand.
local core = require("mtx.core")

local json = {}

local find, sub, byte, format = string.find, string.sub, string.byte, string.format
local gsub, concat, sort = string.gsub, table.concat, table.sort
local tonumber, type, math_type = tonumber, type, math.type
local setmetatable, getmetatable, rawset, next = setmetatable, getmetatable, rawset, next

local has_cjson, cjson = pcall(require, "cjson")
local null = has_cjson and cjson.null or setmetatable({}, { __name = "null", __tostring = function() return "null" end })
json.null = null

-- Nesting that decode and encode accept.
json.max_depth = 256

local array_mt = { kind = "array", __name = "json.array" }
json.array_mt = array_mt

local bigint_mt = { kind = "bigint", __name = "json.bigint" }
function bigint_mt.__tostring(b) return b.digits end
function bigint_mt.__eq(a, b) return a.digits == b.digits end
json.bigint_mt = bigint_mt

-- Objects. The metatable of an object is its key list: mt[1..n] are keys in
-- order. mt.seen (key -> true) exists only once a key was added by assignment.

local function ordered_next(obj)
  local keys, i = getmetatable(obj), 0
  return function()
    while true do
      i = i + 1
      local k = keys[i]
      if k == nil then return nil end
      local v = obj[k]
      if v ~= nil then return k, v end
    end
  end, obj, nil
end

-- A key that was removed keeps its old place in the list; `seen` prevents a
-- second entry when it comes back.
local function add_key(obj, key, value)
  if value == nil then return end
  local mt = getmetatable(obj)
  local seen = mt.seen
  if not seen then
    seen = {}
    for i = 1, #mt do seen[mt[i]] = true end
    mt.seen = seen
  end
  if not seen[key] then
    seen[key] = true
    mt[#mt + 1] = key
  end
  rawset(obj, key, value)
end

local function metatable() return { kind = "object", __pairs = ordered_next, __newindex = add_key } end

local function new_object()
  local mt = metatable()
  return setmetatable({}, mt), mt
end

--- An empty object, or one made of key, value, key, value, ...
function json.object(...)
  local obj, mt, list, n = {}, metatable(), { ... }, 0
  for i = 1, select("#", ...), 2 do
    local k, v = list[i], list[i + 1]
    if v ~= nil then
      if obj[k] == nil then
        n = n + 1
        mt[n] = k
      end
      obj[k] = v
    end
  end
  return setmetatable(obj, mt)
end

--- Marks the sequence `t` (default: a new table) as a JSON array; returns it.
function json.array(t) return setmetatable(t or {}, array_mt) end

function json.is_object(v)
  local mt = type(v) == "table" and getmetatable(v)
  return mt and mt.kind == "object" or false
end

function json.is_array(v) return type(v) == "table" and getmetatable(v) == array_mt end

--- The keys of an object in order, as a new list.
function json.keys(obj)
  local keys = {}
  for k in ordered_next(obj) do keys[#keys + 1] = k end
  return keys
end

-- Decoding ---------------------------------------------------------------

local decode = core.json_decoder({ array = array_mt, bigint = bigint_mt, null = null, pairs = ordered_next, newindex = add_key })

local function failure(text, message, pos)
  local line, start = 1, 1
  for at in text:sub(1, pos - 1):gmatch("()\n") do line, start = line + 1, at + 1 end
  return nil, format("invalid JSON: %s at line %d column %d", message, line, pos - start + 1)
end

--- Decodes one JSON document (RFC 8259, nothing more). On bad input: nil and a
--- message with line and column (column counts bytes).
function json.decode(text)
  if type(text) ~= "string" then error("json.decode: text must be a string", 2) end
  local ok, bad = utf8.len(text)
  if not ok then return failure(text, "not UTF-8", bad) end
  local value, message, pos = decode(text, json.max_depth)
  if message then return failure(text, message, pos) end
  return value
end

-- Encoding ---------------------------------------------------------------

-- Python's repr(float): the shortest digits that read back as the same number.
-- %.15g to %.17g find them, but for subnormals (fewer digits carry) and for
-- powers of two, where the gap below is half the gap above and the nearest
-- 16-digit decimal may fall outside it while its upper neighbour reads back.
local function shortest_digits(x)
  local first = (x < 2.3e-308) and 1 or 15
  for precision = first, 17 do
    local s = format("%." .. (precision - 1) .. "e", x)
    if tonumber(s) == x then return s end
    if precision == 16 and string.unpack("<i8", string.pack("<d", x)) & 0xFFFFFFFFFFFFF == 0 then
      local lead, tail, exp = s:match("^(%d)%.(%d+)e(.+)$")
      local up = format("%d", tonumber(lead .. tail) + 1)
      s = sub(up, 1, 1) .. "." .. sub(up, 2) .. "e" .. exp
      if #up == 16 and tonumber(s) == x then return s end
    end
  end
end

--- A float as Python's repr and json.dumps print it: 1e-07, 1e+22, 2.0, inf, nan.
function json.float_text(x)
  if x ~= x then return "nan" end
  if x == math.huge then return "inf" elseif x == -math.huge then return "-inf" end
  local sign = ""
  if x < 0 or (x == 0 and 1 / x < 0) then sign, x = "-", -x end
  if x == 0 then return sign .. "0.0" end
  if x < 1e15 and x == math.floor(x) then return sign .. format("%d.0", x) end
  local lead, tail, exp = shortest_digits(x):match("^(%d)%.?(%d*)e(.+)$")
  local digits, e = gsub(lead .. tail, "0+$", ""), tonumber(exp)
  if e < -4 or e >= 16 then
    local mantissa = sub(digits, 1, 1) .. (#digits > 1 and "." .. sub(digits, 2) or "")
    return format("%s%se%s%02d", sign, mantissa, e < 0 and "-" or "+", math.abs(e))
  end
  if e < 0 then return sign .. "0." .. ("0"):rep(-e - 1) .. digits end
  if #digits <= e + 1 then return sign .. digits .. ("0"):rep(e + 1 - #digits) .. ".0" end
  return sign .. sub(digits, 1, e + 1) .. "." .. sub(digits, e + 2)
end

local SHORT = { ['"'] = '\\"', ["\\"] = "\\\\", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }
local function escape_char(c) return SHORT[c] or format("\\u%04x", byte(c)) end

local function escape_wide(c)
  local code = utf8.codepoint(c)
  if code < 0x10000 then return format("\\u%04x", code) end
  code = code - 0x10000
  return format("\\u%04x\\u%04x", 0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF))
end

--- Any bytes as UTF-8: broken ones become U+FFFD, so that what leaves here is always text.
function json.clean(s)
  if utf8.len(s) then return s end
  local parts, pos = {}, 1
  while true do
    local n, bad = utf8.len(s, pos)
    if n then
      parts[#parts + 1] = sub(s, pos)
      return concat(parts)
    end
    parts[#parts + 1] = sub(s, pos, bad - 1) .. "\u{FFFD}"
    pos = bad + 1
    while pos <= #s and byte(s, pos) & 0xC0 == 0x80 do pos = pos + 1 end
    if pos > #s then return concat(parts) end
  end
end

--- A string as a JSON string, quotes included. ascii: everything beyond ASCII as \uXXXX.
function json.quote(s, ascii)
  if find(s, "[\128-\255]") then s = json.clean(s) end
  if find(s, '[\0-\31"\\]') then s = gsub(s, '[\0-\31"\\]', escape_char) end
  if ascii and find(s, "[\127-\255]") then s = gsub(s, "\127", "\\u007f"):gsub("[\194-\244][\128-\191]+", escape_wide) end
  return '"' .. s .. '"'
end

local function number_text(v, opts)
  if math_type(v) == "integer" then return format("%d", v) end
  if v ~= v or v == math.huge or v == -math.huge then
    if not opts.nan then error({ json_message = "JSON has no " .. json.float_text(v) }, 0) end
    return v ~= v and "NaN" or (v > 0 and "Infinity" or "-Infinity")
  end
  return json.float_text(v)
end

local function key_text(k, opts)
  local t = type(k)
  if t == "string" then return k end
  if t == "number" then return number_text(k, opts) end
  if t == "boolean" then return tostring(k) end
  if k == null then return "null" end
  error({ json_message = "an object's key must be a string, not a " .. t }, 0)
end

-- The keys of any table taken as an object. Plain Lua tables have no order of
-- their own: theirs are sorted, so that the text is the same on every run.
local function object_keys(t, mt, opts)
  local keys
  if mt and mt.kind == "object" then
    keys = json.keys(t)
    if not opts.sort_keys then return keys end
  else
    keys = {}
    for k in next, t do keys[#keys + 1] = k end
  end
  sort(keys, function(a, b)
    if type(a) == type(b) and (type(a) == "number" or type(a) == "string") then return a < b end
    return tostring(a) < tostring(b)
  end)
  return keys
end

local encode_value

local function encode_array(t, opts, out, depth)
  local n = #t
  if n == 0 then out[#out + 1] = "[]" return end
  local open, sep, close = "[", opts.item_separator, "]"
  if opts.indent then
    local pad = "\n" .. opts.indent:rep(depth + 1)
    open, sep, close = "[" .. pad, sep .. pad, "\n" .. opts.indent:rep(depth) .. "]"
  end
  out[#out + 1] = open
  for i = 1, n do
    if i > 1 then out[#out + 1] = sep end
    encode_value(t[i], opts, out, depth + 1)
  end
  out[#out + 1] = close
end

local function encode_object(t, mt, opts, out, depth)
  if opts.source and mt and mt.source and not opts.indent and not opts.sort_keys then out[#out + 1] = mt.source return end
  local keys = object_keys(t, mt, opts)
  if #keys == 0 then out[#out + 1] = "{}" return end
  local open, sep, close = "{", opts.item_separator, "}"
  if opts.indent then
    local pad = "\n" .. opts.indent:rep(depth + 1)
    open, sep, close = "{" .. pad, sep .. pad, "\n" .. opts.indent:rep(depth) .. "}"
  end
  local colon, ascii = opts.key_separator, opts.ensure_ascii
  out[#out + 1] = open
  for i = 1, #keys do
    local k = keys[i]
    if i > 1 then out[#out + 1] = sep end
    out[#out + 1] = json.quote(key_text(k, opts), ascii)
    out[#out + 1] = colon
    encode_value(t[k], opts, out, depth + 1)
  end
  out[#out + 1] = close
end

function encode_value(v, opts, out, depth)
  local t = type(v)
  if t == "string" then
    out[#out + 1] = json.quote(v, opts.ensure_ascii)
  elseif t == "number" then
    out[#out + 1] = number_text(v, opts)
  elseif t == "boolean" then
    out[#out + 1] = v and "true" or "false"
  elseif v == null or v == nil then
    out[#out + 1] = "null"
  elseif t == "table" then
    if depth >= json.max_depth then error({ json_message = "nested deeper than " .. json.max_depth .. " (or in itself)" }, 0) end
    local mt = getmetatable(v)
    local kind = mt and mt.kind
    if kind == "array" or (kind == nil and v[1] ~= nil) or (mt and mt.json_array) then return encode_array(v, opts, out, depth) end
    if kind == "object" or kind == nil then return encode_object(v, mt, opts, out, depth) end
    if kind == "bigint" then out[#out + 1] = v.digits return end
    if not opts.default then error({ json_message = "a " .. tostring(kind) .. " has no JSON form" }, 0) end
    return encode_value(opts.default(v), opts, out, depth)
  else
    error({ json_message = "a " .. t .. " has no JSON form" }, 0)
  end
end

local COMPACT = { item_separator = ",", key_separator = ":" }

--- Encodes a value; by default without spaces. A plain Lua table is an array
--- when it has t[1], else an object (the empty one too) with sorted keys.
--- options: item_separator ",", key_separator ":" (Python's are ", " and ": "),
--- indent (string per level), ensure_ascii, sort_keys, nan (write NaN and
--- Infinity as Python does, else they are an error), default (function that
--- turns a table of a foreign kind into a value), source (an object whose metatable
--- has a `source` is written as that text). A metatable with json_array =
--- true makes a table an array too.
function json.encode(value, options)
  local opts = options or COMPACT
  if not (opts.item_separator and opts.key_separator) then
    opts = {}
    for k, v in pairs(COMPACT) do opts[k] = v end
    for k, v in pairs(options) do opts[k] = v end
  end
  local out = {}
  local ok, e = pcall(encode_value, value, opts, out, 0)
  if ok then return concat(out) end
  if type(e) ~= "table" or not e.json_message then error(e, 0) end
  return nil, "cannot encode as JSON: " .. e.json_message
end

return json
