-- SPDX-License-Identifier: MIT
-- best_of: more answers are generated than are wanted; of each prompt's those with the
-- highest mean log-probability per token are given, the best first.
local best_of = {}

-- Mean of the generated tokens' logprobs; entries before `from` are the prompt's (echo).
local function mean(choice, from)
  local sum, n = 0, 0
  for i = from, #(choice.logprobs or {}) do
    sum, n = sum + (choice.logprobs[i].logprob or 0), n + 1
  end
  return n > 0 and sum / n or 0
end

-- result: answer.lua's of req.n answers to each prompt; keeps req.keep of them.
function best_of.choose(result, req)
  local all, kept = result.choices, {}
  for first = 1, #all, req.n do
    local group = table.move(all, first, first + req.n - 1, 1, {})
    local prompt = result.job.prompts[(first - 1) // req.n + 1]
    local from, score, place = req.echo and #prompt + 1 or 1, {}, {}
    for i, c in ipairs(group) do score[c], place[c] = mean(c, from), i end
    table.sort(group, function(a, b)
      if score[a] ~= score[b] then return score[a] > score[b] end
      return place[a] < place[b]
    end)
    for i = 1, req.keep do
      local c = group[i]
      if req.drop_logprobs then c.logprobs = nil end
      kept[#kept + 1] = c
    end
  end
  result.choices = kept
end

return best_of
