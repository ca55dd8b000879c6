-- SPDX-License-Identifier: MIT
-- What the closures of expressions are: constants and variables of the running frame need no
-- call, so those who evaluate many closures ask first.
local shapes = {}

-- closure -> {constant}; closure -> {slot, value in place of nil}
local constants, variables = setmetatable({}, { __mode = "k" }), setmetatable({}, { __mode = "k" })

--- Says that f always gives value; returns f.
function shapes.set_constant(f, value)
  constants[f] = { value }
  return f
end

--- Says that f reads a slot of the frame, and what stands for nil there; returns f. Nothing is said without a slot.
function shapes.set_variable(f, slot, absent)
  variables[f] = slot and { slot, absent }
  return f
end

--- The value of a closure that always gives the same one, or nil.
function shapes.constant(f) return constants[f] and constants[f][1] end

--- The slot of a closure that reads a variable of the frame, and what stands for nil there; or nil.
function shapes.variable(f)
  local v = variables[f]
  if v then return v[1], v[2] end
end

--- Whether all closures of a list are constants.
function shapes.all_constant(list)
  for _, f in ipairs(list) do if not constants[f] then return false end end
  return true
end

--- For a list of closures: {i = constant}, {i = slot}, {i = value in place of nil}.
function shapes.of(list)
  local fixed, slots, absent = {}, {}, {}
  for i, f in ipairs(list) do
    fixed[i] = shapes.constant(f)
    slots[i], absent[i] = shapes.variable(f)
  end
  return fixed, slots, absent
end

--- A function(F, into, first) that puts the list's values into into[first + 1], ...
function shapes.filler(list)
  local fixed, slots, absent = shapes.of(list)
  local n = #list
  if n == 1 then
    local one, first_slot, none, get = fixed[1], slots[1], absent[1], list[1]
    return function(F, into, first)
      local v = one
      if v == nil then
        if first_slot then v = F[first_slot] else v = get(F) end
        if v == nil then v = none end
      end
      into[first + 1] = v
    end
  end
  return function(F, into, first)
    for i = 1, n do
      local v, slot = fixed[i], slots[i]
      if v == nil then
        if slot then v = F[slot] else v = list[i](F) end
        if v == nil then v = absent[i] end
      end
      into[first + i] = v
    end
  end
end

return shapes
