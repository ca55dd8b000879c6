-- SPDX-License-Identifier: MIT
-- The server over real sockets: framing, limits, time-outs, back-pressure.
-- Every hostile case ends with the server still answering.
local lu = require("luaunit")
local uv = require("luv")
local client = require("http_client")
local bare = require("bare_server")

local start, stop, raw = bare.start, bare.stop, bare.raw

TestServer = {}

function TestServer:setUp() self.ctx = start({ max_body_mb = 0.1 }); self.port = self.ctx.port end
function TestServer:tearDown()
  lu.assertEquals(client.request(self.port, "GET", "/api/version").status, 200, "server alive")
  stop(self.ctx)
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
