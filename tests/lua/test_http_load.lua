-- SPDX-License-Identifier: MIT
-- Many users at once on a real model (SEC-82, SEC-96 of the security list). Load is counted in rows of the engine
-- and turns of the event loop, not in time: a machine's speed decides nothing.
-- MTX_CROSSTALK_SECONDS makes the test of secrets go on for so long; without it every user comes three times.
local lu = require("luaunit")
local uv = require("luv")
local cjson = require("cjson")
local client = require("http_client")
local config = require("mtx.config")
local fixture = require("http_fixture")
local serve = require("mtx.serve")

local MODEL = "SmolLM2-135M-Instruct.Q4_1"

local ctx, engine

local function start(flags)
  local all = { port = "0", models_dir = os.getenv("MTX_MODELS_DIR") or "models", log_level = "error" }
  for k, v in pairs(flags) do all[k] = v end
  ctx = assert(serve.new(assert(config.load({ env = function() end, flags = all }))))
  assert(serve.listen(ctx))
end

-- Sends a request without waiting; on(c) is called when more has come or the connection has ended. -> its connection
local function send(path, body, headers) return client.begin(ctx.port, path, body, headers) end

local function idle()
  lu.assertTrue(client.wait(function() return ctx.n_jobs == 0 and ctx.http.n_conns == 0 end, 60000))
end

TestLoad = {}
function TestLoad:tearDown() fixture.stop(ctx) end

local PARALLEL, WAITING, TOKENS = 4, 4, 64

-- n requests at once: how many were admitted, what the engine did for them, and the most turns of the loop
-- that /health took meanwhile.
local function burst(n)
  local before, open, health = engine:stats(), {}, 0
  for i = 1, n do open[i] = send("/v1/completions", { model = MODEL, prompt = "Request " .. i .. " of many:", max_tokens = TOKENS, ignore_eos = true, temperature = 0 }) end
  for _ = 1, 8 do
    local c, turns = send("/health"), 0
    while not c.closed and turns < 1000 do
      uv.run("once")
      turns = turns + 1
    end
    lu.assertEquals(c:responses()[1].status, 200)
    health = math.max(health, turns)
  end
  lu.assertTrue(ctx.n_jobs > 0, "it was asked while others ran")
  local admitted, due = 0, 0
  for i, c in ipairs(open) do
    lu.assertTrue(c:until_closed(120000))
    local r = c:responses()[1]
    if r.status == 200 then
      admitted = admitted + 1
      local usage = cjson.decode(r.body).usage
      lu.assertEquals(usage.completion_tokens, TOKENS)
      due = due + usage.prompt_tokens + TOKENS - 1 -- the last token is not read again
    else
      lu.assertEquals({ i, r.status, tonumber(r.headers["retry-after"]) ~= nil }, { i, 429, true })
    end
  end
  idle()
  local after = engine:stats()
  return { admitted = admitted, submitted = after.n_submitted - before.n_submitted, rows = after.n_rows - before.n_rows, due = due,
    preempted = after.n_preempted - before.n_preempted, health = health }
end

-- What a forecast is made of: a prompt that one step reads has taken the time of that step, though its start and its first token are told
-- together.
function TestLoad:test_the_measured_time_of_a_prompt_is_the_engines()
  start({ ctx = "512", cache_mb = "0" })
  local r = client.request(ctx.port, "POST", "/completion", { model = MODEL, prompt = ("word "):rep(200), n_predict = 4, ignore_eos = true })
  local m, t = ctx.pool:list()[1].rates, r.json.timings
  lu.assertEquals(m.prompts.tokens, t.prompt_n)
  lu.assertTrue(m.prompts.ms >= t.prompt_ms, m.prompts.ms .. " ms, the engine says " .. t.prompt_ms)
  lu.assertEquals({ m.writing.tokens, m.replies.tokens }, { 3, 4 })
end

-- SEC-82: four times what the server takes. What is refused costs the others nothing: the engine reads the
-- tokens of those that were admitted once each, no more, and /health is answered.
function TestLoad:test_sec82_admitted_requests_keep_their_pace()
  start({ ctx = "512", parallel = tostring(PARALLEL), max_waiting = tostring(WAITING), cache_mb = "0" })
  client.request(ctx.port, "POST", "/api/generate", { model = MODEL })
  engine = ctx.pool:list()[1].engine
  local most = PARALLEL + WAITING
  for _, n in ipairs({ PARALLEL, 4 * most }) do
    local b = burst(n)
    lu.assertEquals(b.rows, b.due, "rows for " .. b.admitted .. " answers")
    lu.assertEquals({ b.submitted, b.preempted }, { b.admitted, 0 })
    lu.assertTrue(b.admitted >= math.min(n, PARALLEL) and b.admitted < math.max(n, PARALLEL + 1), b.admitted .. " of " .. n)
    lu.assertTrue(b.health <= 100, "/health took " .. b.health .. " turns of the loop")
  end
end

local USERS = 64

