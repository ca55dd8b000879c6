-- SPDX-License-Identifier: MIT
-- Which texts mean the same? Cosine of embeddings of an encoder model.
-- usage: mtx examples/similarity.lua ENCODER.gguf "text" "text" ...
local mtx = require("mtx")
local model = assert(mtx.load(arg[1]))

local texts = table.move(arg, 2, #arg, 1, {})
local vectors = assert(model:embed(texts, { normalize = true }))
for i = 2, #texts do
  local dot = 0
  for k, x in ipairs(vectors[1]) do dot = dot + x * vectors[i][k] end
  print(("%.3f  %s"):format(dot, texts[i]))
end
model:close()
