-- SPDX-License-Identifier: MIT
-- The owner's script: the examples as they are, every hook, faults that end one
-- request only, and live reload.
local lu = require("luaunit")
local cjson = require("cjson")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local serve = require("mtx.serve")
local config = require("mtx.config")
local client = require("http_client")
local temp = require("temp")

local ctx, port

-- flags.script_allow: the permissions, default none. -> what is logged, a list that grows
local function start(path, flags)
  flags = flags or {}
  flags.script = path
  local heard, _
  ctx, _, heard = fixture.start_logged(flags)
  port = ctx.port
  return heard
end

local function chat(text, more)
  local body = { model = "tiny", messages = { { role = "user", content = text } } }
  for k, v in pairs(more or {}) do body[k] = v end
  return client.request(port, "POST", "/v1/chat/completions", body, more and more.headers)
end

local function said(r) return r.json.choices[1].message.content end

TestExamples = {}
function TestExamples:tearDown() fixture.stop(ctx) end

function TestExamples:test_router()
  start("examples/serve/router.lua")
  chat("hi")
  lu.assertEquals(ctx.pool:list()[1].name, "tiny:latest")
  chat("```code```", { model = "tiny" })
  lu.assertNotNil(ctx.pool.loaded["other:latest"])
end

function TestExamples:test_a_model_that_the_script_chose_and_nobody_has()
  start(temp.file('mtx.on("request", function(r) r.model = "nowhere" end)'))
  lu.assertEquals(chat("hi").json.error.message, "model 'nowhere' not found (the server's script chose it)")
end

function TestExamples:test_json_repair()
  start("examples/serve/json_repair.lua")
  fake.reply = function() return 'Here: {"a": {"b": 1}} hope it helps' end
  lu.assertEquals(said(chat("x")), '{"a": {"b": 1}}')
  fake.reply = function() return "no json {" end
  lu.assertEquals(said(chat("x")), "no json {")
end