-- SEC-96: everybody has a secret, asks the model to say it, and gives up in every way; pages are short, so answers
-- are parked, prompts evicted, contexts shifted. Nobody reads another's secret, and a reply is what it is alone.
function TestLoad:test_sec96_no_secret_reaches_another()
  local keys, secrets = {}, {}
  math.randomseed(96)
  for i = 1, USERS do
    local letters = {}
    for k = 1, 4 do letters[k] = string.char(math.random(65, 90)) end
    keys[i], secrets[i] = "key" .. i, table.concat(letters) .. "-" .. math.random(1000, 9999)
  end
  start({ ctx = "512", api_key = table.concat(keys, ","), admin_key = "admin", kv_budget_mb = "10", cache_mb = "4", max_waiting = "256" })
  local function body(i, more)
    local b = { model = MODEL, temperature = 0, max_tokens = 12,
      prompt = "The secret of user " .. i .. " is " .. secrets[i] .. ". Once more: the secret of user " .. i .. " is" }
    for k, v in pairs(more) do b[k] = v end
    return b
  end
  local function auth(i) return "Authorization: Bearer " .. keys[i] .. "\r\n" end

  local n_own, n_shifted, whole = 0, 0, {}
  local function check(i, text)
    for j, secret in ipairs(secrets) do
      if j ~= i then lu.assertNil(text:find(secret, 1, true), "user " .. i .. " reads the secret of " .. j .. ": " .. text) end
    end
    if text:find(secrets[i], 1, true) then n_own = n_own + 1 end
  end

  local ways = { whole = {}, stream = { stream = true, max_tokens = 40 }, hang_up = { stream = true, max_tokens = 200, ignore_eos = true },
    cancel = { stream = true, max_tokens = 200, ignore_eos = true }, shift = { shift = true, num_ctx = 64, max_tokens = 90, ignore_eos = true } }
  local names = { "whole", "stream", "hang_up", "cancel", "shift" }
  -- One request of user i to its end, however it ends.
  local function turn(i, way, done)
    local more = {}
    for k, v in pairs(ways[way]) do more[k] = v end
    if way == "cancel" then more.request_id = "same" end -- everybody chooses the same id
    local path, b = "/v1/completions", body(i, more)
    if way == "shift" then
      path = "/api/generate"
      b = { model = MODEL, prompt = b.prompt, raw = true, stream = false, shift = true, options = { temperature = 0, num_ctx = 64, num_predict = 90, ignore_eos = true } }
    end
    local sock, data, text = uv.new_tcp(), {}, cjson.encode(b)
    local function finish()
      if sock:is_closing() then return end
      sock:close()
      local all = table.concat(data)
      if all:find("^HTTP/1.1 200") and way == "whole" then whole[i] = cjson.decode(all:match("\r\n\r\n(.*)$")).choices[1].text end
      if all:find("^HTTP/1.1 200") and way == "shift" then n_shifted = n_shifted + 1 end
      done(i, all, way)
    end
    sock:connect("127.0.0.1", ctx.port, function(err)
      lu.assertNil(err)
      sock:read_start(function(_, bytes)
        data[#data + 1] = bytes
        if not bytes or way == "hang_up" and #data == 4 then return finish() end
        if way == "cancel" and #data == 4 then
          local job = ctx.jobs["key" .. i .. "\0same"]
          if job then job:cancel() end
        end
      end)
      sock:write("POST " .. path .. " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" .. auth(i) .. "Content-Length: " .. #text .. "\r\n\r\n" .. text)
    end)
  end

  local left, running, failed = {}, 0, nil
  local seconds = tonumber(os.getenv("MTX_CROSSTALK_SECONDS"))
  local from = uv.now()
  local until_ms = from + (seconds or 0) * 1000
  -- A machine busy with other things may never have as many at once as the pages are too few for: then for longer.
  local function enough() return uv.now() >= until_ms and (ctx.pool:list()[1].engine:stats().n_preempted > 0 or uv.now() > from + 120000) end
  for round = 1, 3 do
    for i = 1, USERS do left[#left + 1] = { i, names[(i + round) % #names + 1] } end
  end
  local function more() -- at most 24 at once: some wait, some run, some are parked
    while running < 24 and not failed do
      local next_one = table.remove(left, 1) or not enough() and { math.random(USERS), names[math.random(#names)] }
      if not next_one then return end
      running = running + 1
      turn(next_one[1], next_one[2], function(i, text)
        running = running - 1
        local ok, err = pcall(check, i, text)
        if not ok then failed = err end
        more()
      end)
    end
  end
  more()
  lu.assertTrue(client.wait(function() return failed or running == 0 and #left == 0 end, ((seconds or 0) + 300) * 1000))
  if failed then error(failed, 0) end
  idle()

  local s = ctx.pool:list()[1].engine:stats(true)
  lu.assertTrue(s.kv_ok)
  lu.assertTrue(s.n_preempted > 0 and s.n_cancelled > 0 and n_shifted > 0, s.n_preempted .. " parked, " .. s.n_cancelled .. " cancelled, " .. n_shifted .. " shifted")
  lu.assertTrue(n_own >= USERS // 2, "the model said " .. n_own .. " secrets: too few to show anything")
  -- Each reply of the storm is the one of a user alone; 16 of them are asked again.
  local n_again = 0
  for i, text in pairs(whole) do
    if n_again == 16 then break end
    n_again = n_again + 1
    local r = client.request(ctx.port, "POST", "/v1/completions", body(i, {}), { Authorization = "Bearer " .. keys[i] })
    lu.assertEquals(r.json.choices[1].text, text)
  end
  lu.assertTrue(n_again > 8)
end
