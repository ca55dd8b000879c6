-- SPDX-License-Identifier: MIT
-- Calls whose parameters are written as text between tags. A parameter goes out as
-- the JSON its tool's schema asks for: declared strings as they come, others when whole.
local calls = require("mtx.parse.calls")
local parameters = require("mtx.parse.parameters")
local values = require("mtx.parse.values")

local tagged = {}

-- One parameter's value up to its closing tag. pad: the text stands on lines of its own, or ("cdata") in a CDATA section where XML wants one.
local function value(p, kinds, closes, pad)
  local r = p.r
  if pad == "cdata" then
    if r:try("<![CDATA[") then closes = { "]]>" .. closes[1] } end
  elseif pad then
    r:try("\n")
  end
  if kinds and kinds.string and next(kinds, next(kinds)) == nil then
    p.arguments('"')
    if not r:upto(closes, function(s) p.arguments(values.escape(s)) end) then return false end
    p.arguments('"')
    return true
  end
  local text = r:before(closes)
  if not text then return false end
  p.arguments(parameters.plain(text, kinds))
  return true
end

-- A parameter of a call in its JSON; first: nothing of the arguments has gone out.
local function parameter(p, first, key, kinds, closes, pad)
  tagged.key(p, first, key)
  return value(p, kinds, closes, pad)
end
tagged.parameter = parameter

-- A parameter's key, and what stands before its value.
function tagged.key(p, first, key) p.arguments((first and '{"' or ',"') .. values.escape(key) .. '":') end

-- The end of a call; empty: it had no parameters.
function tagged.end_call(p, empty)
  p.arguments(empty and "{}" or "}")
  p:done()
  return true
end

local STRING = { string = true }
tagged.STRING = STRING

-- A format of this form: call NAME name_end (parameter KEY key_end VALUE close)* call_close, any number of them up
-- to one of `frame`. key_ends: list of {mark, kinds}: what the mark says about the value, or nil: the schema decides.
function tagged.reader(f)
  local key_marks, by_mark = {}, {}
  for i, e in ipairs(f.key_ends) do key_marks[i], by_mark[e[1]] = e[1], e[2] end
  local closes = f.pad == true and { "\n" .. f.close, f.close } or { f.close }

  -- After the call's opening tag.
  local function one(p)
    local r = p.r
    local name = calls.valid_name((r:before({ f.name_end }, calls.NAME_BYTES)))
    if not name then return false end
    p:begin(name)
    local first = true
    while true do
      r:space()
      if r:try(f.call_close) then return tagged.end_call(p, first) end
      local key, mark
      if r:try(f.parameter) then key, mark = r:before(key_marks, calls.NAME_BYTES) end
      if not key or key == "" then return false end
      local kinds = by_mark[mark]
      if kinds == nil then kinds = parameters.kinds(p.tools[name], key) end
      if not parameter(p, first, key, kinds or nil, closes, f.pad) then return false end
      first = false
    end
  end

  return function(p, mark)
    local r, n = p.r, 0
    if mark == f.call then
      if not one(p) then return false end
      r:space()
      r:try_any(f.frame)
      return true
    end
    r:space()
    if r:peek() == "{" then return calls.json(p, f.frame) end -- the model fell back to JSON
    while true do
      r:space()
      if r:try_any(f.frame) then return n > 0 end
      if not r:try(f.call) then return n > 0 and r:peek() == "" end
      if not one(p) then return false end
      n = n + 1
    end
  end
end

-- DeepSeek's DSML says of each parameter whether it is a string.
tagged.DSML_KEYS = { { '" string="true">', STRING }, { '" string="false">', false } }

-- NAME, then key and value tags in turn. f: key, key_close, value, value_close, close, sep (after the name).
function tagged.pairs_reader(f)
  return function(p)
    local r = p.r
    r:space()
    if r:peek() == "{" then return calls.json(p, { f.close }) end
    local name = calls.valid_name(r:run("[%s<]", nil, calls.NAME_BYTES))
    if not name or (f.sep and not r:try(f.sep)) then return false end
    local first = true
    while true do
      r:space()
      local more = r:try(f.key)
      if not more and not r:try(f.close) then return false end
      if first then p:begin(name) end
      if not more then return tagged.end_call(p, first) end
      local key = r:before({ f.key_close }, calls.NAME_BYTES)
      r:space()
      if not key or key == "" or not r:try(f.value) then return false end
      if not parameter(p, first, key, parameters.kinds(p.tools[name], key), { f.value_close }) then return false end
      first = false
    end
  end
end

return tagged
