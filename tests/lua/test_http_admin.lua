-- SPDX-License-Identifier: MIT
-- Metrics, admin routes, scheduling policies, the sandbox, configuration, and
-- the live route table walked with each kind of key.
local lu = require("luaunit")
local cjson = require("cjson")
local config = require("mtx.config")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local sandbox = require("mtx.serve.script.sandbox")
local client = require("http_client")
local temp = require("temp")

local ctx, port

local function start(flags, change) ctx = fixture.start(flags, change) port = ctx.port end
local function stop() fixture.stop(ctx) end
local function get(path, headers) return client.request(port, "GET", path, nil, headers) end
local function post(path, body, headers) return client.request(port, "POST", path, body, headers) end
local user = fixture.user

TestMetrics = {}
function TestMetrics:setUp() start() end
TestMetrics.tearDown = stop

local function value(text, series)
  local at = text:find("\n" .. series .. " ", 1, true)
  return at and tonumber(text:match("^\n%S+ (%S+)", at))
end

function TestMetrics:test_known_traffic_gives_known_counts()
  for _ = 1, 3 do post("/v1/chat/completions", { model = "tiny", messages = user("@say{a b c}") }) end
  post("/v1/chat/completions", { model = "tiny", messages = user("@say{a b c}"), temperature = -1 })
  local r = get("/metrics")
  lu.assertStrContains(r.headers["content-type"], "text/plain; version=0.0.4")
  lu.assertEquals(value(r.body, 'mtx_requests_total{endpoint="/v1/chat/completions",status="2xx"}'), 3)
  lu.assertEquals(value(r.body, 'mtx_requests_total{endpoint="/v1/chat/completions",status="4xx"}'), 1)
  lu.assertEquals(value(r.body, "mtx_tokens_generated_total"), 9)
  lu.assertEquals(value(r.body, "llamacpp:tokens_predicted_total"), 9)
  lu.assertEquals(value(r.body, 'oxillama_requests_total{endpoint="/v1/chat/completions",status="4xx"}'), 1)
  lu.assertEquals({ value(r.body, "oxillama_tokens_generated_total"), value(r.body, "oxillama_queue_depth") }, { 9, 0 })
  lu.assertTrue(value(r.body, "llamacpp:predicted_tokens_seconds") > 0)
  lu.assertEquals(value(r.body, 'mtx_generations_total{reason="stop"}'), 3)
  lu.assertEquals(value(r.body, "mtx_time_to_first_token_seconds_count"), 3)
  lu.assertEquals(value(r.body, 'mtx_queue_seconds_bucket{le="0.005"}'), 3)
  lu.assertEquals(value(r.body, 'mtx_queue_seconds_bucket{le="+Inf"}'), 3)
  lu.assertEquals({ value(r.body, "mtx_batch_sequences_count"), value(r.body, 'mtx_batch_sequences_bucket{le="1"}') }, { 3, 3 })
  lu.assertEquals({ value(r.body, "mtx_kv_pages_used_ratio_count"), value(r.body, 'mtx_kv_pages_used_ratio_bucket{le="0.1"}') }, { 3, 3 })
  lu.assertEquals({ value(r.body, "mtx_prompt_cached_ratio_count"), value(r.body, 'mtx_prompt_cached_ratio_bucket{le="0"}') }, { 3, 3 })
  fake.reply = function() return { text = "b", n_cached = 10 } end
  post("/v1/chat/completions", { model = "tiny", messages = user("x") })
  local again = get("/metrics").body
  lu.assertEquals({ value(again, 'mtx_prompt_cached_ratio_bucket{le="0"}'), value(again, 'mtx_prompt_cached_ratio_bucket{le="0.5"}') }, { 3, 4 })
  fake.reply = nil
  for series, wanted in pairs({ mtx_model_requests_waiting = 0, mtx_model_kv_pages_total = 100, mtx_model_kv_pages_free = 100 }) do
    lu.assertEquals(value(again, series .. '{model="tiny:latest"}'), wanted, series)
  end
  lu.assertNotNil(value(again, 'mtx_model_load_seconds{model="tiny:latest"}'))
  local s = get("/admin/stats").json
  lu.assertEquals({ #s.models, s.models[1].id, s.models[1].running }, { 1, "tiny:latest", 0 })
  lu.assertEquals({ s.requests_total, s.tokens_generated_total, s.active_requests }, { 4, 10, 0 })
end

function TestMetrics:test_clients_cannot_make_series()
  for i = 1, 300 do get("/nope" .. i) end
  local _, n = get("/metrics").body:gsub("\nmtx_requests_total{", "")
  lu.assertTrue(n < 20)
end

function TestMetrics:test_off()
  ctx.config.metrics = false
  lu.assertEquals(get("/metrics").status, 501)
end

TestAdmin = {}
function TestAdmin:setUp() start() end
TestAdmin.tearDown = stop

function TestAdmin:test_a_load_that_fails_is_logged_with_its_reason()
  stop()
  local log = {}
  start({ log_level = "warn" }, function(deps) deps.log_out = { write = function(_, text) log[#log + 1] = text end } end)
  lu.assertEquals(post("/admin/models/load", { id = "broken" }).status, 202)
  lu.assertTrue(client.wait(function() return table.concat(log):find("admin load failed", 1, true) ~= nil end))
  lu.assertStrContains(table.concat(log), "not a model file")
  lu.assertNotStrContains(table.concat(log), "handler failed")
end

function TestAdmin:test_load_unload()
  lu.assertEquals(get("/admin/models").json.models, {})
  local r = post("/admin/models/load", { id = "tiny" })
  lu.assertEquals({ r.status, r.json.status }, { 202, "loading" })
  lu.assertTrue(client.wait(function() return ctx.pool.n == 1 end))
  local m = get("/admin/models").json.models[1]
  lu.assertEquals({ m.id, m.status, m.inflight }, { "tiny:latest", "ready", 0 })
  lu.assertEquals(post("/admin/models/load", { id = "x", path = "/etc/passwd" }).status, 400)
  lu.assertEquals(post("/admin/models/load", { id = "nope" }).status, 404)
  lu.assertEquals(post("/admin/models/unload", { id = "tiny" }).json.status, "unloaded")
  lu.assertEquals(post("/admin/models/unload", { id = "tiny" }).status, 404)
  lu.assertEquals(get("/admin/health").json.pool.loaded, 0)
  post("/models/load", { model = "tiny" })
  local status = {}
  for _, d in ipairs(get("/models").json.data) do status[d.id] = d.status.value end
  lu.assertEquals({ status["tiny:latest"], status["other:latest"] }, { "loaded", "unloaded" })
  lu.assertEquals(get("/ready").json, { ready = true, model = "tiny:latest", models = { "tiny:latest" }, queue = 0 })
end

function TestAdmin:test_router()
  local c = client.connect(port)
  c:send("GET /models/sse HTTP/1.1\r\nHost: localhost\r\n\r\n")
  lu.assertTrue(c:until_found("text/event%-stream"))
  lu.assertEquals(post("/models/load", { model = "tiny" }).json, { success = true })
  lu.assertTrue(c:until_found('"model_status"[^\n]*"loaded"') or c:until_found('"loaded"'))
  lu.assertEquals(post("/models/unload", { model = "tiny" }).json, { success = true })
  lu.assertTrue(c:until_found('"unloaded"'))
  lu.assertEquals(post("/models/unload", { model = "tiny" }).status, 400)
  post("/api/copy", { source = "tiny", destination = "copied" })
  lu.assertTrue(c:until_found('"models_reload"'))
  lu.assertEquals(client.request(port, "DELETE", "/models?model=copied").json, { success = true })
  lu.assertTrue(c:until_found('"model_remove"'))
  c:close()
  lu.assertEquals(client.request(port, "DELETE", "/models?model=copied").status, 404)
  lu.assertEquals(client.request(port, "DELETE", "/models").status, 400)
  lu.assertEquals(post("/models", { model = "x" }).status, 501)
  lu.assertEquals(post("/v1/audio/transcriptions", "{}").status, 501)
end

function TestAdmin:test_cache_persistence()
  local url = "/api/cache/persistence"
  local function put(body) return client.request(port, "PUT", url, body) end
  lu.assertEquals(get(url).json, { enabled = false, budget_mb = 4096, ttl_hours = 168, files = 0, used_bytes = 0 })
  lu.assertEquals(client.request(port, "DELETE", url .. "/chats/x").status, 200) -- nothing is saved
  post("/models/load", { model = "tiny" })
  local engine, dir = fake.engines[#fake.engines], ctx.persistence.dir
  lu.assertNil(engine.disk)
  lu.assertNil(require("luv").fs_stat(dir)) -- off writes nothing
  for _, body in ipairs({ { enabled = 1 }, { budget_mb = -1 }, { budget_mb = 1.5 }, { ttl_hours = 0 }, { ttl_hours = "x" } }) do
    lu.assertEquals(put(body).status, 400)
  end
  lu.assertEquals(put({ enabled = true, budget_mb = 1 }).json, { enabled = true, budget_mb = 1, ttl_hours = 168, files = 0, used_bytes = 0 })
  lu.assertEquals(engine.disk, { dir = dir, budget_bytes = 1 << 20, ttl_s = 168 * 3600 })
  local function write(name, bytes) local f = assert(io.open(dir .. "/" .. name, "w")) f:write(("x"):rep(bytes)) f:close() end
  write("0123-aa.mtxstate", 700000)
  write("0123-bb.mtxstate", 200000)
  write("keep.txt", 10)
  write("mine.mtxstate", 10) -- a slot that the user saved
  lu.assertEquals({ get(url).json.files, get(url).json.used_bytes }, { 2, 900000 })
  require("luv").fs_utime(dir .. "/0123-aa.mtxstate", 5, 5)
  lu.assertEquals(put({ ttl_hours = 2 }).json, { enabled = true, budget_mb = 1, ttl_hours = 2, files = 1, used_bytes = 200000 })
  lu.assertEquals(put({ budget_mb = 0 }).json.files, 0)
  write("0123-cc.mtxstate", 9)
  lu.assertEquals(client.request(port, "DELETE", url).json.files, 0)
  lu.assertEquals(client.request(port, "DELETE", url .. "/chats/x").status, 200)
  local persist_dir = dir
  stop()
  start({ persist_dir = persist_dir })
  lu.assertEquals({ get(url).json.enabled, get(url).json.ttl_hours }, { true, 2 }) -- what a request said outlasts the server
  write("0123-dd.mtxstate", 9)
  lu.assertEquals(put({ enabled = false }).json, { enabled = false, budget_mb = 0, ttl_hours = 2, files = 0, used_bytes = 0 })
  lu.assertNotNil(require("luv").fs_stat(dir .. "/keep.txt"))
  lu.assertNotNil(require("luv").fs_stat(dir .. "/mine.mtxstate"))
end

function TestAdmin:test_health_lists_and_refusals()
  local h = get("/api/health").json
  lu.assertEquals(h.status, "ok")
  lu.assertTable(h.supported_architectures)
  local has = {}
  for _, a in ipairs(h.supported_architectures) do has[a] = true end
  lu.assertTrue(has.llama and has.qwen3)
  lu.assertEquals(get("/api/cache/persistence").json.enabled, false)
  lu.assertEquals(client.request(port, "PUT", "/api/cache/persistence", { budget_mb = -1 }).status, 400)
  for path, advice in pairs({ ["/api/push"] = "--models-dir", ["/models"] = "/api/blobs" }) do
    local r = post(path, { model = "x" })
    lu.assertEquals(r.status, 501)
    lu.assertStrContains(r.body, advice)
  end
end

function TestAdmin:test_page()
  lu.assertEquals(get("/").body, "Ollama is running")
  local r = get("/", { Accept = "text/html,*/*" })
  lu.assertStrContains(r.headers["content-type"], "text/html")
  lu.assertStrContains(r.headers["content-security-policy"], "script-src 'self'")
  lu.assertNotStrContains(r.body, "<script>")
  for path in r.body:gmatch('"(/[^"]+)"') do lu.assertEquals(get(path).status, 200) end
  local live = get("/live")
  lu.assertStrContains(live.headers["content-security-policy"], "script-src 'self'")
  lu.assertNotStrContains(live.body, "<script>")
  for path in live.body:gmatch('"(/[^"]*)"') do lu.assertEquals(get(path).status, 200) end
  -- What its script reads is there under these names.
  local script = get("/live.js").body
  post("/v1/completions", { model = "tiny", prompt = "x", max_tokens = 1 })
  local m = get("/admin/stats").json.models[1]
  for name in script:gmatch("[^%w]m%.([%w_]+)") do
    if name ~= "cached_tokens" and name ~= "prompt_tokens" then lu.assertNotNil(m[name], name) end -- the fake engine counts none
  end
  local c = get("/api/cache/persistence").json
  for name in script:gmatch("[^%w]c%.([%w_]+)") do lu.assertNotNil(c[name], name) end
end

TestRoutes = {}
TestRoutes.tearDown = stop

-- The whole live table: no key, a user's key, an admin key.
function TestRoutes:test_walk_with_each_key()
  start({ api_key = "user", admin_key = "admin" })
  local open = { ["GET /health"] = true, ["GET /v1/health"] = true, ["GET /ready"] = true, ["GET /"] = true, ["GET /app.js"] = true, ["GET /app.css"] = true,
    ["GET /live"] = true, ["GET /live.js"] = true }
  local function call(route, key)
    local path = route.path:gsub("/[:*]%w+", "/x")
    local body = route.method ~= "GET" and route.method ~= "HEAD" and "{}" or nil
    ctx.auth.failures, ctx.auth.n_failures = {}, 0
    -- The head is enough: some answers are streams without an end.
    local c = client.connect(port)
    c:send(("%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n%s%s\r\n%s"):format(route.method, path,
      key and "Authorization: Bearer " .. key .. "\r\n" or "", body and "Content-Length: 2\r\n" or "", body or ""))
    c:until_found("\r\n\r\n")
    c:close()
    return tonumber(c.data:match("^HTTP/1%.1 (%d+)"))
  end
  lu.assertTrue(#ctx.routes.list > 60)
  for _, route in ipairs(ctx.routes.list) do
    local name = route.method .. " " .. route.path
    local none, with_user, with_admin = call(route), call(route, "user"), call(route, "admin")
    lu.assertEquals(none == 401, not open[name], name .. " without a key: " .. none)
    lu.assertEquals(with_user == 403, route.scope == "admin", name .. " with a user's key: " .. with_user)
    lu.assertTrue(with_admin ~= 401 and with_admin ~= 403 and with_admin ~= 500, name .. " with an admin's key: " .. with_admin)
  end
end

function TestRoutes:test_a_route_without_scope_is_an_error()
  start()
  lu.assertError(function() ctx.routes:add("GET", "/x", { dialect = "openai", handler = print }) end)
end

TestPolicy = {}
TestPolicy.tearDown = stop

local function waiting(n_by_key)
  local out, id = {}, 0
  for _, kn in ipairs(n_by_key) do
    for _ = 1, kn[2] do
      id = id + 1
      out[id] = { id = id, key = kn[1], priority = kn[3] or 0, arrived = id, n_prompt = 10 }
    end
  end
  return { waiting = out, running = {}, stats = {} }
end

function TestPolicy:test_shipped_orders()
  start()
  lu.assertEquals(require("mtx.sched.fcfs")(waiting({ { "a", 2 }, { "b", 1, 5 } })).order, { 3, 1, 2 })
  lu.assertEquals(require("mtx.sched.fair")(waiting({ { "a", 4 }, { "b", 1 } })).order, { 1, 5, 2, 3, 4 })
end

local function run_two(n)
  ctx.pool.loaded = ctx.pool.loaded
  post("/api/generate", { model = "tiny", prompt = "x", stream = false })
  local e = fake.engines[#fake.engines]
  e.frozen = true
  local all = {}
  for i = 1, n do
    local body = cjson.encode({ model = "tiny", prompt = "@say{a}", stream = false })
    all[i] = client.connect(port)
    all[i]:send("POST /api/generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  end
  client.wait(function() return #e.waiting == n end, 1000)
  local got = e.policies[#e.policies]
  e.frozen = nil
  for i = 1, n do
    lu.assertTrue(all[i]:until_found("done"))
    all[i]:close()
  end
  return got
end

function TestPolicy:test_user_file_and_reload()
  local path = temp.file("return function(view) local o = {} for i, j in ipairs(view.waiting) do o[i] = j.id end table.sort(o, function(a, b) return a > b end) return { order = o, step_tokens = 99 } end")
  start({ policy = path })
  local p = run_two(3)
  lu.assertEquals(p.step_tokens, 99)
  lu.assertTrue(p.order[1] > p.order[2] and p.order[2] > p.order[3])
  local f = io.open(path, "w")
  f:write("return function(view) return { prefill_tokens = 7, prefill_ratio = 2.5 } end")
  f:close()
  lu.assertEquals(post("/admin/reload", "{}").json.reloaded[2], "policy")
  p = run_two(2)
  lu.assertEquals({ p.prefill_tokens, p.prefill_ratio }, { 7, 2.5 })
  f = io.open(path, "w")
  f:write("this is not Lua")
  f:close()
  lu.assertEquals(post("/admin/reload", "{}").status, 400)
  lu.assertEquals(run_two(2).prefill_tokens, 7)
end

function TestPolicy:test_bad_policies_fall_back()
  for _, body in ipairs({ "error('x')", "while true do end", "return 5", "return { step_tokens = -1 }", "return { prefill_ratio = 0.5 }", "return { order = 5 }" }) do
    start({ policy = temp.file("return function(view) " .. body .. " end"), log_level = "error" }, function(deps) deps.log_out = { write = function() end } end)
    local p = run_two(2)
    lu.assertTrue(p.order[1] < p.order[2], body)
    stop()
  end
  start()
end

function TestPolicy:test_missing_policy_refuses_to_start()
  start()
  local c = assert(config.load({ env = function() end, flags = { policy = "/nonexistent.lua" } }))
  lu.assertNil((require("mtx.serve").new(c, fake.deps())))
end

TestSandbox = {}

local function try(code, ...)
  local f = assert(sandbox.load_file(temp.file(code)))
  return sandbox.call(f, 2000000, ...)
end

function TestSandbox:test_what_is_not_there()
  for _, name in ipairs({ "io", "require", "load", "loadfile", "dofile", "package", "debug", "collectgarbage", "print", "os.execute", "os.remove", "os.getenv", "string.dump", "coroutine" }) do
    local ok, v = try("return " .. name)
    lu.assertTrue(ok == false or v == nil, name)
  end
  lu.assertNil((sandbox.load_file(temp.file("\27Lua"))))
  local _, mt = try("return getmetatable('')")
  lu.assertNil(mt)
end

function TestSandbox:test_limits()
  for _, code in ipairs({ "while true do end", "pcall(function() while true do end end) while true do end", "local t = {} while true do t[#t+1] = ('x'):rep(1000) .. #t end",
    "return ('x'):rep(1e9)", "return string.rep('x', 1e9)", "local s = 'x' while true do s = s .. s end", "return ('a'):rep(30):find(('a*'):rep(30) .. 'b')",
    "return ('x'):rep(8000000):find('.-.-.-b')", "local function f() return f() end f()", "local function f() return 1 + f() end f()" }) do
    local ok = try(code)
    lu.assertFalse(ok, code)
  end
  lu.assertEquals(("x"):rep(3), "xxx")
  local ok, n = try("local s = 0 for i = 1, 1000 do s = s + i end return s")
  lu.assertEquals({ ok, n }, { true, 500500 })
  lu.assertEquals(#("x"):rep(10000000), 10000000, "the host keeps its own functions")
end

TestConfig = {}

local function load_with(env, flags, file)
  return config.load({ env = function(n) return env[n] end, flags = flags, file = file })
end

function TestConfig:test_layers_and_sources()
  local path = temp.file("port = 1000, -- comment\nkeep_alive = '10m', origins = { 'https://a' }, parallel = 4")
  local c = assert(load_with({ MTX_PORT = "2000", MATRICXON_MAX_LOADED_MODELS = "3", MTX_PARALLEL = "6" }, { parallel = "9" }, path))
  lu.assertEquals({ c.values.port, c.sources.port }, { 2000, "MTX_PORT" })
  lu.assertEquals({ c.values.keep_alive, c.sources.keep_alive }, { 600, path })
  lu.assertEquals({ c.values.parallel, c.sources.parallel }, { 9, "--parallel" })
  lu.assertEquals({ c.values.max_loaded_models, c.values.max_waiting, c.sources.max_waiting }, { 3, 256, "default" })
  c = assert(load_with({ OLLAMA_HOST = "0.0.0.0:9999" }, {}))
  lu.assertEquals({ c.values.host, c.values.port }, { "0.0.0.0", 9999 })
  c = assert(load_with({ OLLAMA_HOST = "http://x:1/" }, {}))
  lu.assertEquals({ c.values.host, c.values.port }, { "x", 1 })
  for text, wanted in pairs({ ["[::1]:77"] = { "::1", 77 }, ["http://[::1]/"] = { "::1", 11434 }, [":8080"] = { "127.0.0.1", 8080 } }) do
    c = assert(load_with({ OLLAMA_HOST = text }, {}))
    lu.assertEquals({ c.values.host, c.values.port }, wanted, text)
  end
  lu.assertEquals(assert(load_with({}, { host = "[fe80::1]" })).values.host, "fe80::1")
  lu.assertEquals(assert(load_with({ OLLAMA_KEEP_ALIVE = "-1" }, {})).values.keep_alive, math.huge)
end

function TestConfig:test_errors_name_the_source()
  for _, c in ipairs({ { { MTX_PORT = "x" }, {}, "MTX_PORT" }, { {}, { port = "99999" }, "--port" }, { {}, { nope = "1" }, "--nope" }, { { MTX_KEEP_ALIVE = "soon" }, {}, "MTX_KEEP_ALIVE" },
    { { MATRICXON_MEMORY_SAFETY_MARGIN = "5" }, {}, "MATRICXON" } }) do
    local r, message = load_with(c[1], c[2])
    lu.assertNil(r)
    lu.assertStrContains(message, c[3])
  end
  for _, text in ipairs({ "port = os.time()", "return (function() end)()", "while true do end", "x = 1", "port = ", "port = ('x'):rep(9)", "return 5" }) do
    lu.assertNil((load_with({}, {}, temp.file(text))), text)
  end
  lu.assertNil((load_with({}, {}, "/nonexistent")))
end

-- What is misspelt in the environment would otherwise be as if it were not there.
function TestConfig:test_unknown_variables()
  local c = assert(config.load({ variables = { "HOME", "MTX_MAX_WATING", "MTX_CONFIG", "MTX_KERNELS", "MTX_PORT", "MTX_parallel", "MTX_FROBNICATE", "OLLAMA_X" }, env = function() end, flags = {} }))
  lu.assertEquals(c.unknown, { { name = "MTX_MAX_WATING", near = "MTX_MAX_WAITING" }, { name = "MTX_parallel", near = "MTX_PARALLEL" }, { name = "MTX_FROBNICATE" } })
  lu.assertEquals(config.unknown_text(c.unknown[1]), "MTX_MAX_WATING is no option; did you mean MTX_MAX_WAITING?")
  lu.assertEquals(config.unknown_text(c.unknown[3]), "MTX_FROBNICATE is no option; `mtx config` lists them")
  local _, message = load_with({}, {}, temp.file("max_wating = 3"))
  lu.assertStrContains(message, "unknown option max_wating; did you mean max_waiting?")
  local log = {}
  local values = assert(config.load({ variables = { "MTX_PROT" }, env = function() end, flags = { port = "0", models_dir = temp.dir() } }))
  ctx = assert(require("mtx.serve").new(values, { log_out = { write = function(_, ...) log[#log + 1] = table.concat({ ... }) end } }))
  lu.assertStrContains(table.concat(log), "MTX_PROT is no option; did you mean MTX_PORT?")
  stop()
end

function TestConfig:test_flags()
  local flags, words = config.parse_flags({ "a", "--port", "5", "--host=::1", "--insecure", "--no-metrics", "--api-key", "x", "--api-key=y" })
  lu.assertEquals(flags, { port = "5", host = "::1", insecure = true, metrics = false, api_key = "x,y" })
  lu.assertEquals(words, { "a" })
  lu.assertNil((config.parse_flags({ "--nope" })))
  lu.assertNil((config.parse_flags({ "--port" })))
end

-- One line of JSON per generation, whatever the sampler was given.
TestTrace = {}

function TestTrace:test_lines()
  local path = temp.path()
  local own = fixture.start({ trace = path })
  local body = '{"model":"tiny","prompt":"@say{a}","logit_bias":[[5,false,3],[7,-2]],"dry_multiplier":1,"cfg_scale":2,"negative_prompt":"x"}'
  lu.assertEquals(client.request(own.port, "POST", "/completion", body).status, 200)
  local uv = require("luv")
  lu.assertEquals(uv.fs_stat(path).mode & 511, tonumber("600", 8)) -- it holds prompts
  os.rename(path, path .. ".1")
  lu.assertEquals(own.reload(), { "config", "policy", "keys", "trace" })
  lu.assertEquals(client.request(own.port, "POST", "/completion", '{"model":"tiny","prompt":"@say{later}"}').status, 200)
  fixture.stop(own)
  lu.assertEquals(require("cjson").decode((assert(io.open(path)):read("a"))).n_generated, 1) -- one line, in the new file
  os.rename(path .. ".1", path)
  local lines = {}
  for line in io.lines(path) do lines[#lines + 1] = require("cjson").decode(line) end
  os.remove(path)
  lu.assertEquals({ #lines, lines[1].reason, lines[1].n_generated }, { 1, "stop", 1 })
  lu.assertEquals(lines[1].sampler.logit_bias["7"], -2)
  lu.assertEquals(lines[1].sampler.negative_prompt, "x")
end
