-- SPDX-License-Identifier: MIT
-- OpenAI's chat and completions over HTTP against the scripted engine: shapes, order of stream chunks, checks of fields.
local lu = require("luaunit")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local client = require("http_client")

local ctx, port

local function start(flags)
  ctx = fixture.start(flags)
  port = ctx.port
end

local function stop() fixture.stop(ctx) end

local function chat(body, ms) return fixture.chat(ctx, body, ms) end

local user = fixture.user

TestChat = {}
function TestChat:setUp() start() end
function TestChat:tearDown() stop() end

function TestChat:test_whole_reply()
  local r = chat({ messages = user("@say{Hello wörld}") })
  lu.assertEquals(r.status, 200)
  local j = r.json
  lu.assertEquals({ j.object, j.model, #j.choices }, { "chat.completion", "tiny", 1 })
  lu.assertStrMatches(j.id, "chatcmpl%-[a-z0-9]+")
  lu.assertEquals(j.choices[1].message, { role = "assistant", content = "Hello wörld" })
  lu.assertEquals(j.choices[1].finish_reason, "stop")
  lu.assertEquals(j.usage.total_tokens, j.usage.prompt_tokens + j.usage.completion_tokens)
  lu.assertEquals(j.usage.prompt_tokens_details.cached_tokens, 0)
  lu.assertNotNil(j.timings.predicted_n)
end

-- By which the log's line is found, in whole and streamed answers and errors, under the names that clients read.
function TestChat:test_every_answer_has_an_id()
  fixture.stop(ctx)
  local log
  ctx, _, log = fixture.start_logged({ log_level = "info" })
  port = ctx.port
  local seen = {}
  for _, c in ipairs({ { "/v1/chat/completions", {}, 200 }, { "/v1/chat/completions", { stream = true }, 200 }, { "/v1/chat/completions", { model = "nope" }, 404 },
    { "/v1/messages", { max_tokens = 5 }, 200, "request-id" }, { "/v1/messages", { max_tokens = 5, model = "nope" }, 404, "request-id" }, { "/api/chat", {}, 200 } }) do
    local body = { model = "tiny", messages = { { role = "user", content = "@say{a}" } } }
    for k, v in pairs(c[2]) do body[k] = v end
    local r = client.request(port, "POST", c[1], body)
    local id = r.headers["x-request-id"]
    lu.assertEquals(r.status, c[3])
    lu.assertStrMatches(id, "req_%w+")
    lu.assertEquals(r.headers["request-id"], c[4] and id or nil)
    lu.assertNil(seen[id])
    seen[id] = true
    lu.assertStrContains(table.concat(log), "id=" .. id)
  end
  lu.assertNil(client.request(port, "GET", "/health").headers["x-request-id"]) -- what is asked all the time is not logged
end

function TestChat:test_stream_order_and_usage()
  local r = chat({ messages = user("@say{One two three}"), stream = true, stream_options = { include_usage = true } })
  lu.assertStrContains(r.headers["content-type"], "text/event-stream")
  local ev = client.sse(r.body)
  lu.assertEquals(ev[1].data.choices[1].delta, { role = "assistant", content = "" })
  local text, finish, id = "", nil, ev[1].data.id
  for i = 2, #ev - 1 do
    local d = ev[i].data
    lu.assertEquals(d.id, id)
    lu.assertEquals(d.object, "chat.completion.chunk")
    local c = d.choices[1]
    if c then
      lu.assertNil(c.delta.role)
      text = text .. (c.delta.content or "")
      finish = c.finish_reason
    end
  end
  lu.assertEquals({ text, finish }, { "One two three", "stop" })
  lu.assertEquals(ev[#ev].data, "[DONE]")
  lu.assertEquals(#ev[#ev - 1].data.choices, 0)
  lu.assertEquals(ev[#ev - 1].data.usage.completion_tokens, 3)
end

function TestChat:test_n_choices()
  local r = chat({ messages = user("@say{abc def}"), n = 3, seed = 7, temperature = 1 })
  lu.assertEquals(#r.json.choices, 3)
  lu.assertEquals(r.json.choices[3].index, 2)
  lu.assertEquals(r.json.usage.completion_tokens, 6)
  local one = chat({ messages = user("@say{abc def}") }).json.usage.prompt_tokens
  lu.assertEquals(r.json.usage.prompt_tokens, one)
  local seeds = {}
  for i, a in ipairs(fake.engines[1].submitted) do seeds[i] = a.sampler.seed end
  lu.assertEquals({ seeds[1], seeds[2], seeds[3] }, { 7, 8, 9 })
  r = chat({ messages = user("@say{abc def}"), n = 2, stream = true })
  local per = { [0] = "", [1] = "" }
  for _, e in ipairs(client.sse(r.body)) do
    for _, c in ipairs(e.data ~= "[DONE]" and e.data.choices or {}) do per[c.index] = per[c.index] .. (c.delta.content or "") end
  end
  lu.assertEquals(per, { [0] = "abc def", [1] = "abc def" })
end

function TestChat:test_reasoning_and_tools()
  local r = chat({ messages = user("@think{hm hm}@say{yes}") })
  lu.assertEquals(r.json.choices[1].message, { role = "assistant", content = "yes", reasoning_content = "hm hm", reasoning = "hm hm" })
  local tools = { { type = "function", ["function"] = { name = "f", parameters = { type = "object" } } } }
  r = chat({ messages = user('@call{{"name":"f","arguments":{"z":1,"a":"x"}}}'), tools = tools })
  local c = r.json.choices[1]
  lu.assertEquals(c.finish_reason, "tool_calls")
  lu.assertEquals(c.message.content, require("cjson").null)
  lu.assertEquals(c.message.tool_calls[1]["function"], { name = "f", arguments = '{"z":1,"a":"x"}' })
  lu.assertStrMatches(c.message.tool_calls[1].id, "call_[a-z0-9]+")
  r = chat({ messages = user('@call{{"name":"f","arguments":{"z":1}}}'), tools = tools, stream = true })
  local args, name, finish = "", nil, nil
  for _, e in ipairs(client.sse(r.body)) do
    local ch = e.data ~= "[DONE]" and e.data.choices[1]
    if ch and ch.delta.tool_calls then
      local t = ch.delta.tool_calls[1]
      name = name or t["function"].name
      args = args .. t["function"].arguments
    end
    if ch and ch.finish_reason ~= require("cjson").null then finish = ch.finish_reason end
  end
  lu.assertEquals({ name, args, finish }, { "f", '{"z":1}', "tool_calls" })
end

-- What the server sends is accepted when it comes back.
function TestChat:test_round_trip_of_an_answer()
  local tools = { { type = "function", ["function"] = { name = "f", parameters = { type = "object" } } } }
  local first = chat({ messages = user('@think{t}@call{{"name":"f","arguments":{}}}'), tools = tools })
  local m = first.json.choices[1].message
  local messages = user("x")
  messages[2] = m
  messages[3] = { role = "tool", tool_call_id = m.tool_calls[1].id, content = { { type = "text", text = "42" } } }
  lu.assertEquals(chat({ messages = messages, tools = tools }).status, 200)
end

function TestChat:test_stop_max_tokens_logprobs()
  local r = chat({ messages = user("@say{a b c d}"), stop = "c" })
  lu.assertEquals({ r.json.choices[1].message.content, r.json.choices[1].finish_reason }, { "a b ", "stop" })
  r = chat({ messages = user("@say{a b c d}"), max_completion_tokens = 2, max_tokens = 50 })
  lu.assertEquals({ r.json.choices[1].message.content, r.json.choices[1].finish_reason }, { "a b ", "length" })
  r = chat({ messages = user("@say{a b c d}"), max_completion_tokens = 3, max_tokens = 1 })
  lu.assertEquals(r.json.usage.completion_tokens, 3, "the newer name wins")
  r = chat({ messages = user("@say{a b}"), logprobs = true, top_logprobs = 2 })
  local lp = r.json.choices[1].logprobs.content
  lu.assertEquals({ #lp, lp[1].token, lp[1].logprob, #lp[1].top_logprobs }, { 2, "a", -0.25, 2 })
  r = chat({ messages = user("@say{a b}"), logprobs = true, top_logprobs = 1, stream = true })
  local n = 0
  for _, e in ipairs(client.sse(r.body)) do
    local c = e.data ~= "[DONE]" and e.data.choices[1]
    if c and c.logprobs then n = n + #c.logprobs.content end
  end
  lu.assertEquals(n, 2)
end

local BAD = {
  { "no messages", {} }, { "empty messages", { messages = require("mtx.json").array() } }, { "messages text", { messages = "x" } },
  { "message no object", { messages = { 1 } } }, { "bad role", { messages = { { role = "king", content = "x" } } } },
  { "no content", { messages = { { role = "user" } } } }, { "content number", { messages = { { role = "user", content = 5 } } } },
  { "unknown part", { messages = { { role = "user", content = { { type = "video" } } } } } },
  { "http image", { messages = { { role = "user", content = { { type = "image_url", image_url = { url = "http://x/y.png" } } } } } } },
  { "bad image", { messages = { { role = "user", content = { { type = "image_url", image_url = "data:image/png;base64,zzz*" } } } } } },
  { "arguments array", { messages = { { role = "assistant", tool_calls = { { ["function"] = { name = "f", arguments = "[1]" } } } } } } },
  { "arguments broken", { messages = { { role = "assistant", tool_calls = { { ["function"] = { name = "f", arguments = "{bad" } } } } } } },
  { "temperature text", { temperature = "hot" } }, { "temperature -1", { temperature = -1 } }, { "top_p -1", { top_p = -1 } }, { "top_p 2", { top_p = 2 } },
  { "presence 3", { presence_penalty = 3 } }, { "n 0", { n = 0 } }, { "n 1000", { n = 1000 } }, { "n text", { n = "2" } },
  { "max_tokens 0", { max_tokens = 0 } }, { "max_tokens -2", { max_tokens = -2 } }, { "max_tokens 1.5", { max_tokens = 1.5 } },
  { "top_logprobs alone", { top_logprobs = 3 } }, { "top_logprobs 21", { logprobs = true, top_logprobs = 21 } }, { "logprobs number", { logprobs = 2 } },
  { "stream text", { stream = "yes" } }, { "stop number", { stop = 5 } }, { "stop many", { stop = { "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u", "v", "w", "x", "y", "z", "1", "2", "3", "4", "5", "6", "7" } } },
  { "format type", { response_format = { type = "xml" } } }, { "schema missing", { response_format = { type = "json_schema" } } },
  { "effort", { reasoning_effort = "lots" } }, { "bias id", { logit_bias = { ["999999999"] = 1 } } }, { "bias text", { logit_bias = { ["5"] = "a" } } },
  { "bias name", { logit_bias = { abc = 1 } } }, { "tools no function", { tools = { { type = "x" } } } }, { "tool no name", { tools = { { type = "function", ["function"] = { x = 1 } } } } },
  { "choice unknown", { tool_choice = { type = "function", ["function"] = { name = "g" } } } }, { "required without tools", { tool_choice = "required" } },
  { "grammar and schema", { grammar = "root ::= x", json_schema = { type = "object" } } }, { "audio", { modalities = { "audio" } } },
  { "two assistants", { messages = { { role = "assistant", content = "a" }, { role = "assistant", content = "b" } } } },
}

function TestChat:test_bad_fields_are_400_before_any_stream()
  for _, c in ipairs(BAD) do
    local body = { messages = user("hi"), stream = true }
    if c[1]:find("messages") then body.messages = nil end
    for k, v in pairs(c[2]) do body[k] = v end
    local r = chat(body)
    lu.assertEquals(r.status, 400, c[1])
    lu.assertEquals(r.json.error.type, "invalid_request_error", c[1])
    lu.assertEquals(r.headers["content-type"], "application/json")
  end
  lu.assertEquals(#(fake.engines[1] and fake.engines[1].submitted or {}), 0)
end

function TestChat:test_bad_bodies()
  for _, b in ipairs({ "", "{:", '{"model":"a\xff"}', "\xff\xfe{\0}\0", "[1]", ("["):rep(100000), '{"messages":"x"}', '{"model":"tiny"} x', "null", "5", '{"a":' }) do
    local r = client.request(port, "POST", "/v1/chat/completions", b)
    lu.assertEquals(r.status, 400, b:sub(1, 20))
    lu.assertEquals(r.json.error.type, "invalid_request_error")
  end
end

function TestChat:test_odd_but_good_requests()
  local function ok(body) lu.assertEquals(chat(body).status, 200, require("cjson").encode(body)) end
  ok({ messages = { { role = "developer", content = "be brief" }, { role = "user", content = "x" } } })
  ok({ messages = user("x"), deadline_ms = math.maxinteger })
  ok({ messages = user("x"), max_tokens = -1, unknown_field = { 1 }, metadata = { a = "b" }, user = "me" })
  ok({ messages = user("x"), logit_bias = { ["5"] = -100 } })
  ok({ messages = user("x"), logit_bias = { { 5, -100 }, { "text", false } } })
  ok({ messages = { { role = "user", content = { { type = "text", text = "a" }, { type = "text", text = "b" } } } } })
  ok({ messages = user("x"), response_format = { type = "text" } })
  local r = client.request(port, "POST", "/v1/chat/completions",
    '{"model":"tiny","messages":[{"role":"user","content":"\\ud800 @say{\\u2028}"}],"stop":null,"tools":[{"type":"function","function":{"name":"a","parameters":{"type":"object","properties":[]}}}]}')
  lu.assertEquals(r.status, 200)
  lu.assertStrContains(r.body, "\\u2028")
end

function TestChat:test_messages_left_out_are_named()
  local e = client.request(port, "POST", "/v1/chat/completions", '{"model":"tiny"}').json.error
  lu.assertEquals({ e.message, e.param }, { "messages is required", "messages" })
end

function TestChat:test_a_template_that_refuses_is_a_400()
  fake.strict_system = true
  local r = chat({ messages = { { role = "user", content = "a" }, { role = "system", content = "S" } } })
  lu.assertEquals({ r.status, r.json.error.type }, { 400, "invalid_request_error" })
  lu.assertStrContains(r.json.error.message, "system must come first")
end

function TestChat:test_prompt_over_the_context()
  local r = chat({ messages = user(("x"):rep(3000)) })
  lu.assertEquals(r.status, 400)
  local e = r.json.error
  lu.assertEquals({ e.type, e.code, e.n_ctx }, { "invalid_request_error", "context_length_exceeded", 2048 })
  lu.assertTrue(e.n_prompt_tokens > 3000)
end

function TestChat:test_unknown_and_broken_models()
  local r = chat({ model = "nope", messages = user("x") })
  lu.assertEquals({ r.status, r.json.error.type }, { 404, "not_found_error" })
  r = chat({ model = "broken", messages = user("x"), stream = true })
  lu.assertEquals(r.status, 500)
  lu.assertNotStrContains(r.body, "/tmp")
  r = chat({ model = "minilm", messages = user("x") })
  lu.assertEquals(r.status, 400)
  lu.assertEquals(chat({ messages = user("x") }).status, 200)
end

TestCompletions = {}
function TestCompletions:setUp() start() end
function TestCompletions:tearDown() stop() end

local function complete(body)
  body.model = "tiny"
  return client.request(port, "POST", "/v1/completions", body)
end

function TestCompletions:test_prompts_and_echo()
  local r = complete({ prompt = "@say{a b}", max_tokens = 8 })
  lu.assertEquals({ r.json.object, r.json.choices[1].text, r.json.choices[1].finish_reason }, { "text_completion", "a b", "stop" })
  r = complete({ prompt = { "@say{a}", "@say{b}" }, n = 2 })
  local texts = {}
  for i, c in ipairs(r.json.choices) do texts[i] = c.text end
  lu.assertEquals(texts, { "a", "a", "b", "b" })
  lu.assertEquals(complete({ prompt = { { 72, 105 }, "x" } }).status, 200)
  lu.assertEquals(complete({ prompt = { 72, 105 } }).json.choices[1].text, "You said: Hi")
  r = complete({ prompt = "The sky", echo = true, logprobs = 2, max_tokens = 1 })
  local lp = r.json.choices[1].logprobs
  lu.assertEquals(#lp.tokens, r.json.usage.prompt_tokens + 1)
  lu.assertEquals(lp.token_logprobs[1], require("cjson").null)
  lu.assertEquals(lp.text_offset[2], 1)
  lu.assertStrMatches(r.json.choices[1].text, "The sky.*")
  lu.assertEquals(complete({ prompt = "The sky", echo = true, max_tokens = 0 }).status, 200)
  lu.assertEquals(#complete({ prompt = "@long{100}" }).json.choices[1].text:gsub("[^w]", ""), 16)
end

-- The best of each prompt's answers by their mean logprob; all of them are paid for.
function TestCompletions:test_best_of()
  local made, lp = 0, { -3, -1, -2, -0.5, -4, -0.75 }
  fake.reply = function()
    made = made + 1
    return { text = "answer" .. made, logprob = lp[made] }
  end
  local r = complete({ prompt = { "p", "q" }, best_of = 3, n = 2 })
  lu.assertEquals(r.status, 200, r.body)
  local texts = {}
  for i, c in ipairs(r.json.choices) do
    texts[i] = c.text
    lu.assertEquals({ c.index, c.logprobs }, { i - 1, require("cjson").null })
  end
  lu.assertEquals({ texts, made, r.json.usage.completion_tokens }, { { "answer2", "answer3", "answer4", "answer6" }, 6, 6 })
  made = 0
  r = complete({ prompt = "pp", best_of = 3, logprobs = 0, echo = true })
  lu.assertEquals({ #r.json.choices, r.json.choices[1].text, r.json.choices[1].logprobs.token_logprobs[3] }, { 1, "ppanswer2", -1 })
  r = client.request(port, "POST", "/v1/chat/completions", { model = "tiny", messages = user("x"), best_of = 3 })
  lu.assertEquals(r.status, 400)
  for _, path in ipairs({ "/v1/chat/completions", "/v1/completions" }) do
    r = client.request(port, "POST", path, { model = "tiny", messages = user("x"), prompt = "x", use_beam_search = true })
    lu.assertEquals(r.status, 400)
    lu.assertStrContains(r.json.error.message, "--beams")
  end
end

function TestCompletions:test_bad()
  for _, b in ipairs({ {}, { prompt = {} }, { prompt = { {} } }, { prompt = { "a", -1 } }, { prompt = { 1.5 } }, { prompt = { 99999999 } },
    { prompt = "x", best_of = 3, stream = true }, { prompt = "x", best_of = 1, n = 2 }, { prompt = "x", use_beam_search = true }, { prompt = "x", suffix = "y" }, { prompt = "x", logprobs = 50 } }) do
    lu.assertEquals(complete(b).status, 400, require("cjson").encode(b))
  end
end
