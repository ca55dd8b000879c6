-- SPDX-License-Identifier: MIT
-- Statement nodes -> Lua closures f(F). A closure writes its output to the state
-- (S.out) and returns nil, or "break" or "continue" to leave the turn of a loop.
local text = require("mtx.chat.jinja.text")
local values = require("mtx.chat.jinja.values")
local call = require("mtx.chat.jinja.call")
local Scope = require("mtx.chat.jinja.scope")
local X = require("mtx.chat.jinja.compile_expr")
local compile_call = require("mtx.chat.jinja.compile_call")
local compile_for = require("mtx.chat.jinja.compile_for")
local pure = require("mtx.chat.jinja.pure")
local S = require("mtx.chat.jinja.state")

local compile = {}
local handlers = {}
local type, getmetatable, setmetatable, str = type, getmetatable, setmetatable, values.str
local MACRO, MARKED = call.MACRO, text.MARKED

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

-- Output --------------------------------------------------------------------------

local function emit(v)
  if type(v) ~= "string" then v = str(v) end
  local n = S.n + 1
  S.n = n
  S.out[n] = v
  S.charge(#(v[0] or v)) -- v[0]: the text of marked text (text.lua), nil for a plain string
end

--- What was written since the output had `base` pieces, taken out of it.
function compile.take(base)
  local result = text.join(S.out, base + 1, S.n)
  S.n = base
  return result
end

--- Runs f(F) and returns what it wrote, taken out of the output. f's signal is second.
function compile.capture(f, F)
  local base = S.n
  local signal = f(F)
  return compile.take(base), signal
end

-- A call that is printed where it stands: a macro writes into the output at once
-- instead of being caught, joined and written again at each level of macros.
local function any_macro_output(C, node, scope)
  local prepare = compile_call.prepare(X, C, node, scope)
  return function(F)
    local callee, list, named = prepare(F)
    if getmetatable(callee) == MACRO then
      callee[2](list, named)
    else
      emit(call.value(callee, list, named))
    end
  end
end

-- Arguments that stand in order are evaluated right into the macro's frame.
local function macro_output(C, node, scope)
  local any, args = any_macro_output(C, node, scope), node.args
  if #args.kw > 0 or args.star or args.starstar then return any end
  local func, items, at = X.value(C, node.func, scope), X.list(C, args.pos, scope), node.at
  local fixed, slots, absent = X.shapes(items)
  local n = #items
  local hops, callee_slot = nil, nil
  if node.func.t == "name" then hops, callee_slot = scope:find(node.func.name) end
  local function write(F)
    local callee
    if hops == 1 then callee = F[1][callee_slot] elseif hops == 0 then callee = F[callee_slot] else callee = func(F) end
    local m = getmetatable(callee) == MACRO and callee[3]
    if not m or not m.in_order or n > m.n_params then return any(F) end
    local N = m.new_frame(callee[4])
    for i = 1, n do
      local v, slot = fixed[i], slots[i]
      if v == nil then
        if slot then v = F[slot] else v = items[i](F) end
        if v == nil then v = absent[i] end
      end
      N[i + 1] = v
    end
    S.at = at
    S.enter()
    if n < m.n_params then m.complete(N) end
    if m.start then m.start(N) end
    m.body(N)
    S.depth = S.depth - 1
  end
  local name = node.func.name
  if not (hops and C.pure and C.pure[name] and X.all_constant(items) and scope:owner(name) == C.top) then return write end
  local once = pure.once(write)
  return function(F)
    local frame = hops == 0 and F or F[1]
    if hops <= 1 and frame[callee_slot] then return once(F) end
    write(F)
  end
end

-- A sum that is printed: its strings go into the output one by one, not joined first.
local function sum_output(C, node, scope)
  local evaluate, n = X.terms(C, node, scope)
  return function(F)
    local out, at = S.out, S.n
    local bytes = evaluate(F, out, at, true)
    if bytes then
      local left = S.bytes - bytes
      S.n, S.bytes = at + n, left
      if left < 0 then S.charge(0) end
      return
    end
    S.n = at
    emit(X.add_up(out, at, n))
  end
end

-- The parts of an output node: {i = text of the template}, {i = what writes by itself}, {i = what gives a value}; and the texts' bytes.
local function output_parts(C, node, scope)
  local fixed, writers, getters, bytes = {}, {}, {}, 0
  for i, part in ipairs(node.parts) do
    if type(part) == "string" then
      bytes = bytes + #part
      fixed[i] = C.spans and text.trusted(part) or part
    elseif part.t == "call" and part.func.t ~= "attr" then
      writers[i] = macro_output(C, part, scope)
    elseif part.t == "bin" and part.op == "+" then
      writers[i] = sum_output(C, part, scope)
    else
      getters[i] = X.value(C, part, scope)
      local constant = X.constant(getters[i])
      if constant ~= nil and text.raw(constant) then
        bytes = bytes + #text.raw(constant)
        fixed[i] = constant
      end
    end
  end
  return fixed, writers, getters, bytes
end

function handlers.output(C, node, scope)
  local fixed, writers, getters, bytes = output_parts(C, node, scope)
  local n = #node.parts
  if n == 1 and writers[1] then return writers[1] end
  local slots, absent = {}, {}
  for i, get in pairs(getters) do slots[i], absent[i] = X.variable(get) end
  return function(F)
    local left = S.bytes - bytes -- S.charge(bytes), as below
    S.bytes = left
    if left < 0 then S.charge(0) end
    for i = 1, n do
      local v = fixed[i]
      if v == nil then
        local write, slot = writers[i], slots[i]
        if write then
          write(F)
          goto next
        end
        if slot then v = F[slot] else v = getters[i](F) end
        if v == nil then v = absent[i] end
        if type(v) ~= "string" and getmetatable(v) ~= MARKED then v = str(v) end
        left = S.bytes - #(v[0] or v)
        S.bytes = left
        if left < 0 then S.charge(0) end
      end
      do
        local at = S.n + 1
        S.n = at
        S.out[at] = v
      end
      ::next::
    end
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
    local caught, signal = compile.capture(run, F)
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
    emit(v)
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
      return compile.take(base)
    end, write, m, F }, MACRO)
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
  return function(F) emit(get(F)) end
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
