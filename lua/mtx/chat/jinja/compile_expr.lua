-- SPDX-License-Identifier: MIT
-- Expression nodes -> Lua closures f(F) that give a value, never nil.
--
-- Closures rather than generated Lua text: nothing of a hostile template meets
-- Lua's own parser or its limits, and the common shapes (name.attr, == 'text',
-- is defined) get closures of their own, which is where the speed comes from.
-- `plain` asks for no marks on literals (text.lua): right where only the
-- characters count, as in comparisons, tests and keys.
local json = require("mtx.json")
local text = require("mtx.chat.jinja.text")
local values = require("mtx.chat.jinja.values")
local ops = require("mtx.chat.jinja.ops")
local access = require("mtx.chat.jinja.access")
local call = require("mtx.chat.jinja.call")
local filters = require("mtx.chat.jinja.filters")
local tests = require("mtx.chat.jinja.tests")
local shapes = require("mtx.chat.jinja.shapes")
local sum = require("mtx.chat.jinja.sum")
local compile_call = require("mtx.chat.jinja.compile_call")
local compile_compare = require("mtx.chat.jinja.compile_compare")
local S = require("mtx.chat.jinja.state")

local null, raw, truth, str = json.null, text.raw, values.truth, values.str
local type, getmetatable, setmetatable = type, getmetatable, setmetatable
local LIST, TUPLE, MARKED, array_mt = values.LIST, values.TUPLE, text.MARKED, json.array_mt

-- Roles of messages are words from a fixed set. They often complete a control
-- token (<|user|>), so they count as text of the template where it reads `.role`.
local ROLES = {}
for role in ("system developer user assistant tool function ipython model chatbot observation"):gmatch("%a+") do
  ROLES[role] = text.trusted(role)
end

local handlers = {}
local X = {}

--- Closure for an expression node. C: the compiler (spans = marks wanted).
function X.value(C, node, scope, plain)
  return handlers[node.t](C, node, scope, plain)
end

--- Closure that gives true or false.
function X.condition(C, node, scope)
  local t = node.t
  if t == "compare" or t == "test" then return X.value(C, node, scope, true) end
  if t == "not" then
    local f = X.condition(C, node.arg, scope)
    return function(F) return not f(F) end
  elseif t == "and" then
    local l, r = X.condition(C, node.left, scope), X.condition(C, node.right, scope)
    return function(F) return l(F) and r(F) end
  elseif t == "or" then
    local l, r = X.condition(C, node.left, scope), X.condition(C, node.right, scope)
    return function(F) return l(F) or r(F) end
  end
  local f = X.value(C, node, scope, true)
  local slot = shapes.variable(f)
  if slot then -- nil, for what is not there, is no more true than undefined
    return function(F)
      local v = F[slot]
      if v == true or v == false then return v end
      return truth(v)
    end
  end
  return function(F)
    local v = f(F)
    if v == true or v == false then return v end
    return truth(v)
  end
end

function X.list(C, nodes, scope, plain)
  local list = {}
  for i, node in ipairs(nodes) do list[i] = X.value(C, node, scope, plain) end
  return list
end

-- Literals ----------------------------------------------------------------------

function handlers.const(C, node, _, plain)
  local v = node.value
  if C.spans and not plain and type(v) == "string" then v = text.trusted(v) end
  return shapes.set_constant(function() return v end, v)
end

function handlers.name(_, node, scope) return shapes.set_variable(scope:reader(node.name)) end

local function sequence(mt)
  return function(C, node, scope)
    local items = X.list(C, node.items, scope)
    local fill = shapes.filler(items)
    local function f(F)
      local out = { nil, nil }
      fill(F, out, 0)
      return setmetatable(out, mt)
    end
    -- nothing can change a tuple
    return mt == TUPLE and shapes.all_constant(items) and shapes.set_constant(f, f()) or f
  end
end
handlers.list, handlers.tuple = sequence(LIST), sequence(TUPLE)

function handlers.dict(C, node, scope)
  local keys, items = X.list(C, node.keys, scope, true), X.list(C, node.values, scope)
  local n, at = #keys, node.at
  return function(F)
    local d = json.object()
    getmetatable(d).own = true
    for i = 1, n do
      local k = keys[i](F)
      k = raw(k) or k
      if type(k) == "table" or k ~= k then S.fail("a dict's key must be a string, number, boolean or none", at) end
      d[k] = items[i](F)
    end
    return d
  end
