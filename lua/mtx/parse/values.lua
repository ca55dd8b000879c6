-- SPDX-License-Identifier: MIT
-- Values inside calls -> JSON text, given out as it is read. Each reader here takes
-- (r, give): r a reader (reader.lua), give(text) gets parts of a JSON text that only
-- append; false when what stands there is no such value.
local json = require("mtx.json")

local values = {}

local ESCAPED = { ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ['"'] = '\\"', ["\\"] = "\\\\" }

-- A part of a string, cut anywhere, as it stands between the quotes of JSON.
function values.escape(text)
  return (text:gsub('[%z\1-\31"\\]', function(c) return ESCAPED[c] or ("\\u%04x"):format(c:byte()) end))
end

local escape = values.escape
local MAX_DEPTH = json.max_depth

local NUMBERS = { "^-?%d+$", "^-?%d+%.%d+$", "^-?%d+[eE][+-]?%d+$", "^-?%d+%.%d+[eE][+-]?%d+$" }

local function is_number(s)
  if s:find("^-?0%d") then return false end
  for _, p in ipairs(NUMBERS) do
    if s:find(p) then return true end
  end
  return false
end

-- A number is read whole: what is not one must not have gone out. At the end of the text it may not be all of it.
local function number(r, give)
  local s = r:run("[^%d.eE+-]", nil, 400)
  if r:peek() == "" or not is_number(s) then return false end
  give(s)
  return true
end

-- JSON as it stands. Raw control characters in strings, which models write, come out escaped.
local function json_string(r, give)
  if not r:try('"') then return false end
  give('"')
  while true do
    r:run('["\\%c]', give)
    local c = r:peek()
    if c == "" then return false end
    if c == '"' then
      give(r:take(1))
      return true
    elseif c ~= "\\" then
      give(escape(r:take(1)))
    else
      if not r:has(2) then return false end
      local kind = r.buf:sub(r.pos + 1, r.pos + 1)
      if kind == "u" then
        if not r:has(6) or not r.buf:find("^\\u%x%x%x%x", r.pos) then return false end
        give(r:take(6))
      elseif kind:find('["\\/bfnrt]') then
        give(r:take(2))
      else
        return false
      end
    end
  end
end

local json_value

-- After the opening bracket, which has been given: items up to the closing one.
local function items(r, give, depth, close, item)
  give(r:space())
  if r:try(close) then give(close) return true end
  while true do
    if not item(r, give, depth) then return false end
    give(r:space())
    if r:try(close) then give(close) return true end
    if not r:try(",") then return false end
    give(",")
    give(r:space())
  end
end

local function json_member(r, give, depth)
  if not json_string(r, give) then return false end
  give(r:space())
  if not r:try(":") then return false end
  give(":")
  give(r:space())
  return json_value(r, give, depth)
end

function json_value(r, give, depth)
  local c = r:peek()
  if c == '"' then return json_string(r, give) end
  if c == "{" or c == "[" then
    if depth >= MAX_DEPTH then return false end
    give(r:take(1))
    return items(r, give, depth + 1, c == "{" and "}" or "]", c == "{" and json_member or json_value)
  end
  local word = r:try_any({ "true", "false", "null" })
  if word then
    give(word)
    return true
  end
  return number(r, give)
end

function values.json(r, give) return json_value(r, give, 0) end

