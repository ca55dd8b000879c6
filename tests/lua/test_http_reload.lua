-- SPDX-License-Identifier: MIT
-- Keys and options that change under a running server (SIGHUP, POST /admin/reload): what belongs to a key stays its own, what
-- was taken away is gone, and no mistake in the file opens the server.
local lu = require("luaunit")
local cjson = require("cjson")
local client = require("http_client")
local fixture = require("http_fixture")
local sha256 = require("mtx.core").sha256
local temp = require("temp")

local ctx, port, path, log

local function write(lines)
  local f = assert(io.open(path, "w"))
  for name, spec in pairs(lines) do f:write(name, " ", spec[1], " ", sha256.of("key-" .. name), " ", spec[2] or "", "\n") end
  f:close()
end

local USERS = { alice = { "infer" }, bob = { "infer,embed" }, root = { "admin" } }

local function with(changes)
  local out = {}
  for k, v in pairs(USERS) do out[k] = v end
  for k, v in pairs(changes) do out[k] = v or nil end
  return out
end

local function start(flags)
  path = temp.path()
  write(USERS)
  flags = flags or {}
  flags.keys_file, flags.log_level = path, "warn"
  ctx, _, log = fixture.start_logged(flags)
  port = ctx.port
end

local function reload(lines)
  write(lines)
  return ctx.reload()
end

local function as(name) return { Authorization = "Bearer key-" .. name } end
local function get(name, route) return client.request(port, "GET", route or "/api/tags", nil, as(name)).status end
local user = fixture.user

-- A streamed chat on a connection of its own, once its first word is here.
local function stream(name, text, more)
  local body = { model = "tiny", messages = user(text), stream = true }
  for k, v in pairs(more or {}) do body[k] = v end
  body = cjson.encode(body)
  local c = client.connect(port)
  c:send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer key-" .. name .. "\r\nConnection: close\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  lu.assertTrue(c:until_found("word1"))
  return c
end

local function cancel(name, id)
  return client.request(port, "POST", "/api/chat", { model = "tiny", messages = require("mtx.json").array(), keep_alive = 0, request_id = id }, as(name)).status
end

TestReload = {}
function TestReload:tearDown() fixture.stop(ctx) end

function TestReload:test_replies_stay_their_keys()
  start()
  local c = stream("alice", "@slow{5}@long{5000}", { request_id = "r1", reasoning_control = true })
  local id = c.data:match('"id":"(chatcmpl%-%w+)"')
  lu.assertNotNil(ctx.reload())
  lu.assertEquals(client.request(port, "POST", "/v1/chat/completions/control", { id = id, action = "reasoning_end" }, as("bob")).status, 404)
  lu.assertEquals(client.request(port, "POST", "/v1/chat/completions/control", { id = id, action = "reasoning_end" }, as("alice")).status, 200)
  lu.assertEquals(cancel("bob", "r1"), 200)
  lu.assertEquals(ctx.n_jobs, 1, "another key's cancel does nothing")
  lu.assertEquals(cancel("alice", "r1"), 200)
  lu.assertTrue(c:until_closed(5000))
  lu.assertEquals(ctx.n_jobs, 0)
end

-- Two keys may choose the same id.
function TestReload:test_ids_of_two_keys()
  start()
  local a = stream("alice", "@slow{5}@long{5000}", { request_id = "same" })
  local b = stream("bob", "@slow{5}@long{5000}", { request_id = "same" })
  cancel("alice", "same")
  lu.assertTrue(a:until_closed(5000))
  lu.assertNil(b.closed)
  lu.assertEquals(ctx.n_jobs, 1)
  cancel("bob", "same")
  lu.assertTrue(b:until_closed(5000))
  lu.assertNil(next(ctx.jobs))
end

function TestReload:test_scopes_and_limits_change()
  start()
  lu.assertEquals({ get("alice"), get("alice", "/admin/stats") }, { 200, 403 })
  lu.assertNotNil(reload(with({ alice = { "infer,admin", "2" } })))
  lu.assertEquals({ get("alice", "/admin/stats"), get("alice"), get("alice") }, { 200, 200, 429 })
  ctx.reload() -- what is used up stays used up
  lu.assertEquals(get("alice"), 429)
  lu.assertNotNil(reload(with({ alice = { "infer", "100" } })))
  lu.assertEquals({ get("alice"), get("alice", "/admin/stats") }, { 200, 403 })
end

-- A key file says that keys are needed, even when it holds none any more.
function TestReload:test_an_empty_file_opens_nothing()
  start()
  lu.assertNotNil(reload({}))
  lu.assertEquals({ get("alice"), get("root", "/admin/stats"), client.request(port, "GET", "/api/tags").status }, { 401, 401, 401 })
  lu.assertEquals(client.request(port, "GET", "/health").status, 200)
  lu.assertStrContains(table.concat(log), "no key")
  lu.assertNotNil(reload(USERS))
  lu.assertEquals(get("alice"), 200)
end

