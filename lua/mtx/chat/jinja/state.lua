-- SPDX-License-Identifier: MIT
-- The state of the render that is running: output, budget, place.
--
-- Closures made by the compiler reach it as an upvalue, which is what makes them
-- cheap; template.lua saves and restores it, so that a Lua function called from a
-- template may render another one. A render never yields.
--
-- out[1..n] are pieces of output (strings or marked text, see text.lua); G is
-- the list of values of the template's free names; at is the byte offset in the
-- template of the last operation that may fail; steps and bytes are what is left
-- of the budget, depth is the nesting of macros and recursive loops. spans: marks are
-- wanted; marks: tables of text.lua may be among the strings (Markup makes them too). kept: texts of macros (pure.lua).
local S = { out = {}, kept = {}, n = 0, steps = 0, bytes = 0, depth = 0, max_depth = 0, at = 1, spans = false, marks = false }

--- Ends the render. `at` (default: S.at) is an offset in the template.
function S.fail(message, at)
  error({ template_message = message, at = at or S.at }, 0)
end

--- Takes n steps (loop turns, calls, list elements touched) from the budget.
function S.step(n)
  local left = S.steps - n
  S.steps = left
  if left < 0 then S.fail("the template takes too many steps (limit: limits.steps)") end
end

--- Takes n bytes of text built from the budget.
function S.charge(n)
  local left = S.bytes - n
  S.bytes = left
  if left < 0 then S.fail("the template builds too much text (limit: limits.bytes)") end
end

--- Enters a macro or a recursive loop.
function S.enter()
  local left = S.steps - 1
  S.steps = left
  if left < 0 then S.step(0) end
  local depth = S.depth + 1
  if depth > S.max_depth then S.fail("the template recurses too deeply (limit: limits.depth)") end
  S.depth = depth
end

return S
