-- SPDX-License-Identifier: MIT
-- llama-server's own API over HTTP against the scripted engine.
local lu = require("luaunit")
local fixture = require("http_fixture")
local json = require("mtx.json")
local client = require("http_client")
local temp = require("temp")

local ctx, port

local function start(flags) ctx = fixture.start(flags) port = ctx.port end
local function stop() fixture.stop(ctx) end
local function post(path, body, headers) return client.request(port, "POST", path, body, headers) end
local user = fixture.user

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

function TestLlama:test_score()
  local r = post("/v1/score", { model = "minilm", text_1 = "abc", text_2 = { "zzzz", "abc" } })
  lu.assertEquals({ r.status, r.json.object, #r.json.data, r.json.data[2].index, r.json.data[1].object }, { 200, "list", 2, 1, "score" })
  lu.assertAlmostEquals(r.json.data[2].score, 1, 1e-5)
  assert(r.json.data[1].score < 0.999999)
  lu.assertEquals(r.json.usage.prompt_tokens, r.json.usage.total_tokens)
  local pairwise = post("/score", { model = "minilm", text_1 = { "zzzz", "q" }, text_2 = { "abc", "q" } }).json.data
  lu.assertAlmostEquals(pairwise[1].score, r.json.data[1].score, 1e-6)
  lu.assertAlmostEquals(pairwise[2].score, 1, 1e-5)
  for _, b in ipairs({ { text_1 = "a" }, { text_2 = "a" }, { text_1 = json.array(), text_2 = "a" }, { text_1 = { "a", "b" }, text_2 = { "a", "b", "c" } },
    { text_1 = 5, text_2 = "a" }, { text_1 = "a", text_2 = { 5 } } }) do
    b.model = "minilm"
    lu.assertEquals(post("/v1/score", b).status, 400)
  end
end
