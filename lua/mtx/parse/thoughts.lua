-- SPDX-License-Identifier: MIT
-- The marks around a model's thoughts, family by family.
local thoughts = {}

-- `anywhere`: thoughts may come between other parts too (the marks are control tokens), else only first.
-- `sign`: what tells it in a template, where the marks alone would not. `after`: what the model writes behind the
-- closing mark before it goes on, two line ends when it is not given.
local PAIRS = {
  { open = "<think>", close = "</think>" },
  { open = "[THINK]", close = "[/THINK]", after = "" },
  { open = "<seed:think>", close = "</seed:think>" },
  { open = "<mm:think>", close = "</mm:think>" },
  { open = "<think:opensource>", close = "</think:opensource>", sign = "<think{}>" },
  { open = "<|START_THINKING|>", close = "<|END_THINKING|>", after = "" },
  { open = "<|channel>thought", close = "<channel|>", sign = "<|channel>thought", anywhere = true, after = "" },
  { open = "Here are my reasoning steps:", close = "[BEGIN FINAL RESPONSE]", sign = "[BEGIN FINAL RESPONSE]" },
  { open = "<thinking>", close = "</thinking>" },
}

-- The pair a template writes | nil.
function thoughts.of(template)
  for _, pair in ipairs(template and PAIRS or {}) do
    if pair.sign then
      if template:find(pair.sign, 1, true) then return pair end
    elseif template:find(pair.open, 1, true) or template:find(pair.close, 1, true) then
      return pair
    end
  end
end

-- Whether a prompt's end has opened a thought that the answer goes on with.
function thoughts.opened(pair, prompt)
  local tail = prompt:match("^.*%S") or ""
  return tail:sub(-#pair.open) == pair.open
end

return thoughts
