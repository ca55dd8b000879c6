-- SPDX-License-Identifier: MIT
-- The filters on single values: text, numbers, JSON. Filters on sequences are in
-- seq_filters.lua and end up in the same table. Specs as in call.lua.
local json = require("mtx.json")
local text = require("mtx.chat.jinja.text")
local strings = require("mtx.chat.jinja.strings")
local values = require("mtx.chat.jinja.values")
local methods = require("mtx.chat.jinja.methods")
local call = require("mtx.chat.jinja.call")
local access = require("mtx.chat.jinja.access")
local format = require("mtx.chat.jinja.format")
local S = require("mtx.chat.jinja.state")

local filters = require("mtx.chat.jinja.seq_filters")
local null, raw, kind, truth = json.null, text.raw, values.kind, values.truth

local function filter(names, f, ...)
  for name in names:gmatch("%S+") do filters[name] = call.spec(f, ...) end
end

-- Text: most are a method of str applied to str(value) ---------------------------

for _, name in ipairs{ "upper", "lower", "capitalize" } do
  local spec = methods.str[name]
  filters[name] = { params = spec.params, f = function(v, ...) return spec.f(values.str(v), ...) end }
end
filter("trim", function(v, chars) return methods.str.strip.f(values.str(v), chars) end, "chars")
filter("center", function(v, width) return methods.str.center.f(values.str(v), values.integer(width, 80, "a width")) end, "width")
filter("replace", function(v, old, new, count)
  if count == null then count = nil end
  return methods.str.replace.f(values.str(v), values.str(old), values.str(new), count)
end, "old!", "new!", "count")
-- Constants: most often there is nothing to replace.
function filters.replace.prepare(old, new)
  local needle, replace, find = raw(old), methods.str.replace.f, string.find
  if not needle or needle == "" or #needle > 256 or not raw(new) then return nil end
  return function(v)
    if type(v) ~= "string" then v = values.str(v) end
    local s = v[0] or v
    if find(s, needle, 1, true) then return replace(v, old, new) end
    local left = S.bytes - #s // 16
    S.bytes = left
    if left < 0 then S.charge(0) end
    return v
  end
end
filter("string", values.str)
filter("safe", function(v) return text.markup(values.str(v)) end)
filter("pprint", values.repr)

filter("title", function(v)
  local s = values.str(v)
  local out = raw(s):gsub("[^%s%-%({%[<]+", function(word)
    local head, tail = strings.head(word)
    return strings.upper(head) .. strings.lower(tail)
  end)
  return text.remark(s, out)
end)

