-- SPDX-License-Identifier: MIT
-- Texts that no repeat of the DRY sampler reaches across -> the ids of all tokens
-- that hold one of them; for a text that no single token holds, its last token.
local breakers = {}

-- llama-server's default.
breakers.DEFAULT = { "\n", ":", "\"", "*" }

-- model: with :containing and :tokenize
function breakers.ids(model, texts)
  local out = {}
  for _, text in ipairs(texts) do
    if text ~= "" then
      local ids = model:containing(text)
      if not ids[1] then ids = { table.remove((model:tokenize(text, { add_special = false, parse_special = false }))) } end
      table.move(ids, 1, #ids, #out + 1, out)
    end
  end
  return out
end

return breakers
