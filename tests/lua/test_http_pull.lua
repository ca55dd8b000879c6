-- SPDX-License-Identifier: MIT
-- POST /api/pull: progress as Ollama's clients read it, honest status codes, one job for
-- everybody who wants a model, and clients that go away.
local lu = require("luaunit")
local uv = require("luv")
local client = require("http_client")
local core = require("mtx.core")
local fake = require("fake_hub")
local fixture = require("http_fixture")
local pulls = require("pull_fixture")

local BODY = pulls.bytes(200000)
local NAME = "hf.co/u/r:Q4_0"

local hub, ctx, port, dir

local function start(flags, more)
  local f = { hub = hub.url }
  for k, v in pairs(flags or {}) do f[k] = v end
  ctx, dir = fixture.start(f, function(deps)
    deps.pull = { retry_ms = 1, progress_ms = 0 }
    for k, v in pairs(more or {}) do deps.pull[k] = v end
  end)
  port = ctx.port
end

TestHttpPull = {}
function TestHttpPull:setUp()
  hub = fake.hub({ ["u/r"] = { ["m-Q4_0.gguf"] = BODY } })
  start()
end
function TestHttpPull:tearDown()
  fixture.stop(ctx)
  hub:close()
end

local function post(path, body) return client.request(port, "POST", path, body) end
local function listed()
  local out = {}
  for _, m in ipairs(client.request(port, "GET", "/api/tags").json.models) do out[m.name] = m.size end
  return out
end

-- The file stops half way and the connection stays.
local function stuck(times)
  hub.serve["m-Q4_0.gguf"] = function(r, bytes)
    local a = fake.bytes(r, bytes)
    if r.n <= (times or 1) then a.length, a.body, a.hold = #a.body, a.body:sub(1, 80000), true end
    return a
  end
end

