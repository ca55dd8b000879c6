-- SPDX-License-Identifier: MIT
-- Which names a template takes from outside, from its statements alone.
--
-- A name counts when some use of it may come before the template has set it:
-- reading in the order of the text, with a `set` in a branch of an `if` valid
-- only inside that branch, and scopes as in scope.lua.
local Scope = require("mtx.chat.jinja.scope")

local visit_body

-- Every name used in an expression that is not in `known`.
local function visit_expression(node, known, found)
  if not node then return end
  Scope.each_name(node, function(use)
    if not known[use.name] then found[use.name] = true end
  end)
end

local function with(known, names)
  return setmetatable(names or {}, { __index = known })
end

local function targets(target, into)
  local names = {}
  Scope.target_names(target, names)
  for _, name in ipairs(names) do into[name] = true end
  return into
end

local handlers = {}

function handlers.output(node, known, found)
  for _, part in ipairs(node.parts) do if type(part) == "table" then visit_expression(part, known, found) end end
end

function handlers.set(node, known, found)
  visit_expression(node.value, known, found)
  if node.target.t == "nsref" and not known[node.target.name] then found[node.target.name] = true end
  targets(node.target, known)
end

function handlers.setblock(node, known, found)
  visit_body(node.body, with(known), found)
  visit_expression(node.filter, known, found)
  targets(node.target, known)
end

handlers["if"] = function(node, known, found)
  for _, branch in ipairs(node.branches) do
    visit_expression(branch.test, known, found)
    visit_body(branch.body, with(known), found)
  end
  if node.other then visit_body(node.other, with(known), found) end
end

handlers["for"] = function(node, known, found)
  visit_expression(node.iter, known, found)
  local inner = targets(node.target, with(known, { loop = true }))
  visit_expression(node.test, inner, found)
  visit_body(node.body, inner, found)
  if node.other then visit_body(node.other, with(known), found) end
end

local function function_body(node, known, found)
  local inner = with(known, { caller = true, varargs = true, kwargs = true })
  for _, name in ipairs(node.params) do inner[name] = true end
  for _, default in pairs(node.defaults) do visit_expression(default, inner, found) end
  visit_body(node.body, inner, found)
end

-- A macro runs later than it stands: what the template sets at its top level
-- anywhere may be there by then.
function handlers.macro(node, known, found)
  known[node.name] = true
  function_body(node, with(known.top, {}), found)
end

function handlers.callblock(node, known, found)
  visit_expression(node.call, known, found)
  function_body(node, known, found)
end

function handlers.filterblock(node, known, found)
  visit_expression(node.filter, known, found)
  visit_body(node.body, with(known), found)
end

function handlers.scope(node, known, found) visit_body(node.body, with(known), found) end

handlers["with"] = function(node, known, found)
  local inner = with(known)
  for _, value in ipairs(node.values) do visit_expression(value, known, found) end
  for _, target in ipairs(node.targets) do targets(target, inner) end
  visit_body(node.body, inner, found)
end

function visit_body(body, known, found)
  for _, node in ipairs(body) do
    local handler = handlers[node.t]
    if handler then handler(node, known, found) end
  end
end

--- The set of names that the statements read from outside.
return function(body)
  local top, found = {}, {}
  for _, node in ipairs(body) do
    if node.t == "set" or node.t == "setblock" then targets(node.target, top) elseif node.t == "macro" then top[node.name] = true end
  end
  visit_body(body, { top = top }, found)
  return found
end
