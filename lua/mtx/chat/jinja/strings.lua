-- SPDX-License-Identifier: MIT
-- Python's view of a string over UTF-8 bytes: length and slices in code points,
-- its idea of white space, letter case. Plain Lua strings in and out; callers that
-- keep marks (text.lua) ask for byte positions. Bytes that are not UTF-8 count one each.
local strings = {}
local find, sub, byte = string.find, string.sub, string.byte

local function is_bytes(s) return not find(s, "[\128-\255]") or not utf8.len(s) end

function strings.len(s)
  if not find(s, "[\128-\255]") then return #s end
  return utf8.len(s) or #s
end

--- The byte range of code points i..j (1-based, 1 <= i, j <= length).
function strings.range(s, i, j)
  if is_bytes(s) then return i, j end
  local first = utf8.offset(s, i) or #s + 1
  if j < i then return first, first - 1 end
  return first, (utf8.offset(s, j - i + 2, first) or #s + 1) - 1
end

--- A list of byte positions of each code point, and the position after the last.
function strings.starts(s)
  local list = {}
  if is_bytes(s) then
    for i = 1, #s + 1 do list[i] = i end
  else
    for pos in utf8.codes(s) do list[#list + 1] = pos end
    list[#list + 1] = #s + 1
  end
  return list
end

-- str.isspace beyond ASCII, as UTF-8.
local WIDE_SPACE = { ["\u{85}"] = true, ["\u{A0}"] = true, ["\u{1680}"] = true, ["\u{2028}"] = true, ["\u{2029}"] = true,
  ["\u{202F}"] = true, ["\u{205F}"] = true, ["\u{3000}"] = true }
for code = 0x2000, 0x200A do WIDE_SPACE[utf8.char(code)] = true end

--- First byte at or after pos that begins no white space (#s + 1 if none).
function strings.skip_space(s, pos)
  while true do
    pos = find(s, "[^\t-\r\28-\31 ]", pos)
    if not pos then return #s + 1 end
    local c = byte(s, pos)
    if c == 0xC2 and WIDE_SPACE[sub(s, pos, pos + 1)] then pos = pos + 2
    elseif c >= 0xE1 and c <= 0xE3 and WIDE_SPACE[sub(s, pos, pos + 2)] then pos = pos + 3
    else return pos end
  end
end

--- Last byte at or before pos that ends no white space (0 if none).
function strings.skip_space_back(s, pos)
  while pos > 0 do
    local c = byte(s, pos)
    if c == 32 or (c >= 9 and c <= 13) or (c >= 28 and c <= 31) then pos = pos - 1
    elseif c < 0x80 then return pos
    elseif WIDE_SPACE[sub(s, pos - 1, pos)] then pos = pos - 2
    elseif WIDE_SPACE[sub(s, pos - 2, pos)] then pos = pos - 3
    else return pos end
  end
  return 0
end

--- Byte range that str.strip / lstrip / rstrip keep. chars: nil for white space.
function strings.strip_range(s, chars, left, right)
  local i, j = 1, #s
  if not chars then
    if left then i = strings.skip_space(s, 1) end
    if right then j = strings.skip_space_back(s, #s) end
    if j < i then return 1, 0 end
    return i, j
  end
  local set = {}
  for _, c in utf8.codes(utf8.len(chars) and chars or "") do set[utf8.char(c)] = true end
  if left then
    while i <= j do
      local width = utf8.len(s, i, i) and (utf8.offset(s, 2, i) - i) or 1
      if not set[sub(s, i, i + width - 1)] then break end
      i = i + width
    end
  end
  if right then
    while j >= i do
      local start = j
      while start > i and byte(s, start) & 0xC0 == 0x80 do start = start - 1 end
      if not set[sub(s, start, j)] then break end
      j = start - 1
    end
  end
  return i, j
end

--- The next line end (as str.splitlines sees it) at or after pos: its first byte
--- and the byte after it; for the last line #s + 1 twice.
function strings.line_end(s, pos)
  while true do
    local at = find(s, "[\n\r\v\f\28-\30\xC2\xE2]", pos)
    if not at then return #s + 1, #s + 1 end
    local c = byte(s, at)
    if c == 13 and byte(s, at + 1) == 10 then return at, at + 2 end
    if c < 0x80 then return at, at + 1 end
    if sub(s, at, at + 1) == "\u{85}" then return at, at + 2 end
    local wide = sub(s, at, at + 2)
    if wide == "\u{2028}" or wide == "\u{2029}" then return at, at + 3 end
    pos = at + 1
  end
end

-- Letter case beyond ASCII comes from a table that is loaded when first needed.
local function map_case(s, ascii, which)
  s = ascii(s)
  if not find(s, "[\128-\255]") or not utf8.len(s) then return s end
  local map = require("mtx.chat.jinja.unicode")[which]
  return (s:gsub("[\194-\244][\128-\191]*", map))
end

function strings.upper(s) return map_case(s, string.upper, "upper") end
function strings.lower(s) return map_case(s, string.lower, "lower") end

--- Splits s after its first code point.
function strings.head(s)
  local _, stop = strings.range(s, 1, 1)
  return sub(s, 1, stop), sub(s, stop + 1)
end

--- One character in title case: its capital, of which only the first letter is one (ß: Ss).
function strings.title_char(c)
  local head, tail = strings.head(strings.upper(c))
  return head .. strings.lower(tail)
end

function strings.capitalize(s)
  if s == "" then return s end
  local head, tail = strings.head(s)
  return strings.title_char(head) .. strings.lower(tail)
end

--- For comparisons without case: a small letter that has a capital is the small one of that capital.
function strings.casefold(s)
  return strings.lower((strings.upper(s:gsub("\u{1E9E}", "ss"):gsub("\u{131}", "\0\1")))):gsub("\0\1", "\u{131}")
end

--- str.isalpha, isdecimal, isdigit, isnumeric and isalnum of one character.
local CLASSES = {
  alpha = { "%a", "is_letter" }, decimal = { "%d", "is_decimal" }, digit = { "%d", "is_decimal", "is_digit" },
  numeric = { "%d", "is_decimal", "is_numeric" }, alnum = { "%w", "is_letter", "is_decimal", "is_numeric" },
}
function strings.is(class, c)
  class = CLASSES[class]
  if #c == 1 then return find(c, class[1]) ~= nil end
  local unicode, code = require("mtx.chat.jinja.unicode"), utf8.codepoint(c)
  for i = 2, #class do if unicode[class[i]](code) then return true end end
  return false
end

--- The characters of s; of text that is not UTF-8 its bytes.
function strings.each(s) return s:gmatch(utf8.len(s) and utf8.charpattern or ".") end

--- Python's repr of a str.
function strings.repr(s)
  local quote = (find(s, "'", 1, true) and not find(s, '"', 1, true)) and '"' or "'"
  local out = s:gsub("[%c\\'\"]", function(c)
    if c == "\\" then return "\\\\" elseif c == "\n" then return "\\n" elseif c == "\r" then return "\\r" elseif c == "\t" then return "\\t" end
    if c == quote then return "\\" .. c end
    if c == "'" or c == '"' then return c end
    return string.format("\\x%02x", byte(c))
  end)
  if find(out, "[\128-\255]") and utf8.len(out) then
    local printable = require("mtx.chat.jinja.unicode").is_printable
    out = out:gsub("[\194-\244][\128-\191]*", function(c)
      local code = utf8.codepoint(c)
      if printable(code) then return c end
      return string.format(code < 0x100 and "\\x%02x" or code < 0x10000 and "\\u%04x" or "\\U%08x", code)
    end)
  end
  return quote .. out .. quote
end

--- s with what is not ASCII written as repr writes what cannot be printed.
function strings.ascii(s)
  if not utf8.len(s) then return s end
  return (s:gsub("[\194-\244][\128-\191]*", function(c)
    local code = utf8.codepoint(c)
    return string.format(code < 0x100 and "\\x%02x" or code < 0x10000 and "\\u%04x" or "\\U%08x", code)
  end))
end

return strings
