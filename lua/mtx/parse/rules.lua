-- SPDX-License-Identifier: MIT
-- The rules of a GBNF text that is being made: `lines`, and `schemas`, those that are written otherwise (core.grammar.gbnf).
local json = require("mtx.json")

local G = {}

local ESCAPES = { ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ['"'] = '\\"', ["\\"] = "\\\\" }

--- A text as GBNF quotes it.
function G.quoted(text)
  return '"' .. text:gsub('[%z\1-\31"\\\127]', function(c) return ESCAPES[c] or ("\\x%02x"):format(c:byte()) end) .. '"'
end

local quoted = G.quoted

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

-- A new rule's name, and its definition.
function G:name()
  self.n = self.n + 1
  return "k" .. self.n
end
function G:define(name, body) self.lines[#self.lines + 1] = name .. " ::= " .. body end

-- A rule that is written otherwise -> its name. key: what tells it from others.
function G:other(key, rule)
  if not self.by_body[key] then
    self.n = self.n + 1
    self.by_body[key] = "s" .. self.n
    self.schemas["s" .. self.n] = rule
  end
  return self.by_body[key]
end

-- The strings of a schema as plain text without `stop`.
function G:strings(schema, stop)
  local text = json.encode(schema)
  for token in pairs(self.control) do stop = stop and not stop:find(token, 1, true) and stop end -- no text holds a control token
  return self:other("\0" .. text .. "\0" .. (stop or ""), { schema = text, stop = stop })
end

-- What a regex finds a match in: inside a JSON string, or as plain text without `stop`.
function G:regex(pattern, inside, stop)
  if not inside then return self:strings(json.object("type", "string", "pattern", pattern), stop) end
  return self:other("\0\0" .. pattern, { inside = pattern })
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
  return self:other("\0" .. text, text)
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

--- New rules of a class that inherits from these. control: {mark = token id} of marks that are control tokens.
function G.new(class, control)
  return setmetatable({ control = control or {}, lines = {}, schemas = {}, by_body = {}, texts = {}, n = 0 }, class)
end

return G
