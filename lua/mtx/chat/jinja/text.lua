-- SPDX-License-Identifier: MIT
-- Strings that remember which of their bytes the template itself wrote.
--
-- Only text of the template may become control tokens; text of users must stay
-- plain, wherever the template carries it. So the mark travels with the value.
-- A plain Lua string is text from outside (user text, tool schemas, results of
-- filters that invent text) and costs nothing. Text written by the template is a
-- "marked" table: m[0] is the whole text, m[1], m[2], m[3], m[4]... are pairs
-- first, last (1-based, inclusive) of the byte ranges the template wrote, in
-- order, never touching. A table exists only for template literals and where the
-- two kinds are joined. A render without spans never makes one.
-- m[-1] = true makes it what Python calls Markup (the result of `safe`): adding a
-- string to it escapes the string for HTML, which some templates do by accident.
-- An operation that cannot say which bytes came from where drops the mark: that
-- errs on the safe side.
local S = require("mtx.chat.jinja.state")

local text = {}
local join_marked = require("mtx.core").join_marked
local sub, concat, type, setmetatable, getmetatable = string.sub, table.concat, type, setmetatable, getmetatable

local MARKED = { kind = "str", __name = "marked text" }
text.MARKED = MARKED

--- The whole of s as text of the template.
function text.trusted(s)
  if s == "" then return s end
  return setmetatable({ [0] = s, 1, #s }, MARKED)
end

--- The plain Lua string of a string value, or nil for any other value.
function text.raw(v)
  if type(v) == "string" then return v end
  if getmetatable(v) == MARKED then return v[0] end
  return nil
end

--- Bytes i..j (1 <= i, j <= length) of a string value, marks kept.
function text.sub(v, i, j)
  if type(v) == "string" then return sub(v, i, j) end
  if i == 1 and j == #v[0] then return v end
  local s = sub(v[0], i, j)
  local n_bytes, marks, n = #s, nil, 0
  for k = 1, #v, 2 do
    local first, last = v[k] - i + 1, v[k + 1] - i + 1
    if first < 1 then first = 1 end
    if last > n_bytes then last = n_bytes end
    if first <= last then
      marks = marks or { [0] = s }
      marks[n + 1], marks[n + 2] = first, last
      n = n + 2
    end
  end
  if v[-1] then
    marks = marks or { [0] = s }
    marks[-1] = true
  end
  return marks and setmetatable(marks, MARKED) or s
end

--- v as Markup.
function text.markup(v)
  S.marks = true
  local m = { [0] = text.raw(v), [-1] = true }
  if type(v) == "table" then table.move(v, 1, #v, 1, m) end
  return setmetatable(m, MARKED)
end

--- A Markup as the plain or marked string it is made of.
function text.unmarked(v)
  if v[1] == nil then return v[0] end
  return setmetatable(table.move(v, 1, #v, 1, { [0] = v[0] }), MARKED)
end

local ESCAPES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ["'"] = "&#39;", ['"'] = "&#34;" }

--- v, escaped for HTML, as Markup.
function text.escape(v)
  local escaped = text.raw(v):gsub("[&<>'\"]", ESCAPES)
  S.charge(#escaped)
  return text.markup(text.remark(type(v) == "table" and v or "", escaped))
end

function text.is_markup(v) return type(v) == "table" and v[-1] == true end

--- Joins list[first..last] (string values) into one string value.
function text.join(list, first, last)
  if not S.marks then return concat(list, "", first, last) end
  if first == last and not text.is_markup(list[first]) then return list[first] end
  return join_marked(list, first, last, MARKED)
end

--- a + b for string values.
function text.add(a, b)
  if type(a) == "string" and type(b) == "string" then
    S.charge(#a + #b)
    return a .. b
  end
  if text.is_markup(a) or text.is_markup(b) then
    if not text.is_markup(a) then a = text.escape(a) elseif not text.is_markup(b) then b = text.escape(b) end
    S.charge(#a[0] + #b[0])
    return text.markup(text.join({ a, b }, 1, 2))
  end
  local both = text.join({ a, b }, 1, 2)
  S.charge(#text.raw(both))
  return both
end

--- The string s, made from v by changing characters: keeps v's marks when every
--- byte kept its place or all of v was marked.
function text.remark(v, s)
  if type(v) == "string" or s == "" then return s end
  if v[-1] then
    return text.markup(text.remark(text.unmarked(v), s))
  end
  if v[1] == 1 and v[2] == #v[0] then return text.trusted(s) end
  if #s ~= #v[0] then return s end
  local marks = { [0] = s }
  for k = 1, #v do marks[k] = v[k] end
  return setmetatable(marks, MARKED)
end

return text
