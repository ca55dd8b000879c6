-- SPDX-License-Identifier: MIT
-- The methods of Python's str, list, dict and number that a template can call.
--
-- Changing a list or dict is allowed for those that the template made itself
-- (some templates keep a queue); values of the request cannot be changed.
local json = require("mtx.json")
local text = require("mtx.chat.jinja.text")
local strings = require("mtx.chat.jinja.strings")
local values = require("mtx.chat.jinja.values")
local call = require("mtx.chat.jinja.call")
local S = require("mtx.chat.jinja.state")

local null, raw = json.null, text.raw
local methods = { str = require("mtx.chat.jinja.str_methods"), list = {}, tuple = {}, dict = {}, int = {}, float = {} }

-- None of them takes an argument by its name.
local function method(type_name, name, f, ...)
  local spec = call.spec(f, ...)
  spec.positional = #spec.params
  methods[type_name][name] = spec
end

-- Lists -------------------------------------------------------------------------

local function own_list(v, name)
  if getmetatable(v) ~= values.LIST then S.fail(name .. " would change a list of the request; only lists made by the template can change") end
  return v
end

local need_int = values.integer

method("list", "append", function(l, item)
  S.step(1)
  own_list(l, "append")
  l[#l + 1] = item
  return null
end, "object!")
method("list", "extend", function(l, other)
  own_list(l, "extend")
  local items = values.iterate(other)
  S.step(#items)
  table.move(items, 1, #items, #l + 1, l)
  return null
end, "iterable!")
method("list", "insert", function(l, index, item)
  own_list(l, "insert")
  S.step(#l // 8 + 1)
  local i = need_int(index, 0, "the index")
  if i < 0 then i = math.max(i + #l, 0) end
  table.insert(l, math.min(i, #l) + 1, item)
  return null
end, "index!", "object!")
method("list", "pop", function(l, index)
  own_list(l, "pop")
  S.step(#l // 8 + 1)
  local i = need_int(index, -1, "the index")
  if i < 0 then i = i + #l end
  if i < 0 or i >= #l then S.fail("pop from an empty list, or index out of range") end
  return table.remove(l, i + 1)
end, "index")
method("list", "remove", function(l, item)
  own_list(l, "remove")
  for i = 1, #l do
    if values.equal(l[i], item) then
      table.remove(l, i)
      return null
    end
  end
  S.fail("list.remove: the value is not in the list")
end, "value!")
method("list", "clear", function(l)
  own_list(l, "clear")
  for i = #l, 1, -1 do l[i] = nil end
  return null
end)
method("list", "reverse", function(l)
  own_list(l, "reverse")
  local n = #l
  S.step(n)
  for i = 1, n // 2 do l[i], l[n + 1 - i] = l[n + 1 - i], l[i] end
  return null
end)
method("list", "copy", function(l) return values.list(table.move(l, 1, #l, 1, {})) end)

for _, type_name in ipairs{ "list", "tuple" } do
  method(type_name, "index", function(l, item, start, stop)
    local n = #l
    local first, last = need_int(start, 0, "start"), need_int(stop, n, "stop")
    if first < 0 then first = math.max(first + n, 0) end
    if last < 0 then last = last + n end
    for i = first + 1, math.min(last, n) do if values.equal(l[i], item) then return i - 1 end end
    S.fail("index: the value is not in the list")
  end, "value!", "start", "stop")
  method(type_name, "count", function(l, item)
    local n = 0
    for i = 1, #l do if values.equal(l[i], item) then n = n + 1 end end
    return n
  end, "value!")
end

-- Dicts -------------------------------------------------------------------------

local function own_dict(d, name)
  local mt = getmetatable(d)
  if not (mt and mt.own) then S.fail(name .. " would change a dict of the request; only dicts made by the template can change") end
  S.step(1)
  return d
end

local function view(name, items)
  items[0] = name
  return setmetatable(items, values.VIEW)
end

--- (key, value) tuples of a dict, in order, as a Lua sequence.
function methods.items(d)
  local keys, items = values.keys(d), {}
  S.step(#keys // 4)
  for i = 1, #keys do items[i] = values.tuple{ keys[i], d[keys[i]] } end
  return items
end

--- A dict the template may change, filled from another dict or pairs.
function methods.new_dict(source, kwargs)
  local d = json.object()
  getmetatable(d).own = true
  if source ~= nil then
    values.check_defined(source)
    if values.kind(source) == "dict" then
      for _, k in ipairs(values.keys(source)) do d[k] = source[k] end
    else
      for _, pair in ipairs(values.iterate(source)) do
        local items = values.iterate(pair)
        if #items ~= 2 then S.fail("a dict is made from pairs") end
        d[values.hashed(items[1])] = items[2]
      end
    end
  end
  for _, k in ipairs(kwargs or {}) do d[k] = kwargs[k] end
  return d
end

method("dict", "items", function(d) return view("items", methods.items(d)) end)
method("dict", "keys", function(d) return view("keys", values.keys(d)) end)
method("dict", "values", function(d)
  local items = values.keys(d)
  for i = 1, #items do items[i] = d[items[i]] end
  return view("values", items)
end)
method("dict", "get", function(d, key, default)
  local v = d[values.hashed(key)]
  if v ~= nil then return v end
  if default ~= nil then return default end
  return null
end, "key!", "default")
method("dict", "copy", function(d) return methods.new_dict(d) end)
method("dict", "pop", function(d, key, default)
  own_dict(d, "pop")
  local k = values.hashed(key)
  local v = d[k]
  if v == nil then v = default end
  if v == nil then S.fail("pop: the key " .. values.repr(key) .. " is not there") end
  d[k] = nil
  return v
end, "key!", "default")
method("dict", "setdefault", function(d, key, default)
  own_dict(d, "setdefault")
  local k = values.hashed(key)
  if d[k] == nil then d[k] = default == nil and null or default end
  return d[k]
end, "key!", "default")
methods.dict.update = { varargs = true, f = function(d, args, kwargs)
  own_dict(d, "update")
  local other = methods.new_dict(args[1], kwargs)
  for _, k in ipairs(values.keys(other)) do
    S.step(1)
    d[k] = other[k]
  end
  return null
end }
method("dict", "fromkeys", function(_, keys, value)
  local d = methods.new_dict()
  for _, k in ipairs(values.iterate(keys)) do
    S.step(1)
    d[values.hashed(k)] = value == nil and null or value
  end
  return d
end, "iterable!", "value")
method("dict", "clear", function(d)
  own_dict(d, "clear")
  for _, k in ipairs(values.keys(d)) do d[k] = nil end
  return null
end)

method("float", "is_integer", function(x) return x == math.floor(x) end)
method("int", "bit_length", function(n)
  local bits, m = 0, math.abs(n)
  while m ~= 0 do bits, m = bits + 1, m >> 1 end
  return bits
end)

return methods
