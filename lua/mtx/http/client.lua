-- SPDX-License-Identifier: MIT
-- A small HTTP client for the command line: one request to the local server
-- (TCP or Unix socket), the whole answer back.
local uv = require("luv")

local client = {}

-- The bytes of a whole answer -> {status, body} | nil, message.
function client.parse(data)
  local head, rest = data:match("^(.-\r\n\r\n)(.*)$")
  if not head then return nil, "no answer" end
  local status = tonumber(head:match("^HTTP/1%.%d (%d+)"))
  if head:lower():find("transfer-encoding: chunked", 1, true) then
    local parts, pos = {}, 1
    while true do
      local hex, from = rest:match("^(%x+)\r\n()", pos)
      local n = hex and tonumber(hex, 16)
      if not n or n == 0 then break end
      parts[#parts + 1] = rest:sub(from, from + n - 1)
      pos = from + n + 2
    end
    rest = table.concat(parts)
  end
  return { status = status, body = rest }
end

-- target: {host, port} or {unix = path}; options: {body, key, timeout_ms}.
-- -> {status, body}, or nil, message. Runs its own turns of the loop.
function client.request(target, method, path, options)
  options = options or {}
  local sock = target.unix and uv.new_pipe(false) or uv.new_tcp()
  local data, failed, over = {}, nil, false
  local timer = uv.new_timer()
  timer:start(options.timeout_ms or 5000, 0, function() failed, over = "timed out", true end)
  local function connected(err)
    if err then
      failed, over = err, true
      return
    end
    local head = method .. " " .. path .. " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    if options.key then head = head .. "Authorization: Bearer " .. options.key .. "\r\n" end
    if options.body then head = head .. "Content-Type: application/json\r\nContent-Length: " .. #options.body .. "\r\n" end
    sock:write(head .. "\r\n" .. (options.body or ""))
    sock:read_start(function(e, bytes)
      if bytes then data[#data + 1] = bytes else over, failed = true, e end
    end)
  end
  if target.unix then
    sock:connect(target.unix, connected)
  else
    local ok, err = pcall(sock.connect, sock, target.host, target.port, connected)
    if not ok then failed, over = err, true end
  end
  while not over do uv.run("once") end
  timer:close()
  if not sock:is_closing() then sock:close() end
  uv.run() -- until both handles have closed
  if failed then return nil, tostring(failed) end
  return client.parse(table.concat(data))
end

-- Where the configured server listens.
function client.target(values)
  for _, l in ipairs(values.listen) do
    local path = l:match("^unix:(.+)$")
    if path and values.host == "" then return { unix = path } end
  end
  local host = values.host
  if host == "0.0.0.0" or host == "localhost" then host = "127.0.0.1" elseif host == "::" then host = "::1" end
  return { host = host, port = values.port }
end

-- The target for people to read.
function client.where(target) return target.unix or target.host .. ":" .. target.port end

return client
