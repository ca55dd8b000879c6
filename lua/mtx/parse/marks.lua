-- SPDX-License-Identifier: MIT
-- Marks (tags, control tokens as text) in a text that is still growing.
local marks = {}

-- How many bytes at the end of s, from `from` on, could be the beginning of a mark: the longest such.
function marks.held(s, list, from)
  local most = 0
  for _, m in ipairs(list) do
    local first = m:sub(1, 1)
    local i = s:find(first, math.max(from or 1, #s - #m + 2), true)
    while i do
      if m:sub(1, #s - i + 1) == s:sub(i) then
        most = math.max(most, #s - i + 1)
        break
      end
      i = s:find(first, i + 1, true)
    end
  end
  return most
end

-- Where the first mark of s from `from` on stands and which it is (the longest of those at one place) | nil.
function marks.first(s, list, from)
  local at, mark
  for _, m in ipairs(list) do
    local i = s:find(m, from or 1, true)
    if i and (not at or i < at or (i == at and #m > #mark)) then at, mark = i, m end
  end
  return at, mark
end

return marks
