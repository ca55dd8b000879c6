-- SPDX-License-Identifier: MIT
-- Python's values as Lua values: kinds, texts, truth, equality, order.
--
--   str        Lua string or marked text (text.lua)
--   int/float  Lua integer / float; beyond 64 bits a json.bigint
--   bool, none true/false, json.null
--   dict       json.object, or a plain Lua table without t[1] (keys sorted)
--   list       json.array (of the request: cannot be changed by a template), a
--              plain sequence, or a table with the metatable LIST (made by the template)
--   others     sequences with their own metatable: TUPLE, GEN (what map, select...
--              yield), VIEW (dict.items() and such), RANGE; not sequences: UNDEFINED,
--              NAMESPACE, LOOP, and callables (kinds macro, builtin, method).
-- Every table that is not a dict or namespace keeps its inner data under keys that
-- are no strings, so that `value[name]` is a safe look-up on any table.
local json = require("mtx.json")
local text = require("mtx.chat.jinja.text")
local strings = require("mtx.chat.jinja.strings")
local S = require("mtx.chat.jinja.state")

local values = {}
local type, getmetatable, setmetatable, math_type = type, getmetatable, setmetatable, math.type
local null, raw, MARKED = json.null, text.raw, text.MARKED
local NULL_IS_TABLE = type(null) == "table"

local function metatable(kind) return { kind = kind, __name = kind } end
local LIST, TUPLE, GEN, VIEW, RANGE = metatable("list"), metatable("tuple"), metatable("gen"), metatable("view"), metatable("range")
local UNDEFINED = metatable("undef")
for _, mt in ipairs{ LIST, TUPLE, GEN, RANGE } do mt.json_array = true end
values.LIST, values.TUPLE, values.GEN, values.VIEW, values.RANGE = LIST, TUPLE, GEN, VIEW, RANGE
values.UNDEFINED, values.NAMESPACE, values.LOOP = UNDEFINED, metatable("namespace"), metatable("loop")

function values.list(t) return setmetatable(t, LIST) end
function values.tuple(t) return setmetatable(t, TUPLE) end
function values.gen(t) return setmetatable(t, GEN) end

--- A value that is not there. message: what an operation on it says.
function values.undefined(message) return setmetatable({ message }, UNDEFINED) end

local MT_KINDS = { object = "dict", array = "list", list = "list", tuple = "tuple", gen = "gen", view = "view", range = "range", str = "str" }

--- The kind of any value: str int float bool none dict list tuple gen view range
--- undef namespace loop macro builtin method bigint function.
local function kind(v)
  local t = type(v)
  if t == "table" then
    local mt = getmetatable(v)
    if not mt then return (v[1] ~= nil or next(v) == nil) and "list" or "dict" end
    return MT_KINDS[mt.kind] or (v == null and "none") or mt.kind or "dict"
  elseif t == "string" then return "str"
  elseif t == "number" then return math_type(v) == "integer" and "int" or "float"
  elseif t == "boolean" then return "bool"
  elseif v == null then return "none"
  elseif v == nil then return "undef"
  end
  return t
end
values.kind = kind

local SEQUENCES = { list = true, tuple = true, gen = true, view = true, range = true }
--- True for kinds that are Lua sequences.
function values.is_sequence(k) return SEQUENCES[k] or false end

local TYPE_NAMES = { none = "NoneType", undef = "Undefined", gen = "generator", view = "dict_items", bigint = "int",
  namespace = "Namespace", loop = "LoopContext", macro = "Macro", builtin = "function", method = "method" }
--- Python's name of the value's type, for messages.
function values.type_name(v)
  local k = kind(v)
  return TYPE_NAMES[k] or k
end

