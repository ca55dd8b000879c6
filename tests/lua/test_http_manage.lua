-- SPDX-License-Identifier: MIT
-- Models over HTTP: listed, shown, made, copied and deleted; blobs; how a Modelfile is read.
local lu = require("luaunit")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local client = require("http_client")

local ctx, port

local function start(flags) ctx = fixture.start(flags) port = ctx.port end
local function stop() fixture.stop(ctx) end
local function post(path, body, headers) return client.request(port, "POST", path, body, headers) end
local user = fixture.user

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
