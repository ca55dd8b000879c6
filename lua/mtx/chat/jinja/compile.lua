-- SPDX-License-Identifier: MIT
-- Statement nodes -> Lua closures f(F). A closure writes its output to the state
-- (S.out) and returns nil, or "break" or "continue" to leave the turn of a loop.
local values = require("mtx.chat.jinja.values")
local call = require("mtx.chat.jinja.call")
local Scope = require("mtx.chat.jinja.scope")
local X = require("mtx.chat.jinja.compile_expr")
local compile_output = require("mtx.chat.jinja.compile_output")
local compile_for = require("mtx.chat.jinja.compile_for")
local output = require("mtx.chat.jinja.output")
local pure = require("mtx.chat.jinja.pure")
local S = require("mtx.chat.jinja.state")

local compile = {}
local handlers = {}
local type, getmetatable, setmetatable = type, getmetatable, setmetatable

--- One closure for a list of statements. The scope's names must be declared.
function compile.body(C, body, scope)
  local list = {}
  for i, node in ipairs(body) do list[i] = handlers[node.t](C, node, scope) end
  local n = #list
  if n == 0 then return function() end end
  if n == 1 then return list[1] end
  return function(F)
    for i = 1, n do
      local signal = list[i](F)
      if signal then return signal end
    end
  end
end

-- A body in a scope of its own inside the same frame.
local function inner(C, body, scope)
  local own = Scope.new(scope)
  own:declare_sets(body)
  local run, start = compile.body(C, body, own), own:starter()
  if not start then return run end
  return function(F)
    start(F)
    return run(F)
  end
end

-- Assignment --------------------------------------------------------------------------

--- A function(F, value) that stores into a target. The names must be declared.
function compile.store(C, target, scope)
  if target.t == "name" then
    local slot = scope.slots[target.name]
    return function(F, v) F[slot] = v end
  elseif target.t == "nsref" then
    local get, attr, at = scope:reader(target.name), target.attr, target.at
    return function(F, v)
      local ns = get(F)
      if type(ns) ~= "table" or getmetatable(ns) ~= values.NAMESPACE then
        S.fail("cannot set an attribute of something that is no namespace", at)
      end
      ns[attr] = v
    end
  end
  local stores, slots, at = {}, {}, target.at
  for i, item in ipairs(target.items) do stores[i], slots[i] = compile.store(C, item, scope), item.t == "name" and scope.slots[item.name] end
  local n = #stores
  return function(F, v)
    S.at = at
    local items = getmetatable(v) == values.TUPLE and v or values.iterate(v)
    if #items ~= n then S.fail(("expected %d values to unpack, got %d"):format(n, #items)) end
    for i = 1, n do
      local slot = slots[i]
      if slot then F[slot] = items[i] else stores[i](F, items[i]) end
    end
  end
end

function handlers.set(C, node, scope)
  local value, store = X.value(C, node.value, scope), compile.store(C, node.target, scope)
  if node.target.t == "name" then
    local slot = scope.slots[node.target.name]
    return function(F) F[slot] = value(F) end
  end
  return function(F) store(F, value(F)) end
end

local function filtered_body(C, node, scope)
  local run = inner(C, node.body, scope)
  local filter = node.filter and X.value(C, node.filter, scope)
  return function(F)
    local caught, signal = output.capture(run, F)
    if filter then
      S.caught = caught
      caught = filter(F)
    end
    return caught, signal
  end
end

function handlers.setblock(C, node, scope)
  local get, store = filtered_body(C, node, scope), compile.store(C, node.target, scope)
  return function(F)
    local v, signal = get(F)
    store(F, v)
    return signal
  end
end

function handlers.filterblock(C, node, scope)
  local get = filtered_body(C, node, scope)
  return function(F)
    local v, signal = get(F)
    output.emit(v)
    return signal
  end
end

-- Control -------------------------------------------------------------------------------

handlers["if"] = function(C, node, scope)
  local tests, bodies = {}, {}
  for i, branch in ipairs(node.branches) do
    tests[i], bodies[i] = X.condition(C, branch.test, scope), compile.body(C, branch.body, scope)
  end
  local other = node.other and compile.body(C, node.other, scope)
  local n = #tests
  if n == 1 then
    local test, body = tests[1], bodies[1]
    return function(F)
      if test(F) then return body(F) end
      if other then return other(F) end
    end
  end
  return function(F)
    for i = 1, n do if tests[i](F) then return bodies[i](F) end end
    if other then return other(F) end
  end
end

function handlers.output(C, node, scope) return compile_output(X, C, node, scope) end
handlers["for"] = function(C, node, scope) return compile_for(compile, X, C, node, scope) end
handlers["break"] = function() return function() return "break" end end
handlers["continue"] = function() return function() return "continue" end end
function handlers.scope(C, node, scope) return inner(C, node.body, scope) end

