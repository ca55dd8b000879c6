-- SPDX-License-Identifier: MIT
-- The HTTP server on luv: listeners (TCP and Unix sockets), the set of
-- connections with their limits and time-outs, and the drain at shutdown. It
-- knows no route and no dialect; those are the application's:
--   app:head(x) -> body_limit, sink | nil   before the body is read; nil = answered
--   app:run(x)                              the whole request is there (x.body)
--   app:refuse(x, status, message)          answer an error in the caller's dialect
--   app:done(x)                             answered or lost (for logs and metrics)
local uv = require("luv")
local connection = require("mtx.http.connection")

local server = {}

local Server = {}
Server.__index = Server

-- Milliseconds.
server.TIMEOUTS = { idle_ms = 75000, head_ms = 10000, body_ms = 30000, body_total_ms = 300000, linger_ms = 2000,
  write_ms = 60000, socket_idle_ms = 300000 }

-- options: app, timeouts, max_connections, max_queued (bytes waiting for one
-- slow reader before it is dropped), max_pipelined (bytes read ahead), log(level, message).
function server.new(options)
  local self = setmetatable({
    uv = uv, app = options.app, listeners = {}, conns = {}, n_conns = 0, dirty = {}, n_dirty = 0,
    timeouts = setmetatable(options.timeouts or {}, { __index = server.TIMEOUTS }),
    max_connections = options.max_connections or 1024,
    max_queued = options.max_queued or 4 << 20,
    max_pipelined = options.max_pipelined or 1 << 18,
    codec_limits = options.codec_limits,
    log = options.log or function() end,
  }, Server)
  self:tick()
  self.timer = uv.new_timer()
  self.timer:start(1000, 1000, function() self:tick() end)
  self.prepare = uv.new_prepare()
  return self
end

function Server:tick()
  self.date = os.date("!%a, %d %b %Y %H:%M:%S GMT")
  local now = uv.now()
  for conn in pairs(self.conns) do
    local ok, err = xpcall(conn.sweep, debug.traceback, conn, now)
    if not ok then self.log("error", err) end
  end
end

-- Connections with something to send are flushed once, before the loop sleeps.
function Server:add_dirty(conn)
  local n = self.n_dirty + 1
  self.dirty[n], self.n_dirty = conn, n
  if n == 1 then self.prepare:start(function() self:flush() end) end
end

function Server:flush()
  local list, n = self.dirty, self.n_dirty
  self.dirty, self.n_dirty = {}, 0
  self.prepare:stop()
  for i = 1, n do
    local ok, err = xpcall(list[i].flush, debug.traceback, list[i])
    if not ok then self.log("error", err) end
  end
end

local BUSY = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"

local function accept(self, handle, make)
  local sock = make()
  if not handle:accept(sock) then return sock:close() end
  if self.draining or self.n_conns >= self.max_connections then
    sock:try_write(BUSY)
    return sock:close()
  end
  local peer = "unix"
  if sock.getpeername and handle.mtx_kind ~= "unix" then
    local name = sock:getpeername()
    peer = type(name) == "table" and name.ip or "unknown"
  end
  self.n_conns = self.n_conns + 1
  self.conns[connection.new(self, sock, peer)] = true
end

-- Listens on "host", port (0 = any free one). Gives the port, or nil, message, code.
function Server:listen_tcp(host, port)
  local addresses, err = uv.getaddrinfo(host, nil, { socktype = "stream", family = host:find(":") and "inet6" or "inet" })
  if not addresses or not addresses[1] then return nil, "cannot resolve host " .. host .. ": " .. tostring(err), "ENOTFOUND" end
  local handle = uv.new_tcp()
  local ok, message, code = handle:bind(addresses[1].addr, port)
  if ok then
    ok, message, code = handle:listen(1024, function(e)
      if e then return self.log("error", "accept: " .. e) end
      accept(self, handle, function()
        local sock = uv.new_tcp()
        return sock
      end)
    end)
  end
  if not ok then
    handle:close()
    if code == "EADDRINUSE" then
      message = "port " .. port .. " on " .. host .. " is in use; stop the other server or choose another --port"
    else
      message = "cannot listen on " .. host .. ", port " .. port .. ": " .. message
    end
    return nil, message, code
  end
  self.listeners[#self.listeners + 1] = handle
  return handle:getsockname().port
end

-- Listens on a Unix socket; mode: its permission bits, default 0600. A dead socket file is replaced, a live one is an error.
function Server:listen_unix(path, mode)
  local stat = uv.fs_stat(path)
  if stat then
    if stat.type ~= "socket" then return nil, path .. " exists and is no socket", "EEXIST" end
    local probe, alive = uv.new_pipe(false), nil
    probe:connect(path, function(e) alive = not e end)
    while alive == nil do uv.run("once") end
    probe:close()
    if alive then return nil, "another server listens on " .. path, "EADDRINUSE" end
    os.remove(path)
  end
  local handle = uv.new_pipe(false)
  local ok, message, code = handle:bind(path)
  if ok then
    ok, message, code = handle:listen(1024, function(e)
      if e then return self.log("error", "accept: " .. e) end
      accept(self, { accept = function(_, s) return handle:accept(s) end, mtx_kind = "unix" },
        function() return uv.new_pipe(false) end)
    end)
  end
  if not ok then
    handle:close()
    return nil, message, code
  end
  uv.fs_chmod(path, mode or tonumber("600", 8))
  self.unix_path = path
  self.listeners[#self.listeners + 1] = handle
  return true
end

-- Stops listening, lets running answers end, then calls on_idle once. Idle
-- connections close at once; `on_grace_over` is called after grace_ms when
-- answers are still running (cancel them there). Answers that have not ended
-- 2 s later are ended here, by their own last words (x.end_now) if they have any.
function Server:drain(grace_ms, on_grace_over, on_idle)
  if self.draining then return end
  self.draining = true
  for _, handle in ipairs(self.listeners) do handle:close() end
  if self.unix_path then os.remove(self.unix_path) end
  for conn in pairs(self.conns) do
    if conn.on_drain then conn.on_drain()
    elseif not conn.x and conn.phase ~= "linger" then conn:linger() end
  end
  local started, told, ended = uv.now(), false, false
  local timer = uv.new_timer()
  timer:start(0, 50, function()
    local busy = 0
    for conn in pairs(self.conns) do
      if conn.x or conn.n_out > 0 or conn.sock:get_write_queue_size() > 0 then busy = busy + 1 end
    end
    local t = uv.now() - started
    if busy > 0 and t >= grace_ms and not told then
      told = true
      on_grace_over()
    end
    if busy > 0 and t >= grace_ms + 2000 and not ended then
      ended = true
      for conn in pairs(self.conns) do
        if conn.x and conn.x.end_now then xpcall(conn.x.end_now, function(e) self.log("error", debug.traceback(e)) end) end
      end
    end
    if busy == 0 or t >= grace_ms + 3000 then
      timer:close()
      self:close()
      on_idle()
    end
  end)
end

function Server:close()
  for _, handle in ipairs(self.listeners) do
    if not handle:is_closing() then handle:close() end
  end
  for conn in pairs(self.conns) do conn:abort("server stops") end
  if not self.timer:is_closing() then self.timer:close() end
  if not self.prepare:is_closing() then self.prepare:close() end
end

return server
