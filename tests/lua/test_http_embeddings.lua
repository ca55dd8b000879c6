-- SPDX-License-Identifier: MIT
-- Embeddings in each dialect over HTTP against the scripted engine.
local lu = require("luaunit")
local cjson = require("cjson")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local json = require("mtx.json")
local client = require("http_client")

local ctx, port

local function start(flags) ctx = fixture.start(flags) port = ctx.port end
local function stop() fixture.stop(ctx) end
local function post(path, body, headers) return client.request(port, "POST", path, body, headers) end

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
