-- SPDX-License-Identifier: MIT
-- Template text -> tokens, with white space control already applied.
--
-- The rules are those of Jinja 3.1 as chat templates are rendered everywhere:
-- trim_blocks and lstrip_blocks on, one newline at the end of the file dropped,
-- \r\n and \r read as \n. lexer.run(source) gives the normalised source and three
-- parallel lists: types, values, offsets (byte of the normalised source). A type is
-- "data", "block_begin", "block_end", "variable_begin", "variable_end", "name",
-- "string", "integer", "float", "eof", or the operator's own text.
local strings = require("mtx.chat.jinja.strings")

local lexer = {}
local find, sub, byte = string.find, string.sub, string.byte

local function fail(pos, message) error({ template_message = message, at = pos }, 0) end

local OPERATORS = {}
for op in ("// ** == != <= >= + - / * % ~ [ ] ( ) { } < > = . : | , ;"):gmatch("%S+") do OPERATORS[op] = true end
local CLOSES = { ["{"] = "}", ["["] = "]", ["("] = ")" }
local SIMPLE_ESCAPES = { n = "\n", t = "\t", r = "\r", a = "\a", b = "\b", f = "\f", v = "\v", ["\\"] = "\\", ["'"] = "'", ['"'] = '"', ["\n"] = "" }