end

-- Attributes and items ------------------------------------------------------------

-- The value of a role becomes text of the template.
local function with_role(C, f, key, plain)
  if not C.spans or plain or key ~= "role" then return f end
  return function(F)
    local v = f(F)
    return ROLES[v] or v
  end
end

-- Reads key of a table directly; what is not there that way goes to `slow`.
local function keyed(obj, key, at, slow)
  local is_method = access.dict_methods[key] ~= nil
  local undefined = values.undefined(("dict has no attribute '%s'"):format(key))
  local variable, absent = shapes.variable(obj)
  if variable then
    return function(F)
      local o = F[variable]
      if type(o) == "table" then
        local v = o[key]
        if v ~= nil then return v end
        local mt = getmetatable(o)
        if mt and mt.kind == "object" and not is_method then return undefined end
      elseif o == nil then
        o = absent
      end
      S.at = at
      return slow(o, key)
    end
  end
  return function(F)
    local o = obj(F)
    if type(o) == "table" then
      local v = o[key]
      if v ~= nil then return v end
      local mt = getmetatable(o)
      if mt and mt.kind == "object" and not is_method then return undefined end
    end
    S.at = at
    return slow(o, key)
  end
end

function handlers.attr(C, node, scope, plain)
  local obj, name, at = X.value(C, node.obj, scope, plain), node.name, node.at
  if access.dict_methods[name] then
    return function(F)
      local o = obj(F)
      S.at = at
      return access.attr(o, name)
    end
  end
  return with_role(C, keyed(obj, name, at, access.attr), name, plain)
end

local function sliced(C, node, obj, scope)
  local key, at = node.key, node.at
  local start, stop, step = key.start and X.value(C, key.start, scope, true), key.stop and X.value(C, key.stop, scope, true), key.step and X.value(C, key.step, scope, true)
  return function(F)
    local o = obj(F)
    local a, b, c = start and start(F), stop and stop(F), step and step(F)
    S.at = at
    return ops.slice(o, a, b, c)
  end
end

function handlers.slice(_, node) S.fail("a slice needs brackets of its own: x[a:b]", node.at) end

