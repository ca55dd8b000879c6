-- SPDX-License-Identifier: MIT
-- mtx.fetch of scripts: one HTTP request to a server the operator named, without
-- holding up the event loop. No TLS and no redirects: a proxy beside mtx has those.
local uv = require("luv")
local client = require("mtx.http.client")

local M = {}

local MAX_BYTES, MAX_MS = 8 << 20, 60000

-- Checks options {url, method = "GET", body, headers = {name = value}, timeout = seconds}.
local function request_of(allowed, o)
  if type(o) == "string" then o = { url = o } end
  local host, port, path = (type(o) == "table" and type(o.url) == "string" and o.url or ""):match("^http://([^/:@%s]+):?(%d*)([^%s%c]*)$")
  if not host or (path ~= "" and path:sub(1, 1) ~= "/") then error("mtx.fetch needs a url http://HOST[:PORT]/PATH", 0) end
  port = port == "" and "80" or port
  if not allowed[(host .. ":" .. port):lower()] then
    error("mtx.fetch: " .. host .. ":" .. port .. " is not allowed: start the server with --script-allow net=" .. host .. ":" .. port, 0)
  end
  local method, body = o.method or (o.body and "POST" or "GET"), o.body
  if type(method) ~= "string" or not method:find("^%u+$") or (body ~= nil and type(body) ~= "string") then error("mtx.fetch: bad method or body", 0) end
  local head = { method .. " " .. (path == "" and "/" or path) .. " HTTP/1.1", "Host: " .. host .. ":" .. port, "Connection: close" }
  for k, v in pairs(o.headers or {}) do
    k, v = tostring(k), tostring(v)
    if not k:find("^[%w%-]+$") or v:find("%c") then error("mtx.fetch: bad header " .. k:sub(1, 40), 0) end
    head[#head + 1] = k .. ": " .. v
  end
  if body then head[#head + 1] = "Content-Length: " .. #body end
  local ms = type(o.timeout) == "number" and o.timeout * 1000 or 10000
  return host, port, table.concat(head, "\r\n") .. "\r\n\r\n" .. (body or ""), math.floor(math.min(math.max(ms, 1), MAX_MS))
end

-- done(reply | nil, message), once and later: reply = {status, body}. Raises text on bad options. -> function that gives up
function M.run(allowed, options, done)
  local host, port, text, ms = request_of(allowed, options)
  local sock, timer, data, bytes, over = uv.new_tcp(), uv.new_timer(), {}, 0, false
  local function finish(message)
    if over then return end
    over = true
    timer:close()
    if not sock:is_closing() then sock:close() end
    if message then return done(nil, message) end
    done(client.parse(table.concat(data)))
  end
  timer:start(ms, 0, function() finish("timed out") end)
  local function connected(err)
    if over then return end
    if err then return finish(err) end
    sock:write(text)
    sock:read_start(function(e, part)
      if e or not part then return finish(e) end
      bytes = bytes + #part
      if bytes > MAX_BYTES then return finish("the answer has more than " .. MAX_BYTES .. " bytes") end
      data[#data + 1] = part
    end)
  end
  uv.getaddrinfo(host, port, { socktype = "stream" }, function(err, list)
    if over then return end
    if err or not list[1] then return finish("cannot find " .. host .. ": " .. tostring(err)) end
    local ok, message = pcall(sock.connect, sock, list[1].addr, tonumber(port), connected)
    if not ok then finish(tostring(message)) end
  end)
  return function() finish("cancelled") end
end

return M
