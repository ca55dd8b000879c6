-- SPDX-License-Identifier: MIT
-- Answers that are messages, each with a header that says where it goes: to the thoughts, to
-- the user or to a tool. The prompt ends with <|start|>assistant, so the first header has no beginning.
-- Sources: OpenAI's description of the harmony format (gpt-oss), Muse Glimmer's template (ATEM).
local calls = require("mtx.parse.calls")
local tagged = require("mtx.parse.tagged")

local addressed = {}

local START, MESSAGE = "<|start|>", "<|message|>"
local HEADER_BYTES = 512

-- "<|channel|>analysis", " to=functions.f<|channel|>commentary json", ... up to <|message|> -> its text | nil.
-- mark: one of f.starts that has been read already.
local function header_of(f, r, mark)
  local head = mark ~= START and mark or nil
  if not head then
    r:space()
    if not mark then r:try(START) end
    r:try("assistant")
    r:space()
    head = r:try_any(f.heads)
    if not head then return f.bare and r:try(MESSAGE) and "" or nil end
  end
  local rest = r:before({ MESSAGE }, HEADER_BYTES)
  return rest and head .. rest
end

local function message(f, p, mark)
  local r = p.r
  local header = header_of(f, r, mark)
  if not header then return false end
  local to = f.tool(header)
  if to then
    r:space()
    if not p.calls or not f.call(p, to) then return false end
    r:space()
    return r:try_any(f.ends) ~= nil or r:peek() == ""
  end
  p:accept()
  if f.thought(header) and p.thoughts then
    p:think(f.ends)
    return true
  end
  if p.said and not p.fresh then p.say("\n\n") end -- text goes on from an earlier message
  p.said = true
  r:upto(f.ends, p.say)
  return true
end

-- read(p) of a whole answer. What is no message is text. f:
--   starts  marks that begin a header      heads   what a header may begin with after <|start|>assistant
--   ends    marks that end a message       bare    a message may have no header at all
--   tool(header) -> name of the tool it goes to | nil       thought(header) -> whether it is thought
--   call(p, name)   reads a call's body
function addressed.reader(f)
  return function(p)
    local mark
    while true do
      local ok = p:attempt(mark or "", function() return message(f, p, mark) end)
      if p.r:peek() == "" then return end
      mark = nil
      if not ok then
        mark = p.r:upto(f.starts, p.say)
        if not mark then return end
      end
    end
  end
end

-- gpt-oss: a channel and, for a call, a recipient functions.NAME; <|call|> and <|return|> end the generation.
addressed.harmony = addressed.reader({
  starts = { START, "<|channel|>" }, heads = { "<|channel|>", "to=" }, ends = { "<|end|>", "<|call|>", "<|return|>", START },
  tool = function(header)
    local to = header:match("to=([^%s<]+)")
    if to ~= "assistant" and to ~= "all" then return to end
  end,
  thought = function(header) return header:find("<|channel|>analysis", 1, true) end,
  call = function(p, to) return calls.named(p, to:match("^functions%.(.+)$") or to) end,
})

-- Muse Glimmer: a recipient, self for thoughts; <|eom|> ends a message, <|eot|> the generation.
local invocations = tagged.reader({ call = '<atem:invoke name="', name_end = '">', call_close = "</atem:invoke>", parameter = '<atem:parameter name="', key_ends = { { '">' } },
  close = "</atem:parameter>", frame = { "</atem:function_calls>" } })
addressed.atem = addressed.reader({
  starts = { START }, heads = { "to=" }, bare = true, ends = { "<|eom|>", "<|eot|>", START },
  tool = function(header)
    local to = header:match("^to=([^%s<]+)")
    if to ~= "self" and to ~= "user" then return to end
  end,
  thought = function(header) return header:find("^to=self%f[%s\0]") end,
  call = function(p) return p.r:try("<atem:function_calls>") and invocations(p) end,
})

return addressed
