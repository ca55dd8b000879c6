-- SPDX-License-Identifier: MIT
-- Macros whose text depends on their arguments alone. Templates write their frames (<|open|>message<|sep|>)
-- through such macros, hundreds of times with the same arguments, so a call of one with constants
-- is run once and its output kept with the compiled template.
local Scope = require("mtx.chat.jinja.scope")
local reads = require("mtx.chat.jinja.reads")
local text = require("mtx.chat.jinja.text")
local S = require("mtx.chat.jinja.state")

local pure = {}

--- The names of such macros: defined at the top of the template, set nowhere else, reading nothing but each other.
function pure.names(body)
  local times, outside = {}, {}
  for _, name in ipairs(Scope.set_names(body, {})) do times[name] = (times[name] or 0) + 1 end
  for _, node in ipairs(body) do
    if node.t == "macro" and times[node.name] == 1 then outside[node.name] = reads({ node }) end
  end
  local changed
  repeat
    changed = false
    for name, found in pairs(outside) do
      for other in pairs(found) do
        if not outside[other] then outside[name], changed = nil, true end
      end
    end
  until not changed
  return outside
end

--- write(F), whose output is always the same, as a function that runs it once. What it costs of
--- the budget is taken each time.
function pure.once(write)
  local kept, steps, bytes
  return function(F)
    if kept then
      S.step(steps)
      S.charge(bytes)
      local at = S.n + 1
      S.n = at
      S.out[at] = kept
      return
    end
    local base, steps_before, bytes_before = S.n, S.steps, S.bytes
    write(F)
    steps, bytes = steps_before - S.steps, bytes_before - S.bytes
    kept = text.join(S.out, base + 1, S.n)
  end
end

return pure
