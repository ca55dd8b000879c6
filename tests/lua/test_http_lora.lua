-- SPDX-License-Identifier: MIT
-- LoRA adapters of a server: by name and by id, per request and for all, in one batch, from Modelfiles; added, replaced
-- and removed while it works. What it answers is what the same model and adapters say in Lua.
local lu = require("luaunit")
local uv = require("luv")
local cjson = require("cjson")
local client = require("http_client")
local config = require("mtx.config")
local core = require("mtx.core")
local mtx = require("mtx")
local serve = require("mtx.serve")
local temp = require("temp")

local GOLDEN = "tests/golden/lora/"
local A, B = GOLDEN .. "llama-all.gguf", GOLDEN .. "llama-qv.gguf"
local IDS = {}
for i = 1, 40 do IDS[i] = 4 + i * 37 % 120 end

-- What Lua says, by a name for the adapters.
local want = {}
do
  local model = assert(mtx.load("build/golden/arch/llama.gguf", { threads = 1, ctx = 256 }))
  for name, lora in pairs({ base = false, a = A, b = B, half = { { A, 0.5 } }, both = { A, { B, 2 } } }) do
    want[name] = assert(model:generate({ tokens = IDS, max_tokens = 8, temperature = 0, ignore_eos = true, lora = lora })).ids
  end
  model:close()
  for x, ids in pairs(want) do
    for y, others in pairs(want) do assert(x == y or table.concat(ids, " ") ~= table.concat(others, " "), x .. " and " .. y .. " say the same") end
  end
end

local ctx, port, dir, log

local function copy(from, to) assert(uv.fs_copyfile(from, dir .. "/models/" .. to)) end

