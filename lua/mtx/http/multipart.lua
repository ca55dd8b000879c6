-- SPDX-License-Identifier: MIT
-- Incremental reader of multipart/form-data bodies (RFC 7578): bytes in, parts
-- out while they come, no sockets. Strict and bounded like codec.lua.
local multipart = {}

-- Limits in bytes, except parts (a count).
multipart.LIMITS = { head = 8192, parts = 32 }

local Reader = {}
Reader.__index = Reader

-- The boundary of a Content-Type, or nil, message.
function multipart.boundary(ctype)
  if not ctype or not ctype:lower():find("^multipart/form%-data%s*;") then return nil, "the body must be multipart/form-data" end
  local b = ctype:match('[;%s][bB][oO][uU][nN][dD][aA][rR][yY]="([^"]*)"') or ctype:match("[;%s][bB][oO][uU][nN][dD][aA][rR][yY]=([^%s;]+)")
  if not b or #b < 1 or #b > 70 or b:find("[^%w'()+_,%-./:=? ]") or b:sub(-1) == " " then return nil, "malformed multipart boundary" end
  return b
end

-- on_part({name, filename, type}) -> on_bytes(bytes | nil = the part's end).
function multipart.reader(boundary, on_part)
  return setmetatable({ mark = "\r\n--" .. boundary, buf = "\r\n", state = "data", n = 0, on_part = on_part }, Reader)
end

local function parameter(text, name)
  local quoted = text:match(";%s*" .. name .. '="(.-[^\\])"') or text:match(";%s*" .. name .. '=("")')
  if quoted == '""' then return "" end
  return quoted and quoted:gsub("\\(.)", "%1") or text:match(";%s*" .. name .. "=([^%s;\"]+)")
end

local function part_of(head)
  local part = {}
  for line in (head .. "\r\n"):gmatch("(.-)\r\n") do
    local name, value = line:match("^([!#$%%&'*+%-.^_`|~%w]+):[ \t]*(.-)[ \t]*$")
    if not name or value:find("[\0-\8\10-\31\127]") then return nil, "malformed header in a part" end
    name = name:lower()
    if name == "content-disposition" then
      if not value:lower():find("^form%-data") then return nil, "a part is no form-data" end
      part.name, part.filename = parameter(value, "name"), parameter(value, "filename")
    elseif name == "content-type" then
      part.type = value
    elseif name == "content-transfer-encoding" and value:lower() ~= "binary" and value:lower() ~= "8bit" and value:lower() ~= "7bit" then
      return nil, "parts must not be encoded"
    end
  end
  if not part.name then return nil, "a part has no name" end
  return part
end

local STEP = {}

-- Bytes of a part (or, before the first, of the preamble, which is dropped) up to the next boundary.
function STEP.data(self)
  local at = self.buf:find(self.mark, 1, true)
  local upto = at and at - 1 or #self.buf - #self.mark + 1
  if upto > 0 then
    if self.sink then self.sink(self.buf:sub(1, upto)) end
    self.buf = self.buf:sub(upto + 1)
  end
  if not at then return false end
  if self.sink then self.sink(nil) end
  self.sink, self.buf, self.state = nil, self.buf:sub(#self.mark + 1), "border"
  return true
end

function STEP.border(self)
  local end_of_line = self.buf:match("^[ \t]*\r\n()")
  if self.buf:sub(1, 2) == "--" then
    self.state, self.buf = "over", ""
    return false
  end
  if end_of_line then
    self.buf, self.state, self.n = self.buf:sub(end_of_line), "head", self.n + 1
    if self.n > multipart.LIMITS.parts then return nil, "more than " .. multipart.LIMITS.parts .. " parts" end
    return true
  end
  if #self.buf > 64 or not ("--"):find(self.buf:sub(1, 2), 1, true) and not self.buf:find("^[ \t]*\r?$") then return nil, "malformed boundary line" end
  return false
end

function STEP.head(self)
  local stop = self.buf:find("\r\n\r\n", 1, true)
  if not stop and #self.buf > multipart.LIMITS.head or stop and stop > multipart.LIMITS.head then return nil, "the head of a part is too large" end
  if not stop then return false end
  local part, message = part_of(self.buf:sub(1, stop - 1))
  if not part then return nil, message end
  self.sink = self.on_part(part)
  -- The line end before a boundary belongs to it, also for an empty part.
  self.buf, self.state = self.buf:sub(stop + 2), "begun"
  return true
end

-- The blank line's own end: kept only so that a boundary right behind it is found.
function STEP.begun(self)
  if #self.buf < #self.mark then return false end
  if self.buf:sub(1, #self.mark) ~= self.mark then self.buf = self.buf:sub(3) end
  self.state = "data"
  return true
end

function STEP.over(self)
  self.buf = ""
  return false
end

-- -> true, or nil, message (final).
function Reader:feed(bytes)
  if self.failed then return nil, self.failed end
  self.buf = self.buf .. bytes
  while true do
    local more, message = STEP[self.state](self)
    if more == nil then
      self.failed = message
      return nil, message
    end
    if not more then return true end
  end
end

-- Whether the closing boundary has come.
function Reader:complete() return self.state == "over" end

return multipart
