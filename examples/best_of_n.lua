-- SPDX-License-Identifier: MIT
-- Several continuations from one prefill: the prompt is read once, its memory is
-- shared by every fork, and the likeliest continuation is printed.
-- usage: mtx examples/best_of_n.lua MODEL "text to continue" [N]
local mtx = require("mtx")
local model = assert(mtx.load(arg[1]))
local n = tonumber(arg[3]) or 4

local prompt = assert(model:tokenize(arg[2] or "My favourite season is"))
local root = assert(model:session())
local first = assert(root:eval(prompt))
local n_vocab = #first

local best, best_score
for i = 1, n do
  local branch = assert(root:fork())
  local sampler = mtx.sampler({ temperature = 0.8, top_p = 0.95, seed = i }, n_vocab)
  local history, ids, score, logits = table.move(prompt, 1, #prompt, 1, {}), {}, 0, first
  for _ = 1, 16 do
    local id = assert(sampler:sample(logits, history))
    score = score + logits:log_softmax_at(1, id + 1)
    if model:is_eog(id) then break end
    ids[#ids + 1], history[#history + 1] = id, id
    logits = assert(branch:eval({ id }))
  end
  branch:close()
  local text, mean = model:detokenize(ids), score / math.max(#ids, 1)
  print(("%d: %.3f %s"):format(i, mean, (text:gsub("\n", " "))))
  if not best_score or mean > best_score then best, best_score = text, mean end
end
print("best: " .. best:gsub("\n", " "))
root:close()
model:close()
