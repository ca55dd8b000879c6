-- SPDX-License-Identifier: MIT
-- What a model can do, computed from its file and from what its template renders
-- (chat/probe.lua), never guessed from names or words.
local memo = require("mtx.memo")
local render = require("mtx.chat.render")

local capabilities = {}

-- Architectures that only encode.
local ENCODERS = { bert = true, ["nomic-bert"] = true, ["nomic-bert-moe"] = true, ["jina-bert-v2"] = true, ["jina-bert-v3"] = true,
  ["modern-bert"] = true, ["neo-bert"] = true, t5encoder = true, ["gemma-embedding"] = true, ["eurobert"] = true }

-- The set of probe.lua for a template; empty for one that cannot be used. Probing takes some
-- milliseconds, and a list of models asks for each again and again.
local probed = memo(64, function(template)
  local renderer = render.new({ template = template })
  return renderer and renderer:capabilities() or {}
end)

-- info: model:info() or the catalog's description (architecture, chat_template, pooling, fim_prefix).
-- template: stands in for the file's own. -> set {completion, tools, thinking, insert, embedding} of true.
function capabilities.of(info, template)
  local set = {}
  if ENCODERS[info.architecture or ""] then
    set.embedding = true
    return set
  end
  set.completion = true
  local source = template or info.chat_template
  local can = source and source ~= "" and probed(source) or {}
  if can.tools then set.tools = true end
  if can.reasoning then set.thinking = true end
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
