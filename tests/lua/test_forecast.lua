-- SPDX-License-Identifier: MIT
-- When a place will be free, from rates given by hand, and what the server makes of it: Retry-After, refusals at the
-- door, figures for operators and policies. Milliseconds are arithmetic here; no clock is asserted.
local lu = require("luaunit")
local client = require("http_client")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local forecast = require("mtx.sched.forecast")
local rates = require("mtx.sched.rates")
local temp = require("temp")

-- 10 ms a prompt token, 100 ms a token of a reply, replies of 20 tokens, nothing cached.
local function measured()
  local r = rates.new()
  r:let_in(0, 50, 0)
  r.prompts:ends(500, 50)
  r:replied(20, 1900)
  return r
end

local function job(t)
  return { n_prompt = t[1], n_cached = t.cached or 0, reading = t.reading or false, n_generated = t.n or 0, max_tokens = t.max or 1000 }
end

TestRates = {}

function TestRates:test_nothing_is_known_before_something_was_measured()
  local r = rates.new()
  lu.assertNil(r:known())
  lu.assertNil(forecast.of({ parallel = 2, now = 0, running = {}, waiting = {} }, r))
  r:let_in(0, 10, 0)
  r.prompts:ends(100, 10)
  lu.assertNil(r:known())
  r:replied(1, 0) -- one token: how fast the next would have come nobody knows; as fast as prompts are read, at least
  lu.assertEquals(r:known(), { prompt_ms = 10, reply_ms = 10, reply_tokens = 1, new_share = 1 })
end

-- Prompts that are read side by side took the time in which any of them was, not the sum.
function TestRates:test_prompts_side_by_side()
  local r = rates.new()
  r:let_in(0, 100, 50)
  r:let_in(100, 100, 100)
  r.prompts:ends(300, 50)
  r.prompts:ends(350, 50)
  r:let_in(5000, 100, 0) -- a rest before it does not count
  r.prompts:ends(5650, 100)
  r:let_in(9000, 9, 9)
  r.prompts:ends(9999, nil) -- broken off
  r:replied(11, 200)
  local k = r:known()
  lu.assertEquals({ k.prompt_ms, k.reply_ms, k.reply_tokens }, { 5, 20, 11 })
  lu.assertAlmostEquals(k.new_share, 150 / 309, 1e-12)
end

function TestRates:test_the_last_minutes_count_most()
  local r = measured()
  for i = 1, 100 do
    r:let_in(i * 1e6, 1000, 0)
    r.prompts:ends(i * 1e6 + 2000, 1000)
  end
  lu.assertAlmostEquals(r:known().prompt_ms, 2, 0.1)
end

TestForecast = {}

local function of(parallel, running, waiting, now)
  local jobs = { {}, {} }
  for k, list in ipairs({ running, waiting }) do
    for i, t in ipairs(list) do jobs[k][i] = job(t) end
  end
  return forecast.of({ parallel = parallel, now = now or 500, running = jobs[1], waiting = jobs[2] }, measured())
end

function TestForecast:test_a_free_place_is_no_wait()
  lu.assertEquals(of(2, {}, {}), { starts = {}, turns = {}, place = 0, over = 0 })
  lu.assertEquals(of(2, { { 10, n = 3 } }, {}), { starts = {}, turns = {}, place = 0, over = 2000 })
end

-- Two places: one reply has 5 tokens left by its budget, one 20 by the mean.
function TestForecast:test_places_come_free_as_replies_end()
  local f = of(2, { { 10, n = 95, max = 100 }, { 10, n = 1 } }, { { 30 }, { 10, max = 2 }, { 10 } })
  -- the first waits for 500, reads until 800, writes until 2800; the second waits for 2000, reads until 2100, writes two
  lu.assertEquals(f, { starts = { 500, 2000, 2300 }, turns = { 500, 2000, 2300 }, place = 2800, over = 4400 })
end

function TestForecast:test_prompts_are_read_one_after_the_other()
  lu.assertEquals(of(4, { { 100, reading = true }, { 50, reading = true, cached = 40 } }, { { 10 } }), { starts = { 0 }, turns = { 1100 }, place = 0, over = 3200 })
