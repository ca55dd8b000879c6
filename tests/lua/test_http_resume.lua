-- SPDX-License-Identifier: MIT
-- Generations that go on with other tokens: context shift, thoughts ended by
-- order; and what belongs to long prompts: truncation, progress, soft deadlines.
local lu = require("luaunit")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local client = require("http_client")
local mtx = require("mtx")

local ctx, port

local function start(flags, change)
  ctx = fixture.start(flags, change)
  port = ctx.port
end

local function stop() fixture.stop(ctx) end
local function post(path, body, ms) return client.request(port, "POST", path, body, nil, ms) end
local user = fixture.user

TestShift = {}
function TestShift:setUp() start() end
TestShift.tearDown = stop

local function generate(more)
  local body = { model = "tiny", prompt = "@long{500}", raw = true, stream = false, options = { num_ctx = 64, num_predict = 100 } }
  for k, v in pairs(more) do if k ~= "options" then body[k] = v end end
  for k, v in pairs(more.options or {}) do body.options[k] = v end
  return post("/api/generate", body).json
end

function TestShift:test_only_when_asked()
  local r = generate({})
  lu.assertEquals({ r.done_reason, r.eval_count, r.prompt_eval_count }, { "length", 54, 10 })
  r = generate({ shift = true, options = { num_keep = 10 } })
  lu.assertEquals({ r.done_reason, r.eval_count, r.prompt_eval_count }, { "length", 100, 10 })
end

