-- SPDX-License-Identifier: MIT
-- Answers that do not simply run to their end, on OpenAI's chat against the scripted engine: faults of the engine and of
-- our own, clients that hang up, a full queue, streams beside others, the drain.
local lu = require("luaunit")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local serve = require("mtx.serve")
local client = require("http_client")

local ctx, port

local function start(flags)
  ctx = fixture.start(flags)
  port = ctx.port
end

local function stop() fixture.stop(ctx) end

local function chat(body, ms) return fixture.chat(ctx, body, ms) end

local user = fixture.user

TestEnds = {}
function TestEnds:setUp() start() end
function TestEnds:tearDown() stop() end

function TestEnds:test_engine_error_before_and_after_the_first_byte()
  local r = chat({ messages = user("@error") })
  lu.assertEquals({ r.status, r.json.error.type }, { 500, "server_error" })
  r = chat({ messages = user("@error"), stream = true })
  lu.assertEquals(r.status, 200)
  lu.assertNotStrContains(r.body, "[DONE]")
  local ev = client.sse(r.body)
  lu.assertNotNil(ev[#ev].data.error)
end

-- A fault of our own, here in the parser, ends the answer with an error in both modes and at each place.
function TestEnds:test_our_own_errors_leave_nobody_waiting()
  for _, place in ipairs({ "feed", "finish" }) do
    fixture.stop(ctx)
    local log, _
    ctx, _, log = fixture.start_logged({}, function(deps)
      deps.parser = function()
        local parser = { feed = function(_, text) return { { kind = "text", text = text } } end, finish = function() return {} end }
        parser[place] = function() error("boom") end
        return parser
      end
    end)
    for _, stream in ipairs({ false, true }) do
      local r = client.request(ctx.port, "POST", "/v1/chat/completions", { model = "tiny", stream = stream, messages = { { role = "user", content = "@say{a b c}" } } })
      lu.assertEquals(r.status, stream and 200 or 500, place .. r.body)
      lu.assertStrContains(r.body, "the server failed")
      lu.assertNotStrContains(r.body, "boom")
    end
    lu.assertEquals(ctx.n_jobs, 0)
    lu.assertStrContains(table.concat(log), "boom")
  end
end

function TestEnds:test_disconnect_cancels()
  for _, stream in ipairs({ "true", "false" }) do
    fake.cancelled = nil
    local body = '{"model":"tiny","messages":[{"role":"user","content":"@slow{5}@long{500}"}],"stream":' .. stream .. "}"
    local c = client.connect(port)
    c:send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
    lu.assertTrue(client.wait(function() return fake.engines[1] and fake.engines[1]:stats().n_running == 1 end, 5000))
    c:close()
    lu.assertTrue(client.wait(function() return fake.cancelled == 1 end, 5000))
    client.sleep(20)
    lu.assertEquals(fake.engines[1]:stats().n_running, 0)
  end
  lu.assertEquals(ctx.n_jobs, 0)
end

function TestEnds:test_queue_full()
  ctx.config.max_waiting = 1
  chat({ messages = user("x") })
  local e = fake.engines[1]
  e.frozen = true
  local c = client.connect(port)
  local body = '{"model":"tiny","messages":[{"role":"user","content":"x"}]}'
  c:send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  client.sleep(20)
  local r = chat({ messages = user("x") })
  lu.assertEquals({ r.status, r.json.error.type, tonumber(r.headers["retry-after"]) >= 1 }, { 429, "rate_limit_error", true })
  r = client.request(port, "POST", "/api/chat", { model = "tiny", messages = user("x") })
  lu.assertEquals({ r.status, tonumber(r.headers["retry-after"]) >= 1 }, { 503, true })
  lu.assertEquals(client.request(port, "GET", "/ready").json.reason, "overloaded")
  e.frozen = nil
  lu.assertTrue(c:until_found("chat.completion"))
  c:close()
end

function TestEnds:test_concurrent_streams_do_not_mix()
  local all = {}
  for i = 1, 50 do
    local body = '{"model":"tiny","messages":[{"role":"user","content":"@say{secret' .. i .. ' a b c}"}],"stream":' .. (i % 2 == 0 and "true" or "false") .. "}"
    all[i] = client.connect(port)
    all[i]:send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  end
  for i = 1, 50 do
    all[i]:until_closed(5000)
    local n = 0
    for found in all[i].data:gmatch("secret(%d+)") do
      n = n + 1
      lu.assertEquals(found, tostring(i))
    end
    lu.assertTrue(n >= 1)
    all[i]:close()
  end
end

function TestEnds:test_drain_gives_streams_their_end()
  local c = client.connect(port)
  local body = '{"model":"tiny","messages":[{"role":"user","content":"@slow{20}@long{5000}"}],"stream":true}'
  c:send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  lu.assertTrue(c:until_found("word1"))
  ctx.config.drain_timeout = 0.1
  local done = false
  serve.drain(ctx, function() done = true end)
  lu.assertTrue(client.wait(function() return done end, 3000))
  client.wait(function() return c.closed end, 500)
  lu.assertStrContains(c.data, "finish_reason\":\"stop\"")
  lu.assertStrContains(c.data, "[DONE]")
end

-- An engine that does not even answer the cancel: the stream still gets an end.
function TestEnds:test_drain_with_a_stuck_engine()
  local c = client.connect(port)
  local body = '{"model":"tiny","messages":[{"role":"user","content":"@slow{20}@long{5000}"}],"stream":true}'
  c:send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  lu.assertTrue(c:until_found("word1"))
  ctx.config.drain_timeout = 0.1
  fake.engines[1].cancel = function() end
  local done = false
  serve.drain(ctx, function() done = true end)
  lu.assertTrue(client.wait(function() return done end, 6000))
  client.wait(function() return c.closed end, 500)
  lu.assertStrContains(c.data, "the server stops")
end