handlers["with"] = function(C, node, scope)
  local given, own, stores, names = X.list(C, node.values, scope), Scope.new(scope), {}, {}
  for _, target in ipairs(node.targets) do Scope.target_names(target, names) end
  for _, name in ipairs(names) do own:declare(name) end
  for i, target in ipairs(node.targets) do stores[i] = compile.store(C, target, own) end
  own:declare_sets(node.body)
  local run, start = compile.body(C, node.body, own), own:starter()
  return function(F)
    local evaluated = {}
    for i = 1, #given do evaluated[i] = given[i](F) end
    for i = 1, #given do stores[i](F, evaluated[i]) end
    if start then start(F) end
    return run(F)
  end
end

function handlers.unsupported(_, node)
  return function() S.fail(node.feature, node.at) end
end

-- Macros --------------------------------------------------------------------------------

-- Puts the arguments of one call into the new frame N.
local function bind_arguments(m, N, args, kwargs)
  local n, n_params = args.n or #args, #m.params
  for i = 1, n < n_params and n or n_params do N[m.slots[i]] = args[i] end
  local rest
  for k = 1, kwargs and #kwargs or 0 do
    local name = kwargs[k]
    local v = kwargs[name]
    local slot = m.by_name[name]
    if slot and N[slot] ~= nil then S.fail(("macro '%s' got the argument '%s' twice"):format(m.name, name)) end
    if slot then
      N[slot] = v
    elseif name == "caller" then
      if m.caller then N[m.caller] = v end
    elseif m.kwargs then
      rest = rest or {}
      rest[#rest + 1], rest[name] = name, v
    else
      S.fail(("macro '%s' takes no argument '%s'"):format(m.name, name))
    end
  end
  m.complete(N)
  if m.varargs then
    N[m.varargs] = values.tuple(table.move(args, n_params + 1, n, 1, {}))
  elseif n > n_params then
    S.fail(("macro '%s' takes at most %d arguments, not %d"):format(m.name, n_params, n))
  end
  if m.kwargs then N[m.kwargs] = require("mtx.chat.jinja.methods").new_dict(nil, rest) end
end

--- A function(F) that makes the macro of a macro or callblock node.
function compile.macro(C, node, scope, name)
  local own = Scope.new(scope, true)
  local m = { name = name, params = node.params, slots = {}, by_name = {}, defaults = {}, missing = {} }
  for i, param in ipairs(node.params) do
    m.slots[i] = own:declare(param)
    m.by_name[param] = m.slots[i]
    m.missing[i] = values.undefined(("parameter '%s' was not given"):format(param))
  end
  Scope.each_name(node.body, function(use)
    local special = use.name
    if (special == "caller" or special == "varargs" or special == "kwargs") and not own.slots[special] then m[special] = own:declare(special) end
  end)
  for i, default in pairs(node.defaults) do m.defaults[i] = X.value(C, default, own) end
  own:declare_sets(node.body)
  local body, start = compile.body(C, node.body, own), own:starter()
  local slots, defaults, missing, n_params = m.slots, m.defaults, m.missing, #node.params
  m.new_frame, m.n_params, m.in_order = own:frame_maker(), n_params, not m.varargs and not m.kwargs
  for i = 1, n_params do m.in_order = m.in_order and slots[i] == i + 1 end
  -- Gives the parameters that got no argument their values.
  function m.complete(N)
    for i = 1, n_params do
      local slot = slots[i]
      if N[slot] == nil then
        local default = defaults[i]
        if default then N[slot] = default(N) else N[slot] = missing[i] end
      end
    end
  end
  m.start, m.body = start, body
  return function(F)
    local function write(args, kwargs)
      S.enter()
      local N = m.new_frame(F)
      bind_arguments(m, N, args, kwargs)
      if start then start(N) end
      body(N)
      S.depth = S.depth - 1
    end
    return setmetatable({ [0] = name, function(args, kwargs)
      local base = S.n
      write(args, kwargs)
      return output.take(base)
    end, write, m, F }, call.MACRO)
  end
end

function handlers.macro(C, node, scope)
  local make, slot = compile.macro(C, node, scope, node.name), scope.slots[node.name]
  return function(F) F[slot] = make(F) end
end

function handlers.callblock(C, node, scope)
  local args = { pos = node.call.args.pos, kw = { table.unpack(node.call.args.kw) }, star = node.call.args.star, starstar = node.call.args.starstar }
  args.kw[#args.kw + 1] = { name = "caller", node = { t = "caller", at = node.at, block = node } }
  local get = X.value(C, { t = "call", at = node.call.at, func = node.call.func, args = args }, scope)
  return function(F) output.emit(get(F)) end
end

--- Compiles a parsed template. spans: marks on the template's own text. Returns
--- run(F) and the list of free names.
function compile.template(body, spans)
  local free = { index = {} }
  local scope = Scope.new(nil, true, free)
  local C = { spans = spans, macro = compile.macro, top = scope, pure = pure.names(body) }
  scope:declare_sets(body)
  local run, start = compile.body(C, body, scope), scope:starter()
  return function(F)
    if start then start(F) end
    run(F)
  end, free
end

return compile
