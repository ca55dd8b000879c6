-- SPDX-License-Identifier: MIT
-- The server over real sockets: framing, limits, time-outs, back-pressure,
-- guards and the drain. Every hostile case ends with the server still answering.
local lu = require("luaunit")
local uv = require("luv")
local config = require("mtx.config")
local serve = require("mtx.serve")
local client = require("http_client")
local temp = require("temp")

local function nothing() end

local function start(flags, add)
  flags.port = flags.port or "0"
  flags.log_level = "error"
  local ctx = assert(serve.new(assert(config.load({ env = nothing, flags = flags }))))
  local r = ctx.routes
  r:add("POST", "/echo", { scope = "infer", dialect = "openai", handler = function(x) x:send(200, x.body, "text/plain") end })
  r:add("POST", "/admin/echo", { scope = "admin", dialect = "openai", handler = function(x) x:send(200, x.body, "text/plain") end })
  r:add("GET", "/boom", { scope = "infer", dialect = "openai", handler = function() error("secret /path/x") end })
  r:add("GET", "/stream", { scope = "infer", dialect = "openai", handler = function(x)
    x:start(200, "text/plain")
    local n = 0
    x.timer = uv.new_timer()
    x.on_abort = function() ctx.aborted = (ctx.aborted or 0) + 1; x.timer:close() end
    x.timer:start(1, 1, function()
      n = n + 1
      x:write("line " .. n .. "\n")
      if n == 20 then x.timer:close() x:finish() end
    end)
  end })
  r:add("GET", "/flood", { scope = "infer", dialect = "openai", handler = function(x)
    x:start(200, "text/plain")
    local sent = 0
    x.timer = uv.new_timer()
    x.on_abort = function() ctx.aborted = (ctx.aborted or 0) + 1; x.timer:close() end
    x.timer:start(1, 1, function() sent = sent + 65536; x:write(("x"):rep(65536)); ctx.flooded = sent end)
  end })
  r:add("GET", "/hang", { scope = "infer", dialect = "openai", handler = function(x)
    x.on_abort = function() ctx.aborted = (ctx.aborted or 0) + 1 end
  end })
  if add then add(ctx) end
  assert(serve.listen(ctx))
  return ctx
end

local function stop(ctx)
  ctx.config.drain_timeout = 0
  local done = false
  serve.drain(ctx, function() done = true end)
  client.wait(function() return done end, 6000)
  lu.assertTrue(done)
end

TestServer = {}

function TestServer:setUp() self.ctx = start({ max_body_mb = 0.1 }); self.port = self.ctx.port end
function TestServer:tearDown()
  lu.assertEquals(client.request(self.port, "GET", "/api/version").status, 200, "server alive")
  stop(self.ctx)
end

local function raw(port, bytes, ms)
  local c = client.connect(port)
  c:send(bytes)
  c:until_closed(ms or 1500)
  c:close()
  return c
end

