-- SPDX-License-Identifier: MIT
-- a + b + c + ...: strings are not joined two by two but all at once, or not at all where they are printed.
local ops = require("mtx.chat.jinja.ops")
local shapes = require("mtx.chat.jinja.shapes")
local text = require("mtx.chat.jinja.text")
local S = require("mtx.chat.jinja.state")

local sum = {}
local type, getmetatable = type, getmetatable
local raw, MARKED = text.raw, text.MARKED

--- The terms of a + b + c + ... evaluated: a function(F, terms, first, follow) -> bytes, and their number; bytes is
--- nil when not all are strings that may simply stand one after the other.
function sum.terms(X, C, node, scope, plain)
  local nodes, left = {}, node
  while left.t == "bin" and left.op == "+" do
    table.insert(nodes, 1, left.right)
    left = left.left
  end
  table.insert(nodes, 1, left)
  local items, at = X.list(C, nodes, scope, plain), node.at
  local n = #items
  local fixed, slots, absent = shapes.of(items)
  local known = 0 -- bytes of the constants
  for _, v in pairs(fixed) do
    if known and raw(v) and not text.is_markup(v) then known = known + #raw(v) else known = nil end
  end
  --- terms[first + 1], ... become the values. follow: they stand in the output, which goes on behind them meanwhile.
  return function(F, terms, first, follow)
    local bytes = known
    for i = 1, n do
      local v = fixed[i]
      if v == nil then
        local slot = slots[i]
        if slot then
          v = F[slot]
          if v == nil then v = absent[i] end
        else
          if follow then S.n = first + i - 1 end
          v = items[i](F)
        end
        if bytes then
          if type(v) == "string" then bytes = bytes + #v
          elseif getmetatable(v) == MARKED and not v[-1] then bytes = bytes + #v[0]
          else bytes = nil end
        end
      end
      terms[first + i] = v
    end
    S.at = at
    return bytes
  end, n
end

--- The sum of terms[first + 1] to [first + n] that are not all strings, from the left.
function sum.add_up(terms, first, n)
  local total = terms[first + 1]
  for i = 2, n do total = ops.add(total, terms[first + i]) end
  return total
end

--- The sum as a value.
function sum.value(X, C, node, scope, plain)
  local evaluate, n = sum.terms(X, C, node, scope, plain)
  return function(F)
    local terms = { nil, nil, nil } -- room for the usual number at once
    local bytes = evaluate(F, terms, 0)
    if not bytes then return sum.add_up(terms, 0, n) end
    S.charge(bytes)
    return text.join(terms, 1, n)
  end
end

return sum