-- flags: further options; the models folder holds llama, gemma3 and, in adapters/, the adapters.
local function start(flags)
  flags = flags or {}
  log = {}
  flags.port, flags.models_dir, flags.log_level, flags.ctx, flags.persist_dir = "0", dir .. "/models", "warn", "256", dir .. "/prompts"
  local c = assert(config.load({ env = function() end, flags = flags }))
  local message
  ctx, message = serve.new(c, { log_out = { write = function(_, text) log[#log + 1] = text end } })
  if not ctx then return nil, message end
  assert(serve.listen(ctx))
  port = ctx.port
  return true
end

local function stop()
  ctx.config.drain_timeout = 0
  local done = false
  serve.drain(ctx, function() done = true end)
  lu.assertTrue(client.wait(function() return done end, 60000))
  ctx = nil
end

local function call(method, path, body) return client.request(port, method, path, body, nil, 60000) end
local function post(path, body) return call("POST", path, body) end
local function get(path) return call("GET", path) end

local function body_of(lora, more)
  local body = { model = "llama", prompt = IDS, n_predict = 8, temperature = 0, ignore_eos = true, return_tokens = true, lora = lora }
  for k, v in pairs(more or {}) do body[k] = v end
  return body
end

-- -> the ids it says, the reply
local function complete(lora, more)
  local r = post("/completion", body_of(lora, more))
  lu.assertEquals(r.status, 200, r.body)
  return r.json.tokens, r.json
end

TestHttpLora = {}

function TestHttpLora:setUp()
  dir = temp.dir()
  uv.fs_mkdir(dir .. "/models", 493)
  uv.fs_mkdir(dir .. "/models/adapters", 493)
  for _, name in ipairs({ "llama", "gemma3" }) do copy("build/golden/arch/" .. name .. ".gguf", name .. ".gguf") end
  copy(A, "adapters/all.gguf")
  copy(B, "adapters/qv.gguf")
end

function TestHttpLora:tearDown()
  if ctx then stop() end
  os.execute("rm -r " .. dir)
end

function TestHttpLora:test_without_adapters()
  start()
  lu.assertEquals(get("/lora-adapters").json, {})
  lu.assertEquals(get("/admin/loras").json, { object = "list", loras = {} })
  lu.assertEquals(complete(), want.base)
  lu.assertEquals(complete(cjson.empty_array), want.base)
  for _, lora in ipairs({ "x", { { id = 0 } }, { { name = "x", scale = 0 } } }) do
    local r = post("/v1/chat/completions", { model = "llama", messages = { { role = "user", content = "a" } }, lora = lora })
    lu.assertEquals(r.status, 400, r.body)
    lu.assertStrContains(r.json.error.message, "unknown adapter")
    lu.assertEquals(r.json.error.param, "lora")
  end
  for _, bad in ipairs({ 3, { 3 }, { { scale = 1 } }, { { id = -1 } }, { { id = 0.5 } }, { { id = 0, name = "x" } }, { { name = "x", scale = "y" } }, { name = "x" } }) do
    lu.assertEquals(post("/completion", body_of(bad)).status, 400, cjson.encode(bad))
  end
  local names = {}
  for _, m in ipairs(get("/api/tags").json.models) do names[#names + 1] = m.name end
  table.sort(names)
  lu.assertEquals(names, { "gemma3:latest", "llama:latest" }, "adapters are no models")
  local r = post("/api/generate", { model = "adapters/all", prompt = "x" })
  lu.assertStrContains(r.body, "adapter")
  lu.assertNotEquals(r.status, 200)
end

function TestHttpLora:test_by_name_by_id_and_stacked()
  start({ lora = { A .. "=0", B .. "=0" } })
  lu.assertEquals(get("/lora-adapters").json, {
    { id = 0, name = "llama-all", path = "llama-all.gguf", scale = 0, task_name = "task of llama-all", prompt_prefix = "" },
    { id = 1, name = "llama-qv", path = "llama-qv.gguf", scale = 0, task_name = "task of llama-qv", prompt_prefix = "" } })
  lu.assertEquals(complete(), want.base)
  lu.assertEquals(complete("llama-all"), want.a)
  lu.assertEquals(complete({ "llama-qv" }), want.b)
  lu.assertEquals(complete({ { name = "llama-all", scale = 0.5 } }), want.half)
  lu.assertEquals(complete({ { id = 0, scale = 0.5 } }), want.half)
  lu.assertEquals(complete({ { id = 1, scale = 2 }, { id = 0, scale = 1 } }), want.both)
  lu.assertEquals(complete({ { id = 1, scale = 0 } }), want.base)
  lu.assertEquals(complete(nil, { model = "llama+llama-all" }), want.a)
  lu.assertEquals(post("/completion", body_of(nil, { model = "llama+none" })).status, 400)
  lu.assertEquals(post("/completion", body_of({ "llama-all", { id = 0 } })).status, 400)
  lu.assertEquals(post("/completion", body_of({ { id = 2, scale = 1 } })).status, 400)
  local r = post("/completion", body_of("llama-all", { model = "gemma3" }))
  lu.assertEquals(r.status, 400)
  lu.assertStrContains(r.body, "belongs to another model")
  lu.assertNotStrContains(r.body, GOLDEN)
end

function TestHttpLora:test_every_dialect()
  start({ lora = { A .. "=0" } })
  lu.assertEquals(post("/api/create", { model = "chat", from = "llama", template = "{% for m in messages %}{{ m.content }}{% endfor %}", stream = false }).status, 200)
  local messages = { { role = "user", content = "abc" } }
  local bodies = {
    ["/v1/chat/completions"] = { messages = messages, max_tokens = 8, temperature = 0, ignore_eos = true },
    ["/v1/completions"] = { prompt = "abc", max_tokens = 8, temperature = 0, ignore_eos = true },
    ["/v1/messages"] = { messages = messages, max_tokens = 8, temperature = 0 },
    ["/v1/responses"] = { input = "abc", max_output_tokens = 16, temperature = 0 },
    ["/api/chat"] = { messages = messages, stream = false, options = { num_predict = 8, temperature = 0 } },
    ["/api/generate"] = { prompt = "abc", stream = false, options = { num_predict = 8, temperature = 0 } },
    ["/v1/embeddings"] = { input = "abc" }, ["/api/embed"] = { input = "abc" }, ["/embedding"] = { content = "abc" },
  }
  for path, body in pairs(bodies) do
    local function text(lora)
      body.model, body.lora = "chat", lora
      local r = post(path, body)
      lu.assertEquals(r.status, 200, path .. r.body)
      local j = r.json
      local out = path:find("embed") and (j.data and j.data[1].embedding or j.embeddings and j.embeddings[1] or j[1].embedding)
        or j.choices and (j.choices[1].text or j.choices[1].message.content) or j.message and j.message.content or j.response or j.content or j.output
      return cjson.encode(out):gsub('"id":"[^"]*"', "")
    end
    local base, one = text(), text("llama-all")
    lu.assertNotEquals(base, one, path)
    lu.assertEquals(text({ { id = 0, scale = 1 } }), one, path)
  end
end

function TestHttpLora:test_scales_for_all_requests()
  start({ lora = { A, B .. "=0" } })
  lu.assertEquals(complete(), want.a)
  lu.assertEquals(complete({ { id = 1, scale = 1 } }), want.b, "adapters that are not named are off")
  lu.assertEquals(complete({ { id = 0, scale = 0 } }), want.base)
  lu.assertEquals(post("/lora-adapters", { { id = 0, scale = 1 }, { id = 1, scale = 2 } }).json, { success = true })
  lu.assertEquals(complete(), want.both)
  lu.assertEquals(get("/lora-adapters").json[2].scale, 2)
  lu.assertEquals(post("/lora-adapters", { { id = 1, scale = 1 } }).status, 200)
  lu.assertEquals(complete(), want.b)
  lu.assertEquals(post("/lora-adapters", "[]").status, 200)
  lu.assertEquals(complete(), want.base)
  for _, bad in ipairs({ "", "{}", "[1]", '[{"id":7,"scale":1}]', '[{"id":0,"scale":"x"}]' }) do
    lu.assertEquals(post("/lora-adapters", bad).status, 400, bad)
  end
end

function TestHttpLora:test_a_default_that_does_not_fit_is_left_out()
  start({ lora = { A } })
  lu.assertEquals(post("/completion", body_of(nil, { model = "gemma3" })).status, 200)
  lu.assertEquals(post("/completion", body_of(nil, { model = "gemma3" })).status, 200)
  local told = 0
  for _, line in ipairs(log) do told = told + (line:find("does not fit", 1, true) and 1 or 0) end
  lu.assertEquals(told, 1)
  lu.assertEquals(complete(), want.a)
end

function TestHttpLora:test_added_replaced_removed()
  start()
  local function admin(body) return post("/admin/loras", body) end
  for body, status in pairs({ [{ name = "x", path = "/etc/passwd" }] = 404, [{ name = "x", path = "../models/../../x" }] = 404, [{ name = "x", path = "none.gguf" }] = 404,
    [{ name = "x", path = A }] = 404, [{ name = "x", path = "llama.gguf" }] = 400, [{ name = "x/y", path = "adapters/all.gguf" }] = 400, [{ name = "", path = "adapters/all.gguf" }] = 400,
    [{ path = "adapters/all.gguf" }] = 400, [{ name = "x" }] = 400, [{ name = "x", path = "adapters" }] = 404, [{ name = "x", path = "adapters/../adapters/all.gguf" }] = 404, [{ name = "x", path = "adapters/all.gguf", scale = "a" }] = 400 }) do
    local r = admin(body)
    lu.assertEquals(r.status, status, cjson.encode(body) .. r.body)
    lu.assertNotStrContains(r.body, dir)
  end
  local r = admin({ name = "mine", path = "adapters/all.gguf" })
  lu.assertEquals({ r.status, r.json.name, r.json.architecture, r.json.scale }, { 200, "mine", "llama", 0 })
  lu.assertEquals(get("/admin/loras").json.loras, { "mine" })
  lu.assertEquals(complete(), want.base)
  lu.assertEquals(complete("mine"), want.a)
  lu.assertEquals(admin({ name = "mine", path = dir .. "/models/adapters/qv.gguf" }).status, 200)
  lu.assertEquals(complete("mine"), want.b)
  lu.assertEquals(admin({ name = "two", path = "adapters/all.gguf", scale = 0.5 }).status, 200)
  lu.assertEquals(complete(), want.half)
  lu.assertEquals(get("/lora-adapters").json[2].name, "two")
  -- One that runs keeps its adapter.
  local c = client.connect(port)
  local body = cjson.encode(body_of("mine", { stream = true, n_predict = 100 }))
  c:send("POST /completion HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  lu.assertTrue(c:until_found("data:", 10000))
  lu.assertEquals(call("DELETE", "/admin/loras/mine").json, { name = "mine", deleted = true, kept = true })
  lu.assertEquals(call("DELETE", "/admin/loras/mine").status, 404)
  lu.assertTrue(c:until_closed(20000))
  lu.assertStrContains(c.data, '"stop":true')
  c:close()
  lu.assertEquals(post("/completion", body_of("mine")).status, 400)
  lu.assertEquals(get("/admin/loras").json.loras, { "two" })
end

-- What was added by a request is there after a restart; what cannot be used then is said, and comes back when it can.
function TestHttpLora:test_they_outlast_the_server()
  start()
  local function admin(body) return post("/admin/loras", body) end
  lu.assertEquals({ admin({ name = "mine", path = "adapters/all.gguf", scale = 0.5 }).json.kept, admin({ name = "gone", path = "adapters/qv.gguf" }).json.kept }, { true, true })
  lu.assertEquals(uv.fs_stat(dir .. "/models/.mtx/loras.json").mode & 511, tonumber("600", 8))
  stop()
  assert(uv.fs_rename(dir .. "/models/adapters/qv.gguf", dir .. "/models/adapters/away"))
  start()
  lu.assertEquals(get("/admin/loras").json.loras, { "mine" })
  lu.assertEquals(complete(), want.half)
  lu.assertStrContains(table.concat(log), "an adapter of an earlier server cannot be used")
  lu.assertEquals(admin({ name = "mine", path = "adapters/all.gguf", scale = 0 }).status, 200)
  stop()
  assert(uv.fs_rename(dir .. "/models/adapters/away", dir .. "/models/adapters/qv.gguf"))
  start({ lora = { A .. "=0" } })
  lu.assertEquals(get("/admin/loras").json.loras, { "llama-all", "mine", "gone" })
  lu.assertEquals({ (complete()), (complete("gone")) }, { want.base, want.b })
  for _, name in ipairs({ "mine", "gone" }) do lu.assertEquals(call("DELETE", "/admin/loras/" .. name).json.kept, true) end
  stop()
  start()
  lu.assertEquals(get("/admin/loras").json.loras, {})
  stop()
  -- The file is what anybody wrote.
  for _, text in ipairs({ "", "{", "[1]", '[{"name":"../x","path":"adapters/all.gguf","scale":1}]', '[{"name":"x","path":"../../etc/passwd","scale":1}]', '[{"name":"x","path":"adapters/all.gguf","scale":"a"}]', '{"name":1}' }) do
    local f <close> = assert(io.open(dir .. "/models/.mtx/loras.json", "w"))
    f:write(text)
    f:flush()
    lu.assertTrue(start(), text)
    lu.assertEquals(get("/admin/loras").json.loras, {}, text)
    stop()
  end
  start()
end

-- A folder that cannot be written to: they work, and it is said that they will not last.
function TestHttpLora:test_a_folder_that_cannot_be_written_to()
  start()
  assert(uv.fs_symlink("/proc/self/nowhere", dir .. "/models/.mtx"))
  lu.assertEquals(post("/admin/loras", { name = "mine", path = "adapters/all.gguf" }).json.kept, false)
  lu.assertEquals(complete("mine"), want.a)
  lu.assertStrContains(table.concat(log), "the list of adapters")
  os.remove(dir .. "/models/.mtx")
end

function TestHttpLora:test_a_mixed_batch()
  start({ lora = { A .. "=0", B .. "=0" }, parallel = "6" })
  local asks = { { nil, "base" }, { "llama-all", "a" }, { "llama-qv", "b" }, { { { id = 0, scale = 0.5 } }, "half" }, { { { id = 1, scale = 2 }, { id = 0 } }, "both" }, { nil, "base" } }
  local open = {}
  for i, ask in ipairs(asks) do
    local body = cjson.encode(body_of(ask[1], { cache_prompt = i % 2 == 0 }))
    open[i] = client.connect(port)
    open[i]:send("POST /completion HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  end
  for i, ask in ipairs(asks) do
    lu.assertTrue(open[i]:until_closed(20000))
    local r = open[i]:responses()[1]
    lu.assertEquals(cjson.decode(r.body).tokens, want[ask[2]], "request " .. i)
    open[i]:close()
  end
end

function TestHttpLora:test_prompts_are_remembered_for_their_adapters()
  uv.fs_mkdir(dir .. "/slots", 493)
  start({ lora = { A .. "=0" }, slot_save_path = dir .. "/slots" })
  local function cached(lora, ids)
    local tokens, reply = complete(lora)
    lu.assertEquals(tokens, ids)
    return reply.tokens_cached
  end
  lu.assertEquals(cached(nil, want.base), 0)
  lu.assertEquals(cached("llama-all", want.a), 0)
  lu.assertEquals(cached({ { id = 0, scale = 0.5 } }, want.half), 0)
  lu.assertEquals(cached(nil, want.base), #IDS - 1)
  lu.assertEquals(cached("llama-all", want.a), #IDS - 1)
  -- The slot holds the last request: with its adapters.
  lu.assertEquals(post("/slots/0?action=save", { filename = "s" }).json.n_saved, #IDS + 7)
  local r = post("/slots/0?action=erase", {})
  lu.assertEquals(r.json.n_erased, #IDS + 7, r.body)
  lu.assertEquals(cached("llama-all", want.a), 0)
  stop()
  start({ lora = { A .. "=0" }, slot_save_path = dir .. "/slots" })
  lu.assertEquals(post("/slots/0?action=restore", { filename = "s", model = "llama" }).json.n_restored, #IDS + 7)
  lu.assertEquals(cached(nil, want.base), 0)
  lu.assertEquals(cached("llama-all", want.a), #IDS - 1)
end

function TestHttpLora:test_models_with_adapters()
  start({ lora = { B .. "=0" } })
  local f = assert(io.open(dir .. "/models/tuned.Modelfile", "w"))
  f:write("FROM llama.gguf\nADAPTER adapters/all.gguf\n")
  f:close()
  ctx.catalog:refresh(true)
  lu.assertEquals(complete(nil, { model = "tuned" }), want.a)
  lu.assertEquals(complete({ { id = 0, scale = 2 } }, { model = "tuned" }), want.both, "requests add to them")
  lu.assertEquals(complete(), want.base)
  lu.assertEquals(ctx.pool:list()[1].model.weights.n_open, 2, "the two have one copy of the weights")
  lu.assertStrContains(post("/api/show", { model = "tuned" }).json.modelfile, "ADAPTER all.gguf\n")
  -- By digest, and in the text of a Modelfile.
  local g = assert(io.open(A, "rb"))
  local bytes = g:read("a")
  g:close()
  local digest = "sha256:" .. core.sha256.of(bytes)
  lu.assertEquals(post("/api/create", { model = "made", from = "llama", adapters = { ["a.gguf"] = digest }, stream = false }).status, 400, "the blob is not here")
  lu.assertEquals(post("/api/blobs/" .. digest, bytes).status, 201)
  for i, body in ipairs({ { from = "llama", adapters = { ["a.gguf"] = digest } }, { modelfile = "FROM llama\nADAPTER @" .. digest .. "\n" }, { modelfile = "FROM llama\nADAPTER adapters/all.gguf\n" } }) do
    body.model, body.stream = "made" .. i, false
    local r = post("/api/create", body)
    lu.assertEquals(r.status, 200, r.body)
    lu.assertEquals(complete(nil, { model = "made" .. i }), want.a)
  end
  lu.assertEquals(post("/api/create", { model = "child", from = "made1", system = "x", stream = false }).status, 200)
  lu.assertEquals(complete(nil, { model = "child" }), want.a, "a child has its parent's")
  for _, body in ipairs({ { from = "llama", adapters = { a = "sha256:12" } }, { from = "llama", adapters = { a = 3 } }, { modelfile = "FROM llama\nADAPTER llama.gguf\n" } }) do
    body.model, body.stream = "bad", false
    lu.assertEquals(post("/api/create", body).status, 400, cjson.encode(body))
  end
  lu.assertEquals(post("/api/create", { model = "bad", modelfile = "FROM llama\nADAPTER /etc/passwd\n", stream = false }).status, 404)
  -- One that does not fit its model says so.
  lu.assertEquals(post("/api/create", { model = "wrong", from = "gemma3", adapters = { ["a.gguf"] = digest }, stream = false }).status, 200)
  local r = post("/completion", body_of(nil, { model = "wrong" }))
  lu.assertEquals(r.status, 400)
  lu.assertStrContains(r.body, "belongs to another model")
end

function TestHttpLora:test_memory_and_number()
  start({ lora = { A, B .. "=0", GOLDEN .. "llama-q8_0.gguf=0" } })
  local f = assert(io.open(dir .. "/models/tuned.Modelfile", "w"))
  f:write("FROM llama.gguf\nADAPTER adapters/qv.gguf\n")
  f:close()
  ctx.catalog:refresh(true)
  local function bytes_of(name) return ctx.adapters:bytes_of(assert(ctx.catalog:find(name))) end
  local one, model = bytes_of("llama"), assert(mtx.load("build/golden/arch/llama.gguf", { threads = 1 }))
  local function packed(path) return assert(model:adapter(path)):info().weight_bytes end
  for i, path in ipairs({ A, B, GOLDEN .. "llama-q8_0.gguf" }) do
    local n = ctx.adapters.list[i].info.bytes
    lu.assertTrue(n <= packed(path) and n > 0.95 * packed(path), path)
  end
  model:close()
  lu.assertEquals(bytes_of("tuned"), one + ctx.adapters.list[2].info.bytes)
  local memory, entry = require("mtx.serve.models.memory"), { size = 1000 }
  local before = memory.wanted(entry, {}, 256, ctx.config)
  entry.adapter_bytes = 500
  lu.assertEquals(memory.wanted(entry, {}, 256, ctx.config), math.ceil(before * 1.5))
  -- With those of the model more than one request may have.
  local many = {}
  for i = 1, 16 do
    copy(B, "adapters/n" .. i .. ".gguf")
    lu.assertEquals(post("/admin/loras", { name = "n" .. i, path = "adapters/n" .. i .. ".gguf" }).status, 200)
    many[i] = { name = "n" .. i, scale = 0.01 }
  end
  lu.assertEquals(post("/completion", body_of(many)).status, 200)
  local r = post("/completion", body_of(many, { model = "tuned" }))
  lu.assertEquals(r.status, 400, r.body)
  lu.assertStrContains(r.body, "17 adapters")
  many[17] = { id = 0 }
  lu.assertEquals(post("/completion", body_of(many)).status, 400)
end

function TestHttpLora:test_a_server_with_a_bad_adapter_does_not_start()
  local ok, message = start({ lora = { "none.gguf" } })
  lu.assertNil(ok)
  lu.assertStrContains(message, "none.gguf")
  ok, message = start({ lora = { dir .. "/models/llama.gguf" } })
  lu.assertNil(ok)
  lu.assertStrContains(message, "no LoRA adapter")
  ok, message = start({ lora = { A, A } })
  lu.assertNil(ok)
  lu.assertStrContains(message, "llama-all")
end
