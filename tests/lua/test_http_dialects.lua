-- SPDX-License-Identifier: MIT
-- Anthropic's, llama-server's and /v1/responses' dialects, embeddings and model
-- management over HTTP against the scripted engine.
local lu = require("luaunit")
local cjson = require("cjson")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local json = require("mtx.json")
local client = require("http_client")
local temp = require("temp")

local ctx, port

local function start(flags) ctx = fixture.start(flags) port = ctx.port end
local function stop() fixture.stop(ctx) end
local function post(path, body, headers) return client.request(port, "POST", path, body, headers) end
local function user(text) return { { role = "user", content = text } } end

TestAnthropic = {}
function TestAnthropic:setUp() start() end
TestAnthropic.tearDown = stop

function TestAnthropic:test_whole()
  local r = post("/v1/messages", { model = "tiny", max_tokens = 100, system = "S", messages = user("@say{Hello}") })
  lu.assertEquals(r.status, 200)
  lu.assertEquals({ r.json.type, r.json.role, r.json.content, r.json.stop_reason, r.json.stop_sequence },
    { "message", "assistant", { { type = "text", text = "Hello" } }, "end_turn", cjson.null })
  lu.assertEquals(r.json.usage.output_tokens, 1)
  lu.assertEquals(r.json.usage.input_tokens, post("/v1/messages/count_tokens", { model = "tiny", system = "S", messages = user("@say{Hello}") }).json.input_tokens)
  r = post("/v1/messages", { model = "tiny", max_tokens = 100, messages = user("@say{a STOP b}"), stop_sequences = { "STOP" } })
  lu.assertEquals({ r.json.stop_reason, r.json.stop_sequence }, { "stop_sequence", "STOP" })
  r = post("/v1/messages", { model = "tiny", max_tokens = 2, messages = user("@say{a b c}") })
  lu.assertEquals(r.json.stop_reason, "max_tokens")
end

-- Each dialect names the place as its own requests have it.
function TestAnthropic:test_a_tool_without_name_is_found_where_it_lies()
  for path, c in pairs({
    ["/v1/messages"] = { { description = "d" }, "tools.0.name is required" },
    ["/v1/chat/completions"] = { { type = "function", ["function"] = { description = "d" } }, "tools[0].function.name is required" },
    ["/v1/responses"] = { { type = "function", description = "d" }, "tools[0].name is required" },
  }) do
    local r = post(path, { model = "tiny", max_tokens = 1, messages = user("x"), input = "x", tools = { c[1] } })
    lu.assertEquals({ r.status, r.json.error.message }, { 400, c[2] }, path)
  end
  local r = post("/v1/messages", { model = "tiny", max_tokens = 1, messages = user("x"), tools = { { name = "f", input_schema = "x" } } })
  lu.assertEquals(r.json.error.message, "tools.0.input_schema must be an object")
end

