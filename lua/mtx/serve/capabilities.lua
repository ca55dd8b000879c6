-- SPDX-License-Identifier: MIT
-- What a model can do, computed from its file and template, never guessed from
-- its name.
local capabilities = {}

-- Architectures that only encode.
local ENCODERS = { bert = true, ["nomic-bert"] = true, ["nomic-bert-moe"] = true, ["jina-bert-v2"] = true, ["jina-bert-v3"] = true,
  ["modern-bert"] = true, ["neo-bert"] = true, t5encoder = true, ["gemma-embedding"] = true, ["eurobert"] = true }

-- info: model:info() or the catalog's description (architecture, chat_template, pooling, fim_prefix).
-- -> set {completion, tools, thinking, insert, embedding} of true.
function capabilities.of(info, template)
  local set = {}
  local t = template or info.chat_template or ""
  if ENCODERS[info.architecture or ""] then
    set.embedding = true
    return set
  end
  set.completion = true
  if t:find("tools", 1, true) then set.tools = true end
  if t:find("<think>", 1, true) or t:find("enable_thinking", 1, true) or t:find("reasoning_content", 1, true)
    or t:find("<|channel|>", 1, true) then
    set.thinking = true
  end
  if info.fim_prefix and info.fim_suffix then set.insert = true end
  if info.pooling and info.pooling ~= "none" then set.embedding = true end
  return set
end

-- The set as a list in the usual order.
function capabilities.list(set)
  local out = {}
  for _, name in ipairs({ "completion", "tools", "insert", "vision", "embedding", "thinking" }) do
    if set[name] then out[#out + 1] = name end
  end
  return out
end

return capabilities