function TestHttpPull:test_streamed()
  local r = post("/api/pull", { model = NAME })
  lu.assertEquals(r.status, 200, r.body)
  lu.assertEquals(r.headers["content-type"], "application/x-ndjson")
  local lines = client.ndjson(r.body)
  lu.assertEquals({ lines[1].status, lines[2].status, lines[#lines - 1].status, lines[#lines].status },
    { "pulling manifest", "pulling " .. core.sha256.of(BODY):sub(1, 12), "writing manifest", "success" })
  local last = -1
  for _, l in ipairs(lines) do
    if l.completed then
      lu.assertEquals({ l.digest, l.total }, { "sha256:" .. core.sha256.of(BODY), #BODY })
      lu.assertTrue(l.completed >= last)
      last = l.completed
    end
  end
  lu.assertEquals(last, #BODY)
  lu.assertEquals(listed()[NAME], #BODY)
  r = post("/api/chat", { model = "hf.co/U/R:q4_0", messages = { { role = "user", content = "@say{a b}" } }, stream = false })
  lu.assertEquals(r.status, 200, r.body)
  lu.assertEquals(r.json.message.content, "a b")
end

function TestHttpPull:test_whole_and_by_the_old_name()
  local r = post("/api/pull", { name = NAME, stream = false, insecure = true })
  lu.assertEquals({ r.status, r.body }, { 200, '{"status":"success"}' })
  lu.assertEquals(listed()[NAME], #BODY)
  r = client.request(port, "DELETE", "/api/delete", { model = NAME })
  lu.assertEquals(r.status, 200, r.body)
  lu.assertNil(listed()[NAME])
  lu.assertNil(uv.fs_stat(dir .. "/hf.co"))
end

function TestHttpPull:test_failures_have_their_status_streamed_or_not()
  for _, stream in ipairs({ true, false }) do
    local function status(body, want, words)
      body.stream = stream
      local r = post("/api/pull", body)
      lu.assertEquals(r.status, want, r.body)
      lu.assertStrContains(r.json.error, words)
    end
    status({}, 400, "model is required")
    status({ model = 5 }, 400, "must be a string")
    status({ model = "hf.co/u" }, 400, "hf.co/USER/REPO")
    status({ model = "https://example.com/m.gguf" }, 400, "not among the places")
    status({ model = "hf.co/u/none" }, 404, "cannot be read at the hub")
    status({ model = "hf.co/u/r:Q8_0" }, 404, "there are: Q4_0")
    hub.down = true
    status({ model = NAME }, 502, "cannot reach 127.0.0.1:" .. hub.port)
    hub.down = false
  end
end

function TestHttpPull:test_a_failure_on_the_way_is_the_last_line()
  hub.serve["m-Q4_0.gguf"] = function(r, bytes) return fake.bytes(r, ("x"):rep(#bytes)) end
  local r = post("/api/pull", { model = NAME })
  lu.assertEquals(r.status, 200)
  local lines = client.ndjson(r.body)
  lu.assertStrContains(lines[#lines].error, "do not hash to")
  r = post("/api/pull", { model = NAME, stream = false })
  lu.assertEquals(r.status, 502, r.body)
  lu.assertNil(listed()[NAME])
end

local function request(body) return ("POST /api/pull HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s"):format(#body, body) end

function TestHttpPull:test_T101_two_clients_share_a_pull_and_the_last_to_leave_ends_it()
  stuck(1)
  local body = '{"model":"' .. NAME .. '"}'
  local a, b = client.connect(port):send(request(body)), client.connect(port)
  lu.assertTrue(a:until_found('"completed":80000', 10000))
  b:send(request(body))
  lu.assertTrue(b:until_found('"completed":80000', 10000))
  lu.assertEquals(#hub:asked("/resolve/"), 1)
  a:close()
  local job = ctx.pulls.jobs[NAME:lower()]
  lu.assertTrue(client.wait(function() return #job.listeners == 1 end))
  lu.assertEquals(ctx.pulls.jobs[NAME:lower()], job)
  b:close()
  lu.assertTrue(client.wait(function() return not ctx.pulls.jobs[NAME:lower()] end))
  lu.assertEquals(ctx.catalog:partials()[1].size, 80000)
  lu.assertNil(listed()[NAME])
  local r = post("/api/pull", { model = NAME, stream = false })
  lu.assertEquals(r.status, 200, r.body)
  lu.assertEquals(hub:asked("/resolve/")[2].headers.range, "bytes=80000-")
end

function TestHttpPull:test_T101_a_partial_model_is_deleted_by_name_but_not_while_it_is_pulled()
  stuck(1)
  local c = client.connect(port):send(request('{"model":"' .. NAME .. '"}'))
  lu.assertTrue(c:until_found('"completed":80000', 10000))
  local function delete() return client.request(port, "DELETE", "/api/delete", { model = NAME }) end
  lu.assertEquals(delete().status, 409)
  c:close()
  lu.assertTrue(client.wait(function() return not ctx.pulls.jobs[NAME:lower()] end))
  lu.assertEquals(delete().status, 200)
  lu.assertEquals(ctx.catalog:partials(), {})
  lu.assertEquals(delete().status, 404)
end

function TestHttpPull:test_others_are_served_meanwhile_and_a_stop_ends_it()
  stuck(100)
  local c = client.connect(port):send(request('{"model":"' .. NAME .. '"}'))
  lu.assertTrue(c:until_found('"completed":80000', 10000))
  lu.assertEquals(post("/api/chat", { model = "tiny", messages = { { role = "user", content = "@say{x}" } }, stream = false }).status, 200)
  fixture.stop(ctx)
  lu.assertTrue(c:until_closed())
  lu.assertStrContains(c.data, "the server stops")
  lu.assertEquals(ctx.catalog:partials()[1].size, 80000)
  start()
end

function TestHttpPull:test_T100_a_new_revision_is_another_model_to_the_server()
  lu.assertEquals(post("/api/pull", { model = NAME, stream = false }).status, 200)
  local digest = ctx.catalog:digest(ctx.catalog:find(NAME))
  lu.assertEquals(post("/api/generate", { model = NAME, prompt = "@say{x}", stream = false }).status, 200)
  lu.assertEquals(post("/api/pull", { model = NAME, stream = false }).status, 200)
  lu.assertNotNil(ctx.pool.loaded[NAME:lower()]) -- nothing new, nothing to load again
  hub.repos["u/r"]["m-Q4_0.gguf"] = pulls.bytes(210000, 5)
  lu.assertEquals(post("/api/pull", { model = NAME, stream = false }).status, 200)
  lu.assertEquals(listed()[NAME], 210000)
  lu.assertNil(ctx.pool.loaded[NAME:lower()])
  lu.assertNotEquals(ctx.catalog:digest(ctx.catalog:find(NAME)), digest)
end

function TestHttpPull:test_without_curl_it_says_so()
  fixture.stop(ctx)
  start(nil, { program = "no-such-curl" })
  local r = post("/api/pull", { model = NAME })
  lu.assertEquals(r.status, 501)
  lu.assertStrContains(r.json.error, "curl")
end

function TestHttpPull:test_settings_that_make_no_sense_end_the_start()
  local config, serve = require("mtx.config"), require("mtx.serve")
  for flags, words in pairs({ [{ hub = "huggingface.co" }] = "--hub", [{ hub = "https://x/y" }] = "--hub", [{ pull_hosts = "a/b" }] = "--pull-hosts" }) do
    flags.port, flags.models_dir, flags.log_level = "0", dir, "error"
    local made, message = serve.new(assert(config.load({ env = function() end, flags = flags })))
    lu.assertNil(made)
    lu.assertStrContains(message, words)
  end
end
