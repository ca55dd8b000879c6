-- SPDX-License-Identifier: MIT
-- A Lark grammar -> rules of a call's grammar (call_grammar.lua): as plain text, or as it stands in a JSON string.
local lark = require("mtx.parse.lark")
local memo = require("mtx.memo")
local rules = require("mtx.parse.rules")
local sorted_keys = require("mtx.sorted_keys")
local values = require("mtx.parse.values")

-- Clients send the same tools with every request.
local parsed = memo(64, function(definition)
  local grammar, message = lark.parse(definition)
  return grammar or { message = message }
end)

local function expression(e, node, in_terminal)
  if node.t == "seq" or node.t == "alt" then
    local items = {}
    for i, item in ipairs(node.items) do items[i] = expression(e, item, in_terminal) end
    if not items[1] then return '""' end
    return "(" .. table.concat(items, node.t == "seq" and " " or " | ") .. ")"
  elseif node.t == "rep" then
    local count = node.max == 1 and node.min == 0 and "?" or not node.max and (node.min == 0 and "*" or "+") or ("{%d,%d}"):format(node.min, node.max)
    return "(" .. expression(e, node.item, in_terminal) .. ")" .. count
  elseif node.t == "name" then
    return e.names[node.name] .. (not in_terminal and lark.is_terminal(node.name) and e.ignored or "")
  end
  local text
  if node.t == "text" then text = rules.quoted(e.inside and values.escape(node.text) or node.text) else text = e.g:regex("^(?:" .. node.pattern .. ")$", e.inside, e.without) end
  return in_terminal and text or text .. e.ignored
end

-- g: the grammar that is made; inside: within the quotes of a JSON string; without: the text that ends it otherwise.
-- -> expression. The definition has been parsed before (the request was checked): an error is a fault.
return function(g, definition, inside, without)
  local grammar = parsed(definition)
  if grammar.message then error(grammar.message, 0) end
  local e = { g = g, inside = inside, without = without, names = {}, ignored = "" }
  local names = sorted_keys(grammar.rules)
  for _, name in ipairs(names) do e.names[name] = g:name() end
  if grammar.ignored[1] then
    local ignored = expression(e, { t = "alt", items = grammar.ignored }, true)
    e.ignored = " " .. g:rule(ignored) .. "*"
  end
  for _, name in ipairs(names) do g:define(e.names[name], expression(e, grammar.rules[name], lark.is_terminal(name))) end
  return (e.ignored .. " " .. e.names.start):sub(2)
end
