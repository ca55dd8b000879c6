-- SPDX-License-Identifier: MIT
-- One client connection: reads, runs requests one after the other in order
-- (pipelined ones wait in the parser), writes with bounded queues, and closes so
-- that a client still sending can read its answer (RFC 9112, 9.6).
local codec = require("mtx.http.codec")
local exchange = require("mtx.http.exchange")

local connection = {}

local Conn = {}
Conn.__index = Conn

-- A refused body up to this size is read and dropped to keep the connection.
local DRAIN_MAX = 1 << 20

function connection.new(server, sock, peer)
  local self = setmetatable({ server = server, sock = sock, peer = peer, parser = codec.new(server.codec_limits),
    out = {}, n_out = 0, phase = "idle", since = server.uv.now() }, Conn)
  self:start_reading()
  return self
end

function Conn:start_reading()
  self.paused = nil
  self.sock:read_start(function(err, data)
    if self.closed then return end
    if err then return self:abort("read: " .. tostring(err)) end
    if data then return self:on_data(data) end
    self:on_eof()
  end)
end

function Conn:set_phase(phase)
  self.phase, self.since = phase, self.server.uv.now()
end

-- A client that hangs up while its answer is being made wants it no more.
function Conn:on_eof()
  self.eof = true
  if self.on_bytes then
    self.on_bytes(nil)
    return self:close()
  end
  if self.x then return self:abort("client closed the connection") end
  if self.shut_done then return self:close() end
  self:linger()
end

function Conn:on_data(data)
  if self.phase == "linger" then return end
  if self.on_bytes then
    self.since = self.server.uv.now()
    self.on_bytes(data)
    return self:flush()
  end
  self.parser:feed(data)
  if self.x and not self.reading then
    if self.parser:pending() > self.server.max_pipelined then
      self.paused = true
      self.sock:read_stop()
    end
    return
  end
  self:pump()
end

local function new_exchange(self, req)
  local x = exchange.new(self, req)
  self.x = x
  return x
end

-- The body that was being read will not be used; a sink is told, so that it keeps nothing open.
local function abandon(self)
  local r = self.reading
  self.reading = nil
  if r and r.sink then r.sink(nil) end
end

-- Refused by the parser: answer in the caller's dialect, then close.
local function refuse(self, status, message)
  local parser = self.parser
  local path = parser.path or "/"
  local x = self.x or new_exchange(self, { method = parser.method or "GET", path = path, headers = {}, minor = 1, body = "none" })
  x.keep = false
  abandon(self)
  self.server.app:refuse(x, status, message)
end

-- The head is there: ask the application before any byte of the body.
local function on_head(self, req)
  local x = new_exchange(self, req)
  local app = self.server.app
  local limit, sink = app:head(x)
  if req.body == "none" then
    if limit then
      x.body = ""
      self:set_phase("busy")
      app:run(x)
    end
    return
  end
  if limit and req.length and req.length > limit then
    local max = limit
    limit = nil
    app:refuse(x, 413, "request body too large: " .. req.length .. " bytes, the limit is " .. max)
  end
  if not limit then return end
  self.reading = { limit = limit, sink = sink, n = 0, pieces = {}, started = self.server.uv.now() }
  self:set_phase("body")
  if req.expect and self.parser:pending() == 0 then self:push("HTTP/1.1 100 Continue\r\n\r\n") end
end

