-- SPDX-License-Identifier: MIT
-- Durations as Ollama's keep_alive takes them (api.md, 1.2): numbers are seconds,
-- texts are Go durations ("1h30m", "300ms"); negative means for ever.
local duration = {}

local UNITS = { ns = 1e-9, us = 1e-6, ["µs"] = 1e-6, ["μs"] = 1e-6, ms = 1e-3, s = 1, m = 60, h = 3600 }

-- number or text -> seconds (math.huge = for ever), or nil when malformed.
function duration.parse(v)
  if type(v) == "number" then
    if v ~= v then return nil end
    return v < 0 and math.huge or v
  end
  if type(v) ~= "string" then return nil end
  local sign, rest = v:match("^([+-]?)(.+)$")
  if not rest then return nil end
  if rest == "0" then return 0 end
  local total, pos = 0, 1
  while pos <= #rest do
    local n, unit, stop = rest:match("^(%d*%.?%d*)([^%d%.]+)()", pos)
    if not n or not n:find("%d") or not UNITS[unit] then return nil end
    total = total + tonumber(n) * UNITS[unit]
    pos = stop
  end
  if sign == "-" and total > 0 then return math.huge end
  return total
end

return duration
