-- SPDX-License-Identifier: MIT
-- One request and its answer, as handlers see it. Handlers call exactly one of
-- send (whole answer), start/write/finish (streamed answer) or upgrade; framing,
-- keep-alive and HEAD are decided here, so that no handler can get them wrong.
local exchange = {}

local REASON = {
  [100] = "Continue", [101] = "Switching Protocols", [200] = "OK", [201] = "Created", [202] = "Accepted",
  [204] = "No Content", [400] = "Bad Request", [401] = "Unauthorized", [403] = "Forbidden", [404] = "Not Found",
  [405] = "Method Not Allowed", [408] = "Request Timeout", [409] = "Conflict", [411] = "Length Required",
  [413] = "Content Too Large", [414] = "URI Too Long", [415] = "Unsupported Media Type",
  [417] = "Expectation Failed", [426] = "Upgrade Required", [429] = "Too Many Requests",
  [431] = "Request Header Fields Too Large", [499] = "Client Closed Request", [500] = "Internal Server Error",
  [501] = "Not Implemented", [502] = "Bad Gateway", [503] = "Service Unavailable", [504] = "Gateway Timeout",
  [505] = "HTTP Version Not Supported", [507] = "Insufficient Storage", [529] = "Overloaded",
}

local Exchange = {}
Exchange.__index = Exchange

-- conn: connection.lua; req: codec.lua's parsed head (read-only).
-- Fields for handlers: req, body (string, once read), path, route, key, on_abort.
function exchange.new(conn, req)
  return setmetatable({ conn = conn, req = req, keep = req.keep_alive and not conn.server.draining,
    t0 = conn.server.uv.hrtime() }, Exchange)
end

-- Adds a response header; refuses what would split the head.
function Exchange:header(name, value)
  value = tostring(value)
  if value:find("[\0-\8\10-\31\127]") then value = value:gsub("[\0-\31\127]", " ") end
  self.extra = (self.extra or "") .. name .. ": " .. value .. "\r\n"
end

local function head(self, status, ctype, framing)
  local server = self.conn.server
  local connection = ""
  if not self.keep then
    connection = "Connection: close\r\n"
  elseif self.req.minor == 0 then
    connection = "Connection: keep-alive\r\n"
  end
  self.status = status
  return "HTTP/1.1 " .. status .. " " .. (REASON[status] or "Unknown") .. "\r\nDate: " .. server.date .. "\r\n"
    .. (ctype and ("Content-Type: " .. ctype .. "\r\n") or "") .. framing .. (self.extra or "") .. connection .. "\r\n"
end

-- Sends a whole answer. `ctype` defaults to JSON; body "" with 204 has no length.
function Exchange:send(status, body, ctype)
  assert(not self.status, "this request has been answered already")
  body = body or ""
  local bytes
  if status == 204 then
    bytes = head(self, status, nil, "")
  else
    bytes = head(self, status, ctype or "application/json", "Content-Length: " .. #body .. "\r\n")
    if self.req.method ~= "HEAD" then bytes = bytes .. body end
  end
  self.bytes_out = #body
  self.conn:push(bytes)
  self.conn:complete(self)
end

-- Opens a streamed answer. HTTP/1.0 readers get the bytes bare, ended by close.
function Exchange:start(status, ctype)
  assert(not self.status, "this request has been answered already")
  self.streaming = true
  self.bytes_out = 0
  self.chunked = self.req.minor >= 1
  if not self.chunked then self.keep = false end
  self:header("Cache-Control", "no-cache")
  self.conn:push(head(self, status, ctype, self.chunked and "Transfer-Encoding: chunked\r\n" or ""))
  self.conn:mark_dirty()
end

-- Queues bytes of a streamed answer; everything queued in one turn of the
-- loop leaves as one chunk and one write.
function Exchange:write(bytes)
  if self.gone or bytes == "" or self.req.method == "HEAD" then return end
  local p = self.pending
  if not p then
    p = {}
    self.pending = p
    self.conn:mark_dirty()
  end
  p[#p + 1] = bytes
end

function Exchange:flush_pending()
  local p = self.pending
  if not p then return end
  self.pending = nil
  local bytes = #p == 1 and p[1] or table.concat(p)
  self.bytes_out = self.bytes_out + #bytes
  if self.chunked then bytes = string.format("%x\r\n", #bytes) .. bytes .. "\r\n" end
  self.conn:push(bytes)
end

-- Ends a streamed answer. `broken` closes without the final chunk, so that
-- the reader can tell a cut answer from a whole one.
function Exchange:finish(broken)
  if self.gone then return end
  self:flush_pending()
  if broken then
    self.keep = false
  elseif self.chunked and self.req.method ~= "HEAD" then
    self.conn:push("0\r\n\r\n")
  end
  self.conn:complete(self)
end

-- Answers 101 and hands the connection to `on_data(bytes | nil)`; nil = closed.
function Exchange:upgrade(headers, on_data)
  self.status = 101
  self.bytes_out = 0
  self.conn:push("HTTP/1.1 101 Switching Protocols\r\n" .. headers .. "\r\n")
  self.conn:take_over(self, on_data)
end

-- Seconds since the head was read.
function Exchange:elapsed() return (self.conn.server.uv.hrtime() - self.t0) / 1e9 end

return exchange