function TestServer:test_keep_alive_and_20_pipelined_gets()
  local c = client.connect(self.port)
  c:send(("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"):rep(19) .. "GET /api/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
  c:until_closed()
  local all, rest = c:responses()
  lu.assertEquals({ #all, rest }, { 20, "" })
  for i = 1, 19 do lu.assertEquals(all[i].body, '{"status":"ok"}') end
  lu.assertStrContains(all[20].body, "version")
  lu.assertEquals(all[20].headers.connection, "close")
end

function TestServer:test_200_requests_on_one_socket()
  local c = client.connect(self.port)
  for i = 1, 200 do
    c.data = ""
    c:send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n" .. string.format("%03d", i))
    lu.assertTrue(c:until_found("\r\n\r\n" .. string.format("%03d", i)))
  end
  c:close()
end

function TestServer:test_64_connections_at_once()
  local all = {}
  for i = 1, 64 do all[i] = client.connect(self.port) end
  for i = 1, 64 do all[i]:send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n" .. string.format("%02d", i)) end
  for i = 1, 64 do
    lu.assertTrue(all[i]:until_found("\r\n\r\n" .. string.format("%02d", i)))
    all[i]:close()
  end
end

function TestServer:test_delete_without_length_keeps_the_next_request()
  local c = raw(self.port, "DELETE /api/version HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
  local all = c:responses()
  lu.assertEquals({ all[1].status, all[2].status }, { 405, 200 })
  lu.assertStrContains(all[1].headers.allow, "GET")
end

function TestServer:test_post_without_length_is_answered_at_once()
  local t = uv.now()
  local c = raw(self.port, "POST /api/show HTTP/1.1\r\nHost: localhost\r\n\r\n")
  lu.assertEquals(c:responses()[1].status, 411)
  lu.assertStrContains(c:responses()[1].body, '{"error":"')
  lu.assertTrue(uv.now() - t < 1000)
end

function TestServer:test_chunked_body_both_ways()
  local c = raw(self.port, "POST /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
  lu.assertEquals(c:responses()[1].body, "abcde")
  local r = client.request(self.port, "GET", "/stream")
  lu.assertEquals(r.headers["transfer-encoding"], "chunked")
  local _, lines = r.body:gsub("\n", "")
  lu.assertEquals(lines, 20)
  lu.assertNil(r.cut)
end

function TestServer:test_http10_stream_ends_by_close()
  local c = raw(self.port, "GET /stream HTTP/1.0\r\nHost: localhost\r\n\r\n")
  lu.assertStrContains(c.data, "line 20\n")
  lu.assertNotStrContains(c.data, "chunked")
end

function TestServer:test_head_has_no_body()
  local r = client.request(self.port, "HEAD", "/health")
  lu.assertEquals({ r.status, r.headers["content-length"] }, { 200, "15" })
  local c = raw(self.port, "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
  lu.assertEquals(c:responses({ "HEAD" })[2].body, "Ollama is running")
end

function TestServer:test_expect_continue()
  local c = client.connect(self.port)
  c:send("POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
  lu.assertTrue(c:until_found("^HTTP/1.1 100 Continue\r\n\r\n$", 500))
  c:send("body")
  lu.assertTrue(c:until_found("\r\n\r\nbody$", 500))
  c:close()
  c = raw(self.port, "POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2000000\r\n\r\n", 3000)
  lu.assertEquals(c:responses()[1].status, 413)
end

function TestServer:test_body_limits()
  local big = ("x"):rep(300000)
  local r = client.request(self.port, "POST", "/echo", big)
  lu.assertEquals(r.status, 413)
  lu.assertEquals(r.json.error.type, "payload_too_large")
  local c = client.connect(self.port)
  c:send("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
  for _ = 1, 20 do c:send(string.format("%x\r\n", 10000) .. ("y"):rep(10000) .. "\r\n") end
  lu.assertTrue(c:until_found("^HTTP/1.1 413"))
  c:close()
end

function TestServer:test_refused_body_is_not_the_next_request()
  local body = "GET /health HTTP/1.1\r\nHost: evil\r\n\r\n" .. ("z"):rep(100000)
  local c = raw(self.port, "POST /nope HTTP/1.1\r\nHost: localhost\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body
    .. "GET /api/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
  local all = c:responses()
  lu.assertEquals(#all, 2)
  lu.assertEquals({ all[1].status, all[2].status }, { 404, 200 })
  lu.assertStrContains(all[2].body, "version")
end

function TestServer:test_hostile_heads_get_an_error_in_the_dialect()
  local c = raw(self.port, "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")
  lu.assertEquals(c:responses()[1].status, 400)
  lu.assertStrContains(c.data, '"type":"error"')
  lu.assertTrue(c.closed ~= nil)
  for _, bytes in ipairs({ "\0\1\2", "GET / HTTP/1.1\nHost: x\n\n", "\22\3\1\2", ("A"):rep(70000), "GET /" .. ("a"):rep(70000),
    "GET / HTTP/1.1\r\n" .. ("A: b\r\n"):rep(9000) }) do
    c = raw(self.port, bytes)
    lu.assertStrMatches(c.data, "HTTP/1.1 4.*")
    lu.assertTrue(c.closed ~= nil)
  end
end

function TestServer:test_handler_error_hides_its_text()
  local r = client.request(self.port, "GET", "/boom")
  lu.assertEquals(r.status, 500)
  lu.assertNotStrContains(r.body, "secret")
end

function TestServer:test_disconnect_reaches_the_handler()
  for _, path in ipairs({ "/hang", "/stream" }) do
    self.ctx.aborted = nil
    local c = client.connect(self.port)
    c:send("GET " .. path .. " HTTP/1.1\r\nHost: localhost\r\n\r\n")
    client.sleep(10)
    c:close()
    lu.assertTrue(client.wait(function() return self.ctx.aborted == 1 end, 1000), path)
  end
  lu.assertEquals(self.ctx.http.n_conns, 0)
end

function TestServer:test_slow_reader_is_bounded_then_dropped()
  self.ctx.http.max_queued = 1 << 18
  local c = client.connect(self.port)
  c.sock:read_stop()
  c:send("GET /flood HTTP/1.1\r\nHost: localhost\r\n\r\n")
  lu.assertTrue(client.wait(function() return self.ctx.aborted == 1 end, 5000))
  lu.assertTrue(self.ctx.flooded < 64 << 20)
  c:close()
end

function TestServer:test_host_and_origin()
  local c = raw(self.port, "GET /health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
  lu.assertEquals(c:responses()[1].status, 403)
  for _, host in ipairs({ "localhost", "localhost:80", "127.0.0.1", "[::1]:5", "a.localhost", "printer.local", "x.internal", "192.168.1.9", "10.1.1.1:99" }) do
    c = raw(self.port, "GET /health HTTP/1.1\r\nHost: " .. host .. "\r\nConnection: close\r\n\r\n")
    lu.assertEquals(c:responses()[1].status, 200, host)
  end
  for _, host in ipairs({ "8.8.8.8", "localhost.evil.com", "local", "evil.com:11434" }) do
    c = raw(self.port, "GET /health HTTP/1.1\r\nHost: " .. host .. "\r\nConnection: close\r\n\r\n")
    lu.assertEquals(c:responses()[1].status, 403, host)
  end
  local r = client.request(self.port, "GET", "/health", nil, { Origin = "http://localhost:3000" })
  lu.assertEquals({ r.status, r.headers["access-control-allow-origin"] }, { 200, "http://localhost:3000" })
  for _, bad in ipairs({ "http://localhost.evil.com", "https://evil.com", "null", "http://127.0.0.1.evil.com" }) do
    r = client.request(self.port, "GET", "/health", nil, { Origin = bad })
    lu.assertEquals({ r.status, r.headers["access-control-allow-origin"] }, { 403, nil }, bad)
    r = client.request(self.port, "OPTIONS", "/v1/chat/completions", nil, { Origin = bad })
    lu.assertEquals({ r.status, r.headers["access-control-allow-origin"] }, { 204, nil }, bad)
  end
end

TestTimeouts = {}

function TestTimeouts:test_slow_head_body_and_idle()
  local ctx = start({ head_timeout = "0.5", body_timeout = "0.5", idle_timeout = "0.5" })
  local slow_head, slow_body, idle = client.connect(ctx.port), client.connect(ctx.port), client.connect(ctx.port)
  slow_head:send("GET / HT")
  slow_body:send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc")
  lu.assertTrue(slow_head:until_closed(4000) and slow_body:until_closed(4000) and idle:until_closed(4000))
  lu.assertStrContains(slow_head.data, "408 Request Timeout")
  lu.assertStrContains(slow_body.data, "408 Request Timeout")
  lu.assertEquals(idle.data, "")
  stop(ctx)
end

TestAuth = {}

function TestAuth:setUp() self.ctx = start({ api_key = "user-key", admin_key = "admin-key" }); self.port = self.ctx.port end
function TestAuth:tearDown() stop(self.ctx) end

local function with(key) return { Authorization = key and "Bearer " .. key or nil } end

-- No route but the named ones answers without a key; admin routes refuse user keys.
function TestAuth:test_walk_the_live_route_table()
  local open = { ["/health"] = true, ["/v1/health"] = true, ["/ready"] = true, ["/"] = true, ["/app.js"] = true, ["/app.css"] = true }
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

TestStart = {}

function TestStart:test_public_address_needs_a_key()
  local function try(flags) return serve.new(assert(config.load({ env = nothing, flags = flags }))) end
  local ctx, message = try({ host = "0.0.0.0" })
  lu.assertNil(ctx)
  lu.assertStrContains(message, "--insecure")
  lu.assertNil((try({ listen = "192.168.0.1:80" })))
  for _, flags in ipairs({ { host = "0.0.0.0", insecure = true, log_level = "error" }, { host = "0.0.0.0", api_key = "k" }, { host = "::1" } }) do
    local good = assert(try(flags))
    good.http:close()
  end
end

function TestStart:test_nothing_to_listen_on()
  for _, flags in ipairs({ { host = "" }, { listen = "127.0.0.1:65536" }, { listen = "here" }, { listen = "unix:" } }) do
    local ctx, message = serve.new(assert(config.load({ env = nothing, flags = flags })))
    lu.assertNil(ctx)
    lu.assertStrContains(message, "listen")
  end
end

function TestStart:test_unix_socket()
  local path = temp.path()
  local ctx = start({ listen = "unix:" .. path })
  local pipe, data = uv.new_pipe(false), ""
  pipe:connect(path, function(err)
    assert(not err, err)
    pipe:read_start(function(_, d) data = data .. (d or "") end)
    pipe:write("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
  end)
  lu.assertTrue(client.wait(function() return data:find("ok") ~= nil end))
  pipe:close()
  stop(ctx)
  lu.assertNil(uv.fs_stat(path))
end

TestDrain = {}

function TestDrain:test_running_answers_end_and_new_ones_are_refused()
  local ctx = start({ drain_timeout = "2" })
  local stream, idle = client.connect(ctx.port), client.connect(ctx.port)
  stream:send("GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
  lu.assertTrue(stream:until_found("line 1"))
  local done = false
  serve.drain(ctx, function() done = true end)
  lu.assertTrue(idle:until_closed(1000))
  local late = client.connect(ctx.port)
  lu.assertNotNil(late.failed)
  lu.assertTrue(client.wait(function() return done end, 3000))
  client.wait(function() return stream.closed end, 500)
  lu.assertStrContains(stream.data, "line 20\n")
  lu.assertStrContains(stream.data, "\r\n0\r\n\r\n")
end

function TestDrain:test_hanging_answer_is_cancelled_after_the_grace()
  local ctx = start({ drain_timeout = "0.2" })
  local c = client.connect(ctx.port)
  c:send("GET /hang HTTP/1.1\r\nHost: localhost\r\n\r\n")
  client.sleep(20)
  local done, told = false, false
  ctx.cancel_all = function() told = true end
  serve.drain(ctx, function() done = true end)
  lu.assertTrue(client.wait(function() return done end, 6000))
  lu.assertTrue(told)
  lu.assertEquals(ctx.aborted, 1)
end
