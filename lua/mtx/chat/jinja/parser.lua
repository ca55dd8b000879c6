-- SPDX-License-Identifier: MIT
-- The statement half of the parser: tokens -> a list of statement nodes.
--
-- Nodes, each {t = type, at = byte offset, ...}:
--   output parts (strings of template text and expression nodes)
--   set target value | setblock target filter body
--   if branches (list of {test, body}), other
--   for target iter test recursive body other | break | continue
--   macro name params defaults body | callblock params defaults call body
--   filterblock filter body | with targets values body | scope body | block name body
--   unsupported feature (include, import, extends: fails when reached)
-- A target is a name, nsref, or tuple node (expr.lua).
local lexer = require("mtx.chat.jinja.lexer")
local Tokens = require("mtx.chat.jinja.tokens")
local expr = require("mtx.chat.jinja.expr")

local parser = {}
local statements = {}

-- In the targets and the body of a loop the name `loop` is taken.
local function check_target(P, node)
  if node.t == "name" and node.name == "loop" and ((P.loops or 0) > 0 or P.in_target) then P:fail("cannot assign to the loop's own variable `loop`", node.at) end
  if node.t == "tuple" then
    for _, item in ipairs(node.items) do check_target(P, item) end
  elseif node.t ~= "name" and node.t ~= "nsref" then
    P:fail("cannot assign to this; only names, namespace attributes and tuples of names can be set", node.at)
  end
  return node
end

local function parse_target(P, opts) return check_target(P, expr.parse_tuple(P, opts)) end

