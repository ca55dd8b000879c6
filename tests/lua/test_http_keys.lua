-- SPDX-License-Identifier: MIT
-- Who may ask: keys and scopes on every live route, forwarded headers, guesses, and how often.
local lu = require("luaunit")
local client = require("http_client")
local bare = require("bare_server")

local start, stop, raw = bare.start, bare.stop, bare.raw

TestAuth = {}

function TestAuth:setUp() self.ctx = start({ api_key = "user-key", admin_key = "admin-key" }); self.port = self.ctx.port end
function TestAuth:tearDown() stop(self.ctx) end

local function with(key) return { Authorization = key and "Bearer " .. key or nil } end

-- No route but the named ones answers without a key; admin routes refuse user keys.
function TestAuth:test_walk_the_live_route_table()
  local open = { ["/health"] = true, ["/v1/health"] = true, ["/ready"] = true, ["/"] = true, ["/app.js"] = true, ["/app.css"] = true, ["/live"] = true, ["/live.js"] = true }
  for _, route in ipairs(self.ctx.routes.list) do
    local path = route.path:gsub("/[:*]%w+", "/x")
    local body = route.method ~= "GET" and route.method ~= "HEAD" and "{}" or nil
    local status = client.request(self.port, route.method, path, body).status
    if open[route.path] then
      lu.assertTrue(status ~= 401, route.path)
    else
      lu.assertEquals(status, 401, route.method .. " " .. route.path)
      lu.assertEquals(client.request(self.port, route.method, path, body, with("wrong")).status, route.scope and 401)
      self.ctx.auth.failures, self.ctx.auth.n_failures = {}, 0
      if route.scope == "admin" then
        lu.assertEquals(client.request(self.port, route.method, path, body, with("user-key")).status, 403, route.path)
      end
    end
  end
end

function TestAuth:test_keys_and_forwarded_headers()
  lu.assertEquals(client.request(self.port, "GET", "/api/version", nil, with("user-key")).status, 200)
  lu.assertEquals(client.request(self.port, "GET", "/api/version", nil, { ["x-api-key"] = "user-key" }).status, 200)
  lu.assertEquals(client.request(self.port, "POST", "/admin/echo", "a", with("admin-key")).body, "a")
  lu.assertEquals(client.request(self.port, "GET", "/api/version", nil, { ["X-Forwarded-For"] = "127.0.0.1" }).status, 401)
  for _, k in ipairs(self.ctx.auth.keys) do lu.assertEquals(#k.hash, 64) end
end

function TestAuth:test_error_shapes()
  local r = client.request(self.port, "POST", "/v1/chat/completions", "{}")
  lu.assertTrue(r.status == 401 or r.status == 404)
  lu.assertNotNil(r.json.error.type)
  r = client.request(self.port, "POST", "/echo", "{}")
  lu.assertEquals({ r.status, r.json.error.type, r.json.error.code }, { 401, "authentication_error", "invalid_api_key" })
end

function TestAuth:test_wrong_key_with_big_body_then_next_request()
  local c = raw(self.port, "POST /echo HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer no\r\nContent-Length: 1000000\r\n\r\n" .. ("x"):rep(1000000)
    .. "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 3000)
  local all = c:responses()
  lu.assertEquals({ all[1].status, all[2].status }, { 401, 200 })
end

function TestAuth:test_expect_with_wrong_key()
  local c = raw(self.port, "POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n")
  lu.assertStrMatches(c.data, "HTTP/1.1 401.*")
end

function TestAuth:test_preflight_needs_no_key()
  local r = client.request(self.port, "OPTIONS", "/v1/chat/completions", nil,
    { Origin = "http://localhost:1", ["Access-Control-Request-Method"] = "POST", ["Access-Control-Request-Headers"] = "authorization" })
  lu.assertEquals(r.status, 204)
  lu.assertStrContains(r.headers["access-control-allow-headers"], "Authorization")
  r = client.request(self.port, "POST", "/echo", "x", { Origin = "http://localhost:1" })
  lu.assertEquals({ r.status, r.headers["access-control-allow-origin"] }, { 401, "http://localhost:1" })
  for _, path in ipairs({ "/health", "/no/such/route" }) do -- T74: also on answers that need no key, and on errors
    lu.assertEquals(client.request(self.port, "GET", path, nil, { Origin = "http://localhost:1" }).headers["access-control-allow-origin"], "http://localhost:1", path)
  end
  for _, from in ipairs({ "http://localhost.evil.com", "null", "https://evil.com" }) do
    r = client.request(self.port, "OPTIONS", "/v1/chat/completions", nil, { Origin = from, ["Access-Control-Request-Method"] = "POST" })
    lu.assertEquals({ r.status, r.headers["access-control-allow-origin"], r.headers["access-control-allow-headers"] }, { 204 })
  end
end

function TestAuth:test_guessing_is_slowed()
  local last
  for i = 1, 40 do last = client.request(self.port, "GET", "/api/version", nil, with("guess" .. i)).status end
  lu.assertEquals(last, 429)
  lu.assertEquals(client.request(self.port, "GET", "/health").status, 200)
end

TestLimits = {}

function TestLimits:test_request_bucket()
  local ctx = start({ requests_per_minute = "3" })
  local codes = {}
  for i = 1, 4 do codes[i] = client.request(ctx.port, "POST", "/echo", "x").status end
  lu.assertEquals(codes, { 200, 200, 200, 429 })
  local r = client.request(ctx.port, "POST", "/echo", "x")
  lu.assertEquals({ r.json.error.type, r.headers["retry-after"] }, { "rate_limit_error", "20" })
  lu.assertEquals(client.request(ctx.port, "GET", "/health").status, 200)
  stop(ctx)
end

function TestLimits:test_too_many_connections()
  local ctx = start({ max_connections = "2" })
  local a, b = client.connect(ctx.port), client.connect(ctx.port)
  client.sleep(20)
  local c = client.connect(ctx.port)
  c:until_closed()
  lu.assertStrContains(c.data, "503")
  a:close()
  b:close()
  client.sleep(20)
  lu.assertEquals(client.request(ctx.port, "GET", "/health").status, 200)
  stop(ctx)
end
