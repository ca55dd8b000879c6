-- SPDX-License-Identifier: MIT
-- A hub of models for tests, on loopback, in the test's own event loop: files under
-- repositories, and a place to misbehave for each.
local uv = require("luv")
local cjson = require("cjson")
local core = require("mtx.core")

local fake = {}

local Hub = {}
Hub.__index = Hub

local function reply(sock, r)
  local head = { "HTTP/1.1 " .. r.status .. " X" }
  local body = r.body or ""
  local headers = r.headers or {}
  if not headers["Content-Length"] and not r.no_length then headers["Content-Length"] = tostring(r.length or #body) end
  for k, v in pairs(headers) do head[#head + 1] = k .. ": " .. v end
  head[#head + 1] = "Connection: close\r\n\r\n"
  sock:write(table.concat(head, "\r\n") .. (r.method == "HEAD" and "" or body), function()
    if r.hold then return end -- stays open, sends nothing more
    if not sock:is_closing() then sock:shutdown(function() if not sock:is_closing() then sock:close() end end) end
  end)
end

-- handle(request) -> {status, headers, body, length, hold}; request: {method, path, query, headers, n: how often this path was asked for}
-- -> hub: {port, url, requests = {}, close()}
function fake.server(handle)
  local self = setmetatable({ requests = {}, counts = {}, sockets = {} }, Hub)
  local server = uv.new_tcp()
  assert(server:bind("127.0.0.1", 0))
  server:listen(64, function()
    local sock, data = uv.new_tcp(), ""
    server:accept(sock)
    self.sockets[sock] = true
    sock:read_start(function(_, bytes)
      if not bytes then
        if not sock:is_closing() then sock:close() end
        return
      end
      data = data .. bytes
      local head = data:match("^(.-\r\n)\r\n")
      if not head then return end
      data = ""
      local method, target = head:match("^(%u+) (%S+)")
      local r = { method = method, path = target:match("^[^?]*"), query = target:match("?(.*)$"), headers = {} }
      for k, v in head:gmatch("\n([%w%-]+): ([^\r\n]*)") do r.headers[k:lower()] = v end
      self.counts[r.path] = (self.counts[r.path] or 0) + 1
      r.n = self.counts[r.path]
      self.requests[#self.requests + 1] = r
      local answer = handle(r) or { status = 404, body = "{}" }
      answer.method = method
      reply(sock, answer)
    end)
  end)
  self.server = server
  self.port = server:getsockname().port
  self.url = "http://127.0.0.1:" .. self.port
  return self
end

function Hub:close()
  for s in pairs(self.sockets) do
    if not s:is_closing() then s:close() end
  end
  if not self.server:is_closing() then self.server:close() end
end

-- Requests of a path.
function Hub:asked(pattern)
  local out = {}
  for _, r in ipairs(self.requests) do
    if r.path:find(pattern) then out[#out + 1] = r end
  end
  return out
end

-- The plain way of serving bytes, ranges included.
function fake.bytes(r, body, etag)
  local headers = { ETag = etag, ["Accept-Ranges"] = "bytes" }
  local from = r.headers.range and tonumber(r.headers.range:match("^bytes=(%d+)%-$"))
  if r.headers["if-range"] and r.headers["if-range"] ~= etag then from = nil end
  if not from then return { status = 200, headers = headers, body = body } end
  if from >= #body then return { status = 416, headers = { ["Content-Range"] = "bytes */" .. #body } } end
  headers["Content-Range"] = ("bytes %d-%d/%d"):format(from, #body - 1, #body)
  return { status = 206, headers = headers, body = body:sub(from + 1) }
end

-- A hub with the API of Hugging Face's. repos: {["u/r"] = {path = bytes}}; hub.serve[path] = function(request, bytes) -> answer
-- takes the place of the plain answer; files ending in .json have no SHA-256 in the listing; hub.down: it answers nothing.
function fake.hub(repos)
  local self
  self = fake.server(function(r)
    if self.down then return { status = 503, body = "" } end
    local repo = r.path:match("^/api/models/([^/]+/[^/]+)")
    if repo then
      local files = repos[repo]
      if not files then return { status = 401, body = '{"error":"Repository not found"}' } end
      local siblings, paths, all = {}, {}, ""
      for path in pairs(files) do paths[#paths + 1] = path end
      table.sort(paths)
      for i, path in ipairs(paths) do
        local bytes = files[path]
        all = all .. core.sha256.of(bytes)
        siblings[i] = { rfilename = path, size = #bytes, blobId = ("0"):rep(40),
          lfs = not path:find("%.json$") and { sha256 = self.wrong and self.wrong[path] or core.sha256.of(bytes), size = #bytes, pointerSize = 130 } or nil }
      end
      return { status = 200, body = cjson.encode({ id = repo, sha = core.sha256.of(all):sub(1, 40), siblings = siblings }) }
    end
    local name, path = r.path:match("^/([^/]+/[^/]+)/resolve/%x+/(.+)$")
    local bytes = name and repos[name] and repos[name][path]
    if not bytes then return nil end
    local own = self.serve[path]
    return own and own(r, bytes) or fake.bytes(r, bytes, '"' .. core.sha256.of(bytes):sub(1, 16) .. '"')
  end)
  self.serve, self.repos = {}, repos
  return self
end

return fake
