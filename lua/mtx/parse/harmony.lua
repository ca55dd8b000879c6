-- SPDX-License-Identifier: MIT
-- gpt-oss's harmony: the whole answer is messages, each with a channel. analysis is
-- thought, final and commentary are text, a message to functions.NAME is a call.
-- The prompt ends with <|start|>assistant; <|call|> and <|return|> end the generation.
-- Source: OpenAI's description of the harmony format, and the model's own template.
local calls = require("mtx.parse.calls")

local harmony = {}

local ENDS = { "<|end|>", "<|call|>", "<|return|>", "<|start|>" }
local STARTS = { "<|start|>", "<|channel|>" }
local HEADER_BYTES = 512

harmony.INNER = { "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>" }

-- "<|channel|>analysis", " to=functions.f<|channel|>commentary json", ... up to <|message|> -> its text | nil.
local function header_of(r, mark)
  local head = mark == "<|channel|>" and mark or nil
  if not head then
    r:space()
    if not mark then r:try("<|start|>") end
    r:try("assistant")
    r:space()
    head = r:try("<|channel|>") and "<|channel|>" or r:try("to=") and "to="
  end
  local rest = head and r:before({ "<|message|>" }, HEADER_BYTES)
  return rest and head .. rest
end

local function message(p, mark)
  local r = p.r
  local header = header_of(r, mark)
  if not header then return false end
  local to = header:match("to=([^%s<]+)")
  if to and to ~= "assistant" and to ~= "all" then
    r:space()
    if not p.calls or not calls.named(p, to:match("^functions%.(.+)$") or to) then return false end
    r:space()
    return r:try_any(ENDS) ~= nil or r:peek() == ""
  end
  p:accept()
  if header:find("<|channel|>analysis", 1, true) and p.thoughts then
    p:think(ENDS)
    return true
  end
  if p.said and not p.fresh then p.say("\n\n") end -- text goes on from an earlier message
  p.said = true
  r:upto(ENDS, p.say)
  return true
end

-- The whole answer. What is no message is text.
function harmony.read(p)
  local mark
  while true do
    local ok = p:attempt(mark or "", function() return message(p, mark) end)
    if p.r:peek() == "" then return end
    mark = nil
    if not ok then
      mark = p.r:upto(STARTS, p.say)
      if not mark then return end
    end
  end
end

return harmony