-- Blocks rise by one, never overlap, and add up to the whole reply.
function TestAnthropic:test_stream_blocks()
  local body = { model = "tiny", max_tokens = 100, stream = true, thinking = { type = "enabled", budget_tokens = 1024 },
    tools = { { name = "f", input_schema = { type = "object" } } },
    messages = user('@think{hm}@call{{"name":"f","arguments":{"b":1,"a":2}}}') }
  local ev = client.sse(post("/v1/messages", body).body)
  lu.assertEquals({ ev[1].event, ev[#ev].event, ev[#ev - 1].event }, { "message_start", "message_stop", "message_delta" })
  local open, at, kinds, args = nil, -1, {}, ""
  for _, e in ipairs(ev) do
    lu.assertEquals(e.event, e.data.type)
    if e.event == "content_block_start" then
      lu.assertNil(open)
      at = at + 1
      lu.assertEquals(e.data.index, at)
      open = e.data.content_block.type
      kinds[#kinds + 1] = open
    elseif e.event == "content_block_delta" then
      lu.assertEquals(e.data.index, at)
      if e.data.delta.type == "input_json_delta" then args = args .. e.data.delta.partial_json end
    elseif e.event == "content_block_stop" then
      open = nil
    end
  end
  lu.assertNil(open)
  lu.assertEquals({ kinds, args, ev[#ev - 1].data.delta.stop_reason }, { { "thinking", "tool_use" }, '{"b":1,"a":2}', "tool_use" })
end

function TestAnthropic:test_tool_loop_history()
  local r = post("/v1/messages", { model = "tiny", max_tokens = 50, tools = { { name = "f", input_schema = { type = "object" } } }, messages = {
    { role = "user", content = "x" },
    { role = "assistant", content = { { type = "thinking", thinking = "t", signature = "mtx" }, { type = "tool_use", id = "toolu_1", name = "f", input = { a = 1 } } } },
    { role = "user", content = { { type = "tool_result", tool_use_id = "toolu_1", content = { { type = "text", text = "42" } } }, { type = "text", text = "@say{done}" } } } } })
  lu.assertEquals({ r.status, r.json.content[1].text }, { 200, "done" })
end

function TestAnthropic:test_errors()
  local cases = { { {}, 400 }, { { model = "nope", max_tokens = 1, messages = user("x") }, 404 }, { { model = "tiny", max_tokens = 0, messages = user("x") }, 400 },
    { { model = "tiny", max_tokens = 1, messages = { { role = "king", content = "x" } } }, 400 },
    { { model = "tiny", max_tokens = 1, messages = { { role = "user", content = { { type = "image", source = { type = "url", url = "http://x" } } } } } }, 400 },
    { { model = "tiny", max_tokens = 1, messages = user("x"), tools = { { type = "web_search_20250305", name = "web_search" } } }, 400 } }
  for _, c in ipairs(cases) do
    local r = post("/v1/messages", c[1])
    lu.assertEquals({ r.status, r.json.type }, { c[2], "error" })
    lu.assertStrMatches(r.json.request_id, "req_.*")
  end
  local r = post("/v1/messages", { model = "tiny", max_tokens = 10, messages = user("@error"), stream = true })
  local ev = client.sse(r.body)
  lu.assertEquals({ ev[#ev].event, ev[#ev].data.error.type }, { "error", "api_error" })
end

TestLlama = {}
function TestLlama:setUp() start() end
TestLlama.tearDown = stop

function TestLlama:test_completion()
  local r = post("/completion", { prompt = "@say{a b c}", n_predict = 2, model = "tiny" })
  lu.assertEquals({ r.json.content, r.json.stop, r.json.stop_type, r.json.tokens_predicted }, { "a b ", true, "limit", 2 })
  lu.assertNotNil(r.json.generation_settings.seed)
  r = post("/completion", { prompt = "@say{a b c}", stop = { "c" } })
  lu.assertEquals({ r.json.stop_type, r.json.stopping_word }, { "word", "c" })
  local ev = client.sse(post("/completion", { prompt = "@say{a b}", stream = true }).body)
  lu.assertEquals({ ev[1].data.content, ev[1].data.stop, ev[#ev].data.stop, ev[#ev].data.stop_type }, { "a ", false, true, "eos" })
  r = post("/completion", { prompt = { "@say{a}", "@say{b}" } })
  lu.assertEquals({ #r.json, r.json[2].content }, { 2, "b" })
  r = post("/completion", { prompt = "@say{a}", n_probs = 2 })
  lu.assertEquals(#r.json.completion_probabilities[1].top_logprobs, 2)
  lu.assertEquals(post("/completion", { prompt = "@say{a}", response_fields = { "content", "generation_settings/seed" }, seed = 5 }).json, { content = "a", seed = 5 })
  lu.assertEquals(post("/completion", { prompt = "x", samplers = { "min_p", "temperature" }, n_keep = 99999 }).status, 200)
  for _, b in ipairs({ {}, { prompt = "x", samplers = { "magic" } }, { prompt = "x", temperature = "hot" }, { prompt = json.array() } }) do
    r = post("/completion", b)
    lu.assertEquals({ r.status, r.json.error.code, r.json.error.type }, { 400, 400, "invalid_request_error" })
  end
  r = post("/completion", { prompt = ("x"):rep(3000) })
  lu.assertEquals({ r.json.error.type, r.json.error.n_ctx }, { "exceed_context_size_error", 2048 })
end

function TestLlama:test_tokens_template_props()
  local r = post("/tokenize", { content = "hé" })
  lu.assertEquals(r.json.tokens, { 104, 233 })
  lu.assertEquals(post("/detokenize", { tokens = { 104, 233 } }).json.content, "hé")
  lu.assertEquals(post("/tokenize", { content = "h", with_pieces = true }).json.tokens[1], { id = 104, piece = "h" })
  lu.assertEquals(post("/api/tokenize", { model = "tiny", prompt = "h" }).json.tokens, { 104 })
  lu.assertEquals(post("/detokenize", { tokens = { -1 } }).status, 400)
  lu.assertStrContains(post("/apply-template", { messages = user("hello") }).json.prompt, "<|im_start|>user\nhello")
  lu.assertEquals(client.request(port, "GET", "/props").json.total_slots, 8)
  lu.assertEquals(#client.request(port, "GET", "/slots?model=tiny").json, 8)
  lu.assertEquals(post("/props", {}).status, 501)
  lu.assertEquals(client.request(port, "PUT", "/tokenize", "{}").status, 404)
  lu.assertEquals(post("/infill", { input_prefix = "a", input_suffix = "b" }).status, 400)
end

function TestLlama:test_slots()
  local function act(id, action, body) return post("/slots/" .. id .. "?action=" .. action, body or {}) end
  local r = act(0, "save", { filename = "a" })
  lu.assertEquals({ r.status, r.json.error.type }, { 501, "not_supported_error" })
  stop()
  local dir = temp.dir()
  start({ slot_save_path = dir })
  lu.assertEquals(act(0, "save", { filename = "a" }).status, 400) -- nothing there yet
  post("/completion", { prompt = "@say{abc}" })
  r = act(0, "save", { filename = "a.bin" })
  lu.assertEquals({ r.status, r.json.id_slot, r.json.filename, r.json.n_saved }, { 200, 0, "a.bin", 10 }) -- nine of the prompt, one piece
  for _, name in ipairs({ "", "..", ".", "a/b", "../a", "/etc/passwd", "a\\b", "a\0b", "a\nb", ("x"):rep(256), "a..b" }) do
    lu.assertEquals(act(0, "save", { filename = name }).status, 400, name)
    lu.assertEquals(act(0, "restore", { filename = name }).status, 400, name)
  end
  lu.assertTrue(r.json.n_written > 0 and r.json.timings.save_ms >= 0)
  lu.assertEquals(act(0, "erase").json, { id_slot = 0, n_erased = 10 })
  lu.assertEquals(act(0, "erase").json.n_erased, 0)
  r = act(3, "restore", { filename = "a.bin" })
  lu.assertEquals({ r.status, r.json.id_slot, r.json.n_restored, r.json.n_read > 0 }, { 200, 3, 10, true })
  lu.assertEquals(act(3, "erase").json.n_erased, 10)
  r = act(3, "restore", { filename = "none" })
  lu.assertEquals(r.status, 404)
  lu.assertNil(r.body:find(dir, 1, true))
  lu.assertEquals(act(0, "save").status, 400)
  lu.assertEquals(act(8, "erase").status, 400)
  lu.assertEquals(act("x", "erase").status, 400)
  lu.assertEquals(act(0, "burn").status, 400)
  lu.assertEquals(act(0, "erase", { model = "none" }).status, 404)
  post("/completion", { prompt = "@say{b}", model = "tiny" })
  post("/completion", { prompt = "@say{b}", model = "other" })
  lu.assertEquals(act(0, "erase").status, 400) -- two models: one must be named
  lu.assertEquals(act(0, "erase", { model = "other" }).status, 200)
  lu.assertEquals(#client.request(port, "GET", "/slots").json, 16)
  os.execute("rm -r " .. dir)
end

function TestLlama:test_embedding_and_rerank()
  local r = post("/embedding", { content = "abc", model = "minilm" })
  lu.assertEquals({ #r.json[1].embedding, #r.json[1].embedding[1] }, { 1, 8 })
  for p, of in pairs({ [1] = function(x) return x end, [3] = function(x) return x ^ 3 end }) do
    local sum = 0
    for _, x in ipairs(post("/embedding", { content = "abc", model = "minilm", embd_normalize = p }).json[1].embedding[1]) do sum = sum + of(math.abs(x)) end
    lu.assertAlmostEquals(sum, 1, 1e-6)
  end
  lu.assertAlmostEquals(math.max(table.unpack(post("/embedding", { content = "abc", model = "minilm", embd_normalize = 0 }).json[1].embedding[1])), 32760, 0.01)
  lu.assertEquals(post("/embedding", { content = "abc", model = "minilm", embd_normalize = -2 }).status, 400)
  -- A decoder without a pooling type: one raw vector per token here, one unit vector on the other routes.
  r = post("/embedding", { content = "abc", model = "tiny" })
  lu.assertEquals({ #r.json[1].embedding, #r.json[1].embedding[1] }, { 3, 8 })
  lu.assertEquals(#post("/v1/embeddings", { input = "abc", model = "tiny" }).json.data[1].embedding, 8)
  lu.assertEquals(#post("/api/embed", { input = "abc", model = "tiny" }).json.embeddings[1], 8)
  r = post("/v1/rerank", { model = "minilm", query = "abc", documents = { "zzzz", "abc" }, top_n = 1 })
  lu.assertEquals({ #r.json.results, r.json.results[1].index }, { 1, 1 })
  r = post("/rerank", { model = "minilm", query = "abc", texts = { "abc", "q" }, return_text = true })
  lu.assertEquals(r.json[1].text, "abc")
  for _, b in ipairs({ { query = "a" }, { query = "a", documents = json.array() }, { query = 5, documents = { "x" } }, { query = "a", documents = { 5 } } }) do
    b.model = "minilm"
    lu.assertEquals(post("/v1/rerank", b).status, 400)
  end
end

TestEmbeddings = {}
function TestEmbeddings:setUp() start() end
TestEmbeddings.tearDown = stop

local function norm(v)
  local s = 0
  for _, x in ipairs(v) do s = s + x * x end
  return math.sqrt(s)
end

function TestEmbeddings:test_ollama()
  local one = post("/api/embed", { model = "minilm", input = "a" }).json
  lu.assertEquals(#one.embeddings, 1)
  lu.assertAlmostEquals(norm(one.embeddings[1]), 1, 1e-5)
  local three = post("/api/embed", { model = "minilm", input = { "a", "b", "a" } }).json.embeddings
  lu.assertEquals(three[1], three[3])
  lu.assertEquals(three[1], one.embeddings[1])
  lu.assertEquals(post("/api/embed", { model = "minilm", input = json.array() }).json.embeddings, {})
  local cut = post("/api/embed", { model = "minilm", input = "a", dimensions = 4 }).json.embeddings[1]
  lu.assertEquals(#cut, 4)
  lu.assertAlmostEquals(norm(cut), 1, 1e-5)
  lu.assertEquals(post("/api/embed", { model = "minilm", input = 5 }).json.error, "invalid input type")
  lu.assertStrContains(post("/api/embed", { model = "minilm", prompt = "x" }).json.error, "input")
  local long = ("x"):rep(5000)
  lu.assertEquals(post("/api/embed", { model = "minilm", input = long }).json.prompt_eval_count, 2048)
  local r = post("/api/embed", { model = "minilm", input = { "a", long }, truncate = false })
  lu.assertEquals(r.status, 400)
  lu.assertStrContains(r.json.error, "the input length exceeds the context length: input[1]")
  lu.assertEquals(#post("/api/embeddings", { model = "minilm", prompt = "a" }).json.embedding, 8)
  lu.assertEquals(post("/api/embeddings", { model = "minilm", prompt = "" }).json.embedding, {})
  lu.assertStrContains(post("/api/embeddings", { model = "minilm", input = "a" }).json.error, "prompt")
  lu.assertEquals(post("/api/embeddings", { prompt = "a" }).status, 400)
  lu.assertEquals(post("/api/embed", { model = "nope", input = "a" }).status, 404)
end

function TestEmbeddings:test_openai()
  local r = post("/v1/embeddings", { model = "minilm", input = { "a", "b" } })
  lu.assertEquals({ r.json.object, r.json.data[2].index, #r.json.data[2].embedding }, { "list", 1, 8 })
  local b = post("/v1/embeddings", { model = "minilm", input = "a", encoding_format = "BASE64" }).json.data[1].embedding
  local bytes = require("mtx.api.messages").from_base64(b)
  lu.assertAlmostEquals(string.unpack("<f", bytes), r.json.data[1].embedding[1], 1e-6)
  lu.assertEquals(#bytes, 32)
  lu.assertEquals(post("/v1/embeddings", { model = "minilm", input = { { 97, 98 } } }).status, 200)
  for _, bad in ipairs({ json.object("input", json.null), { input = json.array() }, {}, { input = "a", encoding_format = "hex" }, { input = "a", dimensions = 99 },
    { input = { 99999999 } }, { input = { "a", 1 } }, { input = ("x"):rep(3000) } }) do
    bad.model = "minilm"
    lu.assertEquals(post("/v1/embeddings", bad).status, 400)
  end
end

function TestEmbeddings:test_large_batch_leaves_the_loop_free()
  local input = {}
  for i = 1, 400 do input[i] = ("text %d "):format(i):rep(10) end
  local c = client.connect(port)
  local body = cjson.encode({ model = "minilm", input = input })
  c:send("POST /api/embed HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  lu.assertEquals(client.request(port, "GET", "/health").status, 200)
  c:until_closed()
  lu.assertEquals(#c:responses()[1].body > 1000 and cjson.decode(c:responses()[1].body).embeddings[400] ~= nil, true)
  c:close()
end

function TestEmbeddings:test_the_engine_computes_and_the_loop_goes_on()
  post("/api/embed", { model = "minilm", input = "a" })
  fake.hold_embeds = true
  local input = {}
  for i = 1, 30 do input[i] = ("x"):rep(100) end
  local function send()
    local body = cjson.encode({ model = "minilm", input = input })
    local c = client.connect(port)
    c:send("POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
    return c
  end
  local a = send()
  lu.assertTrue(client.wait(function() return #fake.embeds == 1 end))
  local b = send() -- a second request shares the engine, slice by slice
  lu.assertTrue(client.wait(function() return #fake.embeds == 2 end))
  lu.assertEquals(client.request(port, "GET", "/health").status, 200)
  lu.assertEquals(#fake.embeds, 2)
  a:close() -- hanging up cancels what runs
  lu.assertTrue(client.wait(function() return fake.cancelled == 1 end))
  fake.hold_embeds = nil
  fake.let_go_embeds()
  b:until_closed(5000)
  lu.assertEquals(#cjson.decode(b:responses()[1].body).data, 30)
  b:close()
  lu.assertEquals({ ctx.pool:list()[1].inflight, next(ctx.pool:list()[1].handlers) }, { 0, nil })
end

TestResponses = {}
function TestResponses:setUp() start({ api_key = "a,b" }) end
TestResponses.tearDown = stop

local A, B = { Authorization = "Bearer a" }, { Authorization = "Bearer b" }

function TestResponses:test_whole_and_chain_in_both_modes()
  local seen
  fake.reply = function(prompt) seen = prompt return "blue" end
  local first = post("/v1/responses", { model = "tiny", input = "my colour?", instructions = "be brief" }, A).json
  lu.assertEquals({ first.object, first.status, first.output[1].content[1].text }, { "response", "completed", "blue" })
  lu.assertEquals(first.usage.output_tokens_details.reasoning_tokens, 0)
  for _, streamed in ipairs({ false, true }) do
    local r = post("/v1/responses", { model = "tiny", input = "again", previous_response_id = first.id, stream = streamed }, A)
    lu.assertStrContains(seen, "user\nmy colour?<|im_end|>\n<|im_start|>assistant\nblue<|im_end|>\n<|im_start|>user\nagain")
    lu.assertNotStrContains(seen, "be brief")
    local id = streamed and client.sse(r.body)[1].data.response.id or r.json.id
    post("/v1/responses", { model = "tiny", input = "third", previous_response_id = id }, A)
    lu.assertStrContains(seen, "again<|im_end|>\n<|im_start|>assistant\nblue<|im_end|>\n<|im_start|>user\nthird")
    lu.assertEquals(client.request(port, "GET", "/v1/responses/" .. id, nil, A).json.output[1].content[1].text, "blue")
  end
  lu.assertEquals(post("/v1/responses", { model = "tiny", input = "x", previous_response_id = "resp_no" }, A).status, 404)
end

function TestResponses:test_keys_do_not_see_one_another()
  local id = post("/v1/responses", { model = "tiny", input = "x" }, A).json.id
  lu.assertEquals(client.request(port, "GET", "/v1/responses/" .. id, nil, B).status, 404)
  lu.assertEquals(post("/v1/responses", { model = "tiny", input = "x", previous_response_id = id }, B).status, 404)
  lu.assertEquals(client.request(port, "DELETE", "/v1/responses/" .. id, nil, B).status, 404)
  lu.assertEquals(#client.request(port, "GET", "/v1/responses", nil, B).json.data, 0)
  lu.assertEquals(#client.request(port, "GET", "/v1/responses", nil, A).json.data, 1)
  lu.assertEquals(client.request(port, "DELETE", "/v1/responses/" .. id, nil, A).json.deleted, true)
  lu.assertEquals(client.request(port, "GET", "/v1/responses/" .. id, nil, A).status, 404)
  lu.assertEquals(post("/v1/responses/" .. id .. "/cancel", {}, A).status, 404)
  lu.assertEquals(client.request(port, "GET", "/v1/responses/" .. post("/v1/responses", { model = "tiny", input = "x", store = false }, A).json.id, nil, A).status, 404)
end

function TestResponses:test_stream_events()
  local r = post("/v1/responses", { model = "tiny", stream = true, input = '@think{hm}@call{{"name":"f","arguments":{"a":1}}}',
    tools = { { type = "function", name = "f", parameters = { type = "object" } } } }, A)
  local names, args = {}, ""
  for i, e in ipairs(client.sse(r.body)) do
    lu.assertEquals({ e.data.type, e.data.sequence_number }, { e.event, i - 1 })
    if e.event:find("delta") or e.event:find("item") then lu.assertNotNil(e.data.output_index) end
    if names[#names] ~= e.event then names[#names + 1] = e.event end
    if e.event == "response.function_call_arguments.delta" then args = args .. e.data.delta end
  end
  lu.assertEquals(names, { "response.created", "response.in_progress", "response.output_item.added", "response.reasoning_summary_part.added",
    "response.reasoning_summary_text.delta", "response.reasoning_summary_text.done", "response.reasoning_summary_part.done", "response.output_item.done",
    "response.output_item.added", "response.function_call_arguments.delta", "response.function_call_arguments.done", "response.output_item.done", "response.completed" })
  lu.assertEquals(args, '{"a":1}')
  local ev = client.sse(post("/v1/responses", { model = "tiny", stream = true, input = "@say{a b c}", max_output_tokens = 2 }, A).body)
  lu.assertEquals({ ev[#ev].event, ev[#ev].data.response.incomplete_details.reason, ev[#ev].data.response.output[1].content[1].text },
    { "response.incomplete", "max_output_tokens", "a b " })
  ev = client.sse(post("/v1/responses", { model = "tiny", stream = true, input = "@error" }, A).body)
  lu.assertEquals(ev[#ev].event, "response.failed")
end

function TestResponses:test_input_items_and_bounds()
  local r = post("/v1/responses", { model = "tiny", input = { { role = "user", content = { { type = "input_text", text = "x" } } },
    { type = "function_call", call_id = "c", name = "f", arguments = "{}" }, { type = "function_call_output", call_id = "c", output = "42" } } }, A)
  lu.assertEquals(r.status, 200)
  for _, bad in ipairs({ json.array(), 5, { { type = "magic" } }, { { role = "king", content = "x" } } }) do
    lu.assertEquals(post("/v1/responses", { model = "tiny", input = bad }, A).status, 400)
  end
  ctx.responses.max = 3
  for _ = 1, 10 do post("/v1/responses", { model = "tiny", input = "x" }, A) end
  lu.assertEquals(#client.request(port, "GET", "/v1/responses", nil, A).json.data, 3)
  lu.assertEquals(post("/v1/responses/input_tokens", { model = "tiny", input = "abc" }, A).json.object, "response.input_tokens")
end

TestModels = {}
function TestModels:setUp() start() end
TestModels.tearDown = stop

function TestModels:test_lists_and_show()
  local tags = client.request(port, "GET", "/api/tags").json.models
  local by_name = {}
  for _, m in ipairs(tags) do by_name[m.name] = m end
  lu.assertNil(by_name["broken:latest"])
  local m = by_name["tiny:latest"]
  lu.assertEquals({ m.size, #m.digest, m.details.parameter_size, m.details.quantization_level, m.details.family }, { 1000, 64, "7.6B", "Q4_K_M", "fake" })
  lu.assertEquals(by_name["minilm:latest"].capabilities, { "embedding" })
  lu.assertEquals(client.request(port, "HEAD", "/api/tags").status, 200)
  local ids = {}
  for _, d in ipairs(client.request(port, "GET", "/v1/models").json.data) do ids[d.id] = d.object end
  lu.assertEquals(ids.tiny, "model")
  lu.assertEquals(client.request(port, "GET", "/v1/models/tiny").json.id, "tiny")
  lu.assertEquals(client.request(port, "GET", "/v1/models/a%2Fb").json.error.type, "not_found_error")
  local s = post("/api/show", { model = "TINY:Latest" }).json
  lu.assertEquals(s.capabilities, { "completion", "tools", "thinking" })
  lu.assertStrContains(s.modelfile, "FROM tiny:latest")
  lu.assertEquals(s.model_info["general.architecture"], "fake")
  lu.assertEquals(post("/api/show", { model = "nope" }).status, 404)
  lu.assertEquals(post("/api/show", { name = "tiny" }).status, 200)
end

function TestModels:test_create_copy_delete()
  local fs = client.ndjson(post("/api/create", { model = "Mario", from = "tiny", system = "You are Mario.", parameters = { temperature = 0.5, stop = "END", num_predict = 3 } }).body)
  lu.assertEquals(fs[#fs].status, "success")
  local seen, args
  fake.reply = function(prompt, a) seen, args = prompt, a return "ok" end
  lu.assertEquals(post("/api/chat", { model = "mario", messages = user("hi"), stream = false }).status, 200)
  lu.assertStrContains(seen, "You are Mario.")
  lu.assertEquals({ args.sampler.temperature, args.stop }, { 0.5, { "END" } })
  lu.assertStrContains(post("/api/show", { model = "mario" }).json.parameters, "temperature")
  lu.assertEquals(post("/api/copy", { source = "mario", destination = "a/luigi:v1" }).status, 200)
  lu.assertEquals(post("/api/show", { model = "a/luigi:v1" }).json.system, "You are Mario.")
  lu.assertEquals(post("/api/copy", { source = "nope", destination = "x" }).status, 404)
  lu.assertEquals(post("/api/copy", { source = "tiny", destination = "../x" }).status, 400)
  lu.assertEquals(client.request(port, "DELETE", "/api/delete", { model = "mario" }).status, 200)
  lu.assertEquals(client.request(port, "DELETE", "/api/delete", { model = "mario" }).status, 404)
  lu.assertEquals(post("/api/show", { model = "a/luigi:v1" }).status, 200)
  lu.assertEquals(client.request(port, "DELETE", "/api/delete", { model = "other" }).status, 200)
  lu.assertEquals(post("/api/show", { model = "other" }).status, 404)
  for _, bad in ipairs({ { model = "x" }, { model = "x", from = "nope" }, { model = "../x", from = "tiny" }, { model = "x", files = { ["/etc/passwd"] = "sha256:" .. ("0"):rep(64) } },
    { model = "x", files = { ["m.gguf"] = "sha256:zz" } }, { model = "x", from = "tiny", quantize = "q4_0" } }) do
    lu.assertTrue(post("/api/create", bad).status >= 400)
  end
  lu.assertEquals(post("/api/push", { model = "x" }).status, 501)
end

function TestModels:test_blobs()
  local data = ("x"):rep(100000)
  local digest = "sha256:" .. require("mtx.core").sha256.of(data)
  lu.assertEquals(client.request(port, "HEAD", "/api/blobs/" .. digest).status, 404)
  lu.assertEquals(post("/api/blobs/" .. digest, data .. "y").status, 400)
  lu.assertEquals(client.request(port, "HEAD", "/api/blobs/" .. digest).status, 404)
  lu.assertEquals(post("/api/blobs/" .. digest, data).status, 201)
  lu.assertEquals(client.request(port, "HEAD", "/api/blobs/" .. digest).status, 200)
  lu.assertEquals(post("/api/blobs/" .. digest, data).status, 200)
  for _, bad in ipairs({ "sha256:zz", "md5:" .. ("0"):rep(64), "..%2f..%2fetc", "sha256-" .. ("0"):rep(63) }) do
    lu.assertEquals(post("/api/blobs/" .. bad, "x").status, 400, bad)
  end
  local c = client.connect(port) -- a sender that goes away leaves nothing
  c:send("POST /api/blobs/" .. digest .. " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nabc")
  client.sleep(20)
  c:close()
  client.sleep(30)
  local uv = require("luv")
  local handle, parts = uv.fs_scandir(ctx.catalog:blob_dir()), 0
  while true do
    local n = uv.fs_scandir_next(handle)
    if not n then break end
    if n:find("part$") then parts = parts + 1 end
  end
  lu.assertEquals(parts, 0)
  lu.assertEquals(post("/api/create", { model = "blobby", files = { ["m.gguf"] = digest }, stream = false }).json.status, "success")
  lu.assertEquals(post("/api/chat", { model = "blobby", messages = user("x"), stream = false }).status, 200)
end

function TestModels:test_ps_and_names()
  post("/api/generate", { model = "tiny", keep_alive = "1h" })
  post("/api/embed", { model = "minilm", input = "a" })
  local ps = client.request(port, "GET", "/api/ps").json.models
  lu.assertEquals({ ps[1].name, ps[2].name, ps[1].context_length }, { "tiny:latest", "minilm:latest", 2048 })
  for _, name in ipairs({ "tiny", "TINY", "tiny:latest", "registry.ollama.ai/library/tiny:latest", "library/tiny", "tiny.gguf" }) do
    lu.assertEquals(post("/api/show", { model = name }).status, 200, name)
  end
  for _, name in ipairs({ "tiny:other", "x/tiny", ".hidden", "a..b", "tiny\n", "a b", ("x"):rep(100) }) do
    lu.assertEquals(post("/api/show", { model = name }).status, 404, name)
  end
end

TestModelfile = {}
function TestModelfile:test_parse()
  local modelfile = require("mtx.serve.models.modelfile")
  local m = assert(modelfile.parse('# c\nFROM tiny\nPARAMETER temperature 0.5\nPARAMETER stop "a b"\nPARAMETER stop c\nSYSTEM """\nline 1\nline 2"""\n'
    .. 'TEMPLATE "{{ x }}"\nMESSAGE user hi there\nLICENSE MIT\nADAPTER ./a.gguf\n'))
  lu.assertEquals({ m.from, m.parameters, m.system, m.template, m.messages, m.license, m.adapters },
    { "tiny", { temperature = 0.5, stop = { "a b", "c" } }, "line 1\nline 2", "{{ x }}", { { role = "user", content = "hi there" } }, "MIT", { "./a.gguf" } })
  for _, bad in ipairs({ "", "SYSTEM x", "FROM a\nWHAT x", 'FROM a\nSYSTEM """x', "FROM a\nPARAMETER top_k hot", "FROM a\n!!" }) do
    lu.assertNil((modelfile.parse(bad)))
  end
end
