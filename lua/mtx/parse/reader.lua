-- SPDX-License-Identifier: MIT
-- A text that is still growing, read as if it were whole: what needs more of it
-- waits inside a coroutine. So a format's reader is plain code in the order of
-- the text, and what it finds cannot depend on how the text was cut: every
-- function here decides by the bytes alone.
local marks = require("mtx.parse.marks")

local Reader = {}
Reader.__index = Reader

function Reader.new() return setmetatable({ buf = "", pos = 1, ended = false, kept = nil, from = 1 }, Reader) end

-- The driver's side: adds text; what was read is dropped, or kept while recording.
function Reader:add(text)
  if self.kept then
    self.kept[#self.kept + 1] = self.buf:sub(self.from, self.pos - 1)
    self.from = 1
  end
  self.buf, self.pos = self.buf:sub(self.pos) .. text, 1
end

-- Keeps what is read from here on (and `before`, read already) until it is asked for.
function Reader:record(before) self.kept, self.from = { before }, self.pos end

-- What was read since record(); ends it.
function Reader:recorded()
  local kept = self.kept
  kept[#kept + 1] = self.buf:sub(self.from, self.pos - 1)
  self.kept = nil
  return table.concat(kept)
end

-- Waits for more text; false when there is no more.
function Reader:more()
  if self.ended then return false end
  coroutine.yield()
  return true
end

-- Whether n more bytes come.
function Reader:has(n)
  while #self.buf - self.pos + 1 < n do
    if not self:more() then return false end
  end
  return true
end

-- The next byte as a string, unread; "" at the end.
function Reader:peek() return self:has(1) and self.buf:sub(self.pos, self.pos) or "" end

-- Reads what there is.
function Reader:rest() return self:take(#self.buf - self.pos + 1) end

-- Reads n bytes that has(n) has found.
function Reader:take(n)
  local s = self.buf:sub(self.pos, self.pos + n - 1)
  self.pos = self.pos + n
  return s
end

-- Reads s when it comes next.
function Reader:try(s)
  while true do
    local have = self.buf:sub(self.pos, self.pos + #s - 1)
    if have ~= s:sub(1, #have) then return false end
    if #have == #s then
      self.pos = self.pos + #s
      return true
    end
    if not self:more() then return false end
  end
end

-- Reads the first of the list that comes next; none may be the beginning of a later one. -> it | nil.
function Reader:try_any(list)
  for _, s in ipairs(list) do
    if self:try(s) then return s end
  end
end

-- Reads up to the first byte of a class ("[%s<]"), at most `limit` bytes; give(text), when there, gets them as they come.
function Reader:run(stop_class, give, limit)
  local parts, n = {}, 0
  while true do
    local stop = self.buf:find(stop_class, self.pos)
    local text = self.buf:sub(self.pos, (stop or #self.buf + 1) - 1)
    if limit and n + #text >= limit then text, stop = text:sub(1, limit - n), true end
    n, self.pos = n + #text, self.pos + #text
    if text ~= "" then
      if give then give(text) else parts[#parts + 1] = text end
    end
    if stop or not self:more() then return table.concat(parts) end
  end
end

function Reader:space() return self:run("[^ \t\r\n]") end

-- Gives the text before the first of the marks to give(text) as it comes; reads the mark and returns it; nil at the
-- end (a tail that may have become a mark stays unread), or after `limit` bytes.
function Reader:upto(list, give, limit)
  local n = 0
  while true do
    local at, mark = marks.first(self.buf, list, self.pos)
    local keep = marks.held(self.buf, list, self.pos)
    local settled = at and (self.ended or keep == 0 or #self.buf - keep + 1 > at) -- else a longer mark may still be growing there
    local stop = settled and at or math.min(at or math.huge, #self.buf - keep + 1)
    if limit and n + stop - self.pos > limit then -- the same place however the text was cut
      self.pos = self.pos + limit - n
      return nil
    end
    if stop > self.pos then
      local text = self.buf:sub(self.pos, stop - 1)
      n, self.pos = n + #text, stop
      give(text)
    end
    if settled then
      self.pos = at + #mark
      return mark
    end
    if not self:more() then return nil end
  end
end

-- The text before the first of the marks, which is read too: text, mark; nil when none comes within `limit` bytes.
function Reader:before(list, limit)
  local parts = {}
  local mark = self:upto(list, function(text) parts[#parts + 1] = text end, limit)
  if mark then return table.concat(parts), mark end
end

return Reader
