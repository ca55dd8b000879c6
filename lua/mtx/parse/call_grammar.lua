-- SPDX-License-Identifier: MIT
-- Tools and a format -> a GBNF text that allows exactly their calls, and the JSON Schemas it
-- names (core.grammar.gbnf). Strings in formats that write them as plain text are held to
-- their enum; their patterns and lengths cannot be.
local forms = require("mtx.parse.forms")
local json = require("mtx.json")
local parameters = require("mtx.parse.parameters")

local call_grammar = {}

local G = {}
G.__index = G

local ESCAPES = { ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ['"'] = '\\"', ["\\"] = "\\\\" }

local function quoted(text)
  return '"' .. text:gsub('[%z\1-\31"\\\127]', function(c) return ESCAPES[c] or ("\\x%02x"):format(c:byte()) end) .. '"'
end

local CLASSES = { I = "[0-9]+", C = "[a-zA-Z0-9]{9}", L = '"\\n"{0,2}', O = [[(", \"id\": \"" [a-zA-Z0-9]{9} "\"")?]] }

-- A form's text without values: its places filled in.
function G:form_text(text)
  local out = {}
  for plain, place in (text .. "$"):gmatch("([^$]*)%$(%u?)") do
    if plain ~= "" then out[#out + 1] = self:literal(plain) end
    out[#out + 1] = CLASSES[place]
  end
  return out[1] and table.concat(out, " ") or '""'
end

-- A literal in which the marks that are control tokens are those tokens.
function G:literal(text)
  local out, pos = {}, 1
  while pos <= #text do
    local at, mark, id
    for m, token in pairs(self.control) do
      local i = text:find(m, pos, true)
      if i and (not at or i < at or (i == at and #m > #mark)) then at, mark, id = i, m, token end
    end
    local plain = text:sub(pos, (at or #text + 1) - 1)
    if plain ~= "" then out[#out + 1] = quoted(plain) end
    if not at then break end
    out[#out + 1] = "<[" .. id .. "]>"
    pos = at + #mark
  end
  return out[1] and table.concat(out, " ") or '""'
end

-- A rule of its own for an expression -> its name.
function G:rule(body)
  if not self.by_body[body] then
    self.n = self.n + 1
    self.by_body[body] = "r" .. self.n
    self.lines[#self.lines + 1] = "r" .. self.n .. " ::= " .. body
  end
  return self.by_body[body]
end

-- A rule that is a JSON Schema.
function G:schema(schema)
  local text = json.encode(schema)
  if not self.by_body["\0" .. text] then
    self.n = self.n + 1
    self.by_body["\0" .. text] = "s" .. self.n
    self.schemas["s" .. self.n] = text
  end
  return self.by_body["\0" .. text]
end

-- Text that does not hold `mark`, whose first byte "<" comes in it only once.
function G:until_mark(mark)
  local rest, chars = self:rule("[^<]*"), {}
  for _, c in utf8.codes(mark) do chars[#chars + 1] = utf8.char(c) end
  local tail
  for i = #chars, 2, -1 do
    local c = chars[i]
    tail = self:rule('"" | [^' .. (c:find("[%]\\^-]") and "\\" or "") .. c .. "<] " .. rest .. (tail and " | " .. quoted(c) .. " " .. tail or ""))
  end
  return self:rule('[^<]* ("<" ' .. tail .. ")*")
end

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

-- A string between marks or up to one, held to its enum.
function G:text(schema, stop, before, after)
  local list, free = enum_of(schema), nil
  if list then
    local choices = {}
    for i, v in ipairs(list) do choices[i] = self:literal(tostring(v)) end
    free = "(" .. table.concat(choices, " | ") .. ")"
  elseif self.control[stop] then
    free = ".*"
  else
    free = self:until_mark(stop)
  end
  return (before and self:literal(before) .. " " or "") .. free .. (after and " " .. self:literal(after) or "")
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
    local item = self:rule(self:gemma(schema.items, depth + 1))
    return '"[" (' .. item .. ' ("," ' .. item .. ')*)? "]"'
  end
  return self:gemma_any()
end

-- One parameter.
function G:parameter(key, schema, depth)
  local form, root = self.form, self.root
  local kinds = parameters.kinds(root, key)
  local is_text = form.close and (not kinds or kinds.string)
  local written = is_text and only(kinds, "string") and form.text or form.parameter
  local before, between, after = written:match("^(.-)%$K(.-)%$V(.*)$")
  local value
  if form.quote then value = self:gemma(schema, depth)
  elseif is_text then value = self:text(only(kinds, "string") and schema or nil, form.close)
  else value = self:schema(alone(schema, root)) end
  return self:form_text(before) .. " " .. quoted(key) .. " " .. self:form_text(between) .. " " .. value .. (after ~= "" and " " .. self:form_text(after) or "")
end

-- The parameters of an object's schema in its order, optional ones left out or not.
function G:members(schema, depth)
  local between, required = self.form.between and self:literal(self.form.between), {}
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

-- One tool's call: the form's text with its places filled in.
function G:call(tool, text)
  local f = tool["function"]
  self.root = closed(f.parameters)
  local out, pos = {}, 1
  while true do
    local i = text:find("%$[NAP]", pos)
    local plain = text:sub(pos, (i or #text + 1) - 1)
    if plain ~= "" then out[#out + 1] = self:form_text(plain) end
    if not i then return table.concat(out, " ") end
    local place = text:sub(i + 1, i + 1)
    out[#out + 1] = place == "N" and quoted(f.name) or place == "A" and self:schema(self.root) or self:members(self.root, 0)
    pos = i + 2
  end
end

-- options: format, template, tools, control = {mark = token id} of marks that are control tokens,
-- parallel = false (one call), mark (the format's opening mark, when it has been read already),
-- answer = a JSON Schema that may come in place of calls, after_text (with mark: text may come first, and no call at all).
-- -> GBNF text, {rule = schema text} | nil when the format has no form of its own for it.
function call_grammar.of(options)
  local form = forms[options.format.name]
  if type(form) == "function" then form = form(options.template) end
  if not form or not (options.tools or form.answer) then return nil end
  local g = setmetatable({ form = form, control = options.control or {}, lines = {}, schemas = {}, by_body = {}, n = 0 }, G)
  local mark, head, root = options.mark or "", form.head or "", {}
  local function one_of(text)
    local calls = {}
    for i, tool in ipairs(options.tools) do calls[i] = g:rule(g:call(tool, text)) end
    return g:rule(table.concat(calls, " | "))
  end
  if options.tools then
    local in_call = head == "" and form.call:sub(1, #mark) == mark
    if not in_call and head:sub(1, #mark) ~= mark then return nil end
    local body = one_of(in_call and form.call:sub(#mark + 1) or form.call)
    if options.parallel ~= false and not form.one then body = body .. " (" .. g:form_text(form.sep) .. " " .. one_of(form.call) .. ")*" end
    if form.also and mark == "" then root[2] = g:literal(form.also.head) .. " " .. one_of(form.also.call) end
    root[1] = g:literal(in_call and "" or head:sub(#mark + 1)) .. " " .. body .. (form.tail and " " .. g:literal(form.tail) or "")
  end
  if options.after_text then root[1] = g:text(nil, mark) .. " (" .. g:literal(mark) .. " " .. root[1] .. ")?" end
  if options.answer then root[#root + 1] = g:literal(form.answer or "") .. " " .. g:schema(options.answer) end
  local goes_on = form.goes_on and mark == "" and "(" .. g:literal(form.goes_on) .. ")? " or ""
  return "root ::= " .. goes_on .. "(" .. table.concat(root, " | ") .. ")\n" .. table.concat(g.lines, "\n") .. "\n", g.schemas
end

return call_grammar