-- What is kept: the first num_keep tokens and the younger half of the others.
function TestShift:test_what_is_kept()
  generate({ shift = true, options = { num_keep = 10 } })
  local all = fake.engines[1].submitted
  local first, second = all[1].tokens, all[2].tokens
  lu.assertEquals(#second, 10 + (64 - 10) / 2)
  lu.assertEquals(table.move(second, 1, 10, 1, {}), first)
  lu.assertEquals(all[1].max_tokens, 54)
  lu.assertEquals(all[2].max_tokens, 64 - #second)
  lu.assertEquals(all[3].max_tokens, 100 - 54 - (64 - #second), "the limit counts all rounds")
  lu.assertTrue(all[2].sampler.seed ~= all[1].sampler.seed)
end

function TestShift:test_odd_values_and_the_cap()
  fake.reply = function() return ("word "):rep(5000) end
  for _, keep in ipairs({ -1, -5, 0, 99999 }) do
    lu.assertEquals(generate({ shift = true, options = { num_keep = keep, num_predict = 90 } }).eval_count, 90)
  end
  local r = generate({ prompt = "@long{5000}", shift = true, options = { num_predict = -1, num_keep = 11 } })
  lu.assertEquals({ r.done_reason, r.eval_count }, { "length", 640 }, "unlimited ends at ten contexts")
end

function TestShift:test_stream_stops_and_cancel()
  local c = client.connect(port)
  local body = require("cjson").encode({ model = "tiny", prompt = "@slow{1}@long{500}", raw = true, shift = true, options = { num_ctx = 64, num_predict = -1, num_keep = 20 } })
  c:send("POST /api/generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  lu.assertTrue(c:until_found("word40"))
  lu.assertTrue(client.wait(function() return #fake.engines[1].submitted >= 2 end))
  c:close()
  lu.assertTrue(client.wait(function() return ctx.n_jobs == 0 end))
  local n = #fake.engines[1].submitted
  client.wait(function() return false end, 50)
  lu.assertEquals(#fake.engines[1].submitted, n, "a cancelled generation is not resumed")
end

function TestShift:test_native_says_truncated()
  post("/api/generate", { model = "tiny", prompt = "x", stream = false, options = { num_ctx = 64 } })
  local r = post("/completion", { model = "tiny", prompt = "@long{500}", n_predict = 80, shift = true, n_keep = -1 }).json
  lu.assertEquals({ r.truncated, r.tokens_predicted, r.stop_type }, { true, 80, "limit" })
end

TestTruncate = {}
function TestTruncate:setUp() start() end
TestTruncate.tearDown = stop

function TestTruncate:test_ollama_cuts_by_default()
  local long = ("abcdefghij"):rep(20)
  local r = post("/api/generate", { model = "tiny", prompt = long, raw = true, stream = false, options = { num_ctx = 64, num_predict = 1 } })
  lu.assertEquals({ r.status, r.json.prompt_eval_count, r.json.truncated }, { 200, 63, 137 })
  local sent = utf8.char(table.unpack(fake.engines[1].submitted[1].tokens))
  lu.assertEquals(sent, long:sub(1, 4) .. long:sub(-59))
  r = post("/api/generate", { model = "tiny", prompt = long, raw = true, stream = false, truncate = false, options = { num_ctx = 64 } })
  lu.assertEquals(r.status, 400)
  lu.assertStrContains(r.json.error, "200 tokens")
  r = post("/api/chat", { model = "tiny", messages = user(long), stream = false, options = { num_predict = 1 } })
  lu.assertEquals({ r.status, r.json.prompt_eval_count }, { 200, 63 })
  lu.assertEquals(post("/v1/chat/completions", { model = "tiny", messages = user(long) }).json.error.code, "context_length_exceeded")
end

-- num_ctx below the loaded context limits the request; above it the model is loaded anew, or the reply warns.
TestContext = {}
function TestContext:setUp() start() end
TestContext.tearDown = stop

function TestContext:test_a_smaller_one_limits_the_request()
  post("/api/generate", { model = "tiny" }) -- loaded with 2048
  local long = ("abcdefghij"):rep(20)
  local r = post("/api/generate", { model = "tiny", prompt = long, raw = true, stream = false, options = { num_ctx = 64, num_predict = 1 } })
  lu.assertEquals({ r.json.prompt_eval_count, r.json.truncated }, { 63, 137 })
  r = post("/api/generate", { model = "tiny", prompt = long, raw = true, stream = false, truncate = false, options = { num_ctx = 64 } })
  lu.assertEquals(r.status, 400)
  lu.assertStrContains(r.json.error, "the prompt has 200 tokens, the context is 64 tokens")
  r = post("/v1/chat/completions", { model = "tiny", messages = user(long), options = { num_ctx = 64 } })
  lu.assertEquals({ r.status, r.json.error.code, r.json.error.n_ctx }, { 400, "context_length_exceeded", 64 })
  r = generate({})
  lu.assertEquals({ r.done_reason, r.eval_count }, { "length", 54 })
  r = generate({ shift = true, options = { num_keep = 10 } })
  lu.assertEquals({ r.done_reason, r.eval_count }, { "length", 100 })
  lu.assertEquals(#fake.engines[1].submitted[#fake.engines[1].submitted - 1].tokens, 10 + (64 - 10) / 2)
  r = post("/api/embed", { model = "minilm", input = long, options = { num_ctx = 16 } })
  lu.assertEquals(r.json.prompt_eval_count, 16)
  lu.assertEquals(#fake.engines, 2) -- nothing was loaded anew
  for _, n in ipairs({ 1, 2, 5 }) do
    r = post("/api/generate", { model = "tiny", prompt = long, raw = true, stream = false, shift = true, options = { num_ctx = n, num_predict = 9 } })
    lu.assertTrue(r.status == 200 or r.status == 400, r.body)
  end
end

function TestContext:test_a_larger_one_loads_anew_or_warns()
  local function ask(n) return post("/api/generate", { model = "tiny", prompt = "@say{a}", raw = true, stream = false, options = { num_ctx = n } }) end
  lu.assertNil(ask(512).headers["x-mtx-warning"])
  lu.assertNil(ask(1024).headers["x-mtx-warning"])
  lu.assertEquals({ fake.loads, ctx.pool:list()[1].n_ctx }, { 2, 1024 })
  local c = client.connect(port) -- in use: the others are not thrown out
  local body = '{"model":"tiny","prompt":"@slow{5}@long{400}","raw":true}'
  c:send("POST /api/generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  lu.assertTrue(c:until_found("word2"))
  local r = ask(2048)
  lu.assertEquals({ r.status, r.json.response, fake.loads }, { 200, "a", 2 })
  lu.assertStrContains(r.headers["x-mtx-warning"], "num_ctx is 2048, the context is 1024")
  c:close()
  lu.assertTrue(client.wait(function() return ctx.n_jobs == 0 end))
  r = ask(100000) -- more than it was trained with: as much as that
  lu.assertEquals({ r.status, fake.loads, ctx.pool:list()[1].n_ctx }, { 200, 3, 4096 })
  lu.assertStrContains(r.headers["x-mtx-warning"], "trained with no more")
end

TestControl = {}
function TestControl:setUp() start() end
TestControl.tearDown = stop

function TestControl:test_reasoning_end()
  fake.reply = function(prompt)
    if prompt:find("</think>", 1, true) then return "the answer" end
    return { text = "<think>\n" .. ("hm "):rep(2000), delay_ms = 1 }
  end
  local c = client.connect(port)
  local body = require("cjson").encode({ model = "tiny", messages = user("x"), stream = true, reasoning_control = true, stream_options = { include_usage = true } })
  c:send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  lu.assertTrue(c:until_found('"reasoning_content":"hm'))
  local id = c.data:match('"id":"(chatcmpl%-%w+)"')
  local r = post("/v1/chat/completions/control", { id = id, action = "reasoning_end" })
  lu.assertEquals({ r.status, r.json }, { 200, { success = true } })
  lu.assertTrue(c:until_found("%[DONE%]"))
  local text, thought, finish, tokens = "", "", nil, nil
  for _, e in ipairs(client.sse(c:responses()[1].body)) do
    local ch = e.data ~= "[DONE]" and e.data.choices[1]
    if ch then
      text, thought = text .. (ch.delta.content or ""), thought .. (ch.delta.reasoning_content or "")
      if type(ch.finish_reason) == "string" then finish = ch.finish_reason end
    elseif e.data ~= "[DONE]" then tokens = e.data.usage.completion_tokens end
  end
  lu.assertEquals({ text, finish }, { "the answer", "stop" })
  lu.assertNotStrContains(thought, "think>")
  local all = fake.engines[1].submitted
  lu.assertEquals(#all, 2)
  lu.assertEquals(tokens, #all[2].tokens - #all[1].tokens - #"</think>\n\n" + 2, "both parts are counted")
  lu.assertEquals(post("/v1/chat/completions/control", { id = id, action = "reasoning_end" }).status, 404)
end

function TestControl:test_refusals()
  lu.assertEquals(post("/v1/chat/completions/control", { id = "nope", action = "reasoning_end" }).status, 404)
  lu.assertEquals(post("/v1/chat/completions/control", { id = "nope", action = "explode" }).status, 400)
  lu.assertEquals(post("/v1/chat/completions/control", { id = "nope" }).status, 400)
  lu.assertEquals(post("/v1/chat/completions/control", {}).status, 400)
end

TestLimits = {}
function TestLimits:setUp() start() end
TestLimits.tearDown = stop

-- The field `name` of every chunk of a stream that has it.
local function of_chunks(body, name)
  local out = {}
  for _, e in ipairs(client.sse(body)) do
    if e.data ~= "[DONE]" then out[#out + 1] = e.data[name] end
  end
  return out
end

function TestLimits:test_progress()
  fake.reply = function() return { text = "a b", chunks = 4, n_cached = 3 } end
  for _, case in ipairs({ { "/v1/chat/completions", messages = user("hello you") }, { "/v1/completions", prompt = "hello you" }, { "/completion", prompt = "hello you" } }) do
    local r = post(case[1], { model = "tiny", messages = case.messages, prompt = case.prompt, stream = true, return_progress = true })
    local seen = of_chunks(r.body, "prompt_progress")
    lu.assertEquals(#seen, 5, r.body)
    local total = seen[1].total
    lu.assertEquals(seen[1], { total = total, cache = 3, processed = 3, time_ms = 0 })
    for i = 1, 4 do lu.assertEquals(seen[i + 1], { total = total, cache = 3, processed = total * i // 4, time_ms = i }) end
    lu.assertEquals(of_chunks(post(case[1], { model = "tiny", messages = case.messages, prompt = case.prompt, stream = true }).body, "prompt_progress"), {})
  end
end

function TestLimits:test_timings_per_token()
  fake.reply = function() return { text = "a b c", n_cached = 2 } end
  for _, case in ipairs({ { "/v1/chat/completions", messages = user("hello you") }, { "/v1/completions", prompt = "hello you" }, { "/completion", prompt = "hello you" } }) do
    local r = post(case[1], { model = "tiny", messages = case.messages, prompt = case.prompt, stream = true, timings_per_token = true })
    local seen = of_chunks(r.body, "timings")
    lu.assertEquals(#seen, 4, r.body) -- three tokens and the end
    for i, t in ipairs(seen) do
      lu.assertEquals({ t.cache_n, t.predicted_n }, { 2, math.min(i, 3) })
      lu.assertTrue(t.prompt_n > 0 and t.prompt_ms >= 0 and (i == 1 or i == 4 or t.predicted_ms >= seen[i - 1].predicted_ms))
    end
    lu.assertEquals(#of_chunks(post(case[1], { model = "tiny", messages = case.messages, prompt = case.prompt, stream = true }).body, "timings"),
      case[1] == "/completion" and 1 or 0)
  end
end

-- t_max_predict_ms ends an answer; it is no error.
function TestLimits:test_soft_deadline()
  fake.reply = function() return { text = "a b c", fail_after = 2, code = "deadline" } end
  local r = post("/completion", { prompt = "x", t_max_predict_ms = 50000 })
  lu.assertEquals({ r.status, r.json.content, r.json.stop_type }, { 200, "a b ", "limit" })
  lu.assertEquals(post("/completion", { prompt = "x", deadline_ms = 50000 }).status, 503)
end

-- Role alternation repaired on request: the template sees one turn.
function TestLimits:test_merge_turns()
  stop()
  start({}, function(deps) deps.render = nil end)
  local messages = { { role = "user", content = "one" }, { role = "user", content = "two" }, { role = "assistant", content = "three" }, { role = "user", content = "four" } }
  local function prompt(more)
    more.model, more.messages = "tiny", messages
    return post("/apply-template", more).json.prompt
  end
  local _, n = prompt({}):gsub("<|im_start|>user", "")
  local _, merged = prompt({ merge_turns = true }):gsub("<|im_start|>user", "")
  lu.assertEquals({ n, merged }, { 3, 2 })
  lu.assertEquals(post("/apply-template", { messages = messages, merge_turns = 5 }).status, 400)
end

-- The real model: a shifted generation is the plain run over the kept tokens.
TestRealShift = {}

-- The text of the first n of these tokens.
local function model_text(path, ids, n)
  local model <close> = assert(mtx.load(path, { ctx = 96 }))
  return model:detokenize(table.move(ids, 1, n, 1, {}))
end

function TestRealShift:test_equals_the_plain_runs()
  local path = (os.getenv("MTX_MODELS_DIR") or "models") .. "/SmolLM2-135M-Instruct.Q4_1.gguf"
  local model = assert(mtx.load(path, { ctx = 96 }))
  local prompt = "Count on: one, two, three, four, five, six, seven"
  local ids = assert(model:tokenize(prompt))
  local wanted, left, n_prompt = {}, 150, #ids
  while left > 0 do
    local r = assert(model:generate({ tokens = ids, max_tokens = math.min(left, 96 - #ids), temperature = 0, ignore_eos = true }))
    table.move(r.ids, 1, #r.ids, #wanted + 1, wanted)
    left = left - #r.ids
    table.move(r.ids, 1, #r.ids, #ids + 1, ids)
    local drop = (#ids - 10) // 2
    ids = table.move(ids, 10 + drop + 1, #ids, 11, table.move(ids, 1, 10, 1, {}))
  end
  local text = model:detokenize(wanted)
  model:close()
  local c = assert(require("mtx.config").load({ env = function() end, flags = { port = "0", models_dir = path:match("^(.*)/"), ctx = "96", log_level = "error" } }))
  ctx = assert(require("mtx.serve").new(c))
  assert(require("mtx.serve").listen(ctx))
  port = ctx.port
  local r = post("/api/generate", { model = "SmolLM2-135M-Instruct.Q4_1", prompt = prompt, raw = true, stream = false, shift = true,
    options = { num_predict = 150, num_keep = 10, temperature = 0, repeat_penalty = 1, ignore_eos = true } }, 60000)
  lu.assertEquals({ r.json.done_reason, r.json.eval_count, r.json.prompt_eval_count }, { "length", 150, n_prompt })
  lu.assertEquals(r.json.response, text)

  -- A stop string of the last bytes before the first shift and the first behind it is found.
  local n_first = #model_text(path, wanted, 96 - n_prompt)
  local across = text:sub(n_first - 2, n_first + 3)
  lu.assertEquals(text:find(across, 1, true), n_first - 2, "the stop string is not where the seam is")
  for _, stream in ipairs({ false, true }) do
    local body = { model = "SmolLM2-135M-Instruct.Q4_1", prompt = prompt, raw = true, stream = stream, shift = true,
      options = { num_predict = 150, num_keep = 10, temperature = 0, repeat_penalty = 1, ignore_eos = true, stop = { across } } }
    local got, reason = "", nil
    for _, e in ipairs(client.ndjson(post("/api/generate", body, 60000).body .. "\n")) do got, reason = got .. e.response, e.done_reason end
    lu.assertEquals({ reason, got }, { "stop", text:sub(1, n_first - 3) })
  end
  -- What is held for one that does not come is given out at the end.
  r = post("/api/generate", { model = "SmolLM2-135M-Instruct.Q4_1", prompt = prompt, raw = true, stream = false, shift = true,
    options = { num_predict = 150, num_keep = 10, temperature = 0, repeat_penalty = 1, ignore_eos = true, stop = { text:sub(-2) .. "zzz" } } }, 60000)
  lu.assertEquals({ r.json.done_reason, r.json.response }, { "length", text })
  stop()
end
