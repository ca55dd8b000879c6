-- SPDX-License-Identifier: MIT
-- RFC 6455 without sockets: the handshake's answer, an incremental reader of
-- client frames into messages, and frames to send. Strict: masks are required,
-- reserved bits and opcodes refused, text checked as UTF-8, sizes bounded.
local websocket = {}

local GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
local LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

-- SHA-1 (FIPS 180-4), which only the handshake needs.
local function sha1(s)
  local n = #s
  s = s .. "\128" .. ("\0"):rep((55 - n) % 64) .. string.pack(">I8", n * 8)
  local h0, h1, h2, h3, h4 = 0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0
  local M = 0xffffffff
  local function rol(x, k) return (x << k | x >> (32 - k)) & M end
  for pos = 1, #s, 64 do
    local w = table.pack(string.unpack(">" .. ("I4"):rep(16), s, pos))
    for i = 17, 80 do w[i] = rol(w[i - 3] ~ w[i - 8] ~ w[i - 14] ~ w[i - 16], 1) end
    local a, b, c, d, e = h0, h1, h2, h3, h4
    for i = 1, 80 do
      local f, k
      if i <= 20 then f, k = b & c | ~b & d, 0x5A827999
      elseif i <= 40 then f, k = b ~ c ~ d, 0x6ED9EBA1
      elseif i <= 60 then f, k = b & c | b & d | c & d, 0x8F1BBCDC
      else f, k = b ~ c ~ d, 0xCA62C1D6 end
      a, b, c, d, e = (rol(a, 5) + (f & M) + e + k + w[i]) & M, a, rol(b, 30), c, d
    end
    h0, h1, h2, h3, h4 = (h0 + a) & M, (h1 + b) & M, (h2 + c) & M, (h3 + d) & M, (h4 + e) & M
  end
  return string.pack(">I4I4I4I4I4", h0, h1, h2, h3, h4)
end

local function base64(s)
  return ((s:gsub("..?.?", function(t)
    local a, b, c = t:byte(1, 3)
    local v = a << 16 | (b or 0) << 8 | (c or 0)
    local out = ""
    for i = 3, 0, -1 do
      local at = (v >> (i * 6) & 63) + 1
      out = out .. LETTERS:sub(at, at)
    end
    return not b and out:sub(1, 2) .. "==" or not c and out:sub(1, 3) .. "=" or out
  end)))
end

-- Sec-WebSocket-Key -> Sec-WebSocket-Accept.
function websocket.accept_key(key) return base64(sha1(key .. GUID)) end

-- Checks an upgrade request's headers: nil when good, else status, message.
function websocket.check(headers)
  local function has(name, word)
    return ("," .. (headers[name] or ""):lower():gsub("%s", "") .. ","):find("," .. word .. ",", 1, true) ~= nil
  end
  if not has("upgrade", "websocket") or not has("connection", "upgrade") then return 426, "this address speaks WebSocket; send an upgrade request" end
  if headers["sec-websocket-version"] ~= "13" then return 426, "only WebSocket version 13 is supported" end
  local key = headers["sec-websocket-key"]
  if not key or not key:find("^[%w%+/]+=*$") or #key ~= 24 then return 400, "malformed Sec-WebSocket-Key" end
end

-- One unfragmented server frame. opcode: 1 text, 2 binary, 8 close, 9 ping, 10 pong.
function websocket.frame(opcode, payload)
  local n = #payload
  local head
  if n < 126 then head = string.char(0x80 | opcode, n)
  elseif n < 65536 then head = string.pack(">BBI2", 0x80 | opcode, 126, n)
  else head = string.pack(">BBI8", 0x80 | opcode, 127, n) end
  return head .. payload
end

function websocket.text(s) return websocket.frame(1, s) end
function websocket.close(code, reason) return websocket.frame(8, string.pack(">I2", code) .. (reason or ""):sub(1, 120)) end

