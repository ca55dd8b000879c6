-- SPDX-License-Identifier: MIT
-- Rows of the wire contract that no other test looks at: fields of llama-server's, Ollama's and OpenAI's that are few words each.
local lu = require("luaunit")
local client = require("http_client")
local fake = require("fake_engine")
local fixture = require("http_fixture")

local ctx, port

local function post(path, body) return client.request(port, "POST", path, body) end
local function get(path) return client.request(port, "GET", path) end
local user = fixture.user

-- The last request the engine got, and its prompt as text.
local function sent()
  local all = fake.engines[#fake.engines].submitted
  local args, out = all[#all], {}
  for i, id in ipairs(args.tokens) do out[i] = id < 0x110000 and utf8.char(id) or fake.special_text(id) end
  return args, table.concat(out)
end

TestContract = {}
function TestContract:setUp()
  ctx = fixture.start()
  port = ctx.port
end
function TestContract:tearDown() fixture.stop(ctx) end

function TestContract:test_lists_of_inputs()
  local many = {}
  for i = 1, 300 do many[i] = "text " .. i end
  for path, field in pairs({ ["/v1/embeddings"] = "data", ["/api/embed"] = "embeddings" }) do
    local r = post(path, { model = "minilm", input = many })
    lu.assertEquals({ r.status, r.json and #r.json[field] }, { 200, 300 }, r.body)
  end
  lu.assertEquals(#post("/embedding", { model = "minilm", input = many }).json, 300)
  for i = 301, 2049 do many[i] = "x" end
  for _, path in ipairs({ "/v1/embeddings", "/api/embed", "/embedding" }) do lu.assertEquals(post(path, { model = "minilm", input = many }).status, 400) end
  for _, input in ipairs({ require("mtx.json").null, require("mtx.json").array() }) do
    local r = post("/api/embed", { model = "minilm", input = input })
    lu.assertEquals({ r.status, r.json and r.json.embeddings }, { 200, {} }, r.body)
  end
  lu.assertEquals(post("/v1/embeddings", { model = "minilm", input = { { 65, "b" } } }).status, 400)
end

-- Token ids and texts in one prompt; a list of strings is several.
function TestContract:test_mixed_prompts()
  local r = post("/completion", { model = "tiny", prompt = { 65, "bc", 68, 69 }, n_predict = 1 })
  lu.assertEquals(r.status, 200, r.body)
  lu.assertNotNil(r.json.content) -- one reply, no list
  lu.assertEquals(select(2, sent()), "AbcDE")
  r = post("/completion", { model = "tiny", prompt = { { "a", 66 }, "c" }, n_predict = 1 })
  lu.assertEquals({ r.status, #r.json }, { 200, 2 })
  lu.assertEquals(post("/v1/completions", { model = "tiny", prompt = { "a", 66 }, max_tokens = 1 }).status, 200)
  lu.assertEquals(select(2, sent()), "aB")
  for _, bad in ipairs({ { 65, {} }, { 65, "a", -1 }, { 65, "a", 1.5 }, { 65, true }, { { 65, 99999999, "a" } } }) do
    lu.assertEquals(post("/completion", { model = "tiny", prompt = bad }).status, 400)
  end
end

function TestContract:test_samplers_on_v1()
  post("/v1/chat/completions", { model = "tiny", messages = user("x"), samplers = { "top_k", "typ_p", "temperature" } })
  lu.assertEquals(sent().sampler.order, { "top_k", "typical_p", "temperature" })
  lu.assertEquals(post("/v1/chat/completions", { model = "tiny", messages = user("x"), samplers = { "magic" } }).status, 400)
  local r = post("/completion", { model = "tiny", prompt = "x", n_probs = 2, post_sampling_probs = true })
  lu.assertEquals(r.status, 400)
  lu.assertStrContains(r.body, "before sampling")
  lu.assertEquals(post("/completion", { model = "tiny", prompt = "x", n_probs = 2, post_sampling_probs = false }).status, 200)
end

-- Token ids in every chunk, and what ends an answer without making it an error, on every API of llama-server's.
function TestContract:test_return_tokens_and_the_soft_deadline()
  fake.reply = function() return "ab cd" end
  local ids, text = {}, ""
  for _, e in ipairs(client.sse(post("/completion", { model = "tiny", prompt = "x", stream = true, return_tokens = true }).body)) do
    if not e.data.stop then text = text .. e.data.content end
    if not e.data.stop then table.move(e.data.tokens, 1, #e.data.tokens, #ids + 1, ids) end
  end
  lu.assertEquals({ text, ids }, { "ab cd", { 97, 99 } }) -- the scripted model's token of a piece is its first character
  lu.assertEquals(client.sse(post("/completion", { model = "tiny", prompt = "x", stream = true }).body)[1].data.tokens, {})
  fake.reply = function() return { text = "a b c", fail_after = 2, code = "deadline" } end
  local r = post("/v1/chat/completions", { model = "tiny", messages = user("x"), t_max_predict_ms = 50000 })
  lu.assertEquals({ r.status, r.json.choices[1].finish_reason, r.json.choices[1].message.content }, { 200, "length", "a b " }, r.body)
  lu.assertEquals(post("/v1/chat/completions", { model = "tiny", messages = user("x"), deadline_ms = 50000 }).status, 503)
end

function TestContract:test_native_pings()
  fake.reply = function() return { text = "a b", delay_ms = 1200 } end
  local r = post("/completion", { model = "tiny", prompt = "x", stream = true, sse_ping_interval = 1 })
  lu.assertStrContains(r.body, ":\n\n")
end

function TestContract:test_the_names_of_a_budget()
  for _, name in ipairs({ "thinking_budget_tokens", "reasoning_budget_tokens" }) do
    fake.cancelled = nil
    fake.reply = function(prompt)
      if prompt:find("</think>", 1, true) then return "done" end
      return { text = "<think>\n" .. ("hm "):rep(500), delay_ms = 1 }
    end
    lu.assertEquals(post("/v1/chat/completions", { model = "tiny", messages = user("x"), [name] = -2 }).status, 400)
    local r = post("/v1/chat/completions", { model = "tiny", messages = user("x"), [name] = 3 })
    lu.assertEquals({ r.json.choices[1].message.content, fake.cancelled }, { "done", 1 }, r.body)
  end
end

-- The oldest turns go when asked to; else the prompt is refused.
function TestContract:test_responses_truncation()
  local input = {}
  for i = 1, 30 do input[i] = { role = i % 2 == 1 and "user" or "assistant", content = ("turn %d "):format(i):rep(12) } end
  input[31] = { role = "user", content = "the last" }
  lu.assertEquals(post("/v1/responses", { model = "tiny", input = input }).status, 400)
  local r = post("/v1/responses", { model = "tiny", input = input, truncation = "auto" })
  lu.assertEquals(r.status, 200, r.body)
  local args, text = sent()
  lu.assertTrue(#args.tokens < 2048)
  lu.assertStrContains(text, "the last")
  lu.assertNotStrContains(text, "turn 1 ")
end

function TestContract:test_responses_are_paged()
  for i = 1, 5 do post("/v1/responses", { model = "tiny", input = "@say{r" .. i .. "}" }) end
  local first = get("/v1/responses?limit=2").json
  lu.assertEquals({ #first.data, first.has_more, first.last_id }, { 2, true, first.data[2].id })
  lu.assertEquals(first.data[1].output[1].content[1].text, "r5")
  local rest = get("/v1/responses?limit=10&after=" .. first.last_id).json
  lu.assertEquals({ #rest.data, rest.has_more, rest.data[1].output[1].content[1].text }, { 3, false, "r3" })
end

function TestContract:test_busy_slots()
  post("/api/generate", { model = "tiny", prompt = "x", stream = false })
  lu.assertStrContains(get("/metrics").body, "\nllamacpp:n_busy_slots_per_decode ")
end

TestRealContract = {}

-- With a real template: of the request itself, and without what begins the answer.
function TestRealContract:test_templates()
  local c = assert(require("mtx.config").load({ env = function() end, flags = { port = "0", models_dir = os.getenv("MTX_MODELS_DIR") or "models", ctx = "256", log_level = "error" } }))
  ctx = assert(require("mtx.serve").new(c))
  assert(require("mtx.serve").listen(ctx))
  port = ctx.port
  local name = "SmolLM2-135M-Instruct.Q4_1"
  local whole = post("/apply-template", { model = name, messages = user("hello") }).json.prompt
  local cut = post("/apply-template", { model = name, messages = user("hello"), add_generation_prompt = false }).json.prompt
  lu.assertEquals(whole, cut .. "<|im_start|>assistant\n")
  local function debug(template) return post("/api/generate", { model = name, prompt = "hello", system = "be brief", template = template, _debug_render_only = true }) end
  lu.assertEquals(debug("{{ messages[0].content }}|{{ messages[1].content }}").json._debug_info.rendered_template, "be brief|hello")
  lu.assertStrContains(debug().json._debug_info.rendered_template, "<|im_start|>user\nhello<|im_end|>")
  local r = debug("{{ messages[0] ")
  lu.assertEquals(r.status, 400, r.body)
  local lists = { get("/v1/models").json.data, get("/api/tags").json.models }
  for _, list in ipairs(lists) do lu.assertTrue(#list >= 3) end
  local minilm
  for _, m in ipairs(lists[2]) do if m.details.family == "bert" then minilm = m.name end end
  for _, input in ipairs({ require("mtx.json").null, require("mtx.json").array() }) do
    r = post("/api/embed", { model = minilm, input = input })
    lu.assertEquals({ r.status, r.json and r.json.embeddings }, { 200, {} }, r.body)
  end
  fixture.stop(ctx)
end