end

TestDoor = {}
function TestDoor:tearDown() fixture.stop(self.ctx) end

local function post(ctx, path, body) return client.request(ctx.port, "POST", path, body) end

-- A server whose model is busy: its one place is taken, `n` further requests of 100 prompt tokens wait. The rates are the above.
function TestDoor:busy(n, flags, change)
  flags = flags or {}
  flags.parallel = "1"
  local ctx = fixture.start(flags, change)
  self.ctx = ctx
  lu.assertEquals(post(ctx, "/completion", { model = "tiny", prompt = "x", n_predict = 1 }).status, 200)
  local l = ctx.pool:list()[1]
  local e, open = fake.engines[1], {}
  fake.reply = function() return { text = ("y "):rep(1000), delay_ms = 3600000 } end
  for i = 1, n + 1 do
    open[i] = client.begin(ctx.port, "/completion", { model = "tiny", prompt = ("x"):rep(100), n_predict = 20 })
    client.wait(function() return e:stats().n_running + e:stats().n_waiting == i and (i > 1 or e:stats().n_running == 1) end, 3000)
  end
  client.wait(function() return l.n_queued == 100 * n end, 3000)
  l.rates = measured()
  l.rates.prompts.n = 1 -- that of the running request, which began just now
  l.rates.prompts.since = math.huge
  return l, e
end

local CHAT = { model = "tiny", messages = { { role = "user", content = "x" } }, stream = false, max_tokens = 5 }
local function chat(more)
  local body = {}
  for _, from in ipairs({ CHAT, more or {} }) do
    for k, v in pairs(from) do body[k] = v end
  end
  return body
end

-- 1 s of reading and 2 s of writing before the first place.
function TestDoor:test_retry_after_is_when_the_queue_has_room()
  self:busy(2, { max_waiting = "2" })
  for path, status in pairs({ ["/v1/chat/completions"] = 429, ["/api/chat"] = 503, ["/v1/messages"] = 529, ["/v1/responses"] = 429 }) do
    local body = chat()
    if path == "/v1/responses" then body.input, body.messages = "x", nil end
    local r = post(self.ctx, path, body)
    lu.assertEquals({ r.status, r.headers["retry-after"] }, { status, "3" }, path .. " " .. r.body)
  end
  lu.assertEquals(post(self.ctx, "/completion", { prompt = "x" }).headers["retry-after"], "3")
  lu.assertStrContains(client.request(self.ctx.port, "GET", "/metrics").body, '\nmtx_shed_total{reason="queue_full"} 5\n')
end

-- Prompts of 400 tokens wait; one of 200 has room when 200 of them have left: that is with the second.
function TestDoor:test_retry_after_of_a_queue_in_tokens()
  self:busy(4, { max_waiting_tokens = "400", ctx = "2048" })
  local r = post(self.ctx, "/completion", { prompt = ("x"):rep(200) })
  lu.assertEquals({ r.status, r.headers["retry-after"] }, { 503, "6" })
end