-- XOR with the four mask bytes, eight bytes at a time.
local function unmask(payload, mask)
  local m4 = string.unpack("<I4", mask)
  local m8 = m4 | m4 << 32
  local out, n, pos = {}, 0, 1
  local last = #payload - #payload % 8
  while pos <= last do
    local count = math.min(32, (last - pos + 1) // 8)
    local words = table.pack(string.unpack("<" .. ("i8"):rep(count), payload, pos))
    for i = 1, count do words[i] = words[i] ~ m8 end
    n = n + 1
    out[n] = string.pack("<" .. ("i8"):rep(count), table.unpack(words, 1, count))
    pos = pos + count * 8
  end
  for i = pos, #payload do
    n = n + 1
    out[n] = string.char(payload:byte(i) ~ (m4 >> ((i - 1) % 4 * 8) & 255))
  end
  return table.concat(out)
end

local Reader = {}
Reader.__index = Reader

-- max_message: bytes of one message, fragments together (beyond: 1009).
function websocket.reader(max_message)
  return setmetatable({ buf = "", pos = 1, max = max_message or 1 << 20, parts = nil, size = 0 }, Reader)
end

function Reader:feed(bytes)
  self.buf, self.pos = self.buf:sub(self.pos) .. bytes, 1
end

local function fail(self, code, reason)
  self.failed = true
  return "error", code, reason
end

local GOOD_CLOSE = { [1000] = true, [1001] = true, [1002] = true, [1003] = true, [1007] = true, [1008] = true, [1009] = true, [1010] = true, [1011] = true }

local function control(self, opcode, payload)
  if opcode == 9 then return "ping", payload end
  if opcode == 10 then return "pong", payload end
  if #payload == 1 then return fail(self, 1002, "malformed close frame") end
  local code = #payload >= 2 and string.unpack(">I2", payload) or 1005
  if #payload >= 2 and not GOOD_CLOSE[code] and not (code >= 3000 and code <= 4999) then return fail(self, 1002, "bad close code") end
  if not utf8.len(payload, 3) and #payload > 2 then return fail(self, 1007, "close reason is not UTF-8") end
  return "close", code
end

local function data(self, opcode, fin, payload)
  if opcode ~= 0 then self.opcode, self.parts, self.size = opcode, {}, 0 end
  self.size = self.size + #payload
  if self.size > self.max then return fail(self, 1009, "message too large") end
  self.parts[#self.parts + 1] = payload
  if not fin then
    if #self.parts > 1024 then self.parts = { table.concat(self.parts) } end
    return "more"
  end
  local message = table.concat(self.parts)
  self.parts = nil
  if self.opcode == 1 and not utf8.len(message) then return fail(self, 1007, "text is not UTF-8") end
  return self.opcode == 1 and "text" or "binary", message
end

-- One frame: nil = more bytes needed, "more" = a fragment was taken.
local function one(self)
  local buf, pos = self.buf, self.pos
  local have = #buf - pos + 1
  if have < 2 then return nil end
  local b1, b2 = buf:byte(pos, pos + 1)
  local fin, opcode, n = b1 & 0x80 ~= 0, b1 & 15, b2 & 127
  if b1 & 0x70 ~= 0 then return fail(self, 1002, "reserved bits are set") end
  if b2 & 0x80 == 0 then return fail(self, 1002, "client frames must be masked") end
  if opcode > 10 or (opcode > 2 and opcode < 8) then return fail(self, 1002, "unknown opcode") end
  if opcode >= 8 and (not fin or n > 125) then return fail(self, 1002, "bad control frame") end
  if opcode == 0 and not self.parts then return fail(self, 1002, "continuation without a start") end
  if (opcode == 1 or opcode == 2) and self.parts then return fail(self, 1002, "new message inside a fragmented one") end
  local at = pos + 2
  if n == 126 then
    if have < 4 then return nil end
    n = string.unpack(">I2", buf, at)
    if n < 126 then return fail(self, 1002, "length is not minimal") end
    at = at + 2
  elseif n == 127 then
    if have < 10 then return nil end
    n = string.unpack(">i8", buf, at)
    if n < 65536 then return fail(self, 1002, "length is not minimal or negative") end
    at = at + 8
  end
  if n + self.size * (opcode == 0 and 1 or 0) > self.max then return fail(self, 1009, "message too large") end
  if #buf - at + 1 < 4 + n then return nil end
  local payload = unmask(buf:sub(at + 4, at + 3 + n), buf:sub(at, at + 3))
  self.pos = at + 4 + n
  if opcode >= 8 then return control(self, opcode, payload) end
  return data(self, opcode, fin, payload)
end

-- The next message: "text"|"binary", bytes; "ping"|"pong", bytes; "close", code;
-- "error", close code, reason (final); nil = more bytes needed.
function Reader:next()
  if self.failed then return nil end
  local kind, a, b
  repeat kind, a, b = one(self) until kind ~= "more"
  return kind, a, b
end

return websocket
