-- SPDX-License-Identifier: MIT
-- What a terminal can do: colours only where somebody sees them, progress lines
-- that rewrite themselves.
local term = {}

local uv = require("luv")

-- Is file descriptor fd (0, 1, 2) a terminal?
function term.is_tty(fd) return uv.guess_handle(fd) == "tty" end

local function wants_colour(fd)
  return term.is_tty(fd) and not os.getenv("NO_COLOR") and os.getenv("TERM") ~= "dumb"
end

local CODES = { bold = "1", dim = "2", red = "31", green = "32", yellow = "33", cyan = "36" }

-- text in a colour when fd shows colours, else as it is.
function term.paint(text, colour, fd)
  if not wants_colour(fd or 1) then return text end
  return "\27[" .. CODES[colour] .. "m" .. text .. "\27[0m"
end

-- Columns of the terminal, 80 when unknown.
function term.width()
  return tonumber(os.getenv("COLUMNS")) or 80
end

-- A progress bar on stderr: bar(done, total); bar(nil) removes it. Draws nothing
-- when stderr is no terminal, and not before 300 ms have passed, so that quick
-- work leaves no flicker.
function term.progress(label)
  local started, last, drawn = uv.hrtime(), 0, false
  if not term.is_tty(2) then return function() end end
  return function(done, total)
    local now = uv.hrtime()
    if not done then
      if drawn then io.stderr:write("\r\27[K") end
      return
    end
    if now - started < 3e8 or (now - last < 5e7 and done < total) then return end
    last, drawn = now, true
    local share = total > 0 and done / total or 1
    local width = 24
    local full = math.floor(share * width)
    io.stderr:write(("\r%s [%s%s] %3d%%\27[K"):format(label, ("#"):rep(full), ("."):rep(width - full), math.floor(share * 100)))
    io.stderr:flush()
  end
end

-- 1536 -> "1.5 KiB"
function term.bytes(n)
  local units, i = { "B", "KiB", "MiB", "GiB", "TiB" }, 1
  while n >= 1024 and i < #units do n, i = n / 1024, i + 1 end
  return i == 1 and ("%d B"):format(n) or ("%.1f %s"):format(n, units[i])
end

-- 134515008 -> "134.5M"
function term.count(n)
  local units = { { 1e12, "T" }, { 1e9, "B" }, { 1e6, "M" }, { 1e3, "K" } }
  for _, u in ipairs(units) do
    if n >= u[1] then return ("%.1f%s"):format(n / u[1], u[2]) end
  end
  return tostring(n)
end

return term
