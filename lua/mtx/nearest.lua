-- SPDX-License-Identifier: MIT
-- The word of a list that a misspelt one most likely stood for: "did you mean ...?"

-- Single edits (a letter missing, added, changed, or two swapped) between two words.
local function distance(a, b)
  local rows = { [0] = {} }
  for j = 0, #b do rows[0][j] = j end
  for i = 1, #a do
    local row = { [0] = i }
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      row[j] = math.min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + (same and 0 or 1))
      if i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then row[j] = math.min(row[j], rows[i - 2][j - 2] + 1) end
    end
    rows[i] = row
  end
  return rows[#a][#b]
end

local ENOUGH = 4 -- letters in common that are no accident

local function longest_beginning(word, list)
  local best
  for _, name in ipairs(list) do
    if #name >= ENOUGH and word:sub(1, #name) == name and #name > #(best or "") then best = name end
  end
  return best
end

local function only_beginning(word, list)
  local best
  for _, name in ipairs(list) do
    if #word >= ENOUGH and name:sub(1, #word) == word then
      if best then return nil end
      best = name
    end
  end
  return best
end

-- nearest(word, list) -> a word of the list | nil when none is near. Longer forms count (temperature for temp), and
-- beginnings that only one word of the list has.
return function(word, list)
  if #word < 2 or #word > 40 then return nil end
  local best, least = nil, #word > 4 and 3 or 2
  for _, name in ipairs(list) do
    local d = distance(word, name)
    if d < least then best, least = name, d end
  end
  return best or longest_beginning(word, list) or only_beginning(word, list)
end
