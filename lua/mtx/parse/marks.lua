-- SPDX-License-Identifier: MIT
-- Marks (tags, control tokens as text) in a text that is still growing.
local marks = {}

-- How many bytes at the end of s could be the beginning of a mark, the longest such.
function marks.held(s, list)
  local most = 0
  for _, m in ipairs(list) do
    for k = math.min(#m - 1, #s), most + 1, -1 do
      if s:sub(-k) == m:sub(1, k) then
        most = k
        break
      end
    end
  end
  return most
end

-- Where the first mark of s stands and which it is (the longest of those at one place) | nil.
function marks.first(s, list)
  local at, mark
  for _, m in ipairs(list) do
    local i = s:find(m, 1, true)
    if i and (not at or i < at or (i == at and #m > #mark)) then at, mark = i, m end
  end
  return at, mark
end

return marks
