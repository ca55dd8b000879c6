-- SPDX-License-Identifier: MIT
-- The filters on sequences and dicts. What Python yields one by one is made at
-- once here, as a list of kind "gen". Specs as in call.lua.
local json = require("mtx.json")
local text = require("mtx.chat.jinja.text")
local strings = require("mtx.chat.jinja.strings")
local values = require("mtx.chat.jinja.values")
local methods = require("mtx.chat.jinja.methods")
local access = require("mtx.chat.jinja.access")
local call = require("mtx.chat.jinja.call")
local ops = require("mtx.chat.jinja.ops")
local tests = require("mtx.chat.jinja.tests")
local S = require("mtx.chat.jinja.state")

local filters = {}
local null, raw, kind, truth, iterate = json.null, text.raw, values.kind, values.truth, values.iterate

local function filter(names, f, ...)
  for name in names:gmatch("%S+") do filters[name] = call.spec(f, ...) end
end

local function given(v) return v ~= nil and v ~= null end

filter("length count", values.length)
filter("list", function(v)
  local items = iterate(v)
  S.step(#items // 8)
  return values.list(table.move(items, 1, #items, 1, {}))
end)
filter("first", function(v)
  local items = iterate(v)
  if items[1] == nil then return values.undefined("the sequence is empty") end
  return items[1]
end)
filter("last", function(v)
  if kind(v) == "gen" then S.fail("last needs a sequence; make a list of what map, select and others yield") end
  local items = iterate(v)
  if items[1] == nil then return values.undefined("the sequence is empty") end
  return items[#items]
end)
filter("random", function(v)
  if kind(v) == "dict" or kind(v) == "gen" then S.fail("random needs a sequence, not a " .. values.type_name(v)) end
  local items = iterate(v)
  if items[1] == nil then return values.undefined("the sequence is empty") end
  return items[math.random(#items)]
end)
filter("reverse", function(v)
  if kind(v) == "str" then return ops.slice(v, nil, nil, -1) end
  local items, out = iterate(v), {}
  local n = #items
  S.step(n // 8)
  for i = 1, n do out[i] = items[n + 1 - i] end
  return values.gen(out)
end)
filter("join", function(v, separator, attribute)
  local items, out = iterate(v), {}
  local sep = separator == nil and "" or values.str(separator)
  local bytes = 0
  for i = 1, #items do
    if i > 1 and sep ~= "" then out[#out + 1] = sep end
    local item = items[i]
    if given(attribute) then item = access.path(item, attribute) end
    item = values.str(item)
    bytes = bytes + #raw(item) + #raw(sep)
    out[#out + 1] = item
  end
  S.charge(bytes)
  return text.join(out, 1, #out)
end, "d", "attribute")
filter("items", function(v)
  if kind(v) == "undef" then return values.gen{} end
  if kind(v) ~= "dict" then S.fail("Can only get item pairs from a mapping.") end
  return values.gen(methods.items(v))
end)

-- Order -----------------------------------------------------------------------------

local function folded(v)
  local s = raw(v)
  return s and strings.lower(s) or v
end

-- Python compares the keys of `sort` as lists of keys: equal ones are never asked which is less.
local function key_less(a, b)
  if type(a) == "table" and values.equal(a, b) then return false end
  return values.less(a, b)
end

-- A stable sort of items by key(item).
local function sorted(items, key, reverse, less)
  less = less or values.less
  local n, rows = #items, {}
  S.step(n)
  for i = 1, n do rows[i] = { i, key(items[i]), items[i] } end
  table.sort(rows, function(a, b)
    local x, y = a[2], b[2]
    if reverse then x, y = y, x end
    if less(x, y) then return true end
    if less(y, x) then return false end
    return a[1] < b[1]
  end)
  for i = 1, n do rows[i] = rows[i][3] end
  return rows
end

-- The function that reads `attribute` ("a.b" or "a,b" for several) and folds case.
local function key_of(attribute, case_sensitive, default)
  local fold = not truth(case_sensitive)
  local function one(v, path)
    if path ~= nil then
      v = access.path(v, path)
      if given(default) and kind(v) == "undef" then v = default end
    end
    if fold then return folded(v) end
    return v
  end
  if not given(attribute) then return function(v) return one(v) end end
  local plain = raw(attribute)
  if not (plain and plain:find(",", 1, true)) then return function(v) return one(v, attribute) end end
  return function(v)
    local keys = {}
    for path in (plain .. ","):gmatch("([^,]*),") do keys[#keys + 1] = one(v, path) end
    return values.tuple(keys)
  end
end

filter("sort", function(v, reverse, case_sensitive, attribute)
  return values.list(sorted(iterate(v), key_of(attribute, case_sensitive), truth(reverse), key_less))
end, "reverse", "case_sensitive", "attribute")
filter("dictsort", function(v, case_sensitive, by, reverse)
  if kind(v) ~= "dict" then
    values.check_defined(v)
    S.fail("dictsort needs a dict, not " .. values.type_name(v))
  end
  local at = by == nil and 1 or raw(by) == "key" and 1 or raw(by) == "value" and 2 or S.fail("dictsort: by must be 'key' or 'value'")
  local fold = not truth(case_sensitive)
  return values.list(sorted(methods.items(v), function(pair) return fold and folded(pair[at]) or pair[at] end, truth(reverse)))
end, "case_sensitive", "by", "reverse")

-- Position of a key among those seen: strings and numbers by table, others by comparison.
local function index_of(seen, key)
  local plain = values.hashed(key)
  plain = values.number(plain) or plain
  if type(plain) ~= "table" then return seen[plain], plain end
  for _, entry in ipairs(seen.others) do if values.equal(entry[1], plain) then return entry[2], plain end end
  return nil, plain
end

filter("unique", function(v, case_sensitive, attribute)
  local items, out, seen, key = iterate(v), {}, { others = {} }, key_of(attribute, case_sensitive)
  S.step(#items)
  for i = 1, #items do
    local found, plain = index_of(seen, key(items[i]))
    if not found then
      out[#out + 1] = items[i]
      if type(plain) == "table" then
        S.step(#seen.others // 8)
        table.insert(seen.others, { plain, true })
      else
        seen[plain] = true
      end
    end
  end
  return values.gen(out)
end, "case_sensitive", "attribute")

local function extreme(prefer)
  return function(v, case_sensitive, attribute)
    local items, key = iterate(v), key_of(attribute, case_sensitive)
    if items[1] == nil then return values.undefined("the sequence is empty") end
    local best, best_key = items[1], key(items[1])
    S.step(#items // 4)
    for i = 2, #items do
      local k = key(items[i])
      if prefer(k, best_key) then best, best_key = items[i], k end
    end
    return best
  end
end
filter("min", extreme(function(a, b) return values.less(a, b) end), "case_sensitive", "attribute")
filter("max", extreme(function(a, b) return values.less(b, a) end), "case_sensitive", "attribute")
filter("sum", function(v, attribute, start)
  local items, total = iterate(v), start == nil and 0 or start
  if raw(total) then S.fail("sum does not add strings; use join") end
  S.step(#items // 4)
  for i = 1, #items do
    local item = items[i]
    if given(attribute) then item = access.path(item, attribute) end
    if raw(item) then S.fail("sum does not add strings; use join") end
    total = ops.add(total, item)
  end
  return total
end, "attribute", "start")

filter("groupby", function(v, attribute, default, case_sensitive)
  local key = key_of(attribute, true, default)
  local fold = not truth(case_sensitive)
  local groups, last = {}, nil
  for _, item in ipairs(sorted(iterate(v), function(x) return fold and folded(key(x)) or key(x) end)) do
    local k = fold and folded(key(item)) or key(item)
    if not last or not values.equal(last, k) then
      last = k
      groups[#groups + 1] = values.tuple{ [0] = "group", key(item), values.list{} }
    end
    local members = groups[#groups][2]
    members[#members + 1] = item
  end
  return values.list(groups)
end, "attribute!", "default", "case_sensitive")

-- Parts ---------------------------------------------------------------------------------

local function count_of(v, what)
  local n = values.number(v)
  if math.type(n) ~= "integer" or n < 1 then S.fail(what .. " needs a positive integer") end
  return n
end

filter("batch", function(v, size, fill)
  local items, out, n = iterate(v), {}, count_of(size, "batch")
  S.step(#items)
  for i = 1, #items, n do out[#out + 1] = values.list(table.move(items, i, math.min(i + n - 1, #items), 1, {})) end
  local last = out[#out]
  if last and given(fill) then
    S.step(n)
    for i = #last + 1, n do last[i] = fill end
  end
  return values.gen(out)
end, "linecount!", "fill_with")
filter("slice", function(v, slices, fill)
  local items, out, n = iterate(v), {}, count_of(slices, "slice")
  local size, extra, pos = #items // n, #items % n, 1
  S.step(#items + n)
  for i = 1, n do
    local length = size + (i <= extra and 1 or 0)
    local part = values.list(table.move(items, pos, pos + length - 1, 1, {}))
    if given(fill) and i > extra then part[#part + 1] = fill end
    out[i], pos = part, pos + length
  end
  return values.gen(out)
end, "slices!", "fill_with")

-- map, select, reject ------------------------------------------------------------------

-- These four take anything false, None too, for an empty sequence, as in Jinja.
local function lenient(v) return truth(v) and iterate(v) or {} end

filters.map = { varargs = true, f = function(v, args, kwargs)
  local items, out = lenient(v), {}
  S.step(#items)
  if kwargs and kwargs.attribute ~= nil then
    local default = kwargs.default
    for i = 1, #items do
      local item = access.path(items[i], kwargs.attribute)
      if default ~= nil and kind(item) == "undef" then item = default end
      out[i] = item
    end
    return values.gen(out)
  end
  local name = raw(args[1]) or S.fail("map needs the name of a filter, or attribute=")
  local spec = filters[name] or S.fail("no filter named '" .. name .. "'")
  local rest = { table.unpack(args, 2, args.n or #args) }
  for i = 1, #items do out[i] = call.apply(spec, name, items[i], rest, kwargs) end
  return values.gen(out)
end }

-- Without a test the value itself decides.
local function test_of(args, first, kwargs)
  local n = args.n or #args
  if n < first then return truth end
  local name = raw(args[first]) or S.fail("select needs the name of a test")
  local spec = tests[name] or S.fail("no test named '" .. name .. "'")
  local rest = { table.unpack(args, first + 1, n) }
  return function(v) return call.apply(spec, name, v, rest, kwargs) end
end

local function selector(by_attribute, wanted)
  return { varargs = true, f = function(v, args, kwargs)
    if by_attribute and args[1] == nil then S.fail("selectattr and rejectattr need the name of an attribute") end
    local items, out, test = lenient(v), {}, test_of(args, by_attribute and 2 or 1, kwargs)
    S.step(#items)
    for i = 1, #items do
      local subject = items[i]
      if by_attribute then subject = access.path(subject, args[1]) end
      if test(subject) == wanted then out[#out + 1] = items[i] end
    end
    return values.gen(out)
  end }
end
filters.select, filters.reject = selector(false, true), selector(false, false)
filters.selectattr, filters.rejectattr = selector(true, true), selector(true, false)

return filters
