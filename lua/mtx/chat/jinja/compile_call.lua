-- SPDX-License-Identifier: MIT
-- Call nodes, and the arguments of filters and tests -> closures.
--
-- Arguments that stand in the template are put in the order of the parameters at
-- compile time, so that a filter or method with few of them is a direct Lua call.
local null = require("mtx.json").null
local text = require("mtx.chat.jinja.text")
local values = require("mtx.chat.jinja.values")
local methods = require("mtx.chat.jinja.methods")
local access = require("mtx.chat.jinja.access")
local call = require("mtx.chat.jinja.call")
local shapes = require("mtx.chat.jinja.shapes")
local S = require("mtx.chat.jinja.state")

local M = {}
local type, getmetatable, unpack = type, getmetatable, table.unpack
local MARKED, PLAIN, raw = text.MARKED, getmetatable(""), text.raw

-- A function(F) -> args, kwargs for any argument list.
local function collector(X, C, args, scope, plain)
  local pos, n, kw = X.list(C, args.pos, scope, plain), #args.pos, nil
  if #args.kw > 0 then
    kw = {}
    for i, item in ipairs(args.kw) do kw[i] = { item.name, X.value(C, item.node, scope, plain) } end
  end
  local star = args.star and X.value(C, args.star, scope)
  local starstar = args.starstar and X.value(C, args.starstar, scope)
  if not kw and not star and not starstar and n <= 2 then
    local one, two = pos[1], pos[2]
    if n == 0 then return function() return { n = 0 } end end
    if n == 1 then return function(F) return { one(F), n = 1 } end end
    return function(F)
      local a = one(F)
      return { a, two(F), n = 2 }
    end
  end
  return function(F)
    local list, named = { n = n }, nil
    for i = 1, n do list[i] = pos[i](F) end
    if star then
      local more = values.iterate(star(F))
      S.step(#more)
      table.move(more, 1, #more, n + 1, list)
      list.n = n + #more
    end
    if kw then
      named = {}
      for i = 1, #kw do
        local name = kw[i][1]
        named[i], named[name] = name, kw[i][2](F)
      end
    end
    if starstar then
      named = named or {}
      local dict = starstar(F)
      if values.kind(dict) ~= "dict" then S.fail("** needs a dict, not " .. values.type_name(dict)) end
      for _, k in ipairs(values.keys(dict)) do
        S.step(1)
        if type(k) ~= "string" then S.fail("** needs a dict whose keys are strings") end
        if named[k] == nil then named[#named + 1] = k end
        named[k] = dict[k]
      end
    end
    return list, named
  end
end

-- Argument closures by parameter, or nil and a message when they do not fit.
local function ordered(X, C, spec, name, args, scope, plain)
  local params, bound, last = spec.params, {}, #args.pos
  if last > #params then return nil, ("%s takes at most %d arguments, not %d"):format(name, #params, last) end
  for i, node in ipairs(args.pos) do bound[i] = X.value(C, node, scope, plain) end
  for _, item in ipairs(args.kw) do
    local at
    for i, param in ipairs(params) do if param == item.name then at = i end end
    if not at then return nil, ("%s has no argument '%s'"):format(name, item.name) end
    if bound[at] then return nil, ("%s got the argument '%s' twice"):format(name, item.name) end
    bound[at] = X.value(C, item.node, scope, plain)
    if at > last then last = at end
  end
  local missing = call.missing(spec, name, bound)
  if missing then return nil, missing end
  return bound, last
end

--- A filter or test: spec applied to obj(F) with the arguments of node.args.
function M.spec(X, C, spec, name, obj, node, scope, plain)
  local args, at, f = node.args, node.at, spec.f
  if spec.varargs or args.star or args.starstar then
    local collect = collector(X, C, args, scope, plain)
    return function(F)
      local v = obj(F)
      local list, named = collect(F)
      S.at = at
      return call.apply(spec, name, v, list, named)
    end
  end
  local bound, n = ordered(X, C, spec, name, args, scope, plain)
  if not bound then return function() S.fail(n, at) end end
  local slot, absent = shapes.variable(obj)
  if n == 0 then
    return function(F)
      local v
      if slot then v = F[slot] else v = obj(F) end
      if v == nil then v = absent end
      S.at = at
      return f(v)
    end
  elseif n == 1 then
    local one = bound[1]
    return function(F)
      local v, a = obj(F), one(F)
      S.at = at
      return f(v, a)
    end
  elseif n == 2 and bound[1] and bound[2] then
    local one, two = bound[1], bound[2]
    local prepared = spec.prepare and spec.prepare(shapes.constant(one), shapes.constant(two))
    if prepared then
      return function(F)
        local v = obj(F)
        S.at = at
        return prepared(v)
      end
    end
    return function(F)
      local v, c, d = obj(F), one(F), two(F)
      S.at = at
      return f(v, c, d)
    end
  end
  return function(F)
    local v, given = obj(F), {}
    for i = 1, n do if bound[i] then given[i] = bound[i](F) end end
    S.at = at
    return f(v, unpack(given, 1, n))
  end
end

-- d.get('key') and d.get('key', default), which some templates read every field with. Any other object goes to `slow`.
local function get_call(obj, key, default, at, slow)
  local slot = shapes.variable(obj)
  return function(F)
    local o
    if slot then o = F[slot] else o = obj(F) end
    local mt = getmetatable(o)
    if not mt or mt.kind ~= "object" then return slow(F, o) end
    local other = default and default(F)
    local v = o[key]
    if v ~= nil then return v end
    S.at = at
    if other ~= nil then return other end
    return null
  end
end

-- obj.name(args): a method of the value's type is called directly.
local function method_call(X, C, node, scope, plain)
  local obj, name, at = X.value(C, node.func.obj, scope, plain), node.func.name, node.at
  local collect = collector(X, C, node.args, scope, plain)
  local pos = X.list(C, node.args.pos, scope, plain)
  local simple = #node.args.kw == 0 and not node.args.star and not node.args.starstar and #pos <= 2 and #pos
  local one, two = pos[1], pos[2]
  local str_spec, dict_spec = methods.str[name], methods.dict[name]
  local slot, absent = shapes.variable(obj)
  local constant = simple and simple > 0 and shapes.constant(one)
  local function any(F, o)
    local spec
    if o == nil then o = absent end
    local mt = getmetatable(o)
    if mt == PLAIN or mt == MARKED then spec = str_spec elseif mt and mt.kind == "object" then spec = dict_spec end
    if spec and simple and not spec.varargs and simple <= #spec.params and simple >= (spec.required or 0) then
      if simple == 0 then
        S.at = at
        return spec.f(o)
      end
      local a = constant or one(F)
      if simple == 1 then
        S.at = at
        return spec.f(o, a)
      end
      local b = two(F)
      S.at = at
      return spec.f(o, a, b)
    end
    S.at = at
    local f = access.attr(o, name)
    local list, named = collect(F)
    S.at = at
    return call.value(f, list, named)
  end
  if name == "get" and constant and raw(constant) then return get_call(obj, raw(constant), two, at, any) end
  return function(F)
    if slot then return any(F, F[slot]) end
    return any(F, obj(F))
  end
end

--- A function(F) -> callee, args, kwargs: all that a call of something that is no method needs.
function M.prepare(X, C, node, scope, plain)
  local f, at = X.value(C, node.func, scope, plain), node.at
  -- Arguments may become output: they keep their marks.
  local collect = collector(X, C, node.args, scope, false)
  return function(F)
    local callee = f(F)
    local list, named = collect(F)
    S.at = at
    return callee, list, named
  end
end

function M.call(X, C, node, scope, plain)
  if node.func.t == "attr" then return method_call(X, C, node, scope, plain) end
  local prepare = M.prepare(X, C, node, scope, plain)
  return function(F) return call.value(prepare(F)) end
end

return M
