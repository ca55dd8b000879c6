-- SPDX-License-Identifier: MIT
-- Faults of embeddings that people report on such servers, played against the real MiniLM; numbers as in test_faults.lua.
local lu = require("luaunit")
local client = require("http_client")
local faults = require("faults_server")

local post = faults.post

TestEmbeddingFaults = {}
function TestEmbeddingFaults:setUp() faults.start({ models_dir = os.getenv("MTX_MODELS_DIR") or "models", ctx = "512" }) end
TestEmbeddingFaults.tearDown = faults.stop

local function embed(input, more)
  local body = { model = "minilm", input = input }
  for k, v in pairs(more or {}) do body[k] = v end
  return post("/api/embed", body)
end

-- n words of one token each.
local function words(n) return ("the "):rep(n) end

function TestEmbeddingFaults:test_t79_every_length_up_to_the_context_and_t84_beyond()
  for _, n in ipairs({ 1, 200, 257, 400, 510 }) do
    local r = embed(words(n))
    lu.assertEquals({ r.status, r.json.prompt_eval_count }, { 200, n + 2 }, r.body:sub(1, 200))
  end
  for _, truncate in ipairs({ "absent", true }) do
    local r = embed(words(1600), { truncate = truncate ~= "absent" and true or nil })
    lu.assertEquals({ r.status, r.json.prompt_eval_count }, { 200, 512 }, r.body:sub(1, 200))
  end
  local r = embed({ "short", words(511) }, { truncate = false })
  lu.assertEquals(r.status, 400)
  lu.assertStrContains(r.json.error, "input length exceeds the context length")
  lu.assertStrContains(r.json.error, "1")
end

function TestEmbeddingFaults:test_t81_lists_keep_order_and_equal_the_single_one()
  local one = embed("a").json.embeddings[1]
  local three = embed({ "a", "b", "a" }).json.embeddings
  lu.assertEquals(#three, 3)
  lu.assertEquals(three[1], one)
  lu.assertEquals(three[3], one)
  lu.assertNotEquals(three[2], one)
  local r = post("/v1/embeddings", { model = "minilm", input = { "a", "b" } })
  lu.assertEquals({ r.json.data[1].index, r.json.data[2].index, r.json.data[1].embedding }, { 0, 1, one })
  lu.assertEquals(post("/v1/embeddings", { model = "minilm", input = require("cjson").empty_array }).status, 400)
  lu.assertEquals(#post("/v1/embeddings", { model = "minilm", input = { "" } }).json.data[1].embedding, 384)
  lu.assertEquals(#post("/v1/embeddings", { model = "minilm", input = { { 101, 2054, 102 } } }).json.data[1].embedding, 384)
end

function TestEmbeddingFaults:test_t82_a_wrong_field_is_named_or_taken()
  local r = post("/api/embeddings", { model = "minilm", input = "a" })
  lu.assertTrue(r.status == 400 and r.json.error:find("prompt") ~= nil or #r.json.embedding == 384, r.body:sub(1, 200))
  r = post("/api/embed", { model = "minilm", prompt = "a" })
  lu.assertTrue(r.status == 400 and r.json.error:find("input") ~= nil or #r.json.embeddings[1] == 384, r.body:sub(1, 200))
end

function TestEmbeddingFaults:test_t83_mixed_lengths_in_one_batch_equal_each_alone()
  local texts = {}
  for i = 1, 8 do texts[i] = words(i * i * 4) end
  local batch = embed(texts).json.embeddings
  for i, text in ipairs(texts) do lu.assertEquals(embed(text).json.embeddings[1], batch[i], "text " .. i) end
end

function TestEmbeddingFaults:test_t85_many_inputs_on_one_socket()
  local c = client.connect(faults.ctx.port)
  local texts = {}
  for i = 1, 32 do texts[i] = "text number " .. i end
  local body = require("mtx.json").encode({ model = "minilm", input = require("mtx.json").array(texts) })
  local before = #io.popen("ls /proc/self/fd"):read("a")
  for _ = 1, 10 do c:send(("POST /api/embed HTTP/1.1\r\nHost: x.localhost\r\nContent-Length: %d\r\n\r\n%s"):format(#body, body)) end
  lu.assertTrue(client.wait(function() return #c:responses() == 10 end, 30000) == true)
  for _, r in ipairs(c:responses()) do lu.assertEquals(r.status, 200) end
  lu.assertNil(c.closed)
  c:close()
  lu.assertEquals(#io.popen("ls /proc/self/fd"):read("a"), before)
end
