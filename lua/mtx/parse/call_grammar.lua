-- SPDX-License-Identifier: MIT
-- Tools and a format -> a GBNF text that allows exactly their calls, and the JSON Schemas it
-- names (core.grammar.gbnf), strings that a format writes as plain text among them.
local core = require("mtx.core")
local memo = require("mtx.memo")
local custom_input = require("mtx.parse.custom_input")
local forms = require("mtx.parse.forms")
local json = require("mtx.json")
local parameters = require("mtx.parse.parameters")
local rules = require("mtx.parse.rules")

local call_grammar = {}

-- The rules with what a form's values need.
local G = setmetatable({}, { __index = rules })
G.__index = G

local quoted = rules.quoted

local function only(kinds, kind) return kinds and kinds[kind] and next(kinds, next(kinds)) == nil end

local function enum_of(schema)
  local list = json.is_object(schema) and (schema.const ~= nil and { schema.const } or schema.enum)
  return type(list) == "table" and list ~= json.null and #list > 0 and list or nil
end

-- A property's schema as a document of its own; root: where its definitions are.
local function alone(schema, root)
  if not json.is_object(schema) then return schema == nil and true or schema end
  local copy = json.object()
  for k, v in pairs(schema) do copy[k] = v end
  for _, k in ipairs({ "$defs", "definitions", "$schema" }) do
    if copy[k] == nil and root[k] ~= nil then copy[k] = root[k] end
  end
  return copy
end

local NOTES = { type = true, title = true, description = true, default = true, examples = true, example = true, deprecated = true }

-- Does a string's schema ask for more than a string? parameters.kinds has looked at what it refers to.
local function asks(schema)
  for key in pairs(json.is_object(schema) and schema or {}) do
    if not NOTES[key] then return true end
  end
  return false
end

-- Plain text as a string's schema wants it, without `stop`.
function G:plain(schema, stop)
  if not asks(schema) then return self:without({ stop }) end
  return self:strings(alone(schema, self.root), stop)
end

-- A string between marks or up to one, held to its enum.
function G:text(schema, stop, before, after)
  local list = enum_of(schema)
  if self.form.cdata then return self:cdata(list, schema) end
  local free = list and "(" .. self:any(list) .. ")" or self:plain(schema, stop)
  return (before and self:literal(before) .. " " or "") .. free .. (after and " " .. self:literal(after) or "")
end

-- A string as XML holds it; list: those it may be, or nil.
function G:cdata(list, schema)
  if not list and asks(schema) then
    local bare = alone(schema, self.root)
    bare.allOf = json.array{ json.object("allOf", bare.allOf), json.object("pattern", "^[^<&\n]*$") }
    return "(" .. self:plain(bare) .. ' | "<![CDATA[" ' .. self:plain(schema, "]]>") .. ' "]]>")'
  end
  if not list then return '([^<&\\n]* | "<![CDATA[" ' .. self:without({ "]]>" }) .. ' "]]>")' end
  local out = {}
  for i, v in ipairs(list) do out[i] = tostring(v):find("[<&\n]") and "<![CDATA[" .. v .. "]]>" or v end
  return "(" .. self:any(out) .. ")"
end

-- Keywords of objects and lists that a form which writes them member by member does not hold to.
local OF_OBJECTS = { "allOf", "anyOf", "dependencies", "dependentRequired", "dependentSchemas", "if", "maxProperties", "minProperties", "not", "oneOf", "patternProperties", "propertyNames" }
local OF_LISTS = { "contains", "maxItems", "minItems", "prefixItems", "uniqueItems" }