-- A JSON string's text, or nil.
function values.json_text(r, limit)
  local parts, n = {}, 0
  local ok = json_string(r, function(s)
    n = n + #s
    if n <= limit then parts[#parts + 1] = s end
  end)
  return ok and n <= limit and json.decode(table.concat(parts)) or nil
end

-- Python's literals, as LFM2 writes arguments; JSON's words are taken too.
local PY_ESCAPES = { n = "\n", t = "\t", r = "\r", b = "\b", f = "\f", v = "\v", a = "\a", ["0"] = "\0", ["\\"] = "\\", ["'"] = "'", ['"'] = '"' }
local PY_HEX = { x = 2, u = 4, U = 8 }

local function python_escape(r)
  if not r:has(2) then return nil end
  local kind = r.buf:sub(r.pos + 1, r.pos + 1)
  local n = PY_HEX[kind]
  if not n then
    r:take(2)
    return PY_ESCAPES[kind] or kind ~= "\n" and "\\" .. kind or ""
  end
  if not r:has(2 + n) then return nil end
  local hex = r.buf:sub(r.pos + 2, r.pos + 1 + n)
  if hex:find("%X") then return nil end
  local code = tonumber(hex, 16)
  if code > 0x10FFFF or (code >= 0xD800 and code < 0xE000) then return nil end
  r:take(2 + n)
  return utf8.char(code)
end

local function python_string(r, give)
  local quote = r:take(1)
  give('"')
  local function plain(s) give(escape(s)) end
  while true do
    r:run("[\\" .. quote .. "]", plain)
    local c = r:peek()
    if c == "" then return false end
    if c == quote then
      r:take(1)
      give('"')
      return true
    end
    local text = python_escape(r)
    if not text then return false end
    plain(text)
  end
end

local PY_WORDS = { True = "true", False = "false", None = "null", ["true"] = "true", ["false"] = "false", null = "null" }
local PY_LIST = { "True", "False", "None", "true", "false", "null" }

local python_value

-- A comma may stand before the closing bracket in Python.
local function python_items(r, give, depth, close, json_close, item)
  local first = true
  while true do
    r:space()
    if r:try(close) then
      give(json_close)
      return true
    end
    if not first then give(",") end
    if not item(r, give, depth) then return false end
    r:space()
    first = false
    local c = r:peek()
    if c ~= close and not r:try(",") then return false end
  end
end

local function python_member(r, give, depth)
  if not r:peek():find("['\"]") or not python_string(r, give) then return false end
  r:space()
  if not r:try(":") then return false end
  give(":")
  r:space()
  return python_value(r, give, depth)
end

function python_value(r, give, depth)
  local c = r:peek()
  if c == "'" or c == '"' then return python_string(r, give) end
  if c == "{" or c == "[" or c == "(" then
    if depth >= MAX_DEPTH then return false end
    r:take(1)
    local close = c == "{" and "}" or c == "[" and "]" or ")"
    local json_close = c == "{" and "}" or "]"
    give(c == "{" and "{" or "[")
    return python_items(r, give, depth + 1, close, json_close, c == "{" and python_member or python_value)
  end
  local word = r:try_any(PY_LIST)
  if word then
    give(PY_WORDS[word])
    return true
  end
  return number(r, give)
end

-- An argument: it stands one level down in an object.
function values.python(r, give) return python_value(r, give, 1) end

-- Gemma 4's: bare keys, strings between <|"|> marks (its template, format_argument).
local G_QUOTE = '<|"|>'
local gemma_value

local function gemma_string(r, give)
  give('"')
  local mark = r:upto({ G_QUOTE }, function(s) give(escape(s)) end)
  if not mark then return false end
  give('"')
  return true
end

local function gemma_member(r, give, depth)
  if r:try(G_QUOTE) then
    if not gemma_string(r, give) then return false end
    if not r:try(":") then return false end
  else
    local key = r:before({ ":" }, 256)
    if not key or key == "" or key:find("[{}%[%],<>]") then return false end
    give('"' .. escape(key) .. '"')
  end
  give(":")
  return gemma_value(r, give, depth)
end

function gemma_value(r, give, depth)
  r:space()
  if r:try(G_QUOTE) then return gemma_string(r, give) end
  local c = r:peek()
  if c == "{" or c == "[" then
    if depth >= MAX_DEPTH then return false end
    r:take(1)
    give(c)
    local close = c == "{" and "}" or "]"
    return python_items(r, give, depth + 1, close, close, c == "{" and gemma_member or gemma_value)
  end
  local word = r:run("[,%]}<]", nil, 4096)
  if r:peek() == "" or word == "" or r:peek() == "<" then return false end
  local trimmed = word:match("^(.-)%s*$")
  if PY_WORDS[trimmed] then give(PY_WORDS[trimmed])
  elseif is_number(trimmed) then give(trimmed)
  else give('"' .. escape(word) .. '"') end -- a string without its marks
  return true
end

-- The object of a call's arguments.
function values.gemma(r, give)
  if r:peek() ~= "{" then return false end
  return gemma_value(r, give, 0)
end

return values
