-- SPDX-License-Identifier: MIT
-- Incremental HTTP/1.1 request parser: bytes in, events out, no sockets.
-- Strict on purpose: everything two parsers could read differently (bare LF,
-- folded lines, repeated or conflicting lengths, odd chunk sizes) is refused,
-- because a proxy in front may have read it the other way (RFC 9112, 2.2, 6, 11).
local codec = {}

-- Limits in bytes, except `headers` (a count).
codec.LIMITS = { request_line = 8192, head = 32768, headers = 100, chunk_line = 1024, trailer = 8192 }

local TOKEN = "[!#$%%&'*+%-.^_`|~%w]+"
local REQUEST_LINE = "^(" .. TOKEN .. ") (%S+) HTTP/(%d)%.(%d)$"
local HEADER_LINE = "^(" .. TOKEN .. "):[ \t]*(.-)[ \t]*$"

-- Heads of body-less requests seen lately: raw bytes -> parsed request. A
-- keep-alive client repeats its head byte for byte, so the full parse runs
-- once per distinct head. Heads that carry credentials never enter.
local CACHE_MAX, CACHE_HEAD_MAX = 256, 1024
local head_cache, head_cache_n = {}, 0

local Parser = {}
Parser.__index = Parser

-- Gives a parser in state "head". `limits` overrides codec.LIMITS.
function codec.new(limits)
  local lim = setmetatable(limits or {}, { __index = codec.LIMITS })
  return setmetatable({ state = "head", buf = "", pos = 1, scanned = 1, lim = lim }, Parser)
end

function Parser:feed(data)
  if self.pos > #self.buf then
    self.buf, self.pos = data, 1
  else
    self.buf, self.pos = self.buf:sub(self.pos) .. data, 1
  end
  if self.state ~= "chunk_data" then self.scanned = 1 end
end

-- Bytes fed and not yet consumed.
function Parser:pending() return #self.buf - self.pos + 1 end

-- Takes what is left (after an upgrade the bytes belong to another protocol).
function Parser:take()
  local rest = self.buf:sub(self.pos)
  self.buf, self.pos = "", 1
  return rest
end

-- `path` lets the server pick the dialect of the error's body, `method` is for its log.
local function fail(self, status, message)
  self.state, self.status, self.message = "failed", status, message
  if not self.path then self.method, self.path = self.buf:match("^[\r\n]*(%u+) (/[\33-\62\64-\126]*)", self.pos) end
  return "error", status, message
end

-- Header fields that must not be repeated; others are joined with ", ".
local SINGLE = { host = true, ["content-length"] = true, ["transfer-encoding"] = true, authorization = true,
  ["content-type"] = true, expect = true, origin = true, ["x-api-key"] = true }

local function parse_fields(head, from, max)
  local headers, n = {}, 0
  for line in head:gmatch("([^\n]*)\r\n", from) do
    local name, value = line:match(HEADER_LINE)
    if not name then
      if line:find("^[ \t]") then return nil, 400, "folded header lines are not accepted" end
      return nil, 400, "malformed header line"
    end
    if value:find("[\0-\8\10-\31\127]") then return nil, 400, "control character in a header" end
    n = n + 1
    if n > max then return nil, 431, "too many header fields" end
    name = name:lower()
    if headers[name] then
      if SINGLE[name] then return nil, 400, "repeated header: " .. name end
      value = headers[name] .. ", " .. value
    end
    headers[name] = value
  end
  return headers
end

-- How the body is framed: sets req.body ("none", "length", "chunked") and
-- req.length. RFC 9112, 6.3.
local function frame(req)
  local h = req.headers
  local cl, te = h["content-length"], h["transfer-encoding"]
  if te then
    if cl then return 400, "both Content-Length and Transfer-Encoding" end
    if req.minor == 0 then return 400, "Transfer-Encoding in an HTTP/1.0 request" end
    if te:lower() ~= "chunked" then
      if te:lower():find("chunked", 1, true) == nil or te:lower():find("chunked.*chunked") then
        return 400, "unusable Transfer-Encoding"
      end
      return 501, "only the chunked transfer coding is supported"
    end
    req.body = "chunked"
  elseif cl then
    if not cl:find("^%d+$") then return 400, "malformed Content-Length" end
    if #cl > 15 then return 413, "request body too large" end
    req.length = math.tointeger(tonumber(cl))
    req.body = req.length > 0 and "length" or "none"
  elseif req.method == "POST" or req.method == "PUT" or req.method == "PATCH" then
    return 411, "a " .. req.method .. " request needs Content-Length or chunked encoding (curl sends an empty body with -d '')"
  end
