-- SPDX-License-Identifier: MIT
-- The filters that lay out text or write HTML: few chat templates use them. They join the table of filters.lua.
local text = require("mtx.chat.jinja.text")
local strings = require("mtx.chat.jinja.strings")
local values = require("mtx.chat.jinja.values")
local methods = require("mtx.chat.jinja.methods")
local call = require("mtx.chat.jinja.call")
local urlize = require("mtx.chat.jinja.urlize")
local S = require("mtx.chat.jinja.state")

local raw, kind, truth = text.raw, values.kind, values.truth
local null = require("mtx.json").null

-- The named characters that text in HTML has most often; numbers are read as they are.
local ENTITIES = { amp = "&", lt = "<", gt = ">", quot = '"', apos = "'", nbsp = "\u{A0}", copy = "\u{A9}", reg = "\u{AE}", hellip = "\u{2026}",
  mdash = "\u{2014}", ndash = "\u{2013}", lsquo = "\u{2018}", rsquo = "\u{2019}", ldquo = "\u{201C}", rdquo = "\u{201D}", euro = "\u{20AC}",
  eacute = "\u{E9}", auml = "\u{E4}", ouml = "\u{F6}", uuml = "\u{FC}", szlig = "\u{DF}" }

local function unescape(s)
  return (s:gsub("&(#?x?)(%w+);", function(number, name)
    if number == "" then return ENTITIES[name] end
    local code = number ~= "x" and tonumber(name, number == "#x" and 16 or 10)
    if code and code > 0 and code <= 0x10FFFF and code & 0x1FF800 ~= 0xD800 then return utf8.char(code) end
  end))
end

-- s without its tags. Only what stands before the last end of one is searched: many beginnings without an end would each be
-- followed to the end of the text.
local function without(s, tag, past_last_end)
  local stop = s:match(past_last_end)
  return stop and s:sub(1, stop - 1):gsub(tag, "") .. s:sub(stop) or s
end

local LETTER = "[%a_\128-\255]"

-- Words and the gaps between them, as Python's textwrap cuts them: a hyphen between letters ends a piece, a dash of two or
-- more is a piece.
local function pieces(line, hyphens)
  local out = {}
  for space, word in line:gmatch("([ \t\v\f\r]*)([^ \t\v\f\r]*)") do
    if space ~= "" then out[#out + 1] = space end
    local from, at = 1, 1
    while hyphens do
      local first, last = word:find("%-+", at)
      if not first then break end
      at = last + 1
      local before = word:sub(math.max(from, first - 3), first - 1)
      if last > first then
        if first > from then out[#out + 1] = word:sub(from, first - 1) end
        from = first
        if before:find("[%w_!\"'&.,?\128-\255]$") and word:find("^[%w_\128-\255]", at) then
          out[#out + 1] = word:sub(first, last)
          from = at
        end
      elseif (before:find(LETTER .. LETTER .. "$") or before:find(LETTER .. "%-" .. LETTER .. "$")) and word:find("^" .. LETTER .. "%-?" .. LETTER, at) then
        out[#out + 1] = word:sub(from, last)
        from = at
      end
    end
    if from <= #word then out[#out + 1] = word:sub(from) end
  end
  return out
end

-- textwrap.wrap of one line.
local function wrap(line, width, long, hyphens)
  local list, out, at = pieces(line, hyphens), {}, 1
  local starts, taken -- of a piece longer than a line: where its characters begin, and how many are on lines already
  local function left() return starts and #starts - 1 - taken or strings.len(list[at]) end
  -- The next n characters of such a piece, or fewer, up to a hyphen.
  local function take(n)
    starts, taken = starts or strings.starts(list[at]), taken or 0
    local head = list[at]:sub(starts[taken + 1], starts[taken + n + 1] - 1)
    local hyphen = hyphens and head:match("^.*[^%-]()%-")
    if hyphen then head = head:sub(1, hyphen) end
    taken = taken + strings.len(head)
    return head
  end
  while at <= #list do
    local current, length = {}, 0
    if list[at]:find("^%s") and #out > 0 then at, starts, taken = at + 1, nil, nil end -- what is left of a gap, too
    while at <= #list do
      local n = left()
      if length + n > width then break end
      current[#current + 1], length = starts and list[at]:sub(starts[taken + 1]) or list[at], length + n
      at, starts, taken = at + 1, nil, nil
    end
    if list[at] and left() > width then
      if long and width > length then
        current[#current + 1] = take(width - length)
      elseif #current == 0 then
        current[1], at = list[at], at + 1
      end
    end
    if #current > 0 and current[#current]:find("^%s") then current[#current] = nil end
    if #current > 0 then out[#out + 1] = table.concat(current) end
    S.step(#current // 8 + 1)
  end
  return out
end

return function(filters)
  local function filter(names, f, ...)
    for name in names:gmatch("%S+") do filters[name] = call.spec(f, ...) end
  end

  filter("escape e", function(v) return text.is_markup(v) and v or text.escape(values.str(v)) end)
  filter("forceescape", function(v) return text.escape(values.str(v)) end)
  filter("striptags", function(v)
    local s = without(without(raw(values.str(v)), "<!%-%-.-%-%->", "^.*%-%->()"), "<[^>]*>", "^.*>()")
    return unescape(table.concat(methods.str.split.f(s), " "))
  end)

  filter("xmlattr", function(v, autospace)
    if kind(v) ~= "dict" then S.fail("xmlattr needs a dict, not " .. values.type_name(v)) end
    local out = {}
    for _, key in ipairs(values.keys(v)) do
      local value = v[key]
      if value ~= null and kind(value) ~= "undef" then
        if not raw(key) then S.fail("xmlattr: the name of an attribute must be a string") end
        if key:find("[%s/>=]") then S.fail("xmlattr: the name " .. strings.repr(key) .. " has a character that ends it") end
        out[#out + 1] = raw(text.escape(key)) .. '="' .. raw(text.is_markup(value) and value or text.escape(values.str(value))) .. '"'
      end
    end
    return (#out > 0 and (autospace == nil or truth(autospace)) and " " or "") .. table.concat(out, " ")
  end, "autospace")

  filter("wordwrap", function(v, width, long, separator, hyphens)
    local s, lines, pos = raw(v), {}, 1
    if not s then S.fail("wordwrap needs a string, not " .. values.type_name(v)) end
    width = values.integer(width, 79, "wordwrap's width")
    local sep = (separator == nil or separator == null) and "\n" or raw(separator) or S.fail("wordwrap's wrapstring must be a string")
    S.charge(2 * #s)
    while pos <= #s do
      local at, after = strings.line_end(s, pos)
      if width < 1 and at > pos then S.fail("wordwrap: the width must be above 0") end
      lines[#lines + 1] = table.concat(wrap(s:sub(pos, at - 1), width, long == nil or truth(long), hyphens == nil or truth(hyphens)), sep)
      pos = after
    end
    return table.concat(lines, sep)
  end, "width", "break_long_words", "wrapstring", "break_on_hyphens")

  filter("urlize", urlize, "trim_url_limit", "nofollow", "target", "rel", "extra_schemes")
end
