-- SPDX-License-Identifier: MIT
-- Tools and a format -> a GBNF text that allows exactly their calls, and the JSON Schemas it
-- names (core.grammar.gbnf), strings that a format writes as plain text among them.
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

-- One of a list of values as texts.
function G:any(list)
  local choices = {}
  for i, v in ipairs(list) do choices[i] = self:literal(tostring(v)) end
  return table.concat(choices, " | ")
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

-- Text that holds none of the marks: the automaton of Aho and Corasick, a rule for each state. Marks with control
-- tokens in them are no text at all.
function G:without(marks)
  local name = table.concat(marks, "\0")
  self.texts[name] = self.texts[name] or self:new_text(marks)
  return self.texts[name]
end

function G:new_text(marks)
  local nodes = { { next = {}, text = "" } } -- next: {char = node}
  for _, mark in ipairs(marks) do
    local node = nodes[1]
    for token in pairs(self.control) do node = node and not mark:find(token, 1, true) and node end
    for _, code in utf8.codes(node and mark or "") do
      local c = utf8.char(code)
      if not node.next[c] then
        node.next[c] = { next = {}, text = node.text .. c }
        nodes[#nodes + 1] = node.next[c]
      end
      node = node.next[c]
    end
    if node then node.is_end = true end
  end
  if not nodes[2] then return ".*" end
  self.n = self.n + 1
  for i, node in ipairs(nodes) do node.name = "t" .. self.n .. "-" .. i end
  local by_text = {}
  for _, node in ipairs(nodes) do by_text[node.text] = node end
  for _, node in ipairs(nodes) do
    local to, ends = {}, false -- what each character leads to, of this state and of all that its text ends with
    local tail = node.text
    while true do
      local state = by_text[tail]
      for c, follower in pairs(state and state.next or {}) do to[c] = to[c] or follower end
      ends = ends or (state and state.is_end)
      if tail == "" then break end
      tail = tail:sub(utf8.offset(tail, 2))
    end
    node.to, node.ends = to, ends
  end
  for i, node in ipairs(nodes) do
    local chars, others = {}, {}
    for c in pairs(node.to) do chars[#chars + 1] = c end
    table.sort(chars)
    local class = {}
    for k, c in ipairs(chars) do
      class[k] = (c:find("[%]\\^-]") and "\\" or "") .. c
      if not node.to[c].ends then others[#others + 1] = quoted(c) .. " " .. node.to[c].name end
    end
    class = "[^" .. table.concat(class) .. "]"
    if not node.ends then
      self.lines[#self.lines + 1] = node.name .. " ::= " .. (i == 1 and class .. "* (" .. table.concat(others, " | ") .. ")?"
        or table.concat({ '""', class .. " " .. nodes[1].name, table.unpack(others) }, " | "))
    end
  end
  return nodes[1].name
end

-- What may come before a mark: where it begins with a control token, every other token, since some frame the text.
function G:before(mark)
  for text, token in pairs(self.control) do
    if mark:sub(1, #text) == text then return "(!<[" .. token .. "]>)*" end
  end
  return self:without({ mark })
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
  local text = json.encode(alone(schema, self.root))
  for token in pairs(self.control) do stop = stop and not stop:find(token, 1, true) and stop end -- no text holds a control token
  local name = "\0" .. text .. "\0" .. (stop or "")
  if not self.by_body[name] then
    self.n = self.n + 1
    self.by_body[name] = "p" .. self.n
    self.schemas["p" .. self.n] = { schema = text, stop = stop }
  end
  return self.by_body[name]
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

-- MiniMax M3's values: elements inside for objects and lists whose schemas say what these hold.
function G:element(schema, kinds, depth)
  local resolved = parameters.resolved(schema, self.root)
  if depth < 8 and only(kinds, "object") and json.is_object(resolved.properties) then return self:members(resolved, depth + 1) end
  if depth < 8 and only(kinds, "array") and json.is_object(resolved.items) then
    return self:rule(self:parameter("item", resolved.items, depth + 1)) .. "*"
  end
  return self:schema(alone(schema, self.root))
end

-- A form's text with the parameter's places filled in. type: what stands for $T.
function G:filled(text, key, type, value)
  local out, pos = {}, 1
  while true do
    local i = text:find("%$[KTV]", pos)
    local plain = text:sub(pos, (i or #text + 1) - 1)
    if plain ~= "" then out[#out + 1] = self:form_text(plain) end
    if not i then return table.concat(out, " ") end
    local place = text:sub(i + 1, i + 1)
    out[#out + 1] = place == "K" and quoted(self:named(key)) or place == "T" and type or value
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
  if form.quote then return self:filled(form.parameter, key, nil, self:gemma(schema, depth)) end
  if not form.close or (kinds and not kinds.string) then
    local value = form.nested and self:element(schema, kinds, depth) or self:schema(alone(schema, root))
    return self:filled(form.parameter, key, self:types(kinds), value)
  end
  local text = self:filled(form.text or form.parameter, key, nil, self:text(only(kinds, "string") and schema or nil, form.close))
  if not form.text or only(kinds, "string") then return text end
  return "(" .. text .. " | " .. self:filled(form.parameter, key, self:types(kinds), self:schema(alone(schema, root))) .. ")"
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
    out[#out + 1] = place == "N" and quoted(self:named(f.name)) or place == "A" and self:schema(self.root) or self:members(self.root, 0)
    pos = i + 2
  end
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
-- turn (the whole answer, texts and calls as the model likes).
-- -> GBNF text, {rule = schema text} | nil when the format has no form of its own for it.
function call_grammar.of(options)
  local form = forms[options.format.name]
  if type(form) == "function" then form = form(options.template) end
  if not form or not (options.tools or form.answer) or (options.turn and not form.turn) then return nil end
  local g = setmetatable({ form = form, control = options.control or {}, lines = {}, schemas = {}, by_body = {}, n = 0, texts = {} }, G)
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
  return "root ::= " .. goes_on .. "(" .. table.concat(root, " | ") .. ")" .. ending .. "\n" .. table.concat(g.lines, "\n") .. "\n", g.schemas
end

return call_grammar
