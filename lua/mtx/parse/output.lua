-- SPDX-License-Identifier: MIT
-- Generated text -> thinking, text and tool calls, while it streams. Deltas only
-- append: text that may be the beginning of a tag is held back, a call's
-- arguments go out as the model writes them, and what turns out to be no call
-- comes back as text instead of being lost.
local json = require("mtx.json")
local marks = require("mtx.parse.marks")

local output = {}

local THINK = { { "<think>", "</think>" }, { "[THINK]", "[/THINK]" }, { "<seed:think>", "</seed:think>" }, { "<thinking>", "</thinking>" } }
local CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"

local Parser = {}
Parser.__index = Parser

-- options: {think = template's text or nil (no thinking), drop_thinking, opened =
-- the prompt ends inside a thought, calls = parse tool calls, names = set of the tools'
-- names (a bare {"name": one of these...} at the beginning is a call too, as several
-- families write it), bare = the whole text is one call (a grammar forces it)}.
function output.new(options)
  local self = setmetatable({ buf = "", mode = "text", index = -1, start = true, calls = options.calls, names = options.names or {},
    drop = options.drop_thinking }, Parser)
  self.close = output.closing(options.think)
  for _, pair in ipairs(THINK) do
    if pair[2] == self.close then self.open = pair[1] end
  end
  if options.opened and self.close then self.mode = "think" end
  self.bare = options.bare
  if self.bare and not self.open then self:begin_call() end
  return self
end

-- The tag that ends a thought in this template, or nil.
function output.closing(template)
  for _, pair in ipairs(THINK) do
    if template and (template:find(pair[1], 1, true) or template:find(pair[2], 1, true)) then return pair[2] end
  end
end

-- Whether a prompt's end has opened a thought that the answer goes on with.
function output.opened(text)
  for _, pair in ipairs(THINK) do
    if text:find(pair[1]:gsub("%p", "%%%0") .. "%s*$") then return true end
  end
  return false
end

function Parser:begin_call()
  self.mode, self.raw, self.sent, self.at = "call", "", nil, 1
end

-- Follows the JSON value from `at`: gives the position behind it, or nil when it is not whole yet.
local function value_end(self, s)
  local pos, depth, in_string = self.scan or self.value_at, self.depth or 0, self.in_string
  while pos <= #s do
    if in_string then
      local p = s:find('["\\]', pos)
      if not p then pos = #s + 1 break end
      if s:byte(p) == 92 then
        if p + 1 > #s then pos = p break end
        pos = p + 2
      else
        in_string, pos = false, p + 1
      end
    else
      local p = s:find('["%[%]{}]', pos)
      if not p then pos = #s + 1 break end
      local c = s:byte(p)
      pos = p + 1
      if c == 34 then in_string = true
      elseif c == 91 or c == 123 then depth = depth + 1
      else
        depth = depth - 1
        if depth == 0 then return pos end
      end
    end
  end
  self.scan, self.depth, self.in_string = pos, depth, in_string
  return nil
end