end

-- Splits the target into path (still percent-encoded) and query.
local function split_target(req)
  local t = req.target
  if t:byte() ~= 47 then
    if t == "*" and req.method == "OPTIONS" then
      req.path = "*"
      return true
    end
    local host, rest = t:match("^[hH][tT][tT][pP]://([^/?#]+)(.*)$")
    if not host then return false end
    req.headers.host = host
    t = rest == "" and "/" or rest
    if t:byte() ~= 47 then t = "/" .. t end
  end
  if t:find("[^\33-\126]") or t:find("#", 1, true) then return false end
  local q = t:find("?", 1, true)
  req.path = q and t:sub(1, q - 1) or t
  req.query = q and t:sub(q + 1) or nil
  return true
end

local function parse_head(self, head)
  local eol = head:find("\r\n", 1, true)
  local line = head:sub(1, eol - 1)
  if #line > self.lim.request_line then return nil, 414, "request line too long" end
  local method, target, major, minor = line:match(REQUEST_LINE)
  if not method then return nil, 400, "malformed request line" end
  if major ~= "1" then return nil, 505, "only HTTP/1.1 and HTTP/1.0 are supported" end
  local headers, status, message = parse_fields(head, eol + 2, self.lim.headers)
  if not headers then return nil, status, message end
  local req = { method = method, target = target, minor = tonumber(minor), headers = headers, body = "none" }
  if not headers.host and req.minor >= 1 then return nil, 400, "missing Host header" end
  if not split_target(req) then return nil, 400, "malformed request target" end
  status, message = frame(req)
  if status then return nil, status, message end
  local conn = headers.connection and headers.connection:lower() or ""
  if req.minor >= 1 then
    req.keep_alive = not conn:find("close", 1, true)
  else
    req.keep_alive = conn:find("keep-alive", 1, true) ~= nil
  end
  local expect = headers.expect
  if expect then
    if expect:lower() ~= "100-continue" then return nil, 417, "unknown expectation" end
    req.expect = req.minor >= 1 and req.body ~= "none"
  end
  return req
end