local function on_body(self, bytes)
  local r = self.reading
  if not r then return end -- the body of a refused request: dropped
  self.since = self.server.uv.now()
  r.n = r.n + #bytes
  if r.n > r.limit then
    abandon(self)
    self.x.keep = false
    return self.server.app:refuse(self.x, 413, "request body too large: the limit is " .. r.limit .. " bytes")
  end
  if r.sink then return r.sink(bytes) end
  local p = r.pieces
  p[#p + 1] = bytes
  if #p >= 512 then r.pieces = { table.concat(p) } end
end

local function on_end(self)
  local r = self.reading
  self.reading = nil
  if not r then return end
  self:set_phase("busy")
  self.x.body = #r.pieces == 1 and r.pieces[1] or table.concat(r.pieces)
  self.server.app:run(self.x)
end

-- Runs what the parser has, until a request is being answered or bytes run out.
function Conn:pump()
  if self.pumping then return end
  self.pumping = true
  local parser = self.parser
  while not self.closed and self.phase ~= "linger" and not self.on_bytes and (not self.x or self.reading) do
    local kind, a, b = parser:next()
    if not kind then
      if not self.reading and not self.x and parser:pending() > 0 and self.phase == "idle" then self:set_phase("head") end
      break
    elseif kind == "head" then on_head(self, a)
    elseif kind == "body" then on_body(self, a)
    elseif kind == "end" then on_end(self)
    else
      refuse(self, a, b)
      break
    end
  end
  self.pumping = false
  if self.n_out > 0 then self:flush() end
end

function Conn:push(bytes)
  if self.closed then return end
  local n = self.n_out + 1
  self.out[n], self.n_out = bytes, n
  if not self.pumping then self:mark_dirty() end
end

function Conn:mark_dirty()
  if not self.dirty and not self.closed then
    self.dirty = true
    self.server:add_dirty(self)
  end
end

-- Called by an exchange when its answer is complete.
function Conn:complete(x)
  if self.x ~= x then return end
  self.x = nil
  self.server.app:done(x)
  local req = x.req
  if x.keep and req.body ~= "none" and not x.body then
    -- Refused before its body was read: drop a small body, else close.
    if not (req.length and req.length <= DRAIN_MAX and not req.expect) then x.keep = false end
  end
  abandon(self)
  if not x.keep or self.server.draining then
    return self:linger()
  end
  self:set_phase("idle")
  if self.paused then self:start_reading() end
  if not self.pumping then self:pump() end
end

-- Everything queued goes out as one write.
function Conn:flush()
  self.dirty = nil
  if self.closed then return end
  if self.x and self.x.streaming then self.x:flush_pending() end
  if self.n_out > 0 then
    local bytes = self.n_out == 1 and self.out[1] or table.concat(self.out, "", 1, self.n_out)
    if self.n_out > 1 then self.out = {} end
    self.n_out = 0
    self:write(bytes)
    if self.closed then return end
  end
  if self.phase == "linger" and not self.shut then self:shutdown_later() end
end

function Conn:write(bytes)
  local sock = self.sock
  if sock:get_write_queue_size() == 0 then
    local n, _, code = sock:try_write(bytes)
    if n == #bytes then return end
    if not n and code ~= "EAGAIN" then return self:abort("write: " .. tostring(code)) end
    if n then bytes = bytes:sub(n + 1) end
    self.stall_since = self.server.uv.now()
  end
  sock:write(bytes, function(err)
    if self.closed then return end
    if err then return self:abort("write: " .. tostring(err)) end
    self.stall_since = self.server.uv.now()
    if self.drained then self.drained() end
  end)
  if sock:get_write_queue_size() > self.server.max_queued then
    self:abort("reader too slow: more than " .. self.server.max_queued .. " bytes wait")
  end
end

-- Stop answering; send what is queued, then half-close and read to the end.
function Conn:linger()
  self:set_phase("linger")
  if self.paused then self:start_reading() end
  if not self.pumping then self:flush() else self:mark_dirty() end
end

function Conn:shutdown_later()
  self.shut = true
  self.sock:shutdown(function()
    self.shut_done = true
    if self.eof then self:close() else self.since = self.server.uv.now() end
  end)
end

function Conn:take_over(x, on_data)
  self.x, self.on_bytes, self.upgraded = nil, on_data, x
  self.server.app:done(x)
  self:set_phase("upgraded")
  local rest = self.parser:take()
  if rest ~= "" then on_data(rest) end
end

-- The peer is lost, or no longer deserves an answer.
function Conn:abort(reason)
  if self.closed then return end
  local x = self.x
  self.x = nil
  self:close()
  if x then
    x.gone = reason
    x.status = x.status or 499
    self.server.app:done(x)
    if x.on_abort then x.on_abort(reason) end
  end
end

function Conn:close()
  if self.closed then return end
  self.closed = true
  self.server.conns[self] = nil
  self.server.n_conns = self.server.n_conns - 1
  local on_bytes = self.on_bytes
  self.on_bytes = nil
  if not self.sock:is_closing() then self.sock:close() end
  if on_bytes and not self.eof then on_bytes(nil) end
  abandon(self)
end

-- Called about once a second. Times in ms.
function Conn:sweep(now)
  local t, lim = now - self.since, self.server.timeouts
  local phase = self.phase
  if phase == "idle" then
    if t > lim.idle_ms then self:close() end
  elseif phase == "head" then
    if t > lim.head_ms then refuse(self, 408, "the request head took too long") end
  elseif phase == "body" then
    local r = self.reading
    local total = r and not r.sink and now - r.started or 0
    if t > lim.body_ms or total > lim.body_total_ms then refuse(self, 408, "the request body took too long") end
  elseif phase == "linger" then
    if self.shut_done and t > lim.linger_ms then return self:close() end
  elseif phase == "upgraded" then
    if t > lim.socket_idle_ms then self:close() end
  end
  if not self.closed and self.stall_since and self.sock:get_write_queue_size() > 0 then
    local q = self.sock:get_write_queue_size()
    if q ~= self.stall_bytes then self.stall_bytes, self.stall_since = q, now end
    if now - self.stall_since > lim.write_ms then self:abort("reader took nothing for too long") end
  end
end

return connection
