-- SPDX-License-Identifier: MIT
-- Ollama's API over HTTP against the scripted engine.
local lu = require("luaunit")
local cjson = require("cjson")
local json = require("mtx.json")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local client = require("http_client")

local ctx, port

local function start(flags) ctx = fixture.start(flags) port = ctx.port end

local function post(path, body) return client.request(port, "POST", path, body) end

local user = fixture.user

TestChat = {}
function TestChat:setUp() start() end
function TestChat:tearDown() fixture.stop(ctx) end

function TestChat:test_stream_is_the_default()
  local r = post("/api/chat", { model = "tiny", messages = user("@say{One two three}") })
  lu.assertEquals(r.headers["content-type"], "application/x-ndjson")
  local lines = client.ndjson(r.body)
  local text = ""
  for i = 1, #lines - 1 do
    lu.assertFalse(lines[i].done)
    lu.assertEquals(lines[i].model, "tiny")
    lu.assertStrMatches(lines[i].created_at, "%d+%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d+Z")
    text = text .. lines[i].message.content
  end
  local last = lines[#lines]
  lu.assertEquals(text, "One two three")
  lu.assertEquals({ last.done, last.done_reason, last.message }, { true, "stop", { role = "assistant", content = "" } })
  lu.assertEquals(last.eval_count, 3)
  lu.assertTrue(last.total_duration > 0 and last.prompt_eval_count > 0 and last.load_duration > 0)
  lu.assertNil(client.ndjson(post("/api/chat", { model = "tiny", messages = user("x") }).body)[1].load_duration)
end

function TestChat:test_whole_reply_thinking_and_tools()
  local r = post("/api/chat", { model = "tiny", messages = user("@think{hm}@say{yes}"), stream = false, think = true })
  lu.assertEquals(r.json.message, { role = "assistant", content = "yes", thinking = "hm" })
  local tools = { { type = "function", ["function"] = { name = "f", description = "d", parameters = { type = "object", properties = { a = { type = { "string", "null" } } } } } } }
  r = post("/api/chat", { model = "tiny", messages = user('@call{{"name":"f","arguments":{"z":1,"a":"x"}}}'), tools = tools, stream = false })
  local c = r.json.message.tool_calls[1]
  lu.assertEquals({ c["function"].name, c["function"].arguments, c["function"].index }, { "f", { z = 1, a = "x" }, 0 })
  lu.assertStrContains(r.body, '"arguments":{"z":1,"a":"x"}')
  lu.assertEquals(r.json.done_reason, "stop")
  local n = 0
  for _, l in ipairs(client.ndjson(post("/api/chat", { model = "tiny", messages = user('@call{{"name":"f","arguments":{"z":1}}}'), tools = tools }).body)) do
    if l.message.tool_calls then n = n + 1 end
  end
  lu.assertEquals(n, 1)
  -- the history goes back in
  local m = r.json.message
  lu.assertEquals(post("/api/chat", { model = "tiny", tools = tools, stream = false,
    messages = { user("x")[1], m, { role = "tool", tool_name = "f", content = { { type = "text", text = "42" } } } } }).status, 200)
end

function TestChat:test_load_unload_and_cancel_by_id()
  local r = post("/api/chat", { model = "tiny", messages = json.array(), stream = false })
  lu.assertEquals({ r.json.done_reason, r.json.message.content }, { "load", "" })
  lu.assertEquals(ctx.pool.n, 1)
  r = post("/api/chat", { model = "tiny", messages = json.array(), keep_alive = 0, stream = false })
  lu.assertEquals(r.json.done_reason, "unload")
  lu.assertEquals(ctx.pool.n, 0)
  local c = client.connect(port)
  local body = cjson.encode({ model = "tiny", messages = user("@slow{5}@long{500}"), request_id = "r1" })
  c:send("POST /api/chat HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  lu.assertTrue(c:until_found("word2"))
  lu.assertEquals(post("/api/chat", { model = "tiny", messages = json.array(), keep_alive = 0, request_id = "unknown" }).body, "{}")
  lu.assertEquals(post("/api/chat", { model = "tiny", messages = json.array(), keep_alive = 0, request_id = "r1" }).status, 200)
  lu.assertTrue(c:until_closed())
  lu.assertStrContains(c.data, '"done":true')
  lu.assertEquals(ctx.pool.n, 1)
  c:close()
end

function TestChat:test_keep_alive_forms()
  local function with(v)
    local r = post("/api/chat", { model = "tiny", messages = user("x"), stream = false, keep_alive = v })
    return r.status, ctx.pool:list()[1] and ctx.pool:list()[1].keep
  end
  lu.assertEquals({ with(30) }, { 200, 30 })
  lu.assertEquals({ with("10m") }, { 200, 600 })
  lu.assertEquals({ with("1h30m") }, { 200, 5400 })
  lu.assertEquals({ with("300ms") }, { 200, 0.3 })
  lu.assertEquals({ with(-1) }, { 200, math.huge })
  lu.assertEquals({ with("-1m") }, { 200, math.huge })
  lu.assertEquals({ with(0) }, { 200, nil })
  for _, bad in ipairs({ "300", "x", "5 m", true }) do lu.assertEquals((with(bad)), 400) end
  post("/api/chat", { model = "tiny", messages = user("x"), stream = false, keep_alive = 0.05 })
  lu.assertEquals(ctx.pool.n, 1)
  client.sleep(400)
  lu.assertEquals(ctx.pool.n, 0)
end

function TestChat:test_options_and_their_errors()
  local r = post("/api/chat", { model = "tiny", messages = user("@say{a b c}"), stream = false, options = { num_predict = 2, seed = 5, temperature = 0, top_k = 3.0, odd = 1 } })
  lu.assertEquals({ r.json.message.content, r.json.done_reason }, { "a b ", "length" })
  local s = fake.engines[1].submitted[1].sampler
  lu.assertEquals({ s.seed, s.temperature, s.top_k, s.top_p, s.repeat_last_n }, { 5, 0, 3, 0.9, 64 })
  for _, c in ipairs({ { { top_k = "x" }, 'option "top_k" must be of type integer' }, { { temperature = "hot" }, 'option "temperature" must be of type float32' },
    { { stop = 5 }, 'option "stop" must be of type array' }, { { use_mmap = 1 }, 'option "use_mmap" must be of type boolean' }, { { seed = 1.5 }, 'option "seed" must be of type integer' } }) do
    r = post("/api/chat", { model = "tiny", messages = user("x"), options = c[1] })
    lu.assertEquals({ r.status, r.json.error }, { 400, c[2] })
  end
end

-- What means nothing here is said in the reply's header, and once in the log.
function TestChat:test_unknown_options()
  fixture.stop(ctx)
  local log
  ctx, _, log = fixture.start_logged({ log_level = "warn" })
  port = ctx.port
  local function ask(path, options)
    local body = { model = path == "/api/embed" and "minilm" or "tiny", stream = false, options = options }
    body[path == "/api/chat" and "messages" or path == "/api/embed" and "input" or "prompt"] = path == "/api/chat" and user("x") or "x"
    return post(path, body)
  end
  local r = ask("/api/chat", { temperatur = 1, n = 2, top_k = 1, ["x\r\nX-Evil: 1"] = 1 })
  lu.assertEquals({ r.status, r.headers["x-mtx-warning"], r.headers["x-evil"] }, { 200, "options ignored: n, temperatur, x??X-Evil??1", nil })
  lu.assertEquals(#log, 3)
  lu.assertStrContains(log[2], "an unknown option is ignored")
  lu.assertStrContains(log[2], "option=temperatur")
  lu.assertEquals(ask("/api/generate", { temperatur = 1 }).headers["x-mtx-warning"], "options ignored: temperatur")
  lu.assertEquals(ask("/api/embed", { temperatur = 1 }).headers["x-mtx-warning"], "options ignored: temperatur")
  lu.assertEquals(#log, 3)
  for i = 1, 300 do ask("/api/generate", { ["made_up_" .. i] = 1 }) end
  lu.assertEquals(#log, 256)
  local all = { num_keep = 1, seed = 1, num_predict = 1, top_k = 1, top_p = 1, min_p = 0, typical_p = 1, repeat_last_n = 1, temperature = 1, repeat_penalty = 1, presence_penalty = 1,
    frequency_penalty = 1, stop = { "a" }, num_ctx = 512, num_batch = 1, num_gpu = 0, main_gpu = 0, use_mmap = true, num_thread = 1, draft_num_predict = 4, ignore_eos = false,
    logit_bias = { ["5"] = 1 }, mirostat = 0, dry_multiplier = 0, cfg_scale = 1, negative_prompt = "", priority = 1, sampler_options = json.object() }
  lu.assertNil(ask("/api/generate", all).headers["x-mtx-warning"])
end

function TestChat:test_bad_requests()
  for _, c in ipairs({ { {}, 400 }, { { model = "nope", messages = user("x") }, 404 }, { { model = "tiny", messages = { { role = "king", content = "x" } } }, 400 },
    { { model = "tiny", messages = "x" }, 400 }, { { model = "tiny", messages = user("x"), think = "lots" }, 400 }, { { model = "tiny", messages = user("x"), format = "xml" }, 400 },
    { { model = "../etc/passwd", messages = user("x") }, 404 }, { { model = "tiny", messages = { { role = "user", content = "x", images = { "zzz" } } } }, 400 },
    { { model = "tiny", messages = { { role = "user", content = "x", images = { "" } } } }, 400 }, { { model = "minilm", messages = user("x") }, 400 } }) do
    local r = post("/api/chat", c[1])
    lu.assertEquals(r.status, c[2], cjson.encode(c[1]))
    lu.assertEquals(type(r.json.error), "string")
  end
  lu.assertEquals(post("/api/chat", "").json.error, "missing request body")
  lu.assertEquals(post("/api/chat", { model = "nope", messages = user("x") }).json.error, "model 'nope' not found")
end

function TestChat:test_long_chat_is_cut_with_a_sign_or_refused()
  local messages = { { role = "system", content = "SECRET" } }
  for i = 1, 30 do
    messages[#messages + 1] = { role = "user", content = "turn " .. i .. (" x"):rep(60) }
    messages[#messages + 1] = { role = "assistant", content = "yes" }
  end
  messages[#messages + 1] = { role = "user", content = "last" }
  local seen
  fake.reply = function(prompt) seen = prompt return "ok" end
  local r = post("/api/chat", { model = "tiny", messages = messages, stream = false })
  lu.assertEquals(r.status, 200)
  lu.assertTrue(r.json.truncated > 0)
  lu.assertStrContains(seen, "SECRET")
  lu.assertStrContains(seen, "last")
  lu.assertEquals(post("/api/chat", { model = "tiny", messages = messages, truncate = false }).status, 400)
end

TestGenerate = {}
function TestGenerate:setUp() start() end
function TestGenerate:tearDown() fixture.stop(ctx) end

function TestGenerate:test_reply_context_and_raw()
  local r = post("/api/generate", { model = "tiny", prompt = "@say{a b}", stream = false })
  lu.assertEquals({ r.json.response, r.json.done, r.json.done_reason }, { "a b", true, "stop" })
  lu.assertTrue(#r.json.context > 2)
  local r2 = post("/api/generate", { model = "tiny", prompt = "@say{c}", stream = false, context = r.json.context })
  lu.assertTrue(r2.json.prompt_eval_count > r.json.prompt_eval_count)
  r = post("/api/generate", { model = "tiny", prompt = "@say{a}", raw = true, stream = false })
  ctx.default_model = function() return "tiny" end
  local unnamed = post("/api/generate", { prompt = "@say{a}", stream = false }).json
  lu.assertEquals({ r.json.model, unnamed.model }, { "tiny", "tiny:latest" }) -- who names no model learns which one answered
  lu.assertEquals({ r.json.response, r.json.context }, { "a", nil })
  lu.assertEquals(post("/api/generate", { model = "tiny", prompt = "x", raw = true, system = "s" }).status, 400)
  lu.assertEquals(post("/api/generate", { model = "tiny", prompt = "x", suffix = "y" }).status, 400)
  local lines = client.ndjson(post("/api/generate", { model = "tiny", prompt = "@think{t}@say{a b}" }).body)
  lu.assertEquals(lines[1].thinking .. "|" .. lines[2].response, "t|a ")
  lu.assertStrContains(post("/api/generate", { model = "tiny", prompt = "hello", _debug_render_only = true }).json._debug_info.rendered_template, "hello")
end

function TestGenerate:test_load_and_unload()
  local r = post("/api/generate", { model = "tiny" })
  lu.assertEquals({ r.json.done_reason, r.json.response }, { "load", "" })
  lu.assertEquals(ctx.pool.n, 1)
  r = post("/api/generate", { model = "tiny", keep_alive = 0 })
  lu.assertEquals(r.json.done_reason, "unload")
  lu.assertEquals(ctx.pool.n, 0)
  lu.assertEquals(post("/api/generate", { model = "nope" }).status, 404)
end

function TestGenerate:test_engine_error_mid_stream_is_one_line()
  local r = post("/api/generate", { model = "tiny", prompt = "@error x" })
  local lines = client.ndjson(r.body)
  lu.assertEquals(r.status, 200)
  lu.assertStrContains(lines[#lines].error, "on purpose")
end

TestPool = {}
function TestPool:tearDown() fixture.stop(ctx) end

function TestPool:test_lru_and_busy_models_stay()
  start({ max_loaded_models = "1" })
  post("/api/generate", { model = "tiny" })
  post("/api/generate", { model = "other" })
  lu.assertEquals({ ctx.pool.n, ctx.pool:list()[1].name }, { 1, "other:latest" })
  local c = client.connect(port)
  local body = cjson.encode({ model = "other", prompt = "@slow{5}@long{300}" })
  c:send("POST /api/generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  lu.assertTrue(c:until_found("word1"))
  local r = post("/api/generate", { model = "tiny", prompt = "x" })
  lu.assertEquals(r.status, 503)
  lu.assertStrContains(r.json.error, "busy")
  c:close()
end
