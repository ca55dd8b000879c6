-- SPDX-License-Identifier: MIT
-- strftime over a broken-down time, in the C locale, with glibc's "-" flag.
--
-- The clock is a table {year, month, day, hour, min, sec} (as os.date("*t") gives),
-- handed in by the caller: a template cannot look at the real clock, and a pinned
-- one makes prompts, and so prompt caches, repeatable.
local clock = {}

local DAYS = { "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday" }
local MONTHS = { "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December" }

--- "2026-03-14 15:09:26" (or with a T) -> clock table, or nil.
function clock.parse(s)
  local y, mo, d, h, mi, sec = tostring(s):match("^(%d%d%d%d)%-(%d%d)%-(%d%d)[ T](%d%d):(%d%d):(%d%d)")
  if not y then return nil end
  return { year = tonumber(y), month = tonumber(mo), day = tonumber(d), hour = tonumber(h), min = tonumber(mi), sec = tonumber(sec) }
end

-- Days since 1970-01-01 of a date of the proleptic Gregorian calendar.
local function day_number(y, m, d)
  if m <= 2 then y, m = y - 1, m + 12 end
  return 365 * y + y // 4 - y // 100 + y // 400 + (153 * (m - 3) + 2) // 5 + d - 719469
end

local function weekday(t) return (day_number(t.year, t.month, t.day) + 4) % 7 end -- 0 = Sunday
local function year_day(t) return day_number(t.year, t.month, t.day) - day_number(t.year, 1, 1) end

-- Year and week by ISO 8601: those of the Thursday in the same week.
local function iso_year(t)
  local thursday = day_number(t.year, t.month, t.day) + 4 - ((weekday(t) + 6) % 7 + 1)
  local year = t.year
  if thursday < day_number(year, 1, 1) then year = year - 1 elseif thursday >= day_number(year + 1, 1, 1) then year = year + 1 end
  return year, (thursday - day_number(year, 1, 1)) // 7 + 1
end

local NUMBERS = {
  d = function(t) return t.day, 2 end, e = function(t) return t.day, 2, " " end,
  m = function(t) return t.month, 2 end, y = function(t) return t.year % 100, 2 end, Y = function(t) return t.year, 1 end,
  H = function(t) return t.hour, 2 end, M = function(t) return t.min, 2 end, S = function(t) return t.sec, 2 end,
  I = function(t) return (t.hour + 11) % 12 + 1, 2 end, l = function(t) return (t.hour + 11) % 12 + 1, 2, " " end,
  k = function(t) return t.hour, 2, " " end, j = function(t) return year_day(t) + 1, 3 end, C = function(t) return t.year // 100, 2 end,
  f = function() return 0, 6 end, w = function(t) return weekday(t), 1 end, u = function(t) return (weekday(t) + 6) % 7 + 1, 1 end,
  U = function(t) return (year_day(t) + 7 - weekday(t)) // 7, 2 end, W = function(t) return (year_day(t) + 7 - (weekday(t) + 6) % 7) // 7, 2 end,
  G = function(t) return iso_year(t), 1 end, g = function(t) return iso_year(t) % 100, 2 end, V = function(t) return select(2, iso_year(t)), 2 end,
  s = function(t) return day_number(t.year, t.month, t.day) * 86400 + t.hour * 3600 + t.min * 60 + t.sec, 1 end,
}
local WORDS = {
  A = function(t) return DAYS[weekday(t) + 1] end, a = function(t) return DAYS[weekday(t) + 1]:sub(1, 3) end,
  B = function(t) return MONTHS[t.month] end, b = function(t) return MONTHS[t.month]:sub(1, 3) end,
  p = function(t) return t.hour < 12 and "AM" or "PM" end, P = function(t) return t.hour < 12 and "am" or "pm" end,
  n = function() return "\n" end, t = function() return "\t" end, ["%"] = function() return "%" end,
  Z = function() return "" end, z = function() return "" end,
}
WORDS.h = WORDS.b
local COMPOUND = { D = "%m/%d/%y", F = "%Y-%m-%d", T = "%H:%M:%S", R = "%H:%M", r = "%I:%M:%S %p", c = "%a %b %e %H:%M:%S %Y", x = "%m/%d/%y", X = "%H:%M:%S" }

--- Formats clock table t. An unknown directive stays as it is written.
function clock.format(format, t)
  return (format:gsub("%%([-_0^#]?)(.?)", function(flag, c)
    if COMPOUND[c] then return clock.format(COMPOUND[c], t) end
    local word = WORDS[c]
    if word then return flag == "^" and word(t):upper() or word(t) end
    if not NUMBERS[c] then return nil end
    local n, width, fill = NUMBERS[c](t)
    local digits = tostring(n)
    if flag == "-" then return digits end
    fill = flag == "_" and " " or flag == "0" and "0" or fill or "0"
    return fill:rep(width - #digits) .. digits
  end))
end

return clock