function TestReload:test_a_broken_file_changes_nothing()
  start()
  for _, text in ipairs({ "alice infer", "alice everything " .. sha256.of("x"), "alice infer abc", "alice infer " .. sha256.of("x") .. " many" }) do
    local f = assert(io.open(path, "w"))
    f:write(text, "\n")
    f:close()
    lu.assertNil((ctx.reload()), text)
    lu.assertEquals({ get("alice"), get("nobody") }, { 200, 401 }, text)
  end
  os.remove(path)
  lu.assertNil((ctx.reload()))
  lu.assertEquals(get("alice"), 200)
end

-- A socket's key is checked again before each reply.
function TestReload:test_a_key_that_is_gone_starts_no_reply_on_its_socket()
  start()
  local c = client.websocket(port, "Authorization: Bearer key-alice\r\n")
  local function ask(id)
    local payload = cjson.encode({ id = id, model = "tiny", messages = user("@say{hello}") })
    c:send(client.masked(0x81, payload))
  end
  ask("one")
  lu.assertTrue(c:until_found('"type":"done"'))
  lu.assertNotNil(ctx.reload())
  ask("two")
  lu.assertTrue(client.wait(function() return select(2, c.data:gsub('"type":"done"', "")) == 2 end, 5000))
  lu.assertNotNil(reload(with({ alice = false })))
  ask("three")
  lu.assertTrue(c:until_closed(5000))
  lu.assertNil(c.data:find('"three"'))
  lu.assertStrContains(c.data, string.pack(">I2", 1008))
  c:close()
end

-- The config file, read again.
TestConfigReload = {}
function TestConfigReload:tearDown() fixture.stop(ctx) end

local CONFIG

local function configure(text)
  local f = assert(io.open(CONFIG, "w"))
  f:write(text)
  f:close()
end

local function start_with(text, flags)
  CONFIG = temp.path()
  configure(text)
  log = {}
  local deps, dir = require("fake_engine").deps()
  flags = flags or {}
  flags.port, flags.models_dir, flags.persist_dir = flags.port or "0", dir, dir .. "/.prompts"
  ctx = assert(require("mtx.serve").new(assert(require("mtx.config").load({ env = function() end, file = CONFIG, flags = flags })), (function()
    deps.log_out = { write = function(_, ...) log[#log + 1] = table.concat({ ... }) end }
    return deps
  end)()))
  assert(require("mtx.serve").listen(ctx))
  port = ctx.port
end

local function status(headers) return client.request(port, "GET", "/api/tags", nil, headers).status end

function TestConfigReload:test_what_can_change_changes_and_the_rest_is_named()
  start_with("log_level = 'warn', idle_timeout = 70")
  lu.assertEquals({ status(), status({ Origin = "https://a.example" }) }, { 200, 403 })
  configure("log_level = 'info', idle_timeout = 71, origins = { 'https://a.example' }, requests_per_minute = 3, max_body_mb = 0.001, api_key = { 'secret' }, parallel = 3")
  assert(ctx.reload())
  local key = { Authorization = "Bearer secret" }
  lu.assertEquals({ status(), status(key), status({ Origin = "https://a.example", Authorization = "Bearer secret" }) }, { 401, 200, 200 })
  lu.assertEquals(client.request(port, "POST", "/v1/completions", { model = "tiny", prompt = ("x"):rep(2000) }, key).status, 413)
  lu.assertEquals(status(key), 429)
  local text = table.concat(log)
  lu.assertStrMatches(text, ".*options changed.*")
  lu.assertStrContains(text, 'options="api_key, origins, requests_per_minute, max_body_mb, log_level"')
  lu.assertStrContains(text, 'options="parallel, idle_timeout"')
  lu.assertStrMatches(text, ".*options that only a restart changes.*")
  lu.assertEquals({ ctx.config.idle_timeout, ctx.config.parallel, ctx.config.requests_per_minute, ctx.sources.requests_per_minute }, { 70, 8, 3, CONFIG })
end

-- A flag stays above the file; what was in force goes on when the file is wrong.
function TestConfigReload:test_a_mistake_changes_nothing()
  start_with("requests_per_minute = 100", { log_level = "error" })
  for _, text in ipairs({ "requests_per_minute = 1, nonsense = 2", "requests_per_minute = 'x'", "requests_per_minute = 1, keys_file = '/nonexistent/keys'", "return 5", "}" }) do
    configure(text)
    local ok, message = ctx.reload()
    lu.assertNil(ok, text)
    lu.assertTrue(#message > 0)
    lu.assertEquals({ ctx.config.requests_per_minute, status() }, { 100, 200 }, text)
  end
  configure("log_level = 'debug'")
  assert(ctx.reload())
  lu.assertEquals({ ctx.config.log_level, ctx.config.requests_per_minute }, { "error", 0 })
end

function TestConfigReload:test_a_public_address_does_not_lose_its_keys()
  start_with("host = '0.0.0.0', api_key = { 'secret' }")
  configure("host = '0.0.0.0'")
  local ok, message = ctx.reload()
  lu.assertEquals({ ok, message }, { nil, "without a key a public address would be open to anybody; nothing is changed" })
  lu.assertEquals({ status(), status({ Authorization = "Bearer secret" }) }, { 401, 200 })
end
