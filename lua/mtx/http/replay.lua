-- SPDX-License-Identifier: MIT
-- Streamed answers that outlive their connection: the last bytes of each are kept
-- in a ring, so that a reader who comes back goes on at the byte it had reached.
-- Knows no route and no dialect.
local uv = require("luv")
local pump = require("mtx.http.pump")

local replay = {}

-- Bytes of one stream that are kept, seconds they are kept after its end, and streams at once: many short
-- ones take more in tables than in bytes.
replay.RING_BYTES, replay.KEEP_S, replay.MAX_STREAMS = 4 << 20, 300, 4096

local Stream = {}
Stream.__index = Stream

-- Appends bytes; the oldest pieces beyond the ring's size are dropped.
function Stream:append(bytes)
  if bytes == "" or self.done then return end
  self.last = self.last + 1
  self.pieces[self.last] = bytes
  self.total, self.bytes = self.total + #bytes, self.bytes + #bytes
  self.store.bytes = self.store.bytes + #bytes
  while self.bytes > replay.RING_BYTES and self.first < self.last do
    local n = #self.pieces[self.first]
    self.pieces[self.first] = nil
    self.first, self.bytes, self.dropped = self.first + 1, self.bytes - n, self.dropped + n
    self.store.bytes = self.store.bytes - n
  end
  for f in pairs(self.readers) do f() end
end

-- No more bytes will come.
function Stream:finish()
  if self.done then return end
  self.done, self.completed = true, os.time()
  self.timer = uv.new_timer()
  self.timer:start(replay.KEEP_S * 1000, 0, function() self.store:remove(self) end)
  self.timer:unref()
  for f in pairs(self.readers) do f() end
end

-- Up to about `max` bytes from offset `from` on; "" when there are none yet, nil when they are dropped.
function Stream:read(from, max)
  if from < self.dropped then return nil end
  local at, out, n = self.dropped, {}, 0
  for i = self.first, self.last do
    local piece = self.pieces[i]
    local stop = at + #piece
    if stop > from then
      out[#out + 1] = at < from and piece:sub(from - at + 1) or piece
      n = n + #out[#out]
      if n >= max then break end
    end
    at = stop
  end
  return table.concat(out)
end

local Store = {}
Store.__index = Store

-- max_bytes: of all rings together; finished streams go first, then no new ones are taken.
function replay.store(max_bytes) return setmetatable({ max = max_bytes, bytes = 0, by_id = {}, order = {} }, Store) end

function Store:get(id) return self.by_id[id] end

function Store:remove(s)
  if self.by_id[s.id] ~= s then return end
  self.by_id[s.id] = nil
  self.bytes = self.bytes - s.bytes
  for i, other in ipairs(self.order) do
    if other == s then
      table.remove(self.order, i)
      break
    end
  end
  if s.timer and not s.timer:is_closing() then s.timer:close() end
  if not s.done then
    s.done, s.completed = true, os.time()
    for f in pairs(s.readers) do f() end
  end
end

-- Whether there is room for one more; a running stream counts as a full ring.
local function has_room(self)
  local n = replay.RING_BYTES
  for _, s in ipairs(self.order) do n = n + (s.done and s.bytes or replay.RING_BYTES) end
  return n <= self.max and #self.order < replay.MAX_STREAMS
end

-- A new stream under `id`, in place of an older one; nil when there is no room.
-- fields: what the caller wants to find in it (ctype, owner).
function Store:open(id, fields)
  if self.by_id[id] then self:remove(self.by_id[id]) end
  for _, s in ipairs({ table.unpack(self.order) }) do
    if has_room(self) then break end
    if s.done then self:remove(s) end
  end
  if not has_room(self) then return nil end
  local s = setmetatable(fields, Stream)
  s.store, s.id, s.pieces, s.first, s.last, s.total, s.bytes, s.dropped, s.readers, s.started = self, id, {}, 1, 0, 0, 0, 0, {}, os.time()
  self.by_id[id] = s
  self.order[#self.order + 1] = s
  return s
end

-- Answers x with the stream from offset `from` on: what is kept, then what comes, to its end.
function replay.serve(x, s, from)
  x:start(200, s.ctype)
  local wake
  wake = pump.run(x, function(max)
    local bytes = s:read(from, max)
    if not bytes then return nil end -- it was overtaken: a cut answer says so
    from = from + #bytes
    if bytes == "" and s.done then return false end
    return bytes
  end, function() s.readers[wake] = nil end)
  s.readers[wake] = true
end

return replay
