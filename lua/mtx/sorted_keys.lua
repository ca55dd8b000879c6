-- SPDX-License-Identifier: MIT
-- The keys of a table, in order: what is printed or compared must not depend on pairs().
return function(t)
  local keys = {}
  for k in pairs(t) do keys[#keys + 1] = k end
  table.sort(keys)
  return keys
end
