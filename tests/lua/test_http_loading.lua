-- SPDX-License-Identifier: MIT
-- Models on their way in and out: nothing else waits for them, requests share a
-- load, leave it, or hear of its failure; memory, places and keep-alive.
local lu = require("luaunit")
local cjson = require("cjson")
local check = require("mtx.api.check")
local client = require("http_client")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local memory = require("mtx.serve.models.memory")
local serve = require("mtx.serve")
local temp = require("temp")

local ctx, port, log

local function start(flags, change)
  local _
  ctx, _, log = fixture.start_logged(flags, change)
  port = ctx.port
end

local function stop() fixture.stop(ctx) end

-- A request on its way; its connection.
local function send(path, body) return client.begin(port, path, body) end

local function chat(model, more)
  local body = { model = model, messages = { { role = "user", content = "@say{a b}" } } }
  for k, v in pairs(more or {}) do body[k] = v end
  return send("/v1/chat/completions", body)
end

local function answer_of(c)
  c:until_closed(5000)
  local r = c:responses()[1]
  c:close()
  if r then r.json = cjson.decode(r.body) end
  return r
end

local function get(path) return client.request(port, "GET", path) end
local function post(path, body) return client.request(port, "POST", path, body) end
local function loading() return client.wait(function() return ctx.pool.n_loads == 1 end, 1000) end

TestLoading = {}
function TestLoading:setUp() start() end
TestLoading.tearDown = stop

function TestLoading:test_everything_else_goes_on()
  post("/api/generate", { model = "other" })
  fake.hold_loads = true
  local c = chat("tiny")
  lu.assertTrue(loading())
  lu.assertEquals(get("/health").status, 200)
  local ready = get("/ready")
  lu.assertEquals({ ready.status, ready.json.reason, ready.json.model }, { 503, "loading", "tiny:latest" })
  lu.assertEquals(get("/admin/models").json.models[1].status, "loading")
  lu.assertEquals(get("/models").json.data[1].status.value ~= nil, true)
  lu.assertEquals(answer_of(chat("other", { stream = false })).json.choices[1].message.content, "a b")
  lu.assertEquals(ctx.pool.n_loads, 1, "all of this came before the load's end")
  fake.let_go()
  lu.assertEquals(answer_of(c).json.choices[1].message.content, "a b")
  lu.assertEquals(get("/ready").status, 200)
end

