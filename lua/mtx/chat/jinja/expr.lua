-- SPDX-License-Identifier: MIT
-- The expression half of the parser: tokens -> expression nodes.
--
-- A node is {t = type, at = byte offset, ...}:
--   const value | name name | list items | tuple items | dict keys values
--   attr obj name | item obj key | slice start stop step (key of an item)
--   call func args | filter obj name args | test obj name args
--   neg/pos/not arg | bin op left right | concat items | and/or left right
--   cond test yes no | compare left ops (list of {op, right})
--   nsref name attr (only as target of set)
-- args is {pos = list of nodes, kw = list of {name, node}, star = node, starstar = node}.
local null = require("mtx.json").null

local expr = {}

local CONSTANTS = { ["true"] = true, True = true, ["false"] = false, False = false, none = null, None = null }
local COMPARES = { ["=="] = true, ["!="] = true, ["<"] = true, ["<="] = true, [">"] = true, [">="] = true }

local parse_unary, parse_primary

-- Left-associative chain of operators at one level of precedence.
local function chain(P, ops, next_level)
  local left = next_level(P)
  while ops[P:type()] do
    local op, at = P:type(), P:at()
    P.i = P.i + 1
    left = { t = "bin", op = op, at = at, left = left, right = next_level(P) }
  end
  return left
end

local POW, MATH2, MATH1 = { ["**"] = true }, { ["*"] = true, ["/"] = true, ["//"] = true, ["%"] = true }, { ["+"] = true, ["-"] = true }
local function parse_pow(P) return chain(P, POW, function() return parse_unary(P, true) end) end
local function parse_math2(P) return chain(P, MATH2, parse_pow) end