function TestExamples:test_best_of_n()
  start("examples/serve/best_of_n.lua", { script_allow = "models" })
  local r = client.request(port, "POST", "/best", { prompt = "@say{a b}", n = 3 })
  lu.assertEquals({ r.status, r.json.text, r.json.candidates, r.json.score }, { 200, "a b", 3, -0.25 })
  lu.assertEquals(client.request(port, "POST", "/best", "{}").json.error.message, "prompt is required")
  lu.assertEquals(#fake.engines[1].submitted, 3)
end

function TestExamples:test_tool_loop()
  start("examples/serve/tool_loop.lua")
  fake.reply = function(prompt)
    if prompt:find('{"sum":5}', 1, true) then return "The sum is 5" end
    return '<tool_call>{"name":"add","arguments":{"a":2,"b":3}}</tool_call>'
  end
  local r = chat("2 + 3?")
  lu.assertEquals({ said(r), r.json.choices[1].finish_reason, r.json.choices[1].message.tool_calls }, { "The sum is 5", "stop", nil })
  lu.assertEquals(#fake.engines[1].submitted, 2)
  local ev = client.sse(chat("2 + 3?", { stream = true }).body)
  local text = ""
  for _, e in ipairs(ev) do if e.data ~= "[DONE]" and e.data.choices[1] then text = text .. (e.data.choices[1].delta.content or "") end end
  lu.assertEquals(text, "The sum is 5")
  fake.reply = function() return '<tool_call>{"name":"add","arguments":{"a":2,"b":3}}</tool_call>' end
  lu.assertEquals(chat("for ever").status, 200)
  fake.reply = function(prompt)
    if prompt:find("Error", 1, true) then return "sorry" end
    return '<tool_call>{"name":"add","arguments":{"a":"x"}}</tool_call>'
  end
  lu.assertEquals(said(chat("bad")), "sorry")
end

function TestExamples:test_ledger()
  start("examples/serve/ledger.lua", { script_allow = "storage" })
  local r = chat(("x"):rep(1100) .. "@say{ok}")
  lu.assertEquals(r.status, 200)
  lu.assertEquals(chat("x").status, 429)
  local l = client.request(port, "GET", "/ledger").json
  lu.assertTrue(l.used.anonymous >= 1000)
end

TestScript = {}
function TestScript:tearDown() fixture.stop(ctx) end

function TestScript:test_hooks()
  start(temp.file([[
    mtx.on("request", function(r) r.max_tokens = 5 r.sampler.temperature = 0 end)
    mtx.on("prompt", function(text) return (text:gsub("cat", "dog")) end)
    mtx.on("token", function(text) if text == "stop " then return false end return text:upper() end)
  ]]))
  local seen
  fake.reply = function(prompt) seen = prompt return "one two stop three" end
  local r = chat("a cat")
  lu.assertEquals({ said(r), r.json.choices[1].finish_reason }, { "ONE TWO ", "stop" })
  lu.assertStrContains(seen, "a dog")
  lu.assertEquals({ fake.engines[1].submitted[1].sampler.temperature, fake.engines[1].submitted[1].max_tokens }, { 0, 5 })
end

-- A request hook may choose a sampler; one that the script does not have is refused.
function TestScript:test_hook_names_a_sampler()
  start(temp.file([[
    mtx.sampler("mine", function() end)
    mtx.on("request", function(r) r.sampler.script = r.messages[1].content == "bad" and "nope" or "mine" end)
  ]]))
  lu.assertEquals(chat("x").status, 200)
  local given = fake.engines[1].submitted[1].sampler_script
  lu.assertEquals({ type(given.code), #given.args, given.args[4], given.args[5] }, { "string", 5, "mine", "{}" })
  local r = chat("bad")
  lu.assertEquals(r.status, 400)
  lu.assertStrContains(r.json.error.message, "mine")
  lu.assertEquals(chat("x", { sampler_options = { a = { 1, "b\"" }, c = true } }).status, 200)
  lu.assertEquals(load("return " .. fake.engines[1].submitted[2].sampler_script.args[5])(), { a = { 1, "b\"" }, c = true })
end

function TestScript:test_faults_end_one_request_only()
  for _, code in ipairs({ 'mtx.on("request", function(r) if r.messages[1].content == "bad" then error("x") end end)',
    'mtx.on("request", function(r) if r.messages[1].content == "bad" then while true do end end end)',
    'mtx.on("request", function(r) if r.messages[1].content == "bad" then local s = "x" while true do s = s .. s end end end)',
    'mtx.on("request", function(r) if r.messages[1].content == "bad" then r.messages = 5 end end)',
    'mtx.on("request", function(r) if r.messages[1].content == "bad" then r.messages[1] = "x" end end)',
    'mtx.on("request", function(r) if r.messages[1].content == "bad" then r.sampler = 5 end end)',
    'mtx.on("request", function(r) if r.messages[1].content == "bad" then r.sampler.temperature = "hot" end end)',
    'mtx.on("request", function(r) if r.messages[1].content == "bad" then r.stop = "x" end end)',
    'mtx.on("request", function(r) if r.messages[1].content == "bad" then r.stop = { 1 } end end)',
    'mtx.on("request", function(r) if r.messages[1].content == "bad" then r.max_tokens = -5 end end)',
    'mtx.on("request", function(r) if r.messages[1].content == "bad" then r.think = {} end end)',
    'mtx.on("prompt", function(t) if t:find("bad", 1, true) then return 5 end end)',
    'mtx.on("token", function(t) if t:find("bad", 1, true) then local x = nil .. "a" end end)',
    'mtx.on("token", function(t) if t:find("bad", 1, true) then while true do end end end)',
    'mtx.on("response", function(r) if r.choices[1].text:find("bad", 1, true) then error({}) end end)' }) do
    start(temp.file(code))
    local r = chat("bad")
    lu.assertEquals(r.status, 500, code)
    lu.assertStrContains(r.json.error.message, "script")
    lu.assertEquals(chat("good").status, 200, code)
    lu.assertEquals(ctx.n_jobs, 0, code)
    fixture.stop(ctx)
  end
  start(temp.file(""))
end

-- A stream that has begun ends with the fault in it; nobody waits for more, nor who reads it again.
function TestScript:test_a_fault_at_the_end_of_a_stream()
  start(temp.file('mtx.on("response", function(r) error("no") end)'))
  for _, path in ipairs({ "/v1/chat/completions", "/api/chat" }) do
    local body = cjson.encode({ model = "tiny", messages = { { role = "user", content = "@say{some text}" } }, stream = true })
    local c = client.connect(port)
    c:send("POST " .. path .. " HTTP/1.1\r\nHost: localhost\r\nX-Conversation-Id: c\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
    lu.assertTrue(c:until_found("script failed"), path)
    lu.assertTrue(c:until_closed(3000), path)
    lu.assertTrue(client.wait(function() return ctx.n_jobs == 0 end))
  end
  lu.assertTrue(ctx.streams.order[1].done)
  lu.assertStrContains(client.request(port, "GET", "/v1/stream?conv_id=c").body, "server's script failed")
end

-- The same for an error of our own.
function TestScript:test_an_error_of_ours_in_a_stream()
  start(temp.file(""))
  local usage = require("mtx.serve.answer").collector
  require("mtx.serve.answer").collector = function()
    local c = usage()
    c.result = function() error("broken") end
    return c
  end
  local body = cjson.encode({ model = "tiny", messages = { { role = "user", content = "@say{some text}" } }, stream = true })
  local c = client.connect(port)
  c:send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-Conversation-Id: d\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  local ended = c:until_closed(3000)
  require("mtx.serve.answer").collector = usage
  lu.assertTrue(ended)
  lu.assertTrue(ctx.streams.order[1] == nil or ctx.streams.order[1].done)
end

function TestScript:test_routes_timers_and_store()
  start(temp.file([[
    mtx.store.n = mtx.store.n or 0
    mtx.timer(0.05, function() mtx.store.n = mtx.store.n + 1 end)
    mtx.route("GET", "/n/:who", function(q) return 200, { n = mtx.store.n, who = q.params.who, x = q.query.x } end)
    mtx.route("GET", "/loop", function() while true do end end)
    mtx.route("GET", "/bad", function() return "no" end)
    mtx.route("GET", "/keys", function() return 200, { [5] = "five", [2.5] = 1, x = { [-1] = true } } end)
    mtx.route("GET", "/keys/bad", function() return 200, { [{}] = 1 } end)
    mtx.route("POST", "/admin/mine", function(q) return 201, q.body end, { scope = "admin" })
  ]]), { api_key = "u", admin_key = "a", script_allow = "storage" })
  local U, A = { Authorization = "Bearer u" }, { Authorization = "Bearer a" }
  client.sleep(130)
  local r = client.request(port, "GET", "/n/me?x=1", nil, U)
  lu.assertEquals({ r.json.who, r.json.x }, { "me", "1" })
  lu.assertTrue(r.json.n >= 1)
  lu.assertEquals(client.request(port, "GET", "/n/me").status, 401)
  lu.assertEquals(client.request(port, "GET", "/loop", nil, U).status, 500)
  lu.assertEquals(client.request(port, "GET", "/bad", nil, U).status, 500)
  lu.assertEquals(client.request(port, "GET", "/keys", nil, U).json, { ["5"] = "five", ["2.5"] = 1, x = { ["-1"] = true } })
  lu.assertEquals(client.request(port, "GET", "/keys/bad", nil, U).status, 500)
  lu.assertEquals(client.request(port, "POST", "/admin/mine", "x", U).status, 403)
  lu.assertEquals(client.request(port, "POST", "/admin/mine", "x", A).status, 201)
end

function TestScript:test_reload_under_a_running_stream()
  local path = temp.file('mtx.on("token", function(t) return "A" end)')
  start(path)
  local body = '{"model":"tiny","messages":[{"role":"user","content":"@slow{5}@long{40}"}],"stream":true}'
  local c = client.connect(port)
  c:send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  lu.assertTrue(c:until_found('"A"'))
  local f = io.open(path, "w")
  f:write('mtx.on("token", function(t) return "B" end)')
  f:close()
  lu.assertEquals(client.request(port, "POST", "/admin/reload", "{}").status, 200)
  lu.assertTrue(c:until_closed())
  lu.assertStrContains(c.data, "[DONE]")
  lu.assertStrContains(c.data, '"B"')
  c:close()
  f = io.open(path, "w")
  f:write("nonsense")
  f:close()
  lu.assertEquals(client.request(port, "POST", "/admin/reload", "{}").status, 400)
  lu.assertEquals(said(chat("x y")):sub(1, 1), "B")
end

-- Without its permission every capability says what is missing and how it is given.
function TestScript:test_permissions_are_denied_by_default()
  local code = [[
    local uses = { storage = function() mtx.store.n = 1 end, read = function() return mtx.store.n end, models = function() mtx.generate({ prompt = "x" }) end,
      file = function() mtx.file.read("a") end, net = function() mtx.fetch("http://127.0.0.1:1/") end }
    mtx.route("GET", "/use/:what", function(q)
      local ok, message = pcall(uses[q.params.what])
      return 200, { ok = ok, message = message }
    end)
  ]]
  local heard = table.concat(start(temp.file(code), { log_level = "info" }))
  lu.assertStrContains(heard, "script loaded")
  lu.assertStrContains(heard, "--script-allow gives more")
  for what, name in pairs({ storage = "storage", read = "storage", models = "models", file = "file=DIR", net = "net=HOST:PORT" }) do
    local r = client.request(port, "GET", "/use/" .. what)
    lu.assertEquals({ r.status, r.json.ok }, { 200, false }, what)
    lu.assertStrContains(r.json.message, "--script-allow " .. name, false, false, what)
  end
  for _, code_at_load in ipairs({ "mtx.store.n = 1", "for _ in pairs(mtx.store) do end", "return #mtx.store", "mtx.file.read('x')" }) do
    local c = assert(config.load({ env = function() end, flags = { script = temp.file(code_at_load) } }))
    local ok, message = serve.new(c, fake.deps())
    lu.assertNil(ok, code_at_load)
    lu.assertStrContains(message, "--script-allow")
  end
  local c = assert(config.load({ env = function() end, flags = { script = temp.file(""), script_allow = "everything" } }))
  local ok, message = serve.new(c, fake.deps())
  lu.assertNil(ok)
  lu.assertStrContains(message, "everything")
end

function TestScript:test_files()
  local uv = require("luv")
  local dir = temp.dir()
  os.execute("mkdir " .. dir .. "/data && echo secret > " .. dir .. "/secret && ln -s ../secret " .. dir .. "/data/.hidden")
  start(temp.file([[
    mtx.route("POST", "/file", function(q)
      local r = table.pack(pcall(mtx.file[q.json.f], q.json.name, q.json.text))
      return 200, { ok = r[1], a = r[2], b = r[3] }
    end)
  ]]), { script_allow = "file=" .. dir .. "/data" })
  local function call(f, name, text) return client.request(port, "POST", "/file", { f = f, name = name, text = text }).json end
  lu.assertEquals(call("write", "a.txt", "one\0two"), { ok = true, a = true })
  lu.assertEquals(call("read", "a.txt"), { ok = true, a = "one\0two" })
  lu.assertEquals(call("list").a, { "a.txt" })
  lu.assertStrContains(call("read", "b.txt").b, "no file b.txt")
  for _, bad in ipairs({ "../secret", "/etc/passwd", ".hidden", "..", "a/b", "", "a\0b", ("x"):rep(200), "a\n" }) do
    lu.assertFalse(call("read", bad).ok, bad)
    lu.assertFalse(call("write", bad, "x").ok, bad)
  end
  lu.assertFalse(call("write", "a.txt", nil).ok)
  os.execute("rm -r " .. dir)
end

-- A little HTTP server on `port`: gives what `answer` says to the bytes it got.
local function other_server(answer)
  local uv = require("luv")
  local listener = uv.new_tcp()
  listener:bind("127.0.0.1", 0)
  listener:listen(8, function()
    local sock, got = uv.new_tcp(), ""
    listener:accept(sock)
    sock:read_start(function(_, bytes)
      if not bytes then return sock:is_closing() or sock:close() end
      got = got .. bytes
      local reply = answer(got)
      if reply then sock:write(reply, function() if not sock:is_closing() then sock:close() end end) end
    end)
  end)
  return listener, listener:getsockname().port
end

function TestScript:test_fetch()
  local seen
  local listener, there = other_server(function(got)
    seen = got
    if got:find("^GET /never") then return nil end
    if got:find("^GET /big") then return "HTTP/1.1 200 OK\r\n\r\n" .. ("x"):rep(9 << 20) end
    return got:find("hello") and "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok" or nil
  end)
  start(temp.file([[
    mtx.route("POST", "/fetch", function(q)
      local ok, r, message = pcall(mtx.fetch, q.json)
      return 200, { ok = ok, r = r, message = message }
    end)
  ]]), { script_allow = "net=127.0.0.1:" .. there })
  local base = "http://127.0.0.1:" .. there
  local function fetch(o) return client.request(port, "POST", "/fetch", o) end
  lu.assertEquals(fetch({ url = base .. "/x?y", body = "hello", headers = { ["X-A"] = "b" } }).json, { ok = true, r = { status = 201, body = "ok" } })
  lu.assertStrContains(seen, "POST /x?y HTTP/1.1\r\nHost: 127.0.0.1:" .. there)
  lu.assertStrContains(seen, "X-A: b\r\n")
  lu.assertStrContains(fetch({ url = base .. "/never", timeout = 0.1 }).json.message, "timed out")
  lu.assertStrContains(fetch({ url = base .. "/big" }).json.message, "more than")
  -- another server, a trick, a header that adds a line: an error of that request
  for _, o in ipairs({ { url = "http://127.0.0.1:1/" }, { url = "http://127.0.0.1:" .. there .. "@evil/" }, { url = "file:///etc/passwd" }, { url = base .. "/a b" },
    { url = base, headers = { A = "b\r\nC: d" } }, { url = base, method = "GET / HTTP/1.1\r\nX" }, {} }) do
    lu.assertEquals(fetch(o).status, 500, o.url)
  end
  listener:close()
  -- the client leaves while the script waits
  local c = client.connect(port)
  local text = '{"url":"' .. base .. '/never","timeout":5}'
  c:send("POST /fetch HTTP/1.1\r\nHost: localhost\r\nContent-Length: " .. #text .. "\r\n\r\n" .. text)
  client.sleep(50)
  c:close()
  lu.assertEquals(said(chat("@say{still here}")), "still here")
end

function TestScript:test_bad_files_refuse_to_start()
  start(temp.file(""))
  for _, code in ipairs({ "nonsense", "error('x')", "while true do end", "mtx.on('nope', function() end)", "mtx.route('GET', '/x', 5, { scope = 'all' })", "io.write('x')" }) do
    local c = assert(config.load({ env = function() end, flags = { script = temp.file(code) } }))
    lu.assertNil((serve.new(c, fake.deps())), code)
  end
end