-- Python's unicode-escape: an unknown escape stays as it is written.
local function unescape(s, at)
  if not find(s, "\\", 1, true) then return s end
  local out, pos = {}, 1
  while true do
    local slash = find(s, "\\", pos, true)
    if not slash then break end
    out[#out + 1] = sub(s, pos, slash - 1)
    local c = sub(s, slash + 1, slash + 1)
    local width = c == "x" and 2 or c == "u" and 4 or c == "U" and 8
    if SIMPLE_ESCAPES[c] then
      out[#out + 1] = SIMPLE_ESCAPES[c]
      pos = slash + 2
    elseif width then
      local hex = s:match("^%x+", slash + 2) or ""
      if #hex < width then fail(at, "\\" .. c .. " needs " .. width .. " hexadecimal digits") end
      local code = tonumber(sub(hex, 1, width), 16)
      if code > 0x10FFFF then fail(at, "no such code point in a \\U escape") end
      out[#out + 1] = (code >= 0xD800 and code <= 0xDFFF) and "\u{FFFD}" or utf8.char(code)
      pos = slash + 2 + width
    elseif find(c, "[0-7]") then
      local octal = s:match("^[0-7][0-7]?[0-7]?", slash + 1)
      out[#out + 1] = utf8.char(tonumber(octal, 8))
      pos = slash + 1 + #octal
    elseif c == "N" then
      fail(at, "\\N{...} names of characters are not supported; write \\u with the number")
    else
      out[#out + 1] = "\\" .. c
      pos = slash + 2
    end
  end
  out[#out + 1] = sub(s, pos)
  return table.concat(out)
end

local function scan_string(src, pos)
  local quote = sub(src, pos, pos)
  local at = pos + 1
  while true do
    at = find(src, "[\\" .. quote .. "]", at)
    if not at then fail(pos, "a string without an end") end
    if sub(src, at, at) == quote then return unescape(sub(src, pos + 1, at - 1), pos), at + 1 end
    at = at + 2
  end
end

local INTEGERS = { { "^0[bB][01_]+", 2 }, { "^0[oO][0-7_]+", 8 }, { "^0[xX][%x_]+", 16 } }

local function scan_number(src, pos)
  local whole = src:match("^%d[%d_]*", pos)
  local after = pos + #whole
  if sub(src, pos - 1, pos - 1) ~= "." then
    local part = src:match("^%.%d[%d_]*", after) or ""
    local exp = src:match("^[eE][+-]?%d[%d_]*", after + #part) or ""
    if part ~= "" or exp ~= "" then
      return "float", tonumber((whole .. part .. exp):gsub("_", ""), 10) or tonumber(((whole .. part .. exp):gsub("_", ""))), after + #part + #exp
    end
  end
  for _, rule in ipairs(INTEGERS) do
    local digits = src:match(rule[1], pos)
    if digits then return "integer", tonumber(sub(digits, 3):gsub("_", ""), rule[2]), pos + #digits end
  end
  local value = math.tointeger(tonumber((whole:gsub("_", ""))))
  if not value then fail(pos, "an integer beyond 64 bits is not supported") end
  return "integer", value, after
end

-- What the scanner knows: source, output lists, position of the last open tag.
local function push(lx, kind, value, at)
  local n = lx.n + 1
  lx.n, lx.types[n], lx.values[n], lx.offsets[n] = n, kind, value, at
end

-- Finds how a tag ends at pos: the position after it (white space or newline taken), or nil.
local function tag_end(src, pos, close, trim)
  local c = sub(src, pos, pos)
  if c == "-" and sub(src, pos + 1, pos + 2) == close then return strings.skip_space(src, pos + 3) end
  if trim and c == "+" and sub(src, pos + 1, pos + 2) == close then return pos + 3 end
  if sub(src, pos, pos + 1) == close then
    if trim and sub(src, pos + 2, pos + 2) == "\n" then return pos + 3 end
    return pos + 2
  end
end

-- Tokens of one tag from pos on; returns the position after its end.
local function scan_tag(lx, pos, close, end_type, opened)
  local src, open = lx.src, {}
  while true do
    pos = strings.skip_space(src, pos)
    local after = #open == 0 and tag_end(src, pos, close, end_type == "block_end")
    if after then
      push(lx, end_type, nil, pos)
      return after
    end
    local c = sub(src, pos, pos)
    if c == "" then fail(opened, "a tag without an end (" .. close .. ")") end
    if find(c, "[%a_\128-\255]") then
      local name = src:match("^[%w_\128-\255]+", pos)
      push(lx, "name", name, pos)
      pos = pos + #name
    elseif find(c, "%d") then
      local kind, value, next_pos = scan_number(src, pos)
      push(lx, kind, value, pos)
      pos = next_pos
    elseif c == '"' or c == "'" then
      local value, next_pos = scan_string(src, pos)
      push(lx, "string", value, pos)
      pos = next_pos
    else
      local op = sub(src, pos, pos + 1)
      if not OPERATORS[op] then op = c end
      if not OPERATORS[op] then fail(pos, "unexpected character " .. c) end
      if CLOSES[op] then
        open[#open + 1] = CLOSES[op]
      elseif op == "}" or op == "]" or op == ")" then
        local expected = table.remove(open)
        if expected ~= op then fail(pos, "unexpected '" .. op .. "'" .. (expected and ", expected '" .. expected .. "'" or "")) end
      end
      push(lx, op, nil, pos)
      pos = pos + #op
    end
  end
end

-- The text before a tag, cut as the tag's sign asks.
local function cut_data(text, sign, is_variable, line_starting)
  if sign == "-" then return sub(text, 1, strings.skip_space_back(text, #text)) end
  if sign ~= "+" and not is_variable then
    local _, newline = find(text, "^.*\n")
    newline = newline or 0
    if (newline > 0 or line_starting) and newline < #text and strings.skip_space(text, newline + 1) > #text then
      return sub(text, 1, newline)
    end
  end
  return text
end

-- {% raw %}: pos is after "{%" and sign; returns the position after the opening tag, or nil if it is none.
local function raw_open(src, pos)
  pos = strings.skip_space(src, pos)
  if sub(src, pos, pos + 2) ~= "raw" then return nil end
  pos = strings.skip_space(src, pos + 3)
  if sub(src, pos, pos + 2) == "-%}" then return strings.skip_space(src, pos + 3) end
  if sub(src, pos, pos + 1) == "%}" then return pos + 2 end
end

local function scan_raw(lx, pos, opened)
  local src, at, line_starting = lx.src, pos, byte(lx.src, pos - 1) == 10
  while true do
    at = find(src, "{%", at, true)
    if not at then fail(opened, "{% raw %} without {% endraw %}") end
    local sign = src:match("^[+-]?", at + 2)
    local word = strings.skip_space(src, at + 2 + #sign)
    if sub(src, word, word + 5) == "endraw" then
      local after = tag_end(src, strings.skip_space(src, word + 6), "%}", true)
      if after then
        local data = cut_data(sub(src, pos, at - 1), sign, false, line_starting)
        if data ~= "" then push(lx, "data", data, pos) end
        return after
      end
    end
    at = at + 2
  end
end

local function scan_comment(src, pos, opened)
  local at = pos
  while true do
    at = find(src, "#}", at, true)
    if not at then fail(opened, "a comment without an end (#})") end
    if at - 1 >= pos and sub(src, at - 1, at - 1) == "-" then return strings.skip_space(src, at + 2) end
    if at - 1 >= pos and sub(src, at - 1, at - 1) == "+" then return at + 2 end
    if sub(src, at + 2, at + 2) == "\n" then return at + 3 end
    return at + 2
  end
end

--- Returns the normalised source and {types=, values=, offsets=, n=}; raises
--- {template_message=, at=} on bad text.
function lexer.run(source)
  local src = find(source, "\r", 1, true) and source:gsub("\r\n?", "\n") or source
  if sub(src, -1) == "\n" then src = sub(src, 1, -2) end
  local lx = { src = src, n = 0, types = {}, values = {}, offsets = {} }
  local pos, line_starting = 1, true
  while true do
    local at = pos
    repeat
      at = find(src, "{", at, true)
      local c = at and byte(src, at + 1)
      local is_tag = c == 123 or c == 37 or c == 35
      if at and not is_tag then at = at + 1 end
    until not at or is_tag
    if not at then break end
    local c, sign = sub(src, at + 1, at + 1), src:match("^[+-]?", at + 2)
    local data = cut_data(sub(src, pos, at - 1), sign, c == "{", line_starting)
    if data ~= "" then push(lx, "data", data, pos) end
    local inside = at + 2 + #sign
    local raw = c == "%" and raw_open(src, inside)
    if raw then
      pos = scan_raw(lx, raw, at)
    elseif c == "#" then
      pos = scan_comment(src, inside, at)
    else
      push(lx, c == "{" and "variable_begin" or "block_begin", nil, at)
      if c == "{" then pos = scan_tag(lx, inside, "}}", "variable_end", at)
      else pos = scan_tag(lx, inside, "%}", "block_end", at) end
    end
    line_starting = byte(src, pos - 1) == 10
  end
  if pos <= #src then push(lx, "data", sub(src, pos), pos) end
  push(lx, "eof", nil, #src + 1)
  return src, lx
end

return lexer
