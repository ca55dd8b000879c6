-- SPDX-License-Identifier: MIT
-- A raw HTTP client for tests that runs in the server's own event loop: it sends
-- exactly the bytes it is told to and shows exactly what came back.
local uv = require("luv")
local cjson = require("cjson")

local client = {}

-- Runs the loop until cond() or `ms` have passed; gives cond()'s value.
function client.wait(cond, ms)
  local timer, over = uv.new_timer(), false
  timer:start(ms or 60000, 0, function() over = true end)
  while not cond() and not over do uv.run("once") end
  timer:close()
  return cond()
end

function client.sleep(ms) client.wait(function() return false end, ms) end

local Client = {}
Client.__index = Client

function client.connect(port, host)
  local self = setmetatable({ data = "", sock = uv.new_tcp() }, Client)
  self.sock:connect(host or "127.0.0.1", port, function(err)
    self.failed = err
    self.connected = not err
    if err then return end
    self.sock:read_start(function(e, bytes)
      if bytes then self.data = self.data .. bytes else self.closed = e or true end
    end)
  end)
  client.wait(function() return self.connected or self.failed end)
  return self
end

-- Sends a request without waiting for its answer; the server closes the connection behind it. body: a table for JSON, or nil
-- for GET; headers: whole lines. -> its connection
function client.begin(port, path, body, headers)
  local text = body and cjson.encode(body) or ""
  return client.connect(port):send((body and "POST " or "GET ") .. path .. " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    .. (headers or "") .. "Content-Length: " .. #text .. "\r\n\r\n" .. text)
end

function Client:send(bytes)
  self.sock:write(bytes)
  return self
end

-- Waits until pattern is in the answer, or the connection is closed.
function Client:until_found(pattern, ms)
  client.wait(function() return self.data:find(pattern) or self.closed end, ms)
  return self.data:find(pattern) ~= nil
end

function Client:until_closed(ms) return client.wait(function() return self.closed end, ms) ~= nil end

function Client:close()
  if not self.sock:is_closing() then self.sock:close() end
end

-- Splits self.data into whole responses: {status, headers, body}; `methods[i] == "HEAD"` has no body.
function Client:responses(methods)
  local out, s = {}, self.data
  while true do
    local head_end = s:find("\r\n\r\n", 1, true)
    if not head_end then break end
    local r = { status = tonumber(s:match("^HTTP/1%.1 (%d+)")), headers = {} }
    for k, v in s:sub(1, head_end + 1):gmatch("([%w%-]+): ([^\r\n]*)\r\n") do r.headers[k:lower()] = v end
    s = s:sub(head_end + 4)
    if r.status == 100 or r.status == 204 or (methods and methods[#out + 1] == "HEAD") then
      r.body = ""
    elseif r.headers["transfer-encoding"] then
      local parts = {}
      while true do
        local hex, stop = s:match("^(%x+)\r\n()")
        if not hex then r.cut = true break end
        local n = tonumber(hex, 16)
        if n == 0 then s = s:sub(stop + 2) break end
        if #s < stop + n then r.cut = true break end
        parts[#parts + 1] = s:sub(stop, stop + n - 1)
        s = s:sub(stop + n + 2)
      end
      r.body, r.chunks = table.concat(parts), #parts
    else
      local n = tonumber(r.headers["content-length"])
      if not n then
        r.body, s = s, ""
      else
        if #s < n then break end
        r.body, s = s:sub(1, n), s:sub(n + 1)
      end
    end
    out[#out + 1] = r
  end
  return out, s
end

-- One request on a fresh connection -> response, with .json when it is JSON.
function client.request(port, method, path, body, headers, ms)
  local c = client.connect(port)
  local h = { method .. " " .. path .. " HTTP/1.1", "Host: 127.0.0.1:" .. port, "Connection: close" }
  for k, v in pairs(headers or {}) do h[#h + 1] = k .. ": " .. v end
  if body then
    if type(body) == "table" then body = require("mtx.json").encode(body) end
    h[#h + 1] = "Content-Length: " .. #body
  end
  c:send(table.concat(h, "\r\n") .. "\r\n\r\n" .. (body or ""))
  c:until_closed(ms or 60000)
  local all = c:responses({ method })
  c:close()
  local r = all[#all] or { status = 0, body = "", headers = {} }
  local ok, value = pcall(cjson.decode, r.body)
  if ok then r.json = value end
  return r
end

client.MASK = "\x37\xfa\x21\x3d"

-- A WebSocket frame as clients send it; b1: the first byte (final bit and opcode).
function client.masked(b1, payload)
  local out = {}
  for i = 1, #payload do out[i] = string.char(payload:byte(i) ~ client.MASK:byte((i - 1) % 4 + 1)) end
  local n, head = #payload, nil
  if n < 126 then head = string.char(b1, 0x80 | n)
  elseif n < 65536 then head = string.pack(">BBI2", b1, 0xfe, n)
  else head = string.pack(">BBI8", b1, 0xff, n) end
  return head .. client.MASK .. table.concat(out)
end

-- A connection that has asked for /v1/chat/ws and got an answer. headers: further lines.
function client.websocket(port, headers)
  local c = client.connect(port)
  c:send("GET /v1/chat/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    .. "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" .. (headers or "") .. "\r\n")
  c:until_found("\r\n\r\n")
  return c
end

-- Lines of an NDJSON body / events of an SSE body, decoded.
function client.ndjson(body)
  local out = {}
  for line in body:gmatch("([^\n]+)\n") do out[#out + 1] = cjson.decode(line) end
  return out
end

-- {{event = name, data = table or "[DONE]"}}
function client.sse(body)
  local out = {}
  for frame in body:gmatch("(.-)\n\n") do
    local event, data = frame:match("event: ([^\n]*)\n"), frame:match("data: ([^\n]*)$")
    if data then out[#out + 1] = { event = event, data = data == "[DONE]" and data or cjson.decode(data) } end
  end
  return out
end

return client
