-- SPDX-License-Identifier: MIT
-- Best of n: POST /best {"prompt": "...", "n": 4} samples n answers (the prompt is
-- computed once, the answers share it) and gives the likeliest per token.
mtx.route("POST", "/best", function(q)
  if not q.json or type(q.json.prompt) ~= "string" then mtx.reject(400, "prompt is required") end
  local r, message = mtx.generate({ model = q.json.model, messages = { { role = "user", content = q.json.prompt } }, n = q.json.n or 4,
    temperature = 1, max_tokens = 64, want_logprob = true })
  if not r then mtx.reject(503, message) end
  local best, best_score
  for _, c in ipairs(r.choices) do
    local score = c.logprob and c.logprob / math.max(1, c.n_tokens) or -math.huge
    if not best or score > best_score then best, best_score = c, score end
  end
  return 200, { text = best.text, score = best_score, candidates = #r.choices }
end)
