-- SPDX-License-Identifier: MIT
-- Tool calls in a stream of text, in the format the model's template teaches.
--
--   local p = parse.new(parse.detect(template))
--   events = p:feed(piece) ... events = p:finish()
--
-- Events: {kind = "text", text}, {kind = "call", index, name}, {kind = "arguments",
-- index, text = JSON}, {kind = "call_end", index}. The result does not depend on how
-- the text is cut; what is no call after all comes back as text, nothing is lost.
-- A call is given out when its closing mark has come.
local formats = require("mtx.parse.formats")
local marks = require("mtx.parse.marks")

local parse = {}
local Parser = {}
Parser.__index = Parser

-- The format whose marks a template contains | nil. Hermes' JSON in <tool_call>
-- is output.lua's, which also streams its arguments.
function parse.detect(template)
  for _, f in ipairs(formats) do
    if f.detect(template) then return f end
  end
end

-- The control tokens of a vocabulary whose text the format's marks need: their ids.
-- find(text) -> id | nil, is_control(id).
function parse.shown(format, find, is_control)
  local ids = {}
  for _, list in ipairs({ format.open, format.close or {}, format.inner or {} }) do
    for _, mark in ipairs(list) do
      local id = find(mark)
      if id and is_control(id) then ids[#ids + 1] = id end
    end
  end
  return ids
end

-- A format by its name | nil.
function parse.by_name(name)
  for _, f in ipairs(formats) do
    if f.name == name then return f end
  end
end

function parse.new(format) return setmetatable({ f = format, buf = "", index = -1 }, Parser) end

local function give_text(self, text, out)
  -- Blanks between two calls belong to neither.
  if self.after_call and text:match("^%s*$") then return end
  if self.after_call then text = text:gsub("^%s+", "") end
  if text == "" then return end
  self.after_call = false
  out[#out + 1] = { kind = "text", text = text }
end

local function give_calls(self, calls, out)
  for _, c in ipairs(calls) do
    self.index = self.index + 1
    out[#out + 1] = { kind = "call", index = self.index, name = c.name }
    out[#out + 1] = { kind = "arguments", index = self.index, text = c.arguments }
    out[#out + 1] = { kind = "call_end", index = self.index }
  end
  self.after_call = true
end

-- The body of a call is whole: calls, or text when it is malformed.
local function close(self, body, tail, out)
  local calls = self.f.calls(body, self.mark)
  if calls and #calls > 0 then
    give_calls(self, calls, out)
  else
    self.after_call = false
    out[#out + 1] = { kind = "text", text = self.mark .. body .. tail }
  end
  self.mark = nil
end

function Parser:feed(piece)
  local out = {}
  self.buf = self.buf .. piece
  while true do
    if not self.mark then
      local at, mark = marks.first(self.buf, self.f.open)
      -- A longer mark may still be growing at the same place.
      local keep = marks.held(self.buf, self.f.open)
      if not at or (keep > 0 and #self.buf - keep + 1 < at) then
        give_text(self, self.buf:sub(1, #self.buf - keep), out)
        self.buf = keep > 0 and self.buf:sub(-keep) or ""
        return out
      end
      give_text(self, self.buf:sub(1, at - 1), out)
      self.mark, self.buf = mark, self.buf:sub(at + #mark)
    end
    if not self.f.close then return out end  -- runs to the end of the answer
    local at, tail = marks.first(self.buf, self.f.close)
    if not at then return out end
    local body = self.buf:sub(1, at - 1)
    self.buf = self.buf:sub(at + #tail)
    close(self, body, tail, out)
  end
end

function Parser:finish()
  local out = {}
  local rest = self.buf
  self.buf = ""
  if self.mark then close(self, rest, "", out) else give_text(self, rest, out) end
  return out
end

local Chain = {}
Chain.__index = Chain

-- The text that `first` lets through goes through `second`; `shown` are the control
-- tokens whose text both must see.
function parse.chain(first, second, shown) return setmetatable({ first = first, second = second, shown = shown }, Chain) end

local function through(self, events)
  local out = {}
  for _, e in ipairs(events) do
    if e.kind == "text" then
      for _, inner in ipairs(self.second:feed(e.text)) do out[#out + 1] = inner end
    else
      out[#out + 1] = e
    end
  end
  return out
end

function Chain:feed(piece) return through(self, self.first:feed(piece)) end

function Chain:finish()
  local out = through(self, self.first:finish())
  for _, e in ipairs(self.second:finish()) do out[#out + 1] = e end
  return out
end

return parse
