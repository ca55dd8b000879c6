-- SPDX-License-Identifier: MIT
-- The methods of Python's str. They keep the marks of text.lua wherever a result
-- is cut out of its subject or put together from pieces.
local null = require("mtx.json").null
local text = require("mtx.chat.jinja.text")
local strings = require("mtx.chat.jinja.strings")
local values = require("mtx.chat.jinja.values")
local call = require("mtx.chat.jinja.call")
local S = require("mtx.chat.jinja.state")

local str = {}
local raw = text.raw

-- Most take no argument by its name; positional: how many of those that do must come without.
local function method(name, f, ...)
  local spec = call.spec(f, ...)
  spec.positional = #spec.params
  str[name] = spec
end

-- A string argument as a plain string; nil and none as nil.
local function plain(v, what)
  if v == nil or v == null then return nil end
  local s = raw(v)
  if not s then
    values.check_defined(v)
    S.fail(what .. " needs a string, not " .. values.type_name(v))
  end
  return s
end

local function need(v, what) return plain(v, what) or S.fail(what .. " needs a string") end

local integer = values.integer

-- Searching costs by length; a long needle may cost its length again per byte.
local function charge_find(s, needle) S.charge(#s // 16 + (#needle > 256 and #s * #needle // 4096 or 0)) end

local function stripper(left, right)
  return function(v, chars)
    local i, j = strings.strip_range(raw(v), plain(chars, "strip"), left, right)
    if j < i then return "" end
    if i == 1 and j == #raw(v) then return v end
    return text.sub(v, i, j)
  end
end
method("strip", stripper(true, true), "chars")
method("lstrip", stripper(true, false), "chars")
method("rstrip", stripper(false, true), "chars")

for _, name in ipairs{ "upper", "lower", "capitalize" } do
  local change = strings[name]
  method(name, function(v) return text.remark(v, change(raw(v))) end)
end
method("casefold", function(v) return text.remark(v, strings.casefold(raw(v))) end)

method("title", function(v)
  local out, inside = {}, false
  for c in strings.each(raw(v)) do
    local letter = strings.is("alpha", c)
    out[#out + 1] = letter and (inside and strings.lower(c) or strings.title_char(c)) or c
    inside = letter
  end
  return text.remark(v, table.concat(out))
end)
method("swapcase", function(v)
  local out = {}
  for c in strings.each(raw(v)) do
    local up = strings.upper(c)
    out[#out + 1] = up ~= c and up or strings.lower(c)
  end
  return text.remark(v, table.concat(out))
end)

-- Splitting ---------------------------------------------------------------------

local function split_space(v, limit)
  local s, out, pos = raw(v), {}, 1
  while true do
    local first = strings.skip_space(s, pos)
    if first > #s then return out end
    if limit >= 0 and #out >= limit then
      out[#out + 1] = text.sub(v, first, #s)
      return out
    end
    local last = first
    while last <= #s and strings.skip_space(s, last) == last do last = last + 1 end
    out[#out + 1] = text.sub(v, first, last - 1)
    pos = last
  end
end

method("split", function(v, sep, limit)
  local s, needle = raw(v), plain(sep, "split")
  limit = integer(limit, -1, "maxsplit")
  S.charge(#s)
  if not needle then return values.list(split_space(v, limit)) end
  if needle == "" then S.fail("split: the separator is empty") end
  charge_find(s, needle)
  local out, pos = {}, 1
  while limit < 0 or #out < limit do
    local first, last = s:find(needle, pos, true)
    if not first then break end
    local n = #out + 1
    out[n] = text.sub(v, pos, first - 1)
    if n & 63 == 0 then S.step(32) end
    pos = last + 1
  end
  out[#out + 1] = text.sub(v, pos, #s)
  return values.list(out)
end, "sep", "maxsplit")
str.split.positional = 0

-- Last occurrence of needle at or before byte `from`.
local function find_last(s, needle, from)
  for i = math.min(from, #s - #needle + 1), 1, -1 do
    if s:sub(i, i + #needle - 1) == needle then return i end
  end
end

method("rsplit", function(v, sep, limit)
  local s, needle = raw(v), plain(sep, "rsplit")
  limit = integer(limit, -1, "maxsplit")
  S.charge(#s)
  if not needle then
    if limit < 0 then return values.list(split_space(v, -1)) end
    needle = nil
  end
  local parts, stop = {}, #s
  while limit < 0 or #parts < limit do
    local cut, after
    if needle then
      if needle == "" then S.fail("rsplit: the separator is empty") end
      cut = find_last(s, needle, stop - #needle + 1)
      if not cut then break end
      after, cut = cut + #needle, cut - 1
    else
      stop = strings.skip_space_back(s, stop)
      if stop == 0 then break end
      cut = stop
      while cut > 0 and strings.skip_space_back(s, cut) == cut do cut = cut - 1 end
      after = cut + 1
    end
    table.insert(parts, 1, text.sub(v, after, stop))
    stop = cut
  end
  if not needle then stop = strings.skip_space_back(s, stop) end
  if needle or stop > 0 then table.insert(parts, 1, text.sub(v, 1, stop)) end
  return values.list(parts)
end, "sep", "maxsplit")
str.rsplit.positional = 0

method("splitlines", function(v, keepends)
  local s, out, pos = raw(v), {}, 1
  S.charge(#s)
  while pos <= #s do
    local at, after = strings.line_end(s, pos)
    out[#out + 1] = text.sub(v, pos, (keepends and values.truth(keepends)) and after - 1 or at - 1)
    pos = after
  end
  return values.list(out)
end, "keepends")
str.splitlines.positional = 0

local function partition(v, sep, from_end)
  local s, needle = raw(v), need(sep, "partition")
  if needle == "" then S.fail("partition: the separator is empty") end
  charge_find(s, needle)
  local at = from_end and find_last(s, needle, #s) or not from_end and s:find(needle, 1, true)
  if not at then return values.tuple(from_end and { "", "", v } or { v, "", "" }) end
  return values.tuple{ text.sub(v, 1, at - 1), text.sub(v, at, at + #needle - 1), text.sub(v, at + #needle, #s) }
end
method("partition", function(v, sep) return partition(v, sep, false) end, "sep!")
method("rpartition", function(v, sep) return partition(v, sep, true) end, "sep!")

-- Building ------------------------------------------------------------------------

method("replace", function(v, old, new, count)
  local s, needle = raw(v), need(old, "replace")
  need(new, "replace")
  count = integer(count, -1, "count")
  local out, pos, done = {}, 1, 0
  charge_find(s, needle)
  if needle == "" then
    local starts = strings.starts(s)
    S.step(#starts)
    S.charge(#starts * #raw(new))
    for i = 1, #starts do
      if count < 0 or done < count then
        out[#out + 1] = new
        done = done + 1
      end
      if starts[i + 1] then out[#out + 1] = text.sub(v, starts[i], starts[i + 1] - 1) end
    end
  else
    while count < 0 or done < count do
      local first, last = s:find(needle, pos, true)
      if not first then break end
      out[#out + 1] = text.sub(v, pos, first - 1)
      out[#out + 1] = new
      pos, done = last + 1, done + 1
      if done & 63 == 0 then
        S.step(32)
        S.charge(64 * #raw(new))
      end
    end
    if done == 0 then return v end
    out[#out + 1] = text.sub(v, pos, #s)
  end
  S.charge(#s + (done & 63) * #raw(new))
  return text.join(out, 1, #out)
end, "old!", "new!", "count")
str.replace.positional = 2 -- Python 3.13 takes count by name

method("join", function(v, items)
  local list, out = values.iterate(items), {}
  for i = 1, #list do
    if i > 1 then out[#out + 1] = v end
    need(list[i], "join")
    S.charge(#raw(list[i]) + #raw(v))
    out[#out + 1] = list[i]
  end
  return text.join(out, 1, #out)
end, "iterable!")

local function padder(place)
  return function(v, width, fill)
    width = integer(width, 0, "a width")
    local char = plain(fill, "a fill") or " "
    if strings.len(char) ~= 1 then S.fail("a fill must be one character") end
    local missing = width - strings.len(raw(v))
    if missing <= 0 then return v end
    S.charge(missing * #char)
    local left = place == "right" and missing or place == "left" and 0 or missing // 2 + (missing & width & 1)
    return text.join({ char:rep(left), v, char:rep(missing - left) }, 1, 3)
  end
end
method("center", padder("center"), "width!", "fillchar")
method("ljust", padder("left"), "width!", "fillchar")
method("rjust", padder("right"), "width!", "fillchar")
method("zfill", function(v, width)
  local sign, digits = raw(v):match("^([+-]?)(.*)$")
  local missing = integer(width, 0, "a width") - strings.len(raw(v))
  if missing <= 0 then return v end
  S.charge(missing)
  return sign .. ("0"):rep(missing) .. digits
end, "width!")
method("expandtabs", function(v, size)
  local n, column, out = integer(size, 8, "a tab size"), 0, {}
  for c in strings.each(raw(v)) do
    if c == "\t" then
      local width = n > 0 and n - column % n or 0
      S.charge(width)
      out[#out + 1] = (" "):rep(width)
      column = column + width
    else
      out[#out + 1] = c
      column = (c == "\n" or c == "\r") and 0 or column + 1
    end
  end
  return table.concat(out)
end, "tabsize")
str.expandtabs.positional = 0
method("removeprefix", function(v, prefix)
  local s, p = raw(v), need(prefix, "removeprefix")
  return s:sub(1, #p) == p and text.sub(v, #p + 1, #s) or v
end, "prefix!")
method("removesuffix", function(v, suffix)
  local s, p = raw(v), need(suffix, "removesuffix")
  return p ~= "" and s:sub(-#p) == p and text.sub(v, 1, #s - #p) or v
end, "suffix!")

-- Asking ------------------------------------------------------------------------------

local function affix(name, matches)
  method(name, function(v, what, start, stop)
    local subject = v
    if start ~= nil and integer(start, 0, "start") > strings.len(raw(v)) then return false end
    if start ~= nil or stop ~= nil then subject = require("mtx.chat.jinja.ops").slice(v, start, stop) end
    local s = raw(subject)
    if values.kind(what) == "tuple" then
      for i = 1, #what do if matches(s, need(what[i], name)) then return true end end
      return false
    end
    return matches(s, need(what, name))
  end, "prefix!", "start", "end")
end
affix("startswith", function(s, p) return s:sub(1, #p) == p end)
affix("endswith", function(s, p) return p == "" or s:sub(-#p) == p end)

local function finder(last, strict)
  return function(v, what, start, stop)
    local s, needle = raw(v), need(what, "find")
    charge_find(s, needle)
    local n = strings.len(s)
    local from, to = integer(start, 0, "start"), integer(stop, n, "end")
    if from < 0 then from = math.max(from + n, 0) end
    if to < 0 then to = math.max(to + n, 0) end
    local at
    if from <= n then
      local i, j = strings.range(s, from + 1, math.min(to, n))
      local part = s:sub(1, j)
      at = last and find_last(part, needle, j + 1) or not last and part:find(needle, i, true)
      if at and at < i then at = nil end
    end
    if at then return strings.len(s:sub(1, at - 1)) end
    if strict then S.fail("the substring " .. strings.repr(needle) .. " is not there") end
    return -1
  end
end
method("find", finder(false, false), "sub!", "start", "end")
method("rfind", finder(true, false), "sub!", "start", "end")
method("index", finder(false, true), "sub!", "start", "end")
method("rindex", finder(true, true), "sub!", "start", "end")
method("count", function(v, what, start, stop)
  if start ~= nil or stop ~= nil then
    if integer(start, 0, "start") > strings.len(raw(v)) then return 0 end
    v = require("mtx.chat.jinja.ops").slice(v, start, stop)
  end
  local s, needle, n, pos = raw(v), need(what, "count"), 0, 1
  if needle == "" then return strings.len(s) + 1 end
  charge_find(s, needle)
  while true do
    local _, last = s:find(needle, pos, true)
    if not last then return n end
    n, pos = n + 1, last + 1
  end
end, "sub!", "start", "end")

-- A question that every character must answer.
local function every(name, test)
  method(name, function(v)
    local s = raw(v)
    S.charge(#s)
    for c in strings.each(s) do if not test(c) then return false end end
    return s ~= ""
  end)
end
for _, class in ipairs{ "alpha", "digit", "decimal", "numeric", "alnum" } do
  every("is" .. class, function(c) return strings.is(class, c) end)
end
every("isspace", function(c) return strings.skip_space(c, 1) > #c end)
method("isascii", function(v) return not raw(v):find("[\128-\255]") end)
method("isprintable", function(v)
  local s = raw(v):gsub("[\\'\"]", "") -- which repr escapes though they can be printed
  return strings.repr(s) == "'" .. s .. "'"
end)
method("isidentifier", function(v)
  local first = true
  for c in strings.each(raw(v)) do
    if c ~= "_" and not strings.is("alpha", c) and (first or not strings.is("decimal", c)) then return false end
    first = false
  end
  return not first
end)
method("istitle", function(v)
  local inside, any = false, false
  for c in strings.each(raw(v)) do
    local up, low = strings.upper(c) ~= c, strings.lower(c) ~= c
    if low and inside or up and not inside then return false end
    inside, any = up or low, any or up or low
  end
  return any
end)
-- What maketrans makes and translate takes: a dict from code points to code points, strings or none.
method("maketrans", function(_, from, to, dropped)
  local d = require("mtx.json").object()
  if to == nil then
    if values.kind(from) ~= "dict" then S.fail("maketrans needs a dict or two strings") end
    for _, k in ipairs(values.keys(from)) do
      if raw(k) and utf8.len(raw(k)) ~= 1 then S.fail("maketrans: a key must be one character, not " .. strings.repr(k)) end
      d[raw(k) and utf8.codepoint(raw(k)) or k] = from[k]
    end
    return d
  end
  local targets = strings.starts(need(to, "maketrans"))
  if #targets ~= #strings.starts(need(from, "maketrans")) then S.fail("maketrans: the two strings differ in length") end
  local i = 0
  for c in strings.each(raw(from)) do
    i = i + 1
    d[utf8.codepoint(c)] = utf8.codepoint(raw(to), targets[i])
  end
  for c in strings.each(plain(dropped, "maketrans") or "") do d[utf8.codepoint(c)] = null end
  return d
end, "x!", "y", "z")
method("translate", function(v, map)
  if values.kind(map) ~= "dict" then S.fail("translate needs a dict") end
  local out = {}
  for c in strings.each(raw(v)) do
    local to = map[utf8.len(c) and utf8.codepoint(c) or -1]
    if to == nil then out[#out + 1] = c
    elseif to ~= null then out[#out + 1] = raw(to) or utf8.char(integer(to, 0, "a code point")) end
    S.charge(#(out[#out] or ""))
  end
  return table.concat(out)
end, "table!")
method("islower", function(v) return strings.lower(raw(v)) == raw(v) and strings.upper(raw(v)) ~= raw(v) end)
method("isupper", function(v) return strings.upper(raw(v)) == raw(v) and strings.lower(raw(v)) ~= raw(v) end)

return str