-- Statements up to one of the tags in `ends` (a set); leaves the stream after
-- the name of that tag and returns the body and the name.
local function parse_body(P, ends, opened)
  local body, parts = {}, nil
  while true do
    local kind, at = P:type(), P:at()
    if kind == "data" or kind == "variable_begin" then
      if not parts then
        parts = {}
        body[#body + 1] = { t = "output", at = at, parts = parts }
      end
      P.i = P.i + 1
      if kind == "data" then
        parts[#parts + 1] = P.values[P.i - 1]
      else
        parts[#parts + 1] = expr.parse_tuple(P)
        P:expect("variable_end")
      end
    elseif kind == "eof" then
      if ends then P:fail("the template ends inside a block; one of its end tags is missing", opened) end
      return body
    else
      parts = nil
      P:expect("block_begin")
      local name = P:name()
      if not name then P:fail("expected the name of a tag, found " .. P:describe()) end
      if ends and ends[name] then
        P.i = P.i + 1
        return body, name
      end
      local handler = statements[name]
      if not handler then P:fail("unknown tag '" .. name .. "'") end
      P:down()
      P.i = P.i + 1
      body[#body + 1] = handler(P, at)
      P:up()
      P:expect("block_end")
    end
  end
end

-- "%}", body, end tag; leaves the stream before the "%}" of the end tag.
local function block_body(P, at, ...)
  local ends = {}
  for _, name in ipairs{ ... } do ends[name] = true end
  P:skip_if(":")
  P:expect("block_end")
  return parse_body(P, ends, at)
end

statements["if"] = function(P, at)
  local node = { t = "if", at = at, branches = {} }
  local name = "elif"
  while name == "elif" do
    local test = expr.parse_tuple(P, { no_cond = true })
    local body
    body, name = block_body(P, at, "elif", "else", "endif")
    node.branches[#node.branches + 1] = { test = test, body = body }
  end
  if name == "else" then node.other = block_body(P, at, "endif") end
  return node
end

statements["for"] = function(P, at)
  local node = { t = "for", at = at }
  P.in_target = true
  node.target = parse_target(P, { simple = true, end_word = "in" })
  P.in_target = nil
  P:expect_name("in")
  node.iter = expr.parse_tuple(P, { no_cond = true, end_word = "recursive" })
  if P:skip_name("if") then node.test = expr.parse(P) end
  node.recursive = P:skip_name("recursive")
  local name
  P.loops = (P.loops or 0) + 1
  node.body, name = block_body(P, at, "endfor", "else")
  P.loops = P.loops - 1
  if name == "else" then node.other = block_body(P, at, "endfor") end
  return node
end

for _, word in ipairs{ "break", "continue" } do
  statements[word] = function(P, at)
    if (P.loops or 0) == 0 then P:fail("'" .. word .. "' outside of a loop", at) end
    return { t = word, at = at }
  end
end

function statements.set(P, at)
  local target = parse_target(P, { simple = true, namespace = true })
  if P:skip_if("=") then return { t = "set", at = at, target = target, value = expr.parse_tuple(P) } end
  local filter = expr.parse_filters(P, nil)
  return { t = "setblock", at = at, target = target, filter = filter, body = (block_body(P, at, "endset")) }
end

-- Parameters of a macro or call block: names, and defaults for the last of them.
local function parse_params(P, node)
  node.params, node.defaults = {}, {}
  P:expect("(")
  while P:type() ~= ")" do
    if #node.params > 0 then P:expect(",") end
    if P:type() == ")" then break end
    local n = #node.params + 1
    node.params[n] = P:expect("name")
    for i = 1, n - 1 do if node.params[i] == node.params[n] then P:fail("the parameter '" .. node.params[n] .. "' is there twice") end end
    if node.params[n] == "caller" and P:type() ~= "=" then P:fail("the parameter 'caller' needs a default") end
    if P:skip_if("=") then
      node.defaults[n] = expr.parse(P)
    elseif n > 1 and node.defaults[n - 1] then
      P:fail("a parameter without default after one with default")
    end
  end
  P:expect(")")
end

-- The loops around a macro are not the loops of its body.
local function function_body(P, at, end_tag)
  local loops = P.loops
  P.loops = 0
  local body = block_body(P, at, end_tag)
  P.loops = loops
  return body
end

function statements.macro(P, at)
  local node = { t = "macro", at = at, name = P:expect("name") }
  parse_params(P, node)
  node.body = function_body(P, at, "endmacro")
  return node
end

function statements.call(P, at)
  local node = { t = "callblock", at = at, params = {}, defaults = {} }
  if P:type() == "(" then parse_params(P, node) end
  node.call = expr.parse(P)
  if node.call.t ~= "call" then P:fail("expected a call", node.call.at) end
  node.body = function_body(P, at, "endcall")
  return node
end

function statements.filter(P, at)
  local filter = expr.parse_filters(P, nil, true)
  return { t = "filterblock", at = at, filter = filter, body = (block_body(P, at, "endfilter")) }
end

statements["with"] = function(P, at)
  local node = { t = "with", at = at, targets = {}, values = {} }
  while P:type() ~= "block_end" do
    if #node.targets > 0 then P:expect(",") end
    node.targets[#node.targets + 1] = check_target(P, expr.parse_tuple(P, { simple = true, end_word = "=" }))
    P:expect("=")
    node.values[#node.values + 1] = expr.parse(P)
  end
  node.body = block_body(P, at, "endwith")
  return node
end

-- {% generation %} marks what the assistant wrote, for training; here it is a plain block.
function statements.generation(P, at) return { t = "scope", at = at, body = (block_body(P, at, "endgeneration")) } end

function statements.autoescape(P, at)
  local value = expr.parse(P)
  local body = block_body(P, at, "endautoescape")
  if value.t == "const" and value.value == false then return { t = "scope", at = at, body = body } end
  return { t = "unsupported", at = at, feature = "autoescape (HTML) is not supported in chat templates" }
end

function statements.block(P, at)
  local name = P:expect("name")
  P.blocks = P.blocks or {}
  if P.blocks[name] then P:fail("the block '" .. name .. "' is defined twice", at) end
  P.blocks[name] = true
  local required
  while P:name() do
    required = required or P:name() == "required"
    P.i = P.i + 1
  end
  local node = { t = "scope", at = at, body = (block_body(P, at, "endblock")) }
  P:skip_name(name)
  if required then return { t = "unsupported", at = at, feature = "the required block '" .. name .. "' is not there: a chat template is one file" } end
  return node
end

function statements.print(P, at)
  local parts = {}
  while P:type() ~= "block_end" do
    if #parts > 0 then P:expect(",") end
    parts[#parts + 1] = expr.parse(P)
  end
  return { t = "output", at = at, parts = parts }
end

for _, word in ipairs{ "include", "import", "extends", "from" } do
  statements[word] = function(P, at)
    while P:type() ~= "block_end" and P:type() ~= "eof" do P.i = P.i + 1 end
    return { t = "unsupported", at = at, feature = "'" .. word .. "' is not supported: a chat template is one file" }
  end
end

--- Parses a template; returns its statements and the normalised source that
--- offsets refer to. Raises {template_message=, at=}.
function parser.parse(source)
  local src, lx = lexer.run(source)
  return parse_body(Tokens.new(lx), nil, 1), src
end

return parser