-- An unfinished head: refuse at once what can no longer become a good one.
local function check_partial(self)
  local buf, pos = self.buf, self.pos
  local lf = buf:find("\n", self.scanned, true)
  while lf do
    if lf == pos or buf:byte(lf - 1) ~= 13 then return fail(self, 400, "bare line feed in the request head") end
    lf = buf:find("\n", lf + 1, true)
  end
  self.scanned = math.max(pos, #buf)
  local n = #buf - pos + 1
  if n > self.lim.request_line and not buf:find("\r\n", pos, true) then return fail(self, 414, "request line too long") end
  if n > self.lim.head then return fail(self, 431, "request head too large") end
  -- What starts like no method at all (a TLS hello, binary noise) never becomes a request.
  if n > 0 and not buf:find("^[\r\n!#$%%&'*+%-.^_`|~%w]", pos) then return fail(self, 400, "malformed request line") end
  return nil
end

local STATES = {}

function STATES.head(self)
  local buf, pos = self.buf, self.pos
  if pos == 1 then
    local req = head_cache[buf]
    if req then
      self.buf = ""
      return "head", req
    end
  end
  if pos > #buf then return nil end
  if buf:find("^\r\n", pos) then -- one empty line before a request is forgiven (RFC 9112, 2.2)
    if self.skipped then return fail(self, 400, "malformed request line") end
    pos, self.pos, self.skipped = pos + 2, pos + 2, true
    self.scanned = math.max(self.scanned, pos)
  end
  local stop = buf:find("\r\n\r\n", math.max(pos, self.scanned - 3), true)
  if not stop then return check_partial(self) end
  if stop - pos > self.lim.head then return fail(self, 431, "request head too large") end
  local head = buf:sub(pos, stop + 1)
  if head:find("^\n") or head:find("[^\r]\n") then return fail(self, 400, "bare line feed in the request head") end
  local req, status, message = parse_head(self, head)
  if not req then return fail(self, status, message) end
  self.skipped = nil
  if req.body == "none" then
    local h = req.headers
    if pos == 1 and stop + 3 == #buf and #buf <= CACHE_HEAD_MAX
      and not (h.authorization or h["x-api-key"] or h.cookie or h.upgrade) then
      if head_cache_n >= CACHE_MAX then head_cache, head_cache_n = {}, 0 end
      head_cache[buf], head_cache_n = req, head_cache_n + 1
    end
  else
    self.state, self.left = req.body == "length" and "length" or "chunk_size", req.length
  end
  self.pos, self.scanned = stop + 4, stop + 4
  return "head", req
end

local function finish_body(self)
  self.state, self.scanned = "head", self.pos
  return "end"
end

-- What has come of the `left` bytes of a body or chunk; nil = wait.
local function take_left(self)
  local have = #self.buf - self.pos + 1
  if have <= 0 then return nil end
  local n = math.min(have, self.left)
  local piece = self.buf:sub(self.pos, self.pos + n - 1)
  self.pos, self.left = self.pos + n, self.left - n
  return "body", piece
end

function STATES.length(self)
  if self.left == 0 then return finish_body(self) end
  return take_left(self)
end

-- One line ending in CRLF, at most `max` bytes; nil = wait, false = bad.
local function take_line(self, max)
  local lf = self.buf:find("\n", self.pos, true)
  if not lf then
    if #self.buf - self.pos + 1 > max then return false end
    return nil
  end
  if lf - self.pos > max or lf == self.pos or self.buf:byte(lf - 1) ~= 13 then return false end
  local line = self.buf:sub(self.pos, lf - 2)
  self.pos = lf + 1
  return line
end

function STATES.chunk_size(self)
  local line = take_line(self, self.lim.chunk_line)
  if line == nil then return nil end
  local hex, ext = (line or ""):match("^(%x+)(.*)$")
  if not hex or #hex > 15 or (ext ~= "" and not ext:find("^[ \t]*;[\t\32-\126\128-\255]*$")) then
    return fail(self, 400, "malformed chunk size")
  end
  self.left = tonumber(hex, 16)
  self.state, self.trailer_bytes = self.left == 0 and "trailer" or "chunk_data", 0
  return STATES[self.state](self)
end

function STATES.chunk_data(self)
  if self.left > 0 then return take_left(self) end
  if #self.buf - self.pos + 1 < 2 then
    if self.pos <= #self.buf and self.buf:byte(self.pos) ~= 13 then return fail(self, 400, "chunk without its line end") end
    return nil
  end
  if self.buf:sub(self.pos, self.pos + 1) ~= "\r\n" then return fail(self, 400, "chunk without its line end") end
  self.pos, self.state = self.pos + 2, "chunk_size"
  return STATES.chunk_size(self)
end

-- Trailer fields are checked like headers and dropped.
function STATES.trailer(self)
  while true do
    local line = take_line(self, self.lim.trailer)
    if line == nil then return nil end
    if line == false then return fail(self, 400, "malformed trailer") end
    if line == "" then return finish_body(self) end
    self.trailer_bytes = self.trailer_bytes + #line
    if self.trailer_bytes > self.lim.trailer then return fail(self, 431, "trailer too large") end
    if not line:find(HEADER_LINE) then return fail(self, 400, "malformed trailer") end
  end
end

function STATES.failed(self) return "error", self.status, self.message end

-- The next event, or nil when more bytes are needed:
--   "head", req    req = {method, target, path, query, minor, headers (lower-case
--                  name -> value), body "none"|"length"|"chunked", length,
--                  keep_alive, expect}; shared between calls: read-only
--   "body", bytes ; "end" (only after a body) ; "error", status, message (final)
function Parser:next() return STATES[self.state](self) end

return codec
