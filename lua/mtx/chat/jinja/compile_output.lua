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

-- Up to two arguments that stand in order go straight into the macro's new frame, more are filled in.
local function framing(items)
  local fixed, slots, absent = shapes.of(items)
  local fill, n = shapes.filler(items), #items
  if n > 2 then
    return function(F, m, outer)
      local N = m.new_frame(outer)
      fill(F, N, 1)
      return N
    end
  end
  local a_fixed, a_slot, a_absent, a_get = fixed[1], slots[1], absent[1], items[1]
  local b_fixed, b_slot, b_absent, b_get = fixed[2], slots[2], absent[2], items[2]
  return function(F, m, outer)
    local a, b = a_fixed, b_fixed
    if a_get and a == nil then
      if a_slot then a = F[a_slot] else a = a_get(F) end
      if a == nil then a = a_absent end
    end
    if b_get and b == nil then
      if b_slot then b = F[b_slot] else b = b_get(F) end
      if b == nil then b = b_absent end
    end
    return m.new_frame(outer, a, b)
  end
end

-- Arguments that stand in order are evaluated right into the macro's frame.
local function macro_output(X, C, node, scope)
  local any, args = any_macro_output(X, C, node, scope), node.args
  if #args.kw > 0 or args.star or args.starstar then return any end
  local func, items, at = X.value(C, node.func, scope), X.list(C, args.pos, scope), node.at
  local frame_of, n = framing(items), #items
  local hops, callee_slot = nil, nil
  if node.func.t == "name" then hops, callee_slot = scope:find(node.func.name) end
  local function write(F)
    local callee
    if hops == 1 then callee = F[1][callee_slot] elseif hops == 0 then callee = F[callee_slot] else callee = func(F) end
    local m = getmetatable(callee) == MACRO and callee[3]
    if not m or not m.in_order or n > m.n_params then return any(F) end
    local N = frame_of(F, m, callee[4])
    S.at = at
    local steps, depth = S.steps - 1, S.depth + 1 -- S.enter()
    if steps < 0 or depth > S.max_depth then S.enter() end
    S.steps, S.depth = steps, depth
    if n < m.n_params then m.complete(N) end
    if m.start then m.start(N) end
    m.body(N)
    S.depth = depth - 1
  end
  local name = node.func.name
  if not (hops and hops <= 1 and C.pure and C.pure[name] and scope:owner(name) == C.top) then return write end
  local kept
  if shapes.all_constant(items) then kept = pure.once(write)
  elseif n == 1 and pure.is_look_up(args.pos[1]) then kept = pure.by_text(write, items[1])
  else return write end
  return function(F)
    local frame = hops == 0 and F or F[1]
    if frame[callee_slot] then return kept(F) end
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

-- The text that a part always writes, or nil.
local function constant_text(C, part, get)
  if type(part) == "string" then return C.spans and text.trusted(part) or part end
  local constant = get and shapes.constant(get)
  if constant ~= nil and text.raw(constant) then return constant end
end

-- What the parts of an output node write, neighbours that are text joined: lists of {fixed = text},
-- {write = what writes by itself} and {get = what gives a value}; and the texts' bytes.
local function output_parts(X, C, node, scope)
  local parts, bytes = {}, 0
  for _, part in ipairs(node.parts) do
    local write, get
    if type(part) == "table" then
      if part.t == "call" and part.func.t ~= "attr" then
        write = macro_output(X, C, part, scope)
      elseif part.t == "bin" and part.op == "+" then
        write = sum_output(X, C, part, scope)
      else
        get = X.value(C, part, scope)
      end
    end
    local fixed = constant_text(C, part, get)
    if fixed then
      bytes = bytes + #text.raw(fixed)
      local last = parts[#parts]
      if last and last.fixed then
        local both = text.raw(last.fixed) .. text.raw(fixed)
        last.fixed = C.spans and text.trusted(both) or both
        goto next
      end
    end
    parts[#parts + 1] = { fixed = fixed, write = not fixed and write, get = not fixed and get }
    ::next::
  end
  return parts, bytes
end

-- Writes a part that is `fixed`, or else what get(F) gives.
local function part_output(fixed, get)
  local slot, absent = shapes.variable(get)
  return function(F)
    local v = fixed
    if not v then
      if slot then v = F[slot] else v = get(F) end
      if v == nil then v = absent end
      if type(v) ~= "string" and getmetatable(v) ~= MARKED then v = str(v) end
    end
    local left, at = S.bytes - #(v[0] or v), S.n + 1 -- S.charge
    S.bytes = left
    if left < 0 then S.charge(0) end
    S.n = at
    S.out[at] = v
  end
end

return function(X, C, node, scope)
  local parts, bytes = output_parts(X, C, node, scope)
  local n = #parts
  local writers = {}
  for i, part in ipairs(parts) do
    writers[i] = part.write or part_output(part.fixed, part.get)
  end
  if n == 1 then return writers[1] end
  local fixed = {}
  for i, part in ipairs(parts) do fixed[i] = part.fixed end
  return function(F)
    S.charge(bytes)
    for i = 1, n do
      local v = fixed[i]
      if v then
        local at = S.n + 1
        S.n = at
        S.out[at] = v
      else
        writers[i](F)
      end
    end
  end
end