function TestLoading:test_one_load_for_all()
  fake.hold_loads = true
  local all = { chat("tiny"), chat("tiny"), send("/api/chat", { model = "tiny", stream = false, messages = { { role = "user", content = "@say{x}" } } }), send("/tokenize", { model = "tiny", content = "ab" }) }
  lu.assertTrue(client.wait(function() return ctx.pool:loading()[1] and #ctx.pool:loading()[1].waiters == 4 end))
  client.sleep(50)
  fake.let_go()
  for i, c in ipairs(all) do all[i] = answer_of(c) end
  for i = 1, 4 do lu.assertEquals(all[i].status, 200) end
  lu.assertTrue(all[3].json.load_duration > 4e7, "the wait is told")
  lu.assertEquals({ fake.loads, #fake.tasks }, { 1, 1 })
end

function TestLoading:test_everybody_hears_of_a_failure()
  fake.hold_loads = true
  local all = { chat("broken"), chat("broken", { stream = true }), send("/tokenize", { model = "broken", content = "ab" }) }
  lu.assertTrue(client.wait(function() return ctx.pool:loading()[1] and #ctx.pool:loading()[1].waiters == 3 end))
  fake.let_go()
  for _, c in ipairs(all) do
    local r = answer_of(c)
    lu.assertEquals(r.status, 500)
    lu.assertStrContains(r.body, "not a model file")
    lu.assertNotStrContains(r.body, "/tmp")
  end
  lu.assertEquals(fake.loads, 1)
  lu.assertEquals({ ctx.pool.n_loads, ctx.n_jobs }, { 0, 0 })
end

function TestLoading:test_hanging_up_while_it_loads()
  fake.hold_loads = true
  local a, b, c = chat("tiny", { stream = true }), send("/tokenize", { model = "tiny", content = "ab" }), chat("tiny")
  lu.assertTrue(client.wait(function() return ctx.pool:loading()[1] and #ctx.pool:loading()[1].waiters == 3 end))
  a:close()
  b:close()
  lu.assertTrue(client.wait(function() return #ctx.pool:loading()[1].waiters == 1 end))
  fake.let_go()
  lu.assertEquals(answer_of(c).status, 200)
  lu.assertEquals(#fake.engines[1].submitted, 1)
  lu.assertEquals(log, {}) -- nothing failed
end

function TestLoading:test_cancel_by_id()
  fake.hold_loads = true
  local c = send("/api/chat", { model = "tiny", request_id = "r1", messages = { { role = "user", content = "x" } } })
  lu.assertTrue(loading())
  lu.assertEquals(post("/api/chat", { model = "tiny", request_id = "r1", messages = require("mtx.json").array(), keep_alive = 0 }).status, 200)
  local r = answer_of(c)
  lu.assertEquals({ r.status, r.json.error }, { 499, "request canceled" })
  lu.assertEquals(ctx.pool.n_loads, 1, "before the load's end")
  lu.assertNil(next(ctx.jobs))
end

function TestLoading:test_deadline()
  fake.hold_loads = true
  local r = answer_of(chat("tiny", { deadline_ms = 30 }))
  lu.assertEquals(r.status, 503)
  lu.assertStrContains(r.body, "deadline")
  lu.assertEquals(ctx.pool.n_loads, 1)
  local c = chat("tiny", { deadline_ms = 500000 })
  client.sleep(20)
  fake.let_go()
  lu.assertEquals(answer_of(c).status, 200)
  lu.assertTrue(fake.engines[1].submitted[1].deadline_ms < 500000 - 10, "the wait counts")
end

function TestLoading:test_queue_bound()
  ctx.config.max_waiting = 2
  fake.hold_loads = true
  local a, b = chat("tiny"), chat("tiny")
  client.wait(function() return ctx.pool:loading()[1] and #ctx.pool:loading()[1].waiters == 2 end)
  local r = answer_of(chat("tiny"))
  lu.assertEquals({ r.status, tonumber(r.headers["retry-after"]) >= 1 }, { 429, true })
  fake.let_go()
  lu.assertEquals({ answer_of(a).status, answer_of(b).status }, { 200, 200 })
end

function TestLoading:test_drain_ends_waiters_and_load()
  fake.hold_loads = true
  local c = chat("tiny")
  lu.assertTrue(loading())
  ctx.config.drain_timeout = 0.05
  local done = false
  serve.drain(ctx, function() done = true end)
  local r = answer_of(c)
  lu.assertEquals(r.status, 503)
  lu.assertStrContains(r.body, "the server stops")
  lu.assertTrue(client.wait(function() return done end, 5000))
  lu.assertTrue(fake.tasks[1].cancelled)
  start()
end

function TestLoading:test_admin_load_is_told_at_once()
  fake.hold_loads = true
  lu.assertEquals(post("/admin/models/load", { id = "tiny" }).status, 202)
  lu.assertEquals(ctx.pool.n_loads, 1)
  local c = send("/models/load", { model = "tiny" }) -- llama-server's waits
  lu.assertTrue(client.wait(function() return #ctx.pool:loading()[1].waiters == 2 end))
  fake.let_go()
  lu.assertEquals(answer_of(c).status, 200)
  lu.assertEquals({ ctx.pool.n, fake.loads }, { 1, 1 })
end

TestLoadingScript = {}
TestLoadingScript.tearDown = stop

function TestLoadingScript:test_a_route_may_wait_twice()
  local path = temp.file([[mtx.route("POST", "/two", function(q)
    local a = mtx.generate({ model = "tiny", prompt = "@say{one}" })
    local b = mtx.generate({ model = "other", prompt = "@say{two}" })
    return 200, { text = a.text .. " " .. b.text }
  end)]])
  start({ script = path, script_allow = "models" })
  lu.assertEquals(post("/two", {}).json.text, "one two")
  lu.assertEquals(fake.loads, 2)
end

function TestLoadingScript:test_a_tool_round_may_load_again()
  start({ script = "examples/serve/tool_loop.lua" })
  local rounds = 0
  fake.reply = function()
    rounds = rounds + 1
    return rounds == 1 and '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>' or "done"
  end
  local r = post("/api/chat", { model = "tiny", stream = false, keep_alive = 0, messages = { { role = "user", content = "x" } } })
  lu.assertEquals({ r.status, r.json.message.content, rounds }, { 200, "done", 2 })
  lu.assertEquals(fake.loads, 2, "keep_alive 0 unloads between the rounds")
end

TestPlaces = {}
TestPlaces.tearDown = stop

function TestPlaces:test_two_models_least_recently_used_leaves()
  start()
  lu.assertEquals({ ctx.config.max_loaded_models, ctx.config.keep_alive }, { 2, 300 })
  post("/api/generate", { model = "tiny" })
  post("/api/generate", { model = "other" })
  post("/api/generate", { model = "tiny", prompt = "x", stream = false })
  client.sleep(5)
  post("/api/embed", { model = "minilm", input = "a" })
  local names = {}
  for _, l in ipairs(ctx.pool:list()) do names[l.name] = true end
  lu.assertEquals(names, { ["tiny:latest"] = true, ["minilm:latest"] = true })
end

function TestPlaces:test_a_loading_model_takes_a_place()
  start({ max_loaded_models = "1" })
  fake.hold_loads = true
  local c = chat("tiny")
  lu.assertTrue(loading())
  local r = answer_of(chat("other"))
  lu.assertEquals(r.status, 503)
  lu.assertStrContains(r.body, "busy")
  fake.let_go()
  lu.assertEquals(answer_of(c).status, 200)
end

function TestPlaces:test_five_minutes_after_the_last_use()
  local now = 1000
  start(nil, function(deps) deps.clock = function() return now end end)
  post("/api/generate", { model = "tiny" })
  now = 1299
  ctx.pool:sweep()
  lu.assertEquals(ctx.pool.n, 1)
  post("/api/generate", { model = "tiny", prompt = "@say{a}", stream = false })
  now = 1598
  ctx.pool:sweep()
  lu.assertEquals(ctx.pool.n, 1, "the last use counts")
  now = 1599
  ctx.pool:sweep()
  lu.assertEquals(ctx.pool.n, 0)
end

function TestPlaces:test_leaving_holds_nobody_up()
  start()
  post("/api/generate", { model = "tiny" })
  fake.hold_drops = true
  post("/api/generate", { model = "tiny", keep_alive = 0 })
  lu.assertEquals({ ctx.pool.n, next(ctx.pool.drops) ~= nil }, { 0, true })
  lu.assertEquals(get("/health").status, 200)
  lu.assertNotNil(next(ctx.pool.drops), "before its memory was back")
  fake.let_go()
  lu.assertTrue(client.wait(function() return next(ctx.pool.drops) == nil end))
  lu.assertTrue(fake.engines[1].closed)
end

TestMemory = {}
TestMemory.tearDown = stop

-- A header that tells its KV size; `free` bytes free, or what free() says.
local function with_memory(free)
  return function(deps)
    local describe = deps.describe
    deps.describe = function(path)
      local info, message = describe(path)
      if info then info.kv_bytes_per_token = 100000 end
      return info, message
    end
    deps.free_memory = type(free) == "function" and free or function() return free end
  end
end

function TestMemory:test_refusal_names_bytes_and_what_fits()
  -- 1,000 bytes of weights, 8 parallel contexts of 4,096 tokens, 100,000 bytes each: 3,276,801,000; times 1.2.
  start({ ctx = "4096" }, with_memory(2000000000))
  local r = answer_of(chat("tiny"))
  lu.assertEquals(r.status, 503)
  local message = r.json.error.message
  lu.assertStrContains(message, "3932161200 bytes (3750.0 MiB) wanted with the margin of 1.2, 2000000000 bytes (1907.3 MiB) free")
  lu.assertStrContains(message, "a context of 2048 tokens fits")
  lu.assertNotStrContains(message, "q8_0")
  lu.assertEquals(fake.loads, 0)
  local r2 = answer_of(send("/api/chat", { model = "tiny", stream = false, options = { num_ctx = 2048 }, messages = { { role = "user", content = "@say{a}" } } }))
  lu.assertEquals(r2.status, 200, "and it does fit")
end

function TestMemory:test_a_smaller_kv_type_that_fits()
  start({ ctx = "4096" }, with_memory(2500000000))
  lu.assertStrContains(answer_of(chat("tiny")).json.error.message, "--kv-type q8_0 fits at this context")
  stop()
  start({ ctx = "4096", kv_type = "q8_0" }, with_memory(2500000000))
  lu.assertEquals(answer_of(chat("tiny")).status, 200)
end

function TestMemory:test_advice_is_true()
  local config = { memory_margin = 1.2, kv_budget_mb = 0, kv_type = "f16", parallel = 4 }
  local entry, info = { name = "m", size = 5000000 }, { kv_bytes_per_token = 3000 }
  for free = 1000000, 80000000, 777777 do
    if memory.wanted(entry, info, 8192, config) > free then
      local message = memory.refusal(entry, info, 8192, config, free).message
      local n = message:match("a context of (%d+) tokens fits")
      if n then
        lu.assertTrue(memory.wanted(entry, info, tonumber(n), config) <= free)
        lu.assertTrue(memory.wanted(entry, info, tonumber(n) + 512, config) > free)
      else
        lu.assertTrue(memory.wanted(entry, info, 512, config) > free)
        lu.assertStrContains(message, "use a smaller")
      end
      lu.assertEquals(message:find("q8_0", 1, true) ~= nil, memory.wanted(entry, info, 8192, config, "q8_0") <= free)
    end
  end
  config.kv_budget_mb = 512
  local message = memory.refusal(entry, info, 8192, config, 100 << 20).message
  config.kv_budget_mb = tonumber(message:match("%-%-kv%-budget%-mb (%d+) fits"))
  lu.assertTrue(memory.wanted(entry, info, 8192, config) <= 100 << 20)
end

function TestMemory:test_an_idle_model_leaves_and_its_memory_is_waited_for()
  local free = 5000000000
  start({ ctx = "4096" }, with_memory(function() return free end))
  lu.assertEquals(answer_of(chat("tiny")).status, 200)
  free = 1000000000
  fake.hold_drops = true
  local c = chat("other")
  lu.assertTrue(client.wait(function() return next(ctx.pool.drops) ~= nil end))
  lu.assertEquals({ #fake.tasks, ctx.pool.n_loads }, { 1, 1 }, "the load waits for the memory")
  free = 5000000000
  fake.let_go()
  lu.assertEquals(answer_of(c).status, 200)
  lu.assertEquals(fake.loads, 2)
end

function TestMemory:test_two_loads_at_once_do_not_count_the_same_memory()
  start({ ctx = "4096" }, with_memory(5000000000))
  fake.hold_loads = true
  local a, b = chat("tiny"), chat("other")
  lu.assertTrue(client.wait(function() return ctx.pool.n_loads == 2 end))
  lu.assertEquals(#fake.tasks, 1)
  fake.let_go()
  lu.assertEquals({ answer_of(a).status, answer_of(b).status }, { 200, 200 })
end

TestRealLoading = {}

-- A real file, packed on its thread while the loop answers.
function TestRealLoading:test_health_is_answered_while_weights_are_packed()
  local config = require("mtx.config")
  local dir = os.getenv("MTX_MODELS_DIR") or "models"
  local real = assert(serve.new(assert(config.load({ env = function() end, flags = { port = "0", models_dir = dir, log_level = "error" } }))))
  assert(serve.listen(real))
  port = real.port
  local body = cjson.encode({ model = "gemma3-270m-q4_k_m", prompt = "Hi", stream = false, options = { num_predict = 1 } })
  local c = client.connect(port)
  c:send("POST /api/generate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  lu.assertTrue(client.wait(function() return real.pool.n_loads == 1 end, 20000)) -- the folder's files are described first
  local n = 0
  while n < 2 and real.pool.n_loads == 1 do
    lu.assertEquals(get("/health").status, 200)
    if real.pool.n_loads == 1 then n = n + 1 end
  end
  lu.assertEquals(n, 2, "answers before the load's end")
  c:until_closed(20000)
  lu.assertEquals(c:responses()[1].status, 200)
  lu.assertTrue(cjson.decode(c:responses()[1].body).load_duration > 0)
  c:close()
  fixture.stop(real)
  lu.assertEquals({ real.pool.n, next(real.pool.drops) }, { 0, nil })
end
