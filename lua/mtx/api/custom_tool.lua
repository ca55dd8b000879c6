-- SPDX-License-Identifier: MIT
-- OpenAI's tools of type "custom", which take a text instead of arguments: to the model they are functions of one
-- string, to the client the call's text stands as it is. Their grammars are held (parse/custom_input.lua).
local check = require("mtx.api.check")
local call_grammar = require("mtx.parse.call_grammar")
local core = require("mtx.core")
local json = require("mtx.json")
local messages = require("mtx.api.messages")

local custom_tool = {}

local get, fail = check.get, check.fail

-- What the text must look like -> a pattern of its whole, or nil; a Lark grammar goes into r.input_grammars. nested: the
-- grammar is an object of its own in the format (chat completions).
local function input_format(t, where, r, nested)
  local format = check.object(t, "format", where .. ".format")
  local kind = format and check.one_of(format, "type", { "text", "grammar" }, where .. ".format.type")
  if kind ~= "grammar" then return nil end
  local grammar, at = format, where .. ".format"
  if nested then
    at = at .. ".grammar"
    grammar = check.object(format, "grammar", at)
    if not grammar then fail(400, at .. " is required", { param = "tools" }) end
  end
  local syntax = check.one_of(grammar, "syntax", { "lark", "regex" }, at .. ".syntax")
  local definition = check.string(grammar, "definition", at .. ".definition")
  if not syntax or not definition then fail(400, at .. " needs syntax and definition") end
  local pattern, message = syntax == "regex" and "^(?:" .. definition .. ")$" or nil, nil
  if pattern then message = select(2, core.grammar.regex(pattern)) else message = call_grammar.fault_of_custom(definition) end
  if message then fail(400, ("%s.definition cannot be held: %s"):format(at, message), { param = "tools" }) end
  if not pattern then
    r.input_grammars = r.input_grammars or {}
    r.input_grammars[t.name] = definition
  end
  return pattern, ("; it must match this %s%s:\n%s"):format(syntax == "lark" and "Lark grammar" or "regex", pattern and " as a whole" or "", definition)
end

--- A custom tool {name, description, format} -> a function tool of the neutral request r, checked. r.custom and
--- r.input_grammars learn of it. where: its place in the request; nested: see above.
function custom_tool.read(t, where, r, nested)
  r.custom = r.custom or {}
  local name = check.string(t, "name", where .. ".name")
  if name then r.custom[name] = true end
  local pattern, must = input_format(t, where, r, nested)
  local f = json.object("name", name, "description", get(t, "description"), "parameters", json.object("type", "object",
    "properties", json.object("input", json.object("type", "string", "description", "The tool's whole input" .. (must or ""), "pattern", pattern)), "required", json.array({ "input" })))
  messages.tool(f, where)
  return json.object("type", "function", "function", f)
end

--- The arguments of a call of the history whose text is t.input.
function custom_tool.arguments(t, where) return json.object("input", check.string(t, "input", where .. ".input") or "") end

--- The text of a call, of its arguments' JSON. What was cut off gives the text up to there.
function custom_tool.input(arguments)
  for _, text in ipairs({ arguments, arguments .. '"}', arguments:gsub("\\u?%x*$", "") .. '"}' }) do
    local value = json.decode(text)
    if json.is_object(value) and type(value.input) == "string" then return value.input end
  end
  return arguments
end

return custom_tool
