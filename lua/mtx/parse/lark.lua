-- SPDX-License-Identifier: MIT
-- Grammars in Lark's notation, which clients send with custom tools -> a tree of rules.
-- What is there: rules, terminals, strings, ranges, regexes, groups, repetitions, %import of Lark's common
-- terminals, %ignore. Source: Lark's documentation (grammar.html) and its common.lark.
local lark = {}

-- Lark's common terminals as regexes.
local INT, EXP = "[0-9]+", "[eE][+-]?[0-9]+"
local DECIMAL = "([0-9]+\\.[0-9]*|\\.[0-9]+)"
local FLOAT = "([0-9]+" .. EXP .. "|" .. DECIMAL .. "(" .. EXP .. ")?)"
local COMMON = { DIGIT = "[0-9]", HEXDIGIT = "[0-9a-fA-F]", INT = INT, SIGNED_INT = "[+-]?" .. INT, DECIMAL = DECIMAL, FLOAT = FLOAT, SIGNED_FLOAT = "[+-]?" .. FLOAT,
  NUMBER = "(" .. FLOAT .. "|" .. INT .. ")", SIGNED_NUMBER = "[+-]?(" .. FLOAT .. "|" .. INT .. ")", ESCAPED_STRING = '"([^"\\\\\\n]|\\\\.)*"',
  LCASE_LETTER = "[a-z]", UCASE_LETTER = "[A-Z]", LETTER = "[a-zA-Z]", WORD = "[a-zA-Z]+", CNAME = "[_a-zA-Z][_a-zA-Z0-9]*", WS_INLINE = "[ \\t]+", WS = "[ \\t\\f\\r\\n]+",
  CR = "\\r", LF = "\\n", NEWLINE = "(\\r?\\n)+", SH_COMMENT = "#[^\\n]*", CPP_COMMENT = "//[^\\n]*", SQL_COMMENT = "--[^\\n]*", C_COMMENT = "/\\*([^*]|\\*+[^*/])*\\*+/" }

local MAX_BYTES, MAX_DEPTH, MAX_COUNT = 1 << 18, 100, 10000

local P = {}
P.__index = P

function P:fail(text)
  local _, line = self.source:sub(1, self.pos - 1):gsub("\n", "")
  error({ lark = ("line %d: %s"):format(line + 1, text) }, 0)
end

function P:match(pattern)
  local first, last, caught = self.source:find("^" .. pattern, self.pos)
  if not first then return nil end
  self.pos = last + 1
  return caught or self.source:sub(first, last)
end

-- Blanks and comments; line ends too where the text goes on behind them.
function P:space(over_lines)
  repeat
    local some = self:match(over_lines and "%s+" or "[ \t\r\f]+") or self:match("//[^\n]*")
  until not some
end

-- The next character that is no blank, unread. A line that begins with | goes on with the one before.
function P:peek(over_lines)
  self:space(over_lines)
  if not over_lines and self.source:find("^\n", self.pos) then
    local at = self.pos
    self:space(true)
    if self.source:sub(self.pos, self.pos) == "|" then return "|" end
    self.pos = at
    return "\n"
  end
  return self.source:sub(self.pos, self.pos)
end

local ESCAPES = { n = "\n", t = "\t", r = "\r", f = "\f", v = "\v", b = "\b", a = "\a", ["0"] = "\0", ["\\"] = "\\", ['"'] = '"', ["'"] = "'" }