function G:note_unheld(schema, keywords)
  for _, keyword in ipairs(keywords) do
    local line = keyword .. " in the parameters of " .. self.tool .. " is not enforced: this format writes them one by one"
    if schema[keyword] ~= nil and not self.unheld[line] then
      self.unheld[line] = true
      self.unheld[#self.unheld + 1] = line
    end
  end
end

-- Gemma 4's values: JSON but for strings and keys.
function G:gemma_any()
  local q = self.form.quote
  if not self.gemma_done then
    self.gemma_done = true
    local text, number = self:text(nil, q, q, q), self:schema(json.object("type", "number"))
    local key = "[^{}\\[\\],:<> \\n]+"
    table.move({ 'gval ::= gtext | ' .. number .. ' | "true" | "false" | "null" | gobj | garr', "gtext ::= " .. text,
      'gobj ::= "{" (gpair ("," gpair)*)? "}"', "gpair ::= " .. key .. ' ":" gval', 'garr ::= "[" (gval ("," gval)*)? "]"' }, 1, 5, #self.lines + 1, self.lines)
  end
  return "gval"
end

function G:gemma(schema, depth)
  local q, root = self.form.quote, self.root
  local kinds = parameters.kinds(json.object("properties", json.object("x", schema), "$defs", root["$defs"], "definitions", root.definitions), "x")
  if only(kinds, "string") then return self:text(schema, q, q, q) end
  if only(kinds, "number") or only(kinds, "boolean") or only(kinds, "null") then return self:schema(alone(schema, root)) end
  if depth < 8 and only(kinds, "object") and json.is_object(schema.properties) then return '"{" ' .. self:members(schema, depth + 1) .. ' "}"' end
  if depth < 8 and only(kinds, "array") and json.is_object(schema.items) then
    self:note_unheld(schema, OF_LISTS)
    local item = self:rule(self:gemma(schema.items, depth + 1))
    return '"[" (' .. item .. ' ("," ' .. item .. ')*)? "]"'
  end
  return self:gemma_any()
end

-- MiniMax M3's values: elements inside for objects and lists whose schemas say what these hold.
function G:element(schema, kinds, depth)
  local resolved = parameters.resolved(schema, self.root)
  if depth < 8 and only(kinds, "object") and json.is_object(resolved.properties) then return self:members(resolved, depth + 1) end
  if depth < 8 and only(kinds, "array") and json.is_object(resolved.items) then
    self:note_unheld(resolved, OF_LISTS)
    return self:rule(self:parameter("item", resolved.items, depth + 1)) .. "*"
  end
  return self:schema(alone(schema, self.root))
end

-- A form's text with the places named in `values` filled in: {K = expression, ...}.
function G:filled(text, values)
  local out, pos = {}, 1
  while true do
    local i, _, place = text:find("%$([KTVNAP])", pos)
    local plain = text:sub(pos, (i or #text + 1) - 1)
    if plain ~= "" then out[#out + 1] = self:form_text(plain) end
    if not i then return table.concat(out, " ") end
    out[#out + 1] = values[place]
    pos = i + 2
  end
end

-- A name as the form writes it.
function G:named(name) return self.form.attribute and self.form.attribute(name) or name end

local JSON_KINDS = { "number", "boolean", "null", "object", "array" }

-- One parameter.
function G:parameter(key, schema, depth)
  local form, root = self.form, self.root
  local kinds = parameters.kinds_of(schema, root)
  local name = quoted(self:named(key))
  if form.quote then return self:filled(form.parameter, { K = name, V = self:gemma(schema, depth) }) end
  if not form.close or (kinds and not kinds.string) then
    local value = form.nested and self:element(schema, kinds, depth) or self:schema(alone(schema, root))
    return self:filled(form.parameter, { K = name, T = self:types(kinds), V = value })
  end
  local text = self:filled(form.text or form.parameter, { K = name, V = self:text(only(kinds, "string") and schema or nil, form.close) })
  if not form.text or only(kinds, "string") then return text end
  return "(" .. text .. " | " .. self:filled(form.parameter, { K = name, T = self:types(kinds), V = self:schema(alone(schema, root)) }) .. ")"
end

-- The words of a form for the types a value may have that is no string.
function G:types(kinds)
  local list = {}
  for _, kind in ipairs(JSON_KINDS) do
    if not kinds or kinds[kind] then list[#list + 1] = quoted(kind) end
  end
  return "(" .. table.concat(list, " | ") .. ")"
end

-- The parameters of an object's schema in its order, optional ones left out or not.
function G:members(schema, depth)
  local between, required = self.form.between and self:literal(self.form.between), {}
  self:note_unheld(schema, OF_OBJECTS)
  for _, k in ipairs(type(schema.required) == "table" and schema.required ~= json.null and schema.required or {}) do required[k] = true end
  local list = {}
  for key, property in pairs(json.is_object(schema.properties) and schema.properties or json.object()) do
    list[#list + 1] = { self:parameter(key, property, depth), required[key] }
  end
  local after, first = '""', '""' -- what may follow a member; what may stand first
  for i = #list, 1, -1 do
    local item, needed = list[i][1], list[i][2]
    local next_after = (between and between .. " " or "") .. item .. " " .. after
    local next_first = item .. " " .. after
    first = self:rule(next_first .. (needed and "" or " | " .. first))
    after = self:rule(next_after .. (needed and "" or " | " .. after))
  end
  return first
end

local function closed(parameters)
  local copy = json.object()
  for k, v in pairs(json.is_object(parameters) and parameters or json.object()) do copy[k] = v end
  if copy.type == nil then copy.type = "object" end
  -- Weak models fill free objects with inventions: what the tool does not name is not sent.
  if copy.additionalProperties == nil and json.is_object(copy.properties) then copy.additionalProperties = false end
  return copy
end
call_grammar.closed = closed

-- The one parameter of a tool whose input a grammar describes.
function G:custom_input(definition)
  local form, literal = self.form, nil
  local function body(inside, without) return custom_input(self, definition, inside, without) end
  if form.quote then literal = self:literal(form.quote) .. " " .. body(false, form.quote) .. " " .. self:literal(form.quote)
  elseif form.cdata then literal = '"<![CDATA[" ' .. body(false, "]]>") .. ' "]]>"'
  elseif form.close then literal = body(false, form.close)
  else literal = '"\\"" ' .. body(true) .. ' "\\""' end
  return self:filled(form.text or form.parameter, { K = quoted("input"), V = literal })
end

-- One tool's call: the form's text with its places filled in.
function G:call(tool, text)
  local f = tool["function"]
  self.root, self.tool = closed(f.parameters), f.name
  local definition = self.custom[f.name]
  local values = { N = quoted(self:named(f.name)) }
  if not definition then
    if text:find("$A", 1, true) then values.A = self:schema(self.root) else values.P = self:members(self.root, 0) end
  elseif text:find("$A", 1, true) then
    values.A = '"{\\"input\\":" " "? "\\"" ' .. custom_input(self, definition, true) .. ' "\\"}"'
  else
    values.P = self:custom_input(definition)
  end
  return self:filled(text, values)
end

-- The whole answer of a model that is left to itself, in a form whose texts have frames (`turn` of forms.lua):
-- texts as they come, and calls held to their form.
function G:turn(calls)
  local turn = self.form.turn
  local text = self:without(turn.marks)
  if not turn.again then return "(" .. self:literal(turn.open) .. ")? " .. text .. " (" .. calls .. " | " .. self:literal(turn.close) .. ")?" end
  self.lines[#self.lines + 1] = "turn ::= (" .. self:any(turn.headers) .. ") " .. text .. " (" .. self:literal(turn.close .. turn.again) .. " turn)? | " .. calls
  return "turn"
end

-- options: format, template, tools, control = {mark = token id} of marks that are control tokens,
-- parallel = false (one call), mark (the format's opening mark, when it has been read already),
-- answer = a JSON Schema that may come in place of calls, after_text (with mark: text may come first, and no call at all),
-- turn (the whole answer, texts and calls as the model likes), custom = {name = Lark grammar of the tool's one parameter},
-- form (the name of one in place of the format's own: "bare", calls as bare JSON, or "taught").
-- -> GBNF text, {rule = schema text}, list of what it does not hold to | nil when the format has no form of its own for it.
function call_grammar.of(options)
  local form = forms[options.form or options.format.name]
  if type(form) == "function" then form = form(options.template) end
  if not form or not (options.tools or form.answer) or (options.turn and not form.turn) then return nil end
  local g = rules.new(G, options.control)
  g.form, g.custom, g.unheld = form, options.custom or {}, {}
  local mark, head, root = options.mark or "", form.head or "", {}
  local function one_of(text)
    local calls = {}
    for i, tool in ipairs(options.tools) do calls[i] = g:rule(g:call(tool, text)) end
    return g:rule(table.concat(calls, " | "))
  end
  if options.tools then
    local in_call = head == "" and form.call:sub(1, #mark) == mark
    local at = head:find(mark, 1, true)
    if not in_call and not at then return nil end
    local body = one_of(in_call and form.call:sub(#mark + 1) or form.call)
    if options.parallel ~= false and not form.one then body = body .. " (" .. g:form_text(form.sep) .. " " .. one_of(form.call) .. ")*" end
    root[1] = g:literal(in_call and "" or head:sub(at + #mark)) .. " " .. body .. (form.tail and " " .. g:literal(form.tail) or "")
    for _, also in ipairs(mark == "" and form.also or {}) do root[#root + 1] = g:literal(also.head) .. " " .. one_of(also.call) end
  end
  if options.after_text then root[1] = g:before(mark) .. " (" .. g:literal(mark) .. " " .. root[1] .. ")?" end
  if options.turn then root = { g:turn(table.concat(root, " | ")) } end
  if options.answer then root[#root + 1] = g:literal(form.answer or "") .. " " .. g:schema(options.answer) end
  local goes_on = form.goes_on and mark == "" and not (options.turn and not form.turn.again) and "(" .. g:literal(form.goes_on) .. ")? " or ""
  local ending = form.ending and " (" .. g:literal(form.ending) .. ")?" or ""
  return "root ::= " .. goes_on .. "(" .. table.concat(root, " | ") .. ")" .. ending .. "\n" .. table.concat(g.lines, "\n") .. "\n", g.schemas, g.unheld
end

-- false when a Lark grammar can be held, else what is wrong.
call_grammar.fault_of_custom = memo(64, function(definition)
  local ok, message = pcall(function()
    local g = rules.new(G)
    local body = custom_input(g, definition, true)
    local compiled, text = core.grammar.gbnf("root ::= " .. body .. "\n" .. table.concat(g.lines, "\n") .. "\n", g.schemas)
    if not compiled then error(text, 0) end
  end)
  return not ok and message
end)

return call_grammar