local function parse_concat(P)
  local at, first = P:at(), parse_math2(P)
  if P:type() ~= "~" then return first end
  local items = { first }
  while P:skip_if("~") do items[#items + 1] = parse_math2(P) end
  return { t = "concat", at = at, items = items }
end

local function parse_math1(P) return chain(P, MATH1, parse_concat) end

local function parse_compare(P)
  local left, ops = parse_math1(P), nil
  while true do
    local at, op = P:at(), P:type()
    if COMPARES[op] then
      P.i = P.i + 1
    elseif P:skip_name("in") then
      op = "in"
    elseif P:is_name("not") and P:peek_type() == "name" and P.values[P.i + 1] == "in" then
      P.i = P.i + 2
      op = "notin"
    else
      break
    end
    ops = ops or {}
    ops[#ops + 1] = { op = op, at = at, right = parse_math1(P) }
  end
  return ops and { t = "compare", at = ops[1].at, left = left, ops = ops } or left
end

local function parse_not(P)
  local negations, at = 0, P:at()
  while P:skip_name("not") do negations = negations + 1 end
  local node = parse_compare(P)
  if negations == 0 then return node end
  node = { t = "not", at = at, arg = node }
  return negations % 2 == 1 and node or { t = "not", at = at, arg = node }
end

local function parse_and(P)
  local left = parse_not(P)
  while P:is_name("and") do
    local at = P:at()
    P.i = P.i + 1
    left = { t = "and", at = at, left = left, right = parse_not(P) }
  end
  return left
end

local function parse_or(P)
  local left = parse_and(P)
  while P:is_name("or") do
    local at = P:at()
    P.i = P.i + 1
    left = { t = "or", at = at, left = left, right = parse_and(P) }
  end
  return left
end

--- One expression. no_cond: without `a if b else c`.
function expr.parse(P, no_cond)
  P:down()
  local node = parse_or(P)
  while not no_cond and P:is_name("if") do
    local at = P:at()
    P.i = P.i + 1
    local test, no = parse_or(P), nil
    if P:skip_name("else") then no = expr.parse(P) end
    node = { t = "cond", at = at, test = test, yes = node, no = no }
  end
  P:up()
  return node
end

local function at_tuple_end(P, end_word)
  local t = P:type()
  return t == "variable_end" or t == "block_end" or t == ")" or (end_word and P:is_name(end_word))
end

--- Expressions joined by commas: a tuple, or the expression itself if there is
--- no comma. opts: simple (names and literals only), no_cond, end_word, parens.
function expr.parse_tuple(P, opts)
  opts = opts or {}
  local at, items, is_tuple = P:at(), {}, false
  while true do
    if #items > 0 then P:expect(",") end
    if at_tuple_end(P, opts.end_word) then break end
    items[#items + 1] = opts.simple and parse_primary(P, opts.namespace) or expr.parse(P, opts.no_cond)
    if P:type() ~= "," then break end
    is_tuple = true
  end
  if not is_tuple then
    if items[1] then return items[1] end
    if not opts.parens then P:fail("expected an expression, found " .. P:describe()) end
  end
  return { t = "tuple", at = at, items = items }
end

local function parse_list(P)
  local at, items = P:at(), {}
  P:expect("[")
  while P:type() ~= "]" do
    if #items > 0 then P:expect(",") end
    if P:type() == "]" then break end
    items[#items + 1] = expr.parse(P)
  end
  P:expect("]")
  return { t = "list", at = at, items = items }
end

local function parse_dict(P)
  local at, keys, values = P:at(), {}, {}
  P:expect("{")
  while P:type() ~= "}" do
    if #keys > 0 then P:expect(",") end
    if P:type() == "}" then break end
    keys[#keys + 1] = expr.parse(P)
    P:expect(":")
    values[#values + 1] = expr.parse(P)
  end
  P:expect("}")
  return { t = "dict", at = at, keys = keys, values = values }
end

function parse_primary(P, namespace)
  local at, kind = P:at(), P:type()
  local value = P.values[P.i]
  if kind == "name" then
    P.i = P.i + 1
    if CONSTANTS[value] ~= nil then return { t = "const", at = at, value = CONSTANTS[value] } end
    if namespace and P:skip_if(".") then return { t = "nsref", at = at, name = value, attr = P:expect("name") } end
    return { t = "name", at = at, name = value }
  elseif kind == "string" then
    local parts = {}
    while P:type() == "string" do
      parts[#parts + 1] = P.values[P.i]
      P.i = P.i + 1
    end
    return { t = "const", at = at, value = table.concat(parts) }
  elseif kind == "integer" or kind == "float" then
    P.i = P.i + 1
    return { t = "const", at = at, value = value }
  elseif kind == "(" then
    P.i = P.i + 1
    local node = expr.parse_tuple(P, { parens = true })
    P:expect(")")
    return node
  elseif kind == "[" then
    return parse_list(P)
  elseif kind == "{" then
    return parse_dict(P)
  end
  P:fail("unexpected " .. P:describe())
end

--- Arguments of a call, filter, test or macro call, parentheses included.
function expr.parse_args(P)
  local args = { pos = {}, kw = {} }
  P:expect("(")
  local comma = false
  while P:type() ~= ")" do
    if comma then
      P:expect(",")
      if P:type() == ")" then break end
    end
    comma = true
    if P:skip_if("*") then
      if args.star or args.starstar then P:fail("only one *argument is allowed, before **") end
      args.star = expr.parse(P)
    elseif P:skip_if("**") then
      if args.starstar then P:fail("only one **argument is allowed") end
      args.starstar = expr.parse(P)
    elseif P:type() == "name" and P:peek_type() == "=" then
      local name = P:expect("name")
      for _, item in ipairs(args.kw) do if item.name == name then P:fail("the argument '" .. name .. "' is given twice") end end
      P:expect("=")
      args.kw[#args.kw + 1] = { name = name, node = expr.parse(P) }
    else
      if args.star or args.starstar or #args.kw > 0 then P:fail("a positional argument after a named one") end
      args.pos[#args.pos + 1] = expr.parse(P)
    end
  end
  P:expect(")")
  return args
end

-- One index between brackets: an expression or a slice.
local function parse_index(P)
  local at, parts, i = P:at(), {}, 1
  local function part()
    local t = P:type()
    return t ~= ":" and t ~= "]" and t ~= "," and expr.parse(P) or nil
  end
  parts[1] = part()
  if P:type() ~= ":" then
    if not parts[1] then P:fail("expected an index, found " .. P:describe()) end
    return parts[1]
  end
  while i < 3 and P:skip_if(":") do
    i = i + 1
    parts[i] = part()
  end
  return { t = "slice", at = at, start = parts[1], stop = parts[2], step = parts[3] }
end

local function parse_postfix(P, node)
  while true do
    local kind, at = P:type(), P:at()
    if kind == "." then
      P.i = P.i + 1
      if P:type() == "integer" then
        node = { t = "item", at = at, obj = node, key = { t = "const", at = P:at(), value = P:expect("integer") } }
      else
        node = { t = "attr", at = at, obj = node, name = P:expect("name") }
      end
    elseif kind == "[" then
      P.i = P.i + 1
      local keys = { parse_index(P) }
      while P:skip_if(",") do keys[#keys + 1] = parse_index(P) end
      P:expect("]")
      node = { t = "item", at = at, obj = node, key = #keys == 1 and keys[1] or { t = "tuple", at = at, items = keys } }
    elseif kind == "(" then
      node = { t = "call", at = at, func = node, args = expr.parse_args(P) }
    else
      return node
    end
  end
end

-- name or dotted.name of a filter or test
local function parse_dotted(P)
  local name = P:expect("name")
  while P:skip_if(".") do name = name .. "." .. P:expect("name") end
  return name
end

local NO_ARGS = { pos = {}, kw = {} }

--- The filters after `node` (nil for a filter block, whose first has no "|").
function expr.parse_filters(P, node, without_pipe)
  while without_pipe or P:skip_if("|") do
    without_pipe = false
    local at, name = P:at(), parse_dotted(P)
    node = { t = "filter", at = at, obj = node, name = name, args = P:type() == "(" and expr.parse_args(P) or NO_ARGS }
  end
  return node
end

local TEST_ARG = { name = true, string = true, integer = true, float = true, ["["] = true, ["{"] = true }
local NO_TEST_ARG = { ["else"] = true, ["or"] = true, ["and"] = true }

local function parse_test(P, node)
  local at = P:at()
  P:expect_name("is")
  local negated = P:skip_name("not")
  local name, args = parse_dotted(P), NO_ARGS
  if P:type() == "(" then
    args = expr.parse_args(P)
  elseif P:is_name("is") then
    P:fail("tests cannot be chained with 'is'")
  elseif TEST_ARG[P:type()] and not NO_TEST_ARG[P:name()] then
    args = { pos = { parse_postfix(P, parse_primary(P)) }, kw = {} }
  end
  node = { t = "test", at = at, obj = node, name = name, args = args }
  return negated and { t = "not", at = at, arg = node } or node
end

function parse_unary(P, with_filter)
  local at, node = P:at(), nil
  P:down()
  if P:skip_if("-") then
    node = { t = "neg", at = at, arg = parse_unary(P, false) }
  elseif P:skip_if("+") then
    node = { t = "pos", at = at, arg = parse_unary(P, false) }
  else
    node = parse_primary(P)
  end
  P:up()
  node = parse_postfix(P, node)
  while with_filter do
    if P:type() == "|" then node = expr.parse_filters(P, node)
    elseif P:is_name("is") then node = parse_test(P, node)
    elseif P:type() == "(" then node = { t = "call", at = P:at(), func = node, args = expr.parse_args(P) }
    else break end
  end
  return node
end

return expr
