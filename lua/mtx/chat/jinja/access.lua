-- SPDX-License-Identifier: MIT
-- value.name and value[key], as Jinja looks them up: the attribute first for a
-- dot, the item first for brackets, and undefined where neither is there.
local text = require("mtx.chat.jinja.text")
local strings = require("mtx.chat.jinja.strings")
local values = require("mtx.chat.jinja.values")
local methods = require("mtx.chat.jinja.methods")
local call = require("mtx.chat.jinja.call")
local format = require("mtx.chat.jinja.format")
local S = require("mtx.chat.jinja.state")

local access = {}
local kind, raw, type = values.kind, text.raw, type

--- Names that are a dict's methods, so that `d.items` is not the key "items".
access.dict_methods = methods.dict

local function missing(v, key)
  local what = kind(v) == "none" and "None" or values.type_name(v)
  return values.undefined(("%s has no attribute %s"):format(what, raw(values.repr(key))))
end

-- Attributes that are no string keys of a dict.
local function attribute(v, k, name)
  local of_kind = methods[k == "bigint" and "int" or k]
  local spec = of_kind and of_kind[name]
  if spec then return call.method(v, spec, name) end
  if k == "tuple" and v[0] == "group" then
    if name == "grouper" then return v[1] elseif name == "list" then return v[2] end
  end
  if k == "macro" and name == "name" then return v[0] end
end

--- v.name
function access.attr(v, name)
  local k = kind(v)
  if k == "undef" then values.check_defined(v) end
  local found = attribute(v, k, name)
  if found == nil and (k == "dict" or k == "namespace" or k == "loop") then found = v[name] end
  if found == nil then return missing(v, name) end
  return found
end

--- v[key]
function access.item(v, key)
  local k = kind(v)
  if k == "undef" then values.check_defined(v) end
  local name = raw(key)
  if k == "dict" then
    local plain = name or key
    if plain ~= nil and v[plain] ~= nil then return v[plain] end
  elseif k == "list" or k == "tuple" or k == "range" then
    local i = values.number(key)
    if i and math.type(i) == "integer" then
      local found
      if i < 0 then i = i + #v end
      if i >= 0 then found = v[i + 1] end
      if found ~= nil then return found end
      return values.undefined(("%s has no element %s"):format(k, tostring(key)))
    end
  elseif k == "str" then
    local i = values.number(key)
    if i and math.type(i) == "integer" then
      local s = raw(v)
      local n = strings.len(s)
      S.charge(#s // 32)
      if i < 0 then i = i + n end
      if i < 0 or i >= n then return values.undefined("the string has no element " .. tostring(key)) end
      local first, last = strings.range(s, i + 1, i + 1)
      return text.sub(v, first, last)
    end
  end
  if name then
    local found = attribute(v, k, name)
    if found == nil and (k == "namespace" or k == "loop") then found = v[name] end
    if found ~= nil then return found end
  end
  return missing(v, key)
end

--- v.a.0.b: what the argument `attribute` of map, sort and others means.
--- Returns undefined as soon as one step is.
function access.path(v, path)
  if type(path) == "number" then return access.item(v, path) end
  local p = raw(path) or S.fail("an attribute must be a name or a number")
  for part in (p .. "."):gmatch("([^.]*)%.") do
    if part:find("^%d+$") then v = access.item(v, math.tointeger(tonumber(part)) or part) else v = access.item(v, part) end
  end
  return v
end

methods.str.format_map = { params = { "mapping" }, required = 1, positional = 1, f = function(v, map)
  if kind(map) ~= "dict" then S.fail("format_map needs a dict, not " .. values.type_name(map)) end
  return methods.str.format.f(v, {}, map)
end }
methods.str.format = { varargs = true, f = function(v, args, kwargs)
  return format.braces(v, args, kwargs, function(obj, key)
    return type(key) == "number" and access.item(obj, key) or access.attr(obj, key)
  end)
end }

return access
