-- SPDX-License-Identifier: MIT
-- Comparison nodes -> closures that give true or false.
--
-- A chain a < b < c is the pairs joined by "and", each operand evaluated once.
local shapes = require("mtx.chat.jinja.shapes")
local text = require("mtx.chat.jinja.text")
local values = require("mtx.chat.jinja.values")
local S = require("mtx.chat.jinja.state")

local equal, contains, MARKED = values.equal, values.contains, text.MARKED
local getmetatable, type = getmetatable, type

local COMPARE = {
  ["=="] = equal, ["!="] = function(a, b) return not equal(a, b) end,
  ["<"] = function(a, b) return values.less(a, b, "<") end, [">"] = function(a, b) return values.less(b, a, ">") end,
  -- NaN is neither below nor equal: not (b < a) would be wrong for it.
  ["<="] = function(a, b) return values.less(a, b, "<=") or equal(a, b) end,
  [">="] = function(a, b) return values.less(b, a, ">=") or equal(a, b) end,
  ["in"] = function(a, b) return contains(b, a) end, ["notin"] = function(a, b) return not contains(b, a) end,
}

-- left == 'text', the most frequent comparison by far
local function equals_text(left, s, negate)
  local slot = shapes.variable(left)
  return function(F)
    local v
    if slot then v = F[slot] else v = left(F) end
    return (v == s or (getmetatable(v) == MARKED and v[0] == s)) ~= negate
  end
end

local function is_constant(node)
  if node.t == "const" then return true end
  if node.t ~= "list" and node.t ~= "tuple" then return false end
  for _, item in ipairs(node.items) do if item.t ~= "const" then return false end end
  return true
end

return function(X, C, node, scope)
  local left, rest = X.value(C, node.left, scope, true), {}
  if #node.ops == 1 then
    local op, right = node.ops[1].op, node.ops[1].right
    if (op == "==" or op == "!=") and right.t == "const" and type(right.value) == "string" then
      return equals_text(left, right.value, op == "!=")
    end
  end
  for i, item in ipairs(node.ops) do
    local get = X.value({ spans = false, macro = C.macro }, item.right, scope, true)
    if is_constant(item.right) then
      local constant = get({})
      get = function() return constant end
    else
      get = X.value(C, item.right, scope, true)
    end
    rest[i] = { compare = COMPARE[item.op], get = get, at = item.at }
  end
  if #rest == 1 then
    local compare, get, at = rest[1].compare, rest[1].get, rest[1].at
    return function(F)
      local a, b = left(F), get(F)
      S.at = at
      return compare(a, b)
    end
  end
  return function(F)
    local a = left(F)
    for i = 1, #rest do
      local b = rest[i].get(F)
      S.at = rest[i].at
      if not rest[i].compare(a, b) then return false end
      a = b
    end
    return true
  end
end
