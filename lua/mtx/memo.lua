-- SPDX-License-Identifier: MIT
-- A function of one text that remembers its answers, at most `max` of them: when they
-- are that many it begins anew. Answers must not be nil.
return function(max, f)
  local known, n = {}, 0
  return function(text)
    local answer = known[text]
    if answer == nil then
      answer = f(text)
      if n >= max then known, n = {}, 0 end
      known[text], n = answer, n + 1
    end
    return answer
  end
end
