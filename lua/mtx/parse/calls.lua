-- SPDX-License-Identifier: MIT
-- Readers of the text between a format's marks. Each takes the parser p: p.r the
-- reader, p.tools {name = schema of its parameters}, and p:begin(name),
-- p.arguments(text), p:done() as the call is read. A reader returns false at what is
-- no call; the parser then gives back what was read as text.
local json = require("mtx.json")
local values = require("mtx.parse.values")

local calls = {}

calls.NAME_BYTES = 256
local NAME_BYTES, TEXT_BYTES = calls.NAME_BYTES, 1 << 22

local NAMES = { name = true, tool_name = true }
local ARGUMENTS = { arguments = true, parameters = true }
local SILENT = { id = true, tool_call_id = true, call_id = true, type = true, index = true }

local function ignore() end

-- A call's name as the formats without quotes write it | nil.
function calls.valid_name(name)
  if name and #name <= NAME_BYTES and name:find("^[^%s<>{}\"'|]+$") then return name end
end

-- One value of "arguments": an object, an object in a string, or null. -> true | false. `state`: what the call is known to have so far.
local function json_arguments(p, state)
  local r = p.r
  local c = r:peek()
  if state.begun or state.early then return false end
  if c == "{" and state.name then
    p:begin(state.name)
    state.begun = true
    if not values.json(r, p.arguments) then return false end
    p:done()
    return true
  end
  local parts = {}
  if c == "{" then
    if not values.json(r, function(s) parts[#parts + 1] = s end) then return false end
    state.early = table.concat(parts)
  elseif c == '"' then
    state.early = values.json_text(r, TEXT_BYTES)
    if not state.early or not json.is_object(json.decode(state.early)) then return false end
  elseif r:try("null") then
    state.early = "{}"
  else
    return false
  end
  return true
end

local function settle(p, state)
  if state.begun or not state.name or not state.early then return end
  p:begin(state.name)
  p.arguments(state.early)
  p:done()
  state.begun = true
end

local members

local function member(p, state, guess)
  local r = p.r
  local key = values.json_text(r, NAME_BYTES)
  r:space()
  if not key or not r:try(":") then return false end
  r:space()
  if NAMES[key] or (key == "function" and r:peek() == '"') then
    if state.name then return false end
    state.name = values.json_text(r, NAME_BYTES)
    if not state.name or state.name == "" or (guess and not p.tools[state.name]) then return false end
  elseif ARGUMENTS[key] then
    if not json_arguments(p, state) then return false end
  elseif key == "function" and r:try("{") then
    if not members(p, state, guess) then return false end
  elseif SILENT[key] or not guess then
    if not values.json(r, ignore) then return false end
  else
    return false
  end
  settle(p, state)
  return true
end

-- The members of an object after its opening brace, and the closing one.
function members(p, state, guess)
  local r = p.r
  r:space()
  if r:try("}") then return true end
  while true do
    if not member(p, state, guess) then return false end
    r:space()
    if r:try("}") then return true end
    if not r:try(",") then return false end
    r:space()
  end
end

-- {"name": ..., "arguments": {...}} under its families' names; without arguments they are {}.
local function json_object(p, guess)
  if not p.r:try("{") then return false end
  local state = {}
  if not members(p, state, guess) or not state.name then return false end
  state.early = state.early or "{}"
  settle(p, state)
  return true
end

-- [item, ...] and one of `closes` when it is there.
local function list(p, closes, item)
  local r = p.r
  if not r:try("[") then return false end
  repeat
    r:space()
    if not item(p) then return false end
    r:space()
  until not r:try(",")
  if not r:try("]") then return false end
  r:space()
  r:try_any(closes or {})
  return true
end

-- One JSON call, several in a row, or a list; then one of `closes` when it is there.
-- guess: only what names a known tool and has no other keys is a call.
function calls.json(p, closes, guess)
  local r = p.r
  r:space()
  if r:peek() == "[" then return list(p, closes, function() return json_object(p, guess) end) end
  repeat
    if not json_object(p, guess) then return false end
    r:space()
    if r:try_any({ ";", "," }) then r:space() end
  until r:peek() ~= "{"
  r:try_any(closes or {})
  return true
end

-- The JSON object that stands after a call's name.
function calls.named(p, name)
  if not calls.valid_name(name) or p.r:peek() ~= "{" then return false end
  p:begin(name)
  if not values.json(p.r, p.arguments) then return false end
  p:done()
  return true
end

local function keyed(p)
  local r = p.r
  if not r:try("{") then return false end
  r:space()
  local name = calls.valid_name(values.json_text(r, NAME_BYTES))
  r:space()
  if not name or not r:try(":") then return false end
  r:space()
  if not calls.named(p, name) then return false end
  r:space()
  return r:try("}")
end

-- [{"NAME": {...}}, ...]
function calls.keyed_json(p, closes)
  p.r:space()
  return list(p, closes, keyed)
end

-- name(key=value, ...) as Python writes it; suffix: what follows the name proper and is not part of it (".call").
function calls.python_call(p, suffix)
  local r = p.r
  local name = r:run("[^%w_.-]", nil, NAME_BYTES)
  if suffix and name:sub(-#suffix) == suffix then name = name:sub(1, -#suffix - 1) end
  if name == "" or not r:try("(") then return false end
  p:begin(name)
  p.arguments("{")
  r:space()
  local first = true
  while not r:try(")") do
    local key = r:run("[^%w_]", nil, NAME_BYTES)
    r:space()
    if key == "" or not r:try("=") then return false end
    r:space()
    p.arguments((first and '"' or ',"') .. key .. '":')
    if not values.python(r, p.arguments) then return false end
    r:space()
    first = false
    if r:try(",") then r:space() elseif r:peek() ~= ")" then return false end
  end
  p.arguments("}")
  p:done()
  return true
end

-- [call(...), ...]; JSON calls are taken too.
function calls.python(p, closes)
  p.r:space()
  return list(p, closes, function()
    if p.r:peek() == "{" then return json_object(p) end
    return calls.python_call(p)
  end)
end

-- Calls in a section: each begins with `begin`, is read by one(p) and ends with `close` (nil: one(p) reads that); `section` ends them all.
function calls.section(p, begin, close, section, one)
  local r, n = p.r, 0
  while true do
    r:space()
    if r:try(section) then return n > 0 end
    if not r:try(begin) then return n > 0 and r:peek() == "" end
    if not one(p) then return false end
    if close then
      r:space()
      if not r:try(close) then return r:peek() == "" end
    end
    n = n + 1
  end
end

return calls
