-- SPDX-License-Identifier: MIT
-- Embedding requests as work of the server: bounded in number, cancelled by hang-up, batch and drain, and beside others.
local lu = require("luaunit")
local client = require("http_client")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local serve = require("mtx.serve")
local temp = require("temp")

local ctx, port

local function start(flags)
  ctx = fixture.start(flags)
  port = ctx.port
end

local function send(path, body) return client.begin(port, path, body) end

local function post(path, body) return client.request(port, "POST", path, body) end
local function held(n) return client.wait(function() return #fake.embeds == n end, 3000) end

-- Nothing of the requests is left in the server.
local function idle()
  local l = ctx.pool:list()[1]
  return client.wait(function() return l.inflight == 0 and l.n_embeds == 0 and next(l.handlers) == nil and next(l.jobs) == nil end, 3000)
end

TestEmbed = {}
function TestEmbed:tearDown() fixture.stop(ctx) end

function TestEmbed:test_the_queue_is_bounded()
  start({ max_waiting = "2" })
  post("/api/embed", { model = "minilm", input = "a" })
  fake.hold_embeds = true
  local a, b = send("/api/embed", { model = "minilm", input = "a" }), send("/v1/embeddings", { model = "minilm", input = "b" })
  lu.assertTrue(held(2))
  for path, wanted in pairs({ ["/v1/embeddings"] = { 429, "rate_limit_error" }, ["/api/embed"] = { 503 }, ["/embedding"] = { 503, "unavailable_error" } }) do
    local r = post(path, { model = "minilm", input = "c" })
    lu.assertEquals({ r.status, tonumber(r.headers["retry-after"]) >= 1 }, { wanted[1], true }, r.body)
    lu.assertStrContains(r.body, "the limit is 2")
    lu.assertEquals(type(r.json.error) == "table" and r.json.error.type or nil, wanted[2])
  end
  lu.assertEquals(post("/v1/chat/completions", { model = "other", messages = { { role = "user", content = "x" } } }).status, 200)
  fake.hold_embeds = nil
  fake.let_go_embeds()
  for _, c in ipairs({ a, b }) do
    c:until_closed(3000)
    lu.assertEquals(c:responses()[1].status, 200)
  end
  lu.assertEquals(post("/v1/embeddings", { model = "minilm", input = "c" }).status, 200)
end

-- Cancelled between two slices, within one, and before the first; what had not begun never does.
function TestEmbed:test_hang_up()
  start()
  post("/api/embed", { model = "minilm", input = "a" })
  fake.hold_embeds = true
  local texts = {}
  for i = 1, 40 do texts[i] = ("x"):rep(1000) end
  local c = send("/api/embed", { model = "minilm", input = texts })
  lu.assertTrue(held(1))
  c:close()
  lu.assertTrue(client.wait(function() return fake.cancelled == 1 end, 3000))
  fake.let_go_embeds()
  lu.assertTrue(idle())
  lu.assertEquals(#fake.embeds, 0)
  for i = 1, 400 do texts[i] = ("x"):rep(1000) end
  c = send("/api/embed", { model = "minilm", input = texts })
  lu.assertTrue(client.wait(function() return ctx.pool:list()[1].n_embeds == 1 end, 3000))
  lu.assertEquals(#fake.embeds, 0) -- still tokenizing, a part in each turn of the loop
  c:close()
  lu.assertTrue(idle())
  lu.assertEquals(#fake.embeds, 0)
end

function TestEmbed:test_batch_and_drain()
  start({ files_dir = temp.path() })
  fake.hold_embeds = true
  local line = '{"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{"model":"minilm","input":["a","b"]}}'
  local file = client.request(port, "POST", "/v1/files", '--X\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--X\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    .. line .. "\r\n--X--\r\n", { ["Content-Type"] = "multipart/form-data; boundary=X" })
  local id = post("/v1/batches", { endpoint = "/v1/embeddings", input_file_id = file.json.id }).json.id
  lu.assertTrue(held(1))
  lu.assertEquals(post("/v1/batches/" .. id .. "/cancel", {}).json.status, "cancelling")
  lu.assertTrue(client.wait(function() return (fake.cancelled or 0) > 0 end, 3000))
  fake.let_go_embeds()
  lu.assertTrue(client.wait(function() return ctx.batches.by_id[id].status == "cancelled" end, 3000))
  lu.assertTrue(idle())
  local c = send("/v1/embeddings", { model = "minilm", input = "x" })
  lu.assertTrue(held(1))
  local n = fake.cancelled
  ctx.config.drain_timeout = 0.05
  serve.drain(ctx)
  lu.assertTrue(client.wait(function() return fake.cancelled == n + 1 end, 3000))
  fake.let_go_embeds()
  c:until_closed(3000)
end
