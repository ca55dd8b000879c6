-- SPDX-License-Identifier: MIT
-- Output nodes -> closures that write.
local call = require("mtx.chat.jinja.call")
local compile_call = require("mtx.chat.jinja.compile_call")
local output = require("mtx.chat.jinja.output")
local pure = require("mtx.chat.jinja.pure")
local shapes = require("mtx.chat.jinja.shapes")
local sum = require("mtx.chat.jinja.sum")
local text = require("mtx.chat.jinja.text")
local values = require("mtx.chat.jinja.values")
local S = require("mtx.chat.jinja.state")

local type, getmetatable, str = type, getmetatable, values.str
local MACRO, MARKED = call.MACRO, text.MARKED

-- A call that is printed where it stands: a macro writes into the output at once
-- instead of being caught, joined and written again at each level of macros.
local function any_macro_output(X, C, node, scope)
  local prepare = compile_call.prepare(X, C, node, scope)
  return function(F)
    local callee, list, named = prepare(F)
    if getmetatable(callee) == MACRO then
      callee[2](list, named)
    else
      output.emit(call.value(callee, list, named))
    end
  end
end

-- Arguments that stand in order are evaluated right into the macro's frame.
local function macro_output(X, C, node, scope)
  local any, args = any_macro_output(X, C, node, scope), node.args
  if #args.kw > 0 or args.star or args.starstar then return any end
  local func, items, at = X.value(C, node.func, scope), X.list(C, args.pos, scope), node.at
  local fill, n = shapes.filler(items), #items
  local hops, callee_slot = nil, nil
  if node.func.t == "name" then hops, callee_slot = scope:find(node.func.name) end
  local function write(F)
    local callee
    if hops == 1 then callee = F[1][callee_slot] elseif hops == 0 then callee = F[callee_slot] else callee = func(F) end
    local m = getmetatable(callee) == MACRO and callee[3]
    if not m or not m.in_order or n > m.n_params then return any(F) end
    local N = m.new_frame(callee[4])
    fill(F, N, 1)
    S.at = at
    S.enter()
    if n < m.n_params then m.complete(N) end
    if m.start then m.start(N) end
    m.body(N)
    S.depth = S.depth - 1
  end
  local name = node.func.name
  if not (hops and C.pure and C.pure[name] and shapes.all_constant(items) and scope:owner(name) == C.top) then return write end
  local once = pure.once(write)
  return function(F)
    local frame = hops == 0 and F or F[1]
    if hops <= 1 and frame[callee_slot] then return once(F) end
    write(F)
  end
end

-- A sum that is printed: its strings go into the output one by one, not joined first.
local function sum_output(X, C, node, scope)
  local evaluate, n = sum.terms(X, C, node, scope)
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
    output.emit(sum.add_up(out, at, n))
  end
end

-- The parts of an output node: {i = text of the template}, {i = what writes by itself}, {i = what gives a value}; and the texts' bytes.
local function output_parts(X, C, node, scope)
  local fixed, writers, getters, bytes = {}, {}, {}, 0
  for i, part in ipairs(node.parts) do
    if type(part) == "string" then
      bytes = bytes + #part
      fixed[i] = C.spans and text.trusted(part) or part
    elseif part.t == "call" and part.func.t ~= "attr" then
      writers[i] = macro_output(X, C, part, scope)
    elseif part.t == "bin" and part.op == "+" then
      writers[i] = sum_output(X, C, part, scope)
    else
      getters[i] = X.value(C, part, scope)
      local constant = shapes.constant(getters[i])
      if constant ~= nil and text.raw(constant) then
        bytes = bytes + #text.raw(constant)
        fixed[i] = constant
      end
    end
  end
  return fixed, writers, getters, bytes
end

return function(X, C, node, scope)
  local fixed, writers, getters, bytes = output_parts(X, C, node, scope)
  local n = #node.parts
  if n == 1 and writers[1] then return writers[1] end
  local slots, absent = {}, {}
  for i, get in pairs(getters) do slots[i], absent[i] = shapes.variable(get) end
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