function TestDoor:test_a_deadline_that_cannot_be_met_is_refused()
  local _, e = self:busy(2)
  local n = #e.submitted
  for path, status in pairs({ ["/v1/chat/completions"] = 429, ["/api/chat"] = 503, ["/v1/messages"] = 529 }) do
    local r = post(self.ctx, path, chat({ deadline_ms = 2500 }))
    lu.assertEquals(r.status, status, path .. " " .. r.body)
    lu.assertStrContains(r.body, "a first token is expected in 9.0 s (2 requests with prompts of 200 tokens wait before it)")
    lu.assertEquals(tonumber(r.headers["retry-after"]), 7, path)
  end
  lu.assertStrMatches(post(self.ctx, "/api/chat", chat({ deadline_ms = 900 })).body, ".*it is in %d+ ms, a first token is expected in 9%.0 s .*")
  lu.assertEquals({ e:stats().n_waiting, self.ctx.n_jobs }, { 2, 3 }) -- nothing of them is left
  lu.assertEquals(#e.submitted, n + 4)
  lu.assertEquals(client.request(self.ctx.port, "GET", "/metrics").body:match('mtx_shed_total{reason="deadline"} (%d+)'), "4")
end

function TestDoor:test_one_that_can_be_met_waits()
  local _, e = self:busy(2)
  local c = client.begin(self.ctx.port, "/v1/chat/completions", chat({ deadline_ms = 3600000 }))
  lu.assertTrue(client.wait(function() return e:stats().n_waiting == 3 end, 3000))
  c:close()
end

-- Who comes first by the policy does not wait for the others.
function TestDoor:test_the_policys_order_counts()
  local _, e = self:busy(2, { policy = temp.file("return function(v) table.sort(v.waiting, function(a, b) return a.id > b.id end) local o = {} for i, j in ipairs(v.waiting) do o[i] = j.id end return { order = o } end") })
  local c = client.begin(self.ctx.port, "/v1/chat/completions", chat({ deadline_ms = 6000 }))
  lu.assertTrue(client.wait(function() return e:stats().n_waiting == 3 end, 3000))
  local r = post(self.ctx, "/v1/chat/completions", chat({ deadline_ms = 1000 }))
  lu.assertEquals(r.status, 429)
  lu.assertStrContains(r.body, "(0 requests")
  c:close()
end

-- What cannot be cached is read as a whole; beside others only.
function TestDoor:test_its_own_prompt_counts_where_nothing_is_cached()
  self:busy(0, { cache_mb = "0", ctx = "2048" })
  local r = post(self.ctx, "/v1/completions", { model = "tiny", prompt = ("x"):rep(200), deadline_ms = 4000 })
  lu.assertEquals(r.status, 429)
  lu.assertStrContains(r.body, "expected in 5.0 s")
end

function TestDoor:test_figures_for_operators()
  self:busy(1)
  local text = client.request(self.ctx.port, "GET", "/metrics").body
  for line, value in pairs({ mtx_predicted_wait_seconds = 6, mtx_prompt_tokens_per_second = 100, mtx_reply_tokens_per_second = 10, mtx_reply_tokens = 20 }) do
    lu.assertEquals(tonumber(text:match("\n" .. line .. '{model="tiny:latest"} (%S+)\n')), value, line)
  end
end

-- A policy may ask; here it writes what it is told into its own order's budget, where the test finds it.
function TestDoor:test_a_policy_is_told()
  local _, e = self:busy(0, { policy = temp.file([[return function(v)
    local f = v.forecast()
    if not f then return {} end
    local last = v.waiting[#v.waiting]
    return { step_tokens = math.floor(f.wait_s * 1000 + f.prompt_rate * 10000 + f.reply_tokens * 10000000), prefill_tokens = last and math.floor(f.starts_s[last.id] * 1000 + 1) or nil }
  end]]) })
  local c = client.begin(self.ctx.port, "/completion", { model = "tiny", prompt = ("x"):rep(100), n_predict = 10 })
  lu.assertTrue(client.wait(function() return e.policies[#e.policies].prefill_tokens ~= 1 and e.policies[#e.policies].prefill_tokens ~= nil end, 3000))
  lu.assertEquals({ e.policies[#e.policies].step_tokens, e.policies[#e.policies].prefill_tokens }, { 20 * 10000000 + 100 * 10000 + 5000, 3001 })
  c:close()
end

TestOthers = {}
function TestOthers:tearDown() fixture.stop(self.ctx) end

-- A load that has come half way takes as long again.
function TestOthers:test_a_load_says_how_far_it_is()
  local load = require("mtx.serve.models.loading").new({ key = "k", name = "m" }, nil, 1)
  self.ctx = fixture.start()
  lu.assertNil(load:left_ms())
  load.task = { progress = function() return 0, 0 end }
  lu.assertNil(load:left_ms())
  load.started = load.started - 4000 * 1000000
  load.task = { progress = function() return 1, 4 end }
  lu.assertTrue(load:left_ms() >= 12000)
end