-- A quoted string's text.
function P:text()
  local from = self.pos + 1
  repeat
    self.pos = self.pos + 1
    local c = self.source:match("^\\[^\n]", self.pos) or self.source:match("^[^\n]", self.pos) or self:fail("a string has no end")
    self.pos = self.pos + #c - 1
  until c == '"'
  local raw = self.source:sub(from, self.pos - 1)
  self.pos = self.pos + 1
  local function unescape(kind, rest)
    local hex = kind == "x" and rest:match("^%x%x") or kind == "u" and rest:match("^%x%x%x%x")
    if hex then return utf8.char(tonumber(hex, 16)) .. rest:sub(#hex + 1) end
    return (ESCAPES[kind] or self:fail("a string has the escape \\" .. kind)) .. rest
  end
  return (raw:gsub("\\(.)([^\\]?[^\\]?[^\\]?[^\\]?)", unescape))
end

-- Both cases of each letter, as a regex.
local function any_case(text)
  return (text:gsub("[%a^$\\.*+?()%[%]{}|/]", function(c) return c:find("%a") and "[" .. c:lower() .. c:upper() .. "]" or "\\" .. c end))
end

-- `.` for a line end too, as the flag s has it.
local function dot_all(pattern)
  local out, pos, inside = {}, 1, false
  while pos <= #pattern do
    local c = pattern:match("^\\.", pos) or pattern:sub(pos, pos)
    if c == "[" then inside = true elseif c == "]" then inside = false end
    out[#out + 1] = c == "." and not inside and "[\\s\\S]" or c
    pos = pos + #c
  end
  return table.concat(out)
end

function P:regex()
  self.pos = self.pos + 1
  local from, inside = self.pos, false
  while true do
    local c = self.source:match("^\\[^\n]", self.pos) or self.source:match("^[^\n]", self.pos) or self:fail("a regex has no end")
    if c == "/" then break end
    self.pos = self.pos + #c
  end
  local pattern = self.source:sub(from, self.pos - 1)
  self.pos = self.pos + 1
  local flags = self:match("%a*")
  if flags:find("[^su]") then self:fail("the regex flag " .. flags:match("[^su]") .. " is not supported") end
  if flags:find("s") then pattern = dot_all(pattern) end
  return { t = "regex", pattern = pattern }
end

function P:atom(depth)
  local c = self:peek(depth > 0)
  if c == "(" or c == "[" then
    if depth >= MAX_DEPTH then self:fail("groups are nested too deeply") end
    self.pos = self.pos + 1
    local inner = self:alternatives(depth + 1)
    if self:peek(true) ~= (c == "(" and ")" or "]") then self:fail("a group has no end") end
    self.pos = self.pos + 1
    return c == "(" and inner or { t = "rep", item = inner, min = 0, max = 1 }
  elseif c == '"' then
    local text = self:text()
    if self:match("i%f[%W]") then return { t = "regex", pattern = any_case(text) } end
    if not self:match("%s*%.%.%s*") then return { t = "text", text = text } end
    local last = self:text()
    if utf8.len(text) ~= 1 or utf8.len(last) ~= 1 then self:fail("a range goes from one character to another") end
    return { t = "regex", pattern = ("[\\u{%x}-\\u{%x}]"):format(utf8.codepoint(text), utf8.codepoint(last)) }
  elseif c == "/" then
    return self:regex()
  end
  local name = self:match("[%a_][%w_]*")
  if not name then return nil end
  if self.source:find("^{", self.pos) then self:fail("templates are not supported") end
  return { t = "name", name = name, at = self.pos }
end

function P:item(depth)
  local item = self:atom(depth)
  if not item then return nil end
  self:space(false)
  local op = self:match("[?*+]")
  if op then return { t = "rep", item = item, min = op == "+" and 1 or 0, max = op == "?" and 1 or nil } end
  if not self:match("~%s*") then return item end
  local min = tonumber(self:match("%d+") or self:fail("a repetition needs a number"))
  local max = self:match("%s*%.%.%s*(%d+)")
  max = max and tonumber(max) or min
  if min > max or max > MAX_COUNT then self:fail("a repetition must be at most " .. MAX_COUNT) end
  return { t = "rep", item = item, min = min, max = max }
end

function P:alternatives(depth)
  local list = {}
  repeat
    local items = {}
    while true do
      local item = self:item(depth)
      if not item then break end
      items[#items + 1] = item
    end
    list[#list + 1] = { t = "seq", items = items }
    if self:match("%->%s*") and not self:match("[%a_][%w_]*") then self:fail("an alias needs a name") end
    local more = self:peek(depth > 0) == "|"
    if more then self.pos = self.pos + 1 end
  until not more
  return #list == 1 and list[1] or { t = "alt", items = list }
end

function P:import()
  local name = self:match("common%.([%a_]+)")
  local names = name and { name } or {}
  if not name and self:match("common%s*%(") then
    for n in (self:match("([^)\n]*)%)") or self:fail("an import has no end")):gmatch("[%a_]+") do names[#names + 1] = n end
  end
  if not names[1] then self:fail("only terminals of `common` can be imported") end
  local alias = #names == 1 and self:match("[ \t]*%->[ \t]*([%a_][%w_]*)")
  for _, n in ipairs(names) do
    self.rules[alias or n] = { t = "regex", pattern = COMMON[n] or self:fail("`common` has no terminal " .. n) }
  end
end

function P:statement()
  if self:match("%%import%s+") then return self:import() end
  if self:match("%%ignore%s+") then
    self.ignored[#self.ignored + 1] = self:alternatives(0)
    return
  end
  if self:peek(true) == "%" then self:fail("only %import and %ignore are supported") end
  local name = self:match("[?!]*([%a_][%w_]*)") or self:fail("a rule must begin with its name")
  self:match("%.%-?%d+")
  if self.source:find("^{", self.pos) then self:fail("templates are not supported") end
  self:space(false)
  if not self:match(":") then self:fail("expected : after the name " .. name) end
  if self.rules[name] then self:fail(name .. " is defined twice") end
  self.rules[name] = self:alternatives(0)
end

-- Every name that is used must be a rule.
local function check_names(p, node)
  if node.t == "name" and not p.rules[node.name] then
    p.pos = node.at
    p:fail(node.name .. " is not defined")
  end
  for _, item in ipairs(node.items or { node.item }) do check_names(p, item) end
end

--- A grammar's text -> {rules = {name = node}, ignored = list of nodes}. Nodes: {t = "text", text}, {t = "regex", pattern},
--- {t = "name", name}, {t = "seq" or "alt", items}, {t = "rep", item, min, max or nil}. nil, message on what is none.
function lark.parse(source)
  if #source > MAX_BYTES then return nil, "the grammar has more than " .. MAX_BYTES .. " bytes" end
  local p = setmetatable({ source = source, pos = 1, rules = {}, ignored = {} }, P)
  local ok, e = pcall(function()
    while p:peek(true) ~= "" do p:statement() end
    for _, node in pairs(p.rules) do check_names(p, node) end
    for _, node in ipairs(p.ignored) do check_names(p, node) end
    if not p.rules.start then p:fail("there is no rule named start") end
  end)
  if not ok then
    if type(e) ~= "table" or not e.lark then error(e, 0) end
    return nil, e.lark
  end
  return { rules = p.rules, ignored = p.ignored }
end

--- Whether a name is a terminal's: it is in capitals, and nothing is ignored inside it.
function lark.is_terminal(name) return name == name:upper() end

return lark