--- The keys of a dict in order. A plain Lua table's keys are sorted.
function values.keys(d)
  local mt = getmetatable(d)
  if mt and mt.kind == "object" then return json.keys(d) end
  local keys = {}
  for k in next, d do keys[#keys + 1] = k end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  return keys
end

--- Fails if v is undefined, with its own message.
function values.check_defined(v)
  if v == nil then S.fail("an undefined value is used") end
  if getmetatable(v) == UNDEFINED then S.fail(v[1]) end
end

-- Text --------------------------------------------------------------------

local repr

local function repr_sequence(v, open, close, depth)
  local parts = {}
  for i = 1, #v do parts[i] = repr(v[i], depth) end
  return open .. table.concat(parts, ", ") .. ((open == "(" and #v == 1) and "," or "") .. close
end

local VIEW_NAMES = { items = "dict_items", keys = "dict_keys", values = "dict_values" }

function repr(v, depth)
  local k = kind(v)
  depth = (depth or 0) + 1
  if depth > 200 then S.fail("a value is nested too deeply to print") end
  if k == "str" then return text.is_markup(v) and "Markup(" .. strings.repr(raw(v)) .. ")" or strings.repr(raw(v)) end
  if k == "list" then return repr_sequence(v, "[", "]", depth) end
  if k == "tuple" then return repr_sequence(v, "(", ")", depth) end
  if k == "view" then return VIEW_NAMES[v[0]] .. "(" .. repr_sequence(v, "[", "]", depth) .. ")" end
  if k == "dict" or k == "namespace" then
    local parts = {}
    for i, key in ipairs(values.keys(v)) do parts[i] = repr(key, depth) .. ": " .. repr(v[key], depth) end
    local s = "{" .. table.concat(parts, ", ") .. "}"
    return k == "dict" and s or "<Namespace " .. s .. ">"
  end
  if k == "range" then
    local r = v[0]
    return r[3] == 1 and ("range(%d, %d)"):format(r[1], r[2]) or ("range(%d, %d, %d)"):format(r[1], r[2], r[3])
  end
  if k == "undef" then return "Undefined" end
  return raw(values.str(v))
end
values.repr = repr

--- Python's str(v): a plain string or marked text. Digits of an integer count as
--- text of the template: they often complete a control token (<|image_1|>) and
--- are harmless by themselves.
function values.str(v)
  if type(v) == "string" or getmetatable(v) == MARKED then return v end
  local k = kind(v)
  if k == "int" then return S.spans and text.trusted(tostring(v)) or tostring(v) end
  if k == "float" then return json.float_text(v) end
  if k == "bool" then return v and "True" or "False" end
  if k == "none" then return "None" end
  if k == "undef" then return "" end
  if k == "bigint" then return v.digits end
  if k == "gen" then return "<generator object>" end
  if k == "macro" then return "<Macro " .. strings.repr(v[0]) .. ">" end
  if k == "builtin" or k == "function" or k == "method" then return "<function>" end
  if k == "loop" then return ("<LoopContext %d/%d>"):format(v.index, v.length) end
  if k ~= "dict" and k ~= "namespace" and not SEQUENCES[k] then return "<" .. k .. ">" end
  local s = repr(v)
  S.charge(#s)
  return s
end

-- Truth, equality, order ----------------------------------------------------

--- Python's bool(v).
function values.truth(v)
  if v == nil or v == false or v == null or v == "" then return false end
  if v == true then return true end
  local t = type(v)
  if t == "number" then return v ~= 0 end
  if t ~= "table" then return true end
  local k = kind(v)
  if k == "str" then return v[0] ~= "" end
  if k == "list" or k == "tuple" or k == "view" or k == "range" then return v[1] ~= nil end
  if k == "dict" then
    for _, item in next, v do if item ~= nil then return true end end
    return false
  end
  return k ~= "undef"
end

local equal

local function equal_tables(a, b, depth)
  if depth > 200 then S.fail("values are nested too deeply to compare") end
  local ka, kb = kind(a), kind(b)
  if ka ~= kb then return false end
  if ka == "str" then return raw(a) == raw(b) end
  if ka == "undef" then return true end
  if SEQUENCES[ka] then
    if ka == "gen" or #a ~= #b then return false end
    for i = 1, #a do if not equal(a[i], b[i], depth + 1) then return false end end
    S.step(#a // 8)
    return true
  end
  if ka == "dict" then
    local n = 0
    for k, v in next, a do
      n = n + 1
      if b[k] == nil or not equal(v, b[k], depth + 1) then return false end
    end
    for _ in next, b do n = n - 1 end
    return n == 0
  end
  return a == b
end

--- Python's a == b.
function equal(a, b, depth)
  if a == b then return true end
  local ta, tb = type(a), type(b)
  if ta == "table" or tb == "table" then
    if ta ~= tb then return (ta == "string" or tb == "string") and raw(a) == raw(b) and raw(a) ~= nil end
    if NULL_IS_TABLE and (a == null or b == null) then return false end
    return equal_tables(a, b, depth or 0)
  end
  if ta == "boolean" and tb == "number" then return (a and 1 or 0) == b end
  if tb == "boolean" and ta == "number" then return (b and 1 or 0) == a end
  return false
end
values.equal = equal

-- bool counts as the int it is in Python
local function number(v)
  if type(v) == "number" then return v end
  if v == true then return 1 elseif v == false then return 0 end
end
values.number = number

--- v as an integer; nil and none give default; anything else fails. what: for the message.
function values.integer(v, default, what)
  if v == nil or v == null then return default end
  local n = number(v)
  if math_type(n) ~= "integer" then
    values.check_defined(v)
    S.fail(("%s must be an integer, not %s"):format(what, values.type_name(v)))
  end
  return n
end

--- Python's a < b. op: the operator's text, for the message.
function values.less(a, b, op)
  local x, y = number(a), number(b)
  if x and y then return x < y end
  x, y = raw(a), raw(b)
  if x and y then return x < y end
  local ka, kb = kind(a), kind(b)
  if (ka == "list" or ka == "tuple") and ka == kb then
    for i = 1, math.min(#a, #b) do
      if not equal(a[i], b[i]) then return values.less(a[i], b[i], op) end
    end
    return #a < #b
  end
  values.check_defined(a)
  values.check_defined(b)
  S.fail(("'%s' not supported between %s and %s"):format(op or "<", values.type_name(a), values.type_name(b)))
end

-- Iteration -------------------------------------------------------------------

--- The elements of an iterable as a Lua sequence, not to be changed.
function values.iterate(v)
  local mt = getmetatable(v)
  if mt == json.array_mt or mt == LIST then return v end
  local k = kind(v)
  if SEQUENCES[k] then return v end
  if k == "undef" then return {} end
  if k == "dict" then return values.keys(v) end
  if k == "str" then
    if text.is_markup(v) then v = text.unmarked(v) end -- its characters are plain strings
    local s = raw(v)
    local starts, chars = strings.starts(s), {}
    S.step(#starts)
    for i = 1, #starts - 1 do chars[i] = text.sub(v, starts[i], starts[i + 1] - 1) end
    return chars
  end
  S.fail(("a value of type %s is not iterable"):format(values.type_name(v)))
end

--- v as a key to look up; what Python cannot hash fails.
function values.hashed(v)
  local k = kind(v)
  if k == "list" or k == "dict" then S.fail(("a %s cannot be the key of a dict"):format(k)) end
  return raw(v) or v
end

--- Python's `item in container`.
function values.contains(container, item)
  local k = kind(container)
  if k == "str" then
    local needle, hay = raw(item), raw(container)
    if not needle then S.fail("'in' of a string needs a string, not " .. values.type_name(item)) end
    S.charge(#hay // 16 + (#needle > 256 and #hay * #needle // 4096 or 0))
    return hay:find(needle, 1, true) ~= nil
  elseif k == "dict" then
    local key = values.hashed(item)
    return key ~= nil and container[key] ~= nil
  elseif k == "undef" then
    return false
  end
  local list = values.iterate(container)
  if k == "view" and container[0] ~= "values" then values.hashed(item) end
  S.step(#list // 8)
  local plain = raw(item)
  for i = 1, #list do
    local v = list[i]
    if v == item or (plain and v == plain) or (type(v) == "table" or type(item) ~= type(v)) and equal(v, item) then return true end
  end
  return false
end

--- Python's len(v).
function values.length(v)
  local k = kind(v)
  if k == "str" then return strings.len(raw(v)) end
  if k == "dict" then return #values.keys(v) end
  if SEQUENCES[k] and k ~= "gen" then return #v end
  if k == "undef" then return 0 end
  S.fail(("a value of type %s has no length"):format(values.type_name(v)))
end

return values