function handlers.item(C, node, scope, plain)
  local obj, at = X.value(C, node.obj, scope, plain), node.at
  if node.key.t == "slice" then return sliced(C, node, obj, scope) end
  local key = node.key.t == "const" and node.key.value
  if type(key) == "string" then return with_role(C, keyed(obj, key, at, access.item), key, plain) end
  if node.key.t == "neg" and node.key.arg.t == "const" and math.type(node.key.arg.value) == "integer" then key = -node.key.arg.value end
  if math.type(key) == "integer" then
    local slot, absent = shapes.variable(obj)
    return function(F)
      local o
      if slot then o = F[slot] else o = obj(F) end
      if o == nil then o = absent end
      local mt = getmetatable(o)
      if mt == array_mt or mt == LIST or mt == TUPLE then
        local v = o[key >= 0 and key + 1 or #o + key + 1]
        if v ~= nil and (key >= 0 or #o + key >= 0) then return v end
      end
      S.at = at
      return access.item(o, key)
    end
  end
  local computed = X.value(C, node.key, scope, true)
  return function(F)
    local o, k = obj(F), computed(F)
    S.at = at
    return access.item(o, k)
  end
end

-- Operators ----------------------------------------------------------------------

function handlers.neg(C, node, scope)
  local f, at = X.value(C, node.arg, scope, true), node.at
  return function(F)
    local v = f(F)
    S.at = at
    return ops.neg(v)
  end
end

function handlers.pos(C, node, scope)
  local f, at = X.value(C, node.arg, scope, true), node.at
  return function(F)
    local v = f(F)
    S.at = at
    return ops.pos(v)
  end
end

handlers["not"] = function(C, node, scope) return X.condition(C, node, scope) end

handlers["and"] = function(C, node, scope, plain)
  local l, r = X.value(C, node.left, scope, plain), X.value(C, node.right, scope, plain)
  return function(F)
    local v = l(F)
    if truth(v) then return r(F) end
    return v
  end
end

handlers["or"] = function(C, node, scope, plain)
  local l, r = X.value(C, node.left, scope, plain), X.value(C, node.right, scope, plain)
  return function(F)
    local v = l(F)
    if truth(v) then return v end
    return r(F)
  end
end

function handlers.cond(C, node, scope, plain)
  local test, yes = X.condition(C, node.test, scope), X.value(C, node.yes, scope, plain)
  if not node.no then
    local undefined = values.undefined("the condition was false and there is no else")
    return function(F)
      if test(F) then return yes(F) end
      return undefined
    end
  end
  local no = X.value(C, node.no, scope, plain)
  return function(F)
    if test(F) then return yes(F) end
    return no(F)
  end
end

local BINARY = { ["-"] = ops.sub, ["*"] = ops.mul, ["/"] = ops.div, ["//"] = ops.floordiv, ["%"] = ops.mod, ["**"] = ops.pow }

function handlers.bin(C, node, scope, plain)
  if node.op == "+" then return sum.value(X, C, node, scope, plain) end
  local l, r, f, at = X.value(C, node.left, scope, plain), X.value(C, node.right, scope, plain), BINARY[node.op], node.at
  return function(F)
    local a, b = l(F), r(F)
    S.at = at
    return f(a, b)
  end
end

function handlers.concat(C, node, scope, plain)
  local items, at = X.list(C, node.items, scope, plain), node.at
  local n = #items
  return function(F)
    local parts, bytes = {}, 0
    for i = 1, n do
      local v = items[i](F)
      if type(v) ~= "string" then v = str(v) end
      parts[i] = v
      bytes = bytes + #raw(v)
    end
    S.at = at
    S.charge(bytes)
    return text.join(parts, 1, n)
  end
end

-- Filters, tests, calls, comparisons ------------------------------------------------

-- The text that a filter block or set block caught stands for the missing object.
local function caught() return S.caught end

function handlers.filter(C, node, scope, plain)
  local obj = node.obj and X.value(C, node.obj, scope, plain) or caught
  local spec, name, at = filters[node.name], node.name, node.at
  if not spec then return function() S.fail("no filter named '" .. name .. "'", at) end end
  return compile_call.spec(X, C, spec, "filter " .. name, obj, node, scope, plain)
end

local UNDEFINED = values.UNDEFINED

-- The most frequent tests; a variable of the frame is looked at where it lies (nil there is undefined).
local FAST_TESTS = {
  defined = function(f, slot)
    if slot then return function(F) return F[slot] ~= nil and getmetatable(F[slot]) ~= UNDEFINED end end
    return function(F) return getmetatable(f(F)) ~= UNDEFINED end
  end,
  undefined = function(f, slot)
    if slot then return function(F) return F[slot] == nil or getmetatable(F[slot]) == UNDEFINED end end
    return function(F) return getmetatable(f(F)) == UNDEFINED end
  end,
  none = function(f, slot)
    if slot then return function(F) return F[slot] == null end end
    return function(F) return f(F) == null end
  end,
  string = function(f, slot)
    return function(F)
      local v
      if slot then v = F[slot] else v = f(F) end
      return type(v) == "string" or getmetatable(v) == MARKED
    end
  end,
  mapping = function(f, slot)
    return function(F)
      local v
      if slot then v = F[slot] else v = f(F) end
      local mt = getmetatable(v)
      return mt and mt.kind == "object" or values.kind(v) == "dict"
    end
  end,
}

function handlers.test(C, node, scope)
  local obj = X.value(C, node.obj, scope, true)
  local spec, name, at = tests[node.name], node.name, node.at
  if not spec then return function() S.fail("no test named '" .. name .. "'", at) end end
  if FAST_TESTS[name] and #node.args.pos == 0 then return FAST_TESTS[name](obj, (shapes.variable(obj))) end
  return compile_call.spec(X, C, spec, "test " .. name, obj, node, scope, true)
end

function handlers.call(C, node, scope, plain) return compile_call.call(X, C, node, scope, plain) end
function handlers.compare(C, node, scope) return compile_compare(X, C, node, scope) end

--- The macro behind a call block (compile.lua makes it).
function handlers.caller(C, node, scope)
  local make = C.macro(C, node.block, scope, "caller")
  return function(F) return make(F) end
end

X.call_value = call.value
return X
