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

-- Code points that take two columns (East Asian wide, most emoji), and none (marks that join the character before), as
-- Unicode's EastAsianWidth.txt and terminals have it; first and last of each range.
local WIDE = { 0x1100, 0x115F, 0x231A, 0x231B, 0x2E80, 0x303E, 0x3041, 0x4DBF, 0x4E00, 0xA4CF, 0xA960, 0xA97F, 0xAC00, 0xD7A3, 0xF900, 0xFAFF,
  0xFE30, 0xFE6F, 0xFF00, 0xFF60, 0xFFE0, 0xFFE6, 0x1F300, 0x1F64F, 0x1F680, 0x1F6FF, 0x1F900, 0x1F9FF, 0x20000, 0x3FFFD }
local NONE = { 0x300, 0x36F, 0x200B, 0x200F, 0x20D0, 0x20FF, 0xFE00, 0xFE0F, 0xFE20, 0xFE2F, 0xE0100, 0xE01EF }

local function within(ranges, code)
  for i = 1, #ranges, 2 do
    if code >= ranges[i] and code <= ranges[i + 1] then return true end
  end
  return false
end

-- Where a terminal of `columns` stands after a text that begins at row, col (from 0). Colour codes take no room, a full
-- row goes on in the next one. -> row, col
function term.place(text, columns, row, col)
  for char in text:gsub("\27%[[%d;]*m", ""):gmatch(utf8.charpattern) do
    if char == "\n" then
      row, col = row + 1, 0
    elseif char == "\t" then
      col = math.min((col // 8 + 1) * 8, columns - 1)
    else
      local code = #char == 1 and 0x20 or utf8.len(char) and utf8.codepoint(char) or 0x20
      local width = within(NONE, code) and 0 or within(WIDE, code) and 2 or 1
      if col + width > columns then row, col = row + 1, 0 end
      col = col + width
    end
  end
  if col >= columns then return row + 1, 0 end
  return row, col
end

-- A progress bar on stderr: bar(done, total [, text behind it]); bar(nil) removes it. Draws nothing
-- when stderr is no terminal, and not before 300 ms have passed, so that quick
-- work leaves no flicker.
function term.progress(label)
  local started, last, drawn = uv.hrtime(), 0, false
  if not term.is_tty(2) then return function() end end
  return function(done, total, text)
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
    io.stderr:write(("\r%s [%s%s] %3d%%%s\27[K"):format(label, ("#"):rep(full), ("."):rep(width - full), math.floor(share * 100), text and "  " .. text or ""))
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
