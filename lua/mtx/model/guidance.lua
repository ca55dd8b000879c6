-- SPDX-License-Identifier: MIT
-- The other prompt of classifier-free guidance (cfg_scale, negative_prompt): what
-- its tokens are. The formula is in csrc/sample/sample.h.
local guidance = {}

-- A conversation's negative: the same one with `negative` in place of the system message
-- (Sanchez et al. 2023, section 3.4). -> messages
function guidance.messages(messages, negative)
  local out = { { role = "system", content = negative } }
  local first = messages[1] and (messages[1].role == "system" or messages[1].role == "developer") and 2 or 1
  return table.move(messages, first, #messages, 2, out)
end

-- Without a negative prompt: nothing but what every text begins with, or the prompt's
-- last token where the vocabulary has no BOS (as in transformers' guidance). -> ids
function guidance.bare(prompt_ids, bos)
  if bos and bos >= 0 then return { bos } end
  return { prompt_ids[#prompt_ids] }
end

return guidance