-- Whether s may still become {"name": "...
local function plausible(s)
  s = s:gsub("%s+", "")
  local want = '{"name":"'
  return #s < #want and want:sub(1, #s) == s
end

-- A bare object that is no call: text like any other.
local function no_guess(self, out)
  out[#out + 1] = { kind = "text", text = self.raw }
  self.mode, self.guess, self.raw = "text", nil, ""
end

-- The call's text so far: name known and arguments begun -> stream them.
local function advance_call(self, out)
  local s = self.raw
  if not self.sent then
    if self.guess and not s:find('^{%s*"name"%s*:%s*"') and not plausible(s) then return no_guess(self, out) end
    local name, key, at = s:match('^%s*{%s*"name"%s*:%s*("[^"\\]*")%s*,%s*"(%a+)"%s*:%s*(){')
    if key ~= "arguments" and key ~= "parameters" then return end
    if self.guess and not self.names[json.decode(name)] then return no_guess(self, out) end
    self.index = self.index + 1
    self.sent, self.value_at, self.scan, self.depth, self.in_string, self.out_at = true, at, nil, nil, nil, at
    out[#out + 1] = { kind = "call", index = self.index, name = json.decode(name) }
  end
  if self.value_done then return end
  local stop = value_end(self, s)
  local upto = stop and stop - 1 or #s
  -- A piece may end inside an escape: clients join the pieces before they read them.
  if upto >= self.out_at then
    out[#out + 1] = { kind = "arguments", index = self.index, text = s:sub(self.out_at, upto) }
    self.out_at = upto + 1
  end
  if stop then self.value_done = true end
end

-- The call has ended (its closing tag, or the end of the text).
local function end_call(self, out, whole)
  if self.sent then
    if self.value_done or whole then out[#out + 1] = { kind = "call_end", index = self.index } end
  else
    local value = json.decode(self.raw:match("^%s*(.-)%s*$"))
    local args = json.is_object(value) and (value.arguments or value.parameters)
    if type(args) == "string" then args = json.decode(args) end
    local known = not self.guess or (json.is_object(value) and self.names[value.name])
    if known and json.is_object(value) and type(value.name) == "string" and (args == nil or json.is_object(args)) then
      self.index = self.index + 1
      out[#out + 1] = { kind = "call", index = self.index, name = value.name }
      out[#out + 1] = { kind = "arguments", index = self.index, text = args and json.encode(args) or "{}" }
      out[#out + 1] = { kind = "call_end", index = self.index }
    else -- no call after all: nothing is lost
      local tagged = not self.bare and not self.guess
      out[#out + 1] = { kind = "text", text = (tagged and CALL_OPEN or "") .. self.raw .. (whole and tagged and CALL_CLOSE or "") }
    end
  end
  self.value_done, self.guess = nil, nil
  self.mode, self.start = "text", true
end

local function tags_of(self)
  if self.mode == "think" then return { self.close } end
  if self.mode == "call" then return { CALL_CLOSE } end
  local tags = {}
  if self.open and not self.said then tags[1] = self.open end
  if self.calls then tags[#tags + 1] = CALL_OPEN end
  return tags
end

local function give(self, piece, out)
  if piece == "" then return end
  if self.mode == "call" then
    self.raw = self.raw .. piece
    return advance_call(self, out)
  end
  if self.start then
    piece = piece:gsub("^%s+", "")
    if piece == "" then return end
    self.start = false
  end
  if self.mode == "think" then
    if self.drop then return end
    -- Line ends before the closing tag belong to the tag.
    piece = (self.tail or "") .. piece
    local keep = piece:match("^(.-)%s*$")
    self.tail = piece:sub(#keep + 1)
    if keep ~= "" then out[#out + 1] = { kind = "thinking", text = keep } end
    return
  end
  local first = not self.answered
  self.said, self.answered = true, true
  if first and (self.bare or (self.calls and piece:byte() == 123)) then
    self:begin_call()
    self.guess, self.raw = not self.bare, piece
    return advance_call(self, out)
  end
  out[#out + 1] = { kind = "text", text = piece }
end

-- text -> list of events (request.lua).
function Parser:feed(text)
  local out = {}
  self.buf = self.buf .. text
  while true do
    if self.mode == "text" and not self.said and self.buf:find("%S") then
      -- Thoughts come first or not at all: text that cannot become the opening tag settles it.
      local first = self.buf:match("^%s*(.*)$")
      local n = self.open and math.min(#first, #self.open) or 0
      if not self.open or first:sub(1, n) ~= self.open:sub(1, n) then self.said = true end
    end
    local tags = tags_of(self)
    local at, tag = marks.first(self.buf, tags)
    if not at then
      local keep = marks.held(self.buf, tags)
      give(self, self.buf:sub(1, #self.buf - keep), out)
      self.buf = keep > 0 and self.buf:sub(-keep) or ""
      return out
    end
    give(self, self.buf:sub(1, at - 1), out)
    self.buf = self.buf:sub(at + #tag)
    if tag == self.open and self.mode == "text" then
      self.mode, self.start, self.tail = "think", true, nil
    elseif tag == CALL_OPEN then
      self:begin_call()
    elseif self.mode == "think" then
      self.mode, self.start = "text", true
      if self.bare then self:begin_call() end
    else
      end_call(self, out, true)
    end
  end
end

-- At the end of the answer: what was held back.
function Parser:finish()
  local out = {}
  local rest = self.buf
  self.buf = ""
  give(self, rest, out)
  if self.mode == "call" then end_call(self, out, false) end
  return out
end

return output
