-- SPDX-License-Identifier: MIT
-- Samplers of your own, for requests that name one in the field "sampler":
--   mtx serve --script examples/serve/sampler.lua
--   curl localhost:11434/v1/completions -d '{"model": "...", "prompt": "...", "sampler": "no_echo"}'
-- logits is a tensor (index = token id + 1); history lists the ids so far, newest last.

-- Changes the logits and leaves the choice to the usual samplers (temperature, top_p...):
-- none of the last `window` tokens comes again.
mtx.sampler("no_echo", function(logits, history, options)
  local window = options.window or 8
  for i = math.max(1, #history - window + 1), #history do logits[history[i] + 1] = -math.huge end
end)

-- Chooses by itself: the second most likely token at every `every`-th place.
local n = 0 -- of this request alone
mtx.sampler("detour", function(logits, history, options)
  n = n + 1
  local best = logits:topk(2)
  return best[n % (options.every or 3) == 0 and 2 or 1][1] - 1
end)