filter("indent", function(v, width, first, blank)
  if not raw(v) then S.fail("indent needs a string, not " .. values.type_name(v)) end
  if width == null then S.fail("indent's width must be an integer or a string") end
  local s = v
  local pad = width == nil and "    " or raw(width) or (" "):rep(math.max(0, math.min(values.integer(width, 0, "indent's width"), 1000)))
  local out, pos, plain, n = {}, 1, raw(s), 0
  repeat
    local at, after = strings.line_end(plain, pos)
    n = n + 1
    if n > 1 then out[#out + 1] = "\n" end
    local filled = at > pos or (blank ~= nil and truth(blank))
    if n == 1 and first ~= nil and truth(first) or n > 1 and filled then out[#out + 1] = pad end
    out[#out + 1] = text.sub(s, pos, at - 1)
    local done = at > #plain
    pos = after
  until done
  S.charge(#plain + n * #pad)
  return text.join(out, 1, #out)
end, "width", "first", "blank")

filter("truncate", function(v, length, killwords, ending, leeway)
  local s, e = v, ending == nil and "..." or values.str(ending)
  length, leeway = values.integer(length, 255, "truncate's length"), values.integer(leeway, 5, "truncate's leeway")
  local n, room = values.length(s), length - strings.len(raw(e))
  if room < 0 then S.fail("truncate: the length is shorter than its ending") end
  if leeway < 0 then S.fail("truncate: the leeway is below 0") end
  if n <= length + leeway then return s end
  if not raw(s) then S.fail("truncate cannot cut a " .. values.type_name(s)) end
  local _, last = strings.range(raw(s), 1, room)
  if not (killwords ~= nil and truth(killwords)) then
    local space = raw(s):sub(1, last):match("^.*() ")
    if space then last = space - 1 end
  end
  return text.join({ text.sub(s, 1, last), e }, 1, 2)
end, "length", "killwords", "end", "leeway")

filter("wordcount", function(v)
  local n, inside = 0, false
  S.charge(#raw(values.str(v)))
  for c in strings.each(raw(values.str(v))) do
    local part = c == "_" or strings.is("alnum", c)
    if part and not inside then n = n + 1 end
    inside = part
  end
  return n
end)
filter("urlencode", function(v)
  local function quote(x)
    return (raw(values.str(x)):gsub("[^%w%-_.~/]", function(c) return ("%%%02X"):format(c:byte()) end))
  end
  if kind(v) == "str" or not values.is_sequence(kind(v)) and kind(v) ~= "dict" then return quote(v) end
  local pairs_of = kind(v) == "dict" and methods.items(v) or values.iterate(v)
  local out = {}
  for i, item in ipairs(pairs_of) do
    local pair = values.iterate(item)
    if #pair ~= 2 then S.fail("urlencode needs pairs") end
    out[i] = quote(pair[1]) .. "=" .. quote(pair[2])
  end
  return (table.concat(out, "&"):gsub("/", "%%2F"):gsub("%%20", "+"))
end)
filters.format = { varargs = true, f = function(v, args, kwargs)
  if kwargs and next(kwargs) then return format.percent(values.str(v), methods.new_dict(nil, kwargs)) end
  return format.percent(values.str(v), values.tuple(table.move(args, 1, args.n or #args, 1, {})))
end }

-- Numbers ------------------------------------------------------------------------

filter("abs", function(v)
  local n = values.number(v)
  if not n then
    values.check_defined(v)
    S.fail("abs needs a number, not " .. values.type_name(v))
  end
  return math.abs(n)
end)

local function trimmed(s)
  local i, j = strings.strip_range(s, nil, true, true)
  return s:sub(i, j):gsub("(%d)_(%d)", "%1%2")
end

filter("int", function(v, default, base)
  if default == nil then default = 0 end
  values.check_defined(v)
  local n = values.number(v)
  if not n and raw(v) then
    local s = trimmed(raw(v))
    base = values.integer(base, 10, "a base")
    local sign, digits = s:match("^([+-]?)(%w+)$")
    if base == 16 or base == 8 or base == 2 then digits = digits and digits:gsub("^0[xXoObB]", "") end
    local ok = digits and (base ~= 10 or digits:find("^%d+$"))
    n = ok and (base == 10 and math.tointeger(tonumber(digits)) or base ~= 10 and base >= 2 and base <= 36 and tonumber(digits, base))
    if n and sign == "-" then n = -n end
    if not n then n = s:find("^[+-]?[%d.]") and tonumber(s:find("[xX]") and "" or s) end
  end
  if not n or n ~= n or n == math.huge or n == -math.huge then return default end
  if math.type(n) == "integer" then return n end
  n = n < 0 and math.ceil(n) or math.floor(n)
  return math.tointeger(n) or setmetatable({ digits = ("%.0f"):format(n) }, json.bigint_mt)
end, "default", "base")

filter("float", function(v, default)
  values.check_defined(v)
  local n = values.number(v)
  if not n and raw(v) then
    local s = trimmed(raw(v))
    local word = s:lower():match("^[+-]?(%a+)$")
    if word == "inf" or word == "infinity" then n = s:sub(1, 1) == "-" and -math.huge or math.huge
    elseif word == "nan" then n = 0 / 0
    elseif s:find("^[+-]?[%d.]") and not s:find("[xX]") then n = tonumber((s:gsub("^%+", ""))) end
  end
  if n then return n + 0.0 end
  if default == nil then return 0.0 end
  return default
end, "default")

filter("round", function(v, precision, how)
  local n = values.number(v)
  if not n then
    values.check_defined(v)
    S.fail("round needs a number, not " .. values.type_name(v))
  end
  precision, how = values.integer(precision, 0, "a precision"), raw(how or "common")
  if math.abs(precision) > 300 then S.fail("round: a precision beyond 300 is not supported") end
  if how == "common" then
    if precision >= 0 then
      if math.type(n) == "integer" then return n end
      return tonumber(("%." .. math.min(precision, 30) .. "f"):format(n)) + 0.0
    end
    local unit = 10.0 ^ -precision
    local q = n / unit
    local low = math.floor(q)
    local rounded = q - low > 0.5 and low + 1 or q - low < 0.5 and low or low + low % 2
    return math.type(n) == "integer" and math.tointeger(rounded * unit) or rounded * unit
  end
  if how ~= "ceil" and how ~= "floor" then S.fail("round: method must be common, ceil or floor") end
  local unit = 10.0 ^ precision
  local scaled = n * unit
  if scaled - scaled ~= 0 then S.fail("round: an infinite number has no integer") end
  return (how == "ceil" and math.ceil(scaled) or math.floor(scaled)) / unit
end, "precision", "method")

local UNITS = { [false] = { 1000, "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB" }, [true] = { 1024, "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB" } }
filter("filesizeformat", function(v, binary)
  local n = (values.number(v) or tonumber(raw(v) or "") or S.fail("filesizeformat needs a number")) + 0.0
  local units = UNITS[binary ~= nil and truth(binary)]
  local base = units[1] + 0.0
  if n == 1 then return "1 Byte" end
  if n < base then return ("%.0f Bytes"):format(n < 0 and math.ceil(n) or math.floor(n)) end
  local unit = base
  for i = 2, #units do
    unit = unit * base
    if n < unit or i == #units then return ("%.1f %s"):format(base * n / unit, units[i]) end
  end
end, "binary")

-- JSON and the rest ------------------------------------------------------------------

local function foreign(v)
  local s = raw(v)
  if s then return s end
  values.check_defined(v)
  S.fail("tojson: a value of type " .. values.type_name(v) .. " has no JSON form")
end

local PLAIN_JSON = { item_separator = ", ", key_separator = ": ", nan = true, default = foreign, source = true }

filter("tojson", function(v, ensure_ascii, indent, separators, sort_keys)
  local opts = PLAIN_JSON
  if ensure_ascii ~= nil or indent ~= nil or separators ~= nil or sort_keys ~= nil then
    opts = { item_separator = ", ", key_separator = ": ", nan = true, default = foreign, source = true,
      ensure_ascii = ensure_ascii ~= nil and truth(ensure_ascii), sort_keys = sort_keys ~= nil and truth(sort_keys) }
    if indent ~= nil and indent ~= null then
      opts.indent = raw(indent) or (" "):rep(math.max(0, math.min(values.integer(indent, 0, "tojson's indent"), 100)))
      opts.item_separator = ","
    end
    if separators ~= nil and separators ~= null then
      local list = values.iterate(separators)
      opts.item_separator, opts.key_separator = raw(list[1]), raw(list[2])
      if not opts.item_separator or not opts.key_separator then S.fail("tojson: separators must be two strings") end
    end
  end
  local s, message = json.encode(v, opts)
  if not s then S.fail("tojson: " .. message) end
  S.charge(#s)
  return s
end, "ensure_ascii", "indent", "separators", "sort_keys")

--- Not in Jinja or transformers; some published templates use it.
filter("from_json", function(v)
  local s = raw(v) or S.fail("from_json needs a string, not " .. values.type_name(v))
  local value, message = json.decode(s)
  if value == nil then S.fail("from_json: " .. message) end
  return value
end)

filter("default d", function(v, default, boolean)
  if kind(v) == "undef" or (boolean ~= nil and truth(boolean) and not truth(v)) then
    if default == nil then return "" end
    return default
  end
  return v
end, "default_value", "boolean")
filter("attr", function(v, name)
  local found = access.attr(v, raw(name) or S.fail("attr needs a name"))
  -- attr never looks at the keys of a dict
  if kind(v) == "dict" and kind(found) ~= "method" then return values.undefined("dict has no attribute " .. raw(name)) end
  return found
end, "name!")

require("mtx.chat.jinja.text_filters")(filters)

return filters
