-- SPDX-License-Identifier: MIT
-- Generated text -> thinking, text and tool calls, while it streams.
--
--   local p = parse.new({ template = source, tools = req.tools, opened = parse.opened(source, prompt) })
--   events = p:feed(piece) ... events = p:finish()
--
-- Events: {kind = "text", text}, {kind = "thinking", text}, {kind = "call", index, name},
-- {kind = "arguments", index, text = part of a JSON text}, {kind = "call_end", index} and, in its
-- place, {kind = "call_cut", index, text}: a call that had begun is broken or cut off; `text` is
-- what the model wrote of it. What is no call from the start comes back as text. So nothing is lost,
-- parts only append, and the joined result does not depend on how the text was cut. p.thinking: it stands in a thought.
local calls = require("mtx.parse.calls")
local formats = require("mtx.parse.formats")
local memo = require("mtx.memo")
local reader = require("mtx.parse.reader")
local thoughts = require("mtx.parse.thoughts")

local parse = {}
local Parser = {}
Parser.__index = Parser

-- Each request asks, and templates are long.
local taught = memo(64, function(template)
  for _, f in ipairs(formats) do
    if f.detect(template) then return f end
  end
  return formats.generic
end)

-- The format a template teaches; the generic one (Hermes' tags or bare JSON) when it teaches none that is known.
function parse.detect(template) return template and taught(template) or formats.generic end

-- A format by its name | nil.
function parse.by_name(name)
  for _, f in ipairs(formats) do
    if f.name == name then return f end
  end
end

-- Whether a template can think, and the marks it does it with: {open, close} | nil.
function parse.thoughts(template)
  local f = parse.detect(template)
  return f.thoughts or thoughts.of(template)
end

-- What ends a thought in a template's words, so that the answer follows: text | nil.
function parse.closing(template)
  local pair = parse.thoughts(template)
  return pair and pair.close .. (pair.after or "\n\n")
end

-- Whether a prompt's end has opened a thought that the answer goes on with.
function parse.opened(template, prompt)
  local pair = parse.thoughts(template)
  return pair ~= nil and thoughts.opened(pair, prompt)
end

-- The marks of a format and of thoughts that are control tokens: {mark = id}. tok: a tokenizer, or nil.
function parse.control_marks(format, pair, tok)
  local out = {}
  for _, list in ipairs({ format and format.open or {}, format and format.inner or {}, pair and { pair.open, pair.close } or {} }) do
    for _, mark in ipairs(tok and list or {}) do
      local id = tok:find(mark)
      if id and tok:attr(id).control then out[mark] = id end
    end
  end
  return out
end

-- The control tokens whose text the parser must see: their ids.
function Parser:control_tokens(tok)
  local ids = {}
  for _, id in pairs(parse.control_marks(self.format, self.thoughts, tok)) do ids[#ids + 1] = id end
  return ids
end

-- What goes out ------------------------------------------------------------------

local function flush(p)
  local acc = p.acc
  if #acc == 0 then return end
  p.out[#p.out + 1] = { kind = acc.kind, text = table.concat(acc), index = acc.kind == "arguments" and p.index or nil }
  p.acc = {}
end

local function put(p, kind, text)
  if text == "" then return end
  if p.acc.kind ~= kind then
    flush(p)
    p.acc.kind = kind
  end
  p.acc[#p.acc + 1] = text
end

local function event(p, e)
  flush(p)
  p.out[#p.out + 1] = e
end

-- Text. Blanks before a call, and after a call or a thought, belong to neither.
local function say(p, text)
  if p.fresh then
    text = text:match("^%s*(.*)$")
    if text == "" then return end
    p.fresh = false
  end
  if p.calls then
    text = p.blank .. text
    local kept = text:match("^(.-)%s*$")
    p.blank, text = text:sub(#kept + 1), kept
  end
  put(p, "text", text)
end

-- A call whose name is known. Readers use begin, arguments (of parse.new), done.
function Parser:begin(name)
  self.index, self.open = self.index + 1, true
  self.before, self.blank, self.fresh = self.blank, "", true
  event(self, { kind = "call", index = self.index, name = name })
end

function Parser:done()
  self.open, self.n_body = false, self.n_body + 1
  event(self, { kind = "call_end", index = self.index })
  self.r:record()
end

-- What was read so far is no call and has been dealt with.
function Parser:accept() self.r.kept = nil end

-- Reads with read(p); what is no call after all goes out. `mark` has been read already. -> whether it was well-formed
local function attempt(p, mark, read)
  local r = p.r
  r:record(mark)
  p.n_body = 0
  local ok = read(p, mark)
  if not r.kept then return ok end
  local raw = r:recorded()
  if p.open then
    p.open, p.fresh = false, false
    if r.ended then raw = raw .. r:rest() end -- a word that was not to end
    event(p, { kind = "call_cut", index = p.index, text = p.before .. raw })
  elseif p.n_body > 0 and (ok or raw:find("^[%s,;%]}]*$")) then
    p.fresh = true
  else
    say(p, raw)
  end
  return ok
end
Parser.attempt = attempt

-- Thoughts ------------------------------------------------------------------------

-- A thought up to one of `closes`. Blanks around it belong to the marks.
function Parser:think(closes)
  local r, tail, begun = self.r, "", false
  self.thinking = true
  r:space()
  local function give(text)
    if self.drop then return end
    text = tail .. text
    local kept = text:match("^(.-)%s*$")
    tail = text:sub(#kept + 1)
    if kept == "" then return end
    if not begun and self.thought then put(self, "thinking", "\n") end
    begun, self.thought = true, true
    put(self, "thinking", kept)
  end
  if not r:upto(closes, give) then give(r:rest()) end
  self.thinking, self.fresh = false, true
end

-- The parser's text in the order of the answer --------------------------------------

local function beginning(p)
  local r, pair = p.r, p.thoughts
  if pair then
    local blank = r:space()
    if r:try(pair.open) or p.opened then
      p:think({ pair.close })
      blank = r:space()
    elseif r:try(pair.close) then -- a thought that is not there
      blank, p.fresh = "", true
    end
    if blank ~= "" then say(p, blank) end
  end
  if p.bare then return attempt(p, "", calls.json) end
  if not p.format then return end
  if p.format.first then return attempt(p, "", p.format.read) end
  if not p.format.guess or not p.calls then return end
  local blank = r:space()
  if blank ~= "" then say(p, blank) end
  if r:peek() == "{" or r:peek() == "[" then attempt(p, "", function() return calls.json(p, nil, true) end) end
end

local function parts(p)
  if p.format and p.format.whole then return p.format.whole(p) end
  beginning(p)
  local r, pair = p.r, p.thoughts
  while true do
    local mark = r:upto(p.marks, p.say)
    if not mark then return end
    if pair and mark == pair.open then p:think({ pair.close })
    elseif not p.frame[mark] then attempt(p, mark, p.format.read) end
  end
end

local function whole(p)
  parts(p)
  say(p, p.r:rest())
  if not p.fresh then put(p, "text", p.blank) end
end

-- options: template (Jinja source) or format and thoughts themselves; tools (list, nil: calls are
-- text), think = false (thoughts stay in the text) or "drop", opened (the prompt has opened a
-- thought), bare (the answer is one JSON call: a grammar forces it).
function parse.new(options)
  local format = options.format or parse.detect(options.template)
  local pair = options.think ~= false and (options.thoughts or format.thoughts or thoughts.of(options.template)) or nil
  local p = setmetatable({ r = reader.new(), out = {}, acc = {}, index = -1, n_body = 0, blank = "", fresh = false, open = false,
    thoughts = pair, drop = options.think == "drop", opened = options.opened, bare = options.bare, tools = {} }, Parser)
  for _, t in ipairs(options.tools or {}) do p.tools[t["function"].name] = t["function"].parameters or true end
  p.calls = options.tools ~= nil
  p.format = (p.calls or format.always) and format or nil
  p.marks, p.frame = {}, {}
  if p.format and not p.bare then
    if p.calls or not format.frame then table.move(format.open, 1, #format.open, 1, p.marks) end
    for _, mark in ipairs(format.frame or {}) do p.marks[#p.marks + 1], p.frame[mark] = mark, true end
  end
  if pair and pair.anywhere then p.marks[#p.marks + 1] = pair.open end
  p.say = function(text) say(p, text) end
  p.arguments = function(text) put(p, "arguments", text) end
  p.co = coroutine.create(whole)
  return p
end

local function resume(p)
  local ok, message = coroutine.resume(p.co, p)
  if not ok then error(message, 0) end
  flush(p)
  local out = p.out
  p.out = {}
  return out
end

-- text -> list of events.
function Parser:feed(text)
  self.r:add(text)
  return resume(self)
end

-- At the end of the answer: what was held back.
function Parser:finish()
  self.r.ended = true
  return resume(self)
end

return parse
