-- SPDX-License-Identifier: MIT
-- What must hold of every text a parser of model output reads, however it is cut. Used by test_parse.lua and by the fuzz target.
local json = require("mtx.json")
local parse = require("mtx.parse")

local check = {}

-- Events -> {text, thinking, calls = {{name, arguments[, text of a cut call]}}}; and the texts in their
-- order, cut calls among them, as a whole reply holds them (serve/answer.lua).
local function join(events)
  local r, ended, parts = { text = "", thinking = "", calls = {} }, {}, {}
  for _, e in ipairs(events) do
    if e.kind == "text" or e.kind == "thinking" then
      assert(e.text ~= "", "an empty part")
      r[e.kind] = r[e.kind] .. e.text
      parts[#parts + 1] = e.text
    elseif e.kind == "call" then
      assert(e.index == #r.calls and (e.index == 0 or ended[e.index - 1]), "calls out of order")
      r.calls[e.index + 1] = { e.name, "" }
    else
      assert(not ended[e.index], "a call that goes on after its end")
      local c = r.calls[e.index + 1]
      if e.kind == "arguments" then
        c[2] = c[2] .. e.text
      else
        ended[e.index] = true
        if e.kind == "call_cut" then c[3], parts[#parts + 1] = e.text, e.text end
      end
    end
  end
  for i in ipairs(r.calls) do assert(ended[i - 1], "a call without an end") end
  return r, table.concat(parts)
end

-- The pieces through a new parser of parse.new(options).
function check.run(options, pieces)
  local p, all = parse.new(options), {}
  for _, piece in ipairs(pieces) do
    for _, e in ipairs(p:feed(piece)) do all[#all + 1] = e end
  end
  for _, e in ipairs(p:finish()) do all[#all + 1] = e end
  return join(all)
end

function check.bytes(text)
  local out = {}
  for i = 1, #text do out[i] = text:sub(i, i) end
  return out
end

local function same(a, b)
  if a.text ~= b.text or a.thinking ~= b.thinking or #a.calls ~= #b.calls then return false end
  for i, c in ipairs(a.calls) do
    for k = 1, 3 do
      if c[k] ~= b.calls[i][k] then return false end
    end
  end
  return true
end

-- Formats that put separators of their own between messages or take marks out of text.
local FRAMED = { harmony = true, functionary32 = true, atem = true, xtml = true, gigachat3 = true, solar = true, cohere = true }

-- Raises an error unless: the pieces give what the whole text gives; calls that ended have a name and an
-- object of arguments (text from the engine is UTF-8); without such calls and without thoughts nothing is lost.
function check.invariants(options, text, pieces)
  local got, all = check.run(options, { text })
  assert(same(got, check.run(options, pieces)), "the cuts change the result")
  local n = 0
  for _, c in ipairs(got.calls) do
    assert(c[1] ~= "", "a call without a name")
    if not c[3] then
      n = n + 1
      assert(not utf8.len(text) or json.is_object(json.decode(c[2])), "arguments that are no object")
    end
  end
  if n == 0 and not options.think and not FRAMED[options.format.name] then assert(all == text, "something was lost") end
  return got
end

return check
