-- SPDX-License-Identifier: MIT
-- Models that others are made of: what a Modelfile or /api/create may set, what is inherited, and what happens when a
-- model changes while it is loaded.
local lu = require("luaunit")
local client = require("http_client")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local uv = require("luv")

local ctx, port, dir, log

local function post(path, body) return client.request(port, "POST", path, body) end
local function create(body)
  body.stream = false
  return post("/api/create", body)
end
local function show(name) return post("/api/show", { model = name }) end
local user = fixture.user
-- Chats and gives what the engine was asked for.
local function asked(name, more)
  local body = { model = name, messages = user("@say{a b c d e f}"), stream = false }
  for k, v in pairs(more or {}) do body[k] = v end
  local r = post("/api/chat", body)
  lu.assertEquals(r.status, 200, r.body)
  local e = fake.engines[#fake.engines]
  return e.submitted[#e.submitted], r.json
end

local function write(name, text)
  local f = assert(io.open(dir .. "/" .. name, "w"))
  f:write(text)
  f:close()
  ctx.catalog:refresh(true)
end

TestCreate = {}
function TestCreate:setUp()
  ctx, dir, log = fixture.start_logged({ log_level = "warn" })
  port = ctx.port
end
function TestCreate:tearDown() fixture.stop(ctx) end

-- One file that somebody else wrote, or that was cut, costs its own model and no other.
function TestCreate:test_manifests_of_the_wrong_shape()
  create({ model = "good", from = "tiny", parameters = { temperature = 0.5 } })
  for i, bad in ipairs({ '"parameters":5', '"parameters":[1]', '"template":{"a":1}', '"system":5', '"license":["x"]', '"adapters":"x"', '"adapters":[5]',
    '"messages":"x"', '"messages":[{"role":"user"}]', '"messages":[5]' }) do
    write(".mtx/manifests/0.json", ('{"name":"bad%d","from":"tiny",%s}'):format(i, bad))
    write(".mtx/manifests/1.json", ('{"name":"child","from":"bad%d"}'):format(i))
    local r = client.request(port, "GET", "/api/tags")
    lu.assertEquals(r.status, 200, bad)
    local names = {}
    for _, m in ipairs(r.json.models) do names[m.name] = true end
    lu.assertTrue(names["good:latest"] and not names["bad" .. i .. ":latest"] and not names["child:latest"], bad)
    lu.assertStrContains(table.concat(log), bad:match('^"(%a+)"'))
  end
  write(".mtx/manifests/0.json", '{"name":"bare","from":"tiny","parameters":null,"system":null,"adapters":{}}')
  lu.assertEquals(asked("bare").max_tokens, asked("tiny").max_tokens)
end

function TestCreate:test_parameters_are_checked_when_they_are_set()
  for why, p in pairs({ ['unknown parameter "temperatur"'] = { temperatur = 1 }, ['"temperature" must be of type float32'] = { temperature = "hot" },
    ['"num_ctx" must be of type integer'] = { num_ctx = "abc" }, ["temperature must be between"] = { temperature = -4 }, ["top_p must be between"] = { top_p = 7 },
    ['"stop" must be of type array'] = { stop = { 1 } }, ["mirostat must be between"] = { mirostat = 9 } }) do
    local r = create({ model = "t", from = "tiny", parameters = p })
    lu.assertEquals(r.status, 400, why)
    lu.assertStrContains(r.json.error, why)
  end
  for text, why in pairs({ ["PARAMETER temperatur 1"] = 'line 2: unknown parameter "temperatur"', ["PARAMETER temperature hot"] = "line 2: ", ["PARAMETER top_p 7"] = "line 2: ",
    ["MESSAGE king hi"] = "line 2: ", ["TEMPLATE {% for"] = "template" }) do
    local r = create({ model = "t", modelfile = "FROM tiny\n" .. text })
    lu.assertEquals(r.status, 400, text)
    lu.assertStrContains(r.json.error, why)
  end
  for _, body in ipairs({ { messages = { { role = "king", content = "x" } } }, { template = "{% for" }, { template = "{{ if .System }}{{ .System }}{{ end }}" } }) do
    body.model, body.from = "t", "tiny"
    lu.assertEquals(create(body).status, 400)
  end
  lu.assertEquals(show("t").status, 404)
  lu.assertEquals(create({ model = "t", from = "tiny", parameters = { num_batch = 8, num_gpu = 1, num_thread = 2, use_mmap = true, penalize_newline = true, mirostat = 1 } }).status, 200)
  lu.assertEquals({ asked("t").sampler.mirostat, asked("t").sampler.num_batch, asked("t").sampler.penalize_newline }, { 1 })
end

function TestCreate:test_every_parameter_has_its_effect()
  create({ model = "t", from = "tiny", parameters = { num_predict = 2, num_keep = 7, top_k = 3, stop = { "END" }, seed = 9, num_ctx = 1024, ignore_eos = true, logit_bias = { ["5"] = -1 } } })
  local a, reply = asked("t")
  lu.assertEquals({ a.max_tokens, a.sampler.top_k, a.sampler.seed, a.stop, a.ignore_eos, a.sampler.logit_bias }, { 2, 3, 9, { "END" }, true, { [5] = -1 } })
  lu.assertEquals({ reply.message.content, reply.done_reason, ctx.pool:list()[1].n_ctx }, { "a b ", "length", 1024 })
  a = asked("t", { options = { num_predict = 4, top_k = 5, stop = { "Z" } } })
  lu.assertEquals({ a.max_tokens, a.sampler.top_k, a.sampler.seed, a.stop }, { 4, 5, 9, { "Z" } })
  lu.assertEquals(asked("t", { options = { num_predict = -1 } }).max_tokens > 500, true) -- the request's own word: no limit
  local r = post("/v1/chat/completions", { model = "t", messages = user("@say{a b c d}") })
  lu.assertEquals({ r.json.choices[1].message.content, r.json.choices[1].finish_reason }, { "a b ", "length" })
end

function TestCreate:test_a_child_has_what_it_does_not_set_itself()
  create({ model = "base", from = "tiny", system = "S", parameters = { temperature = 0.1, top_k = 7 }, license = { "L1", "L2" }, messages = { { role = "user", content = "hi" } } })
  create({ model = "child", from = "base", parameters = { top_k = 9, seed = 5 } })
  write("disk.Modelfile", "FROM base\nPARAMETER seed 6\nSYSTEM mine\n")
  local m = show("child").json
  lu.assertEquals({ m.system, m.license, m.messages, m.details.parent_model }, { "S", "L1\nL2", { { role = "user", content = "hi" } }, "base:latest" })
  local a = asked("child")
  lu.assertEquals({ a.sampler.temperature, a.sampler.top_k, a.sampler.seed }, { 0.1, 9, 5 })
  a = asked("disk")
  lu.assertEquals({ a.sampler.temperature, a.sampler.top_k, a.sampler.seed, show("disk").json.system }, { 0.1, 7, 6, "mine" })
  -- what was created stands by itself; a Modelfile names its base
  lu.assertEquals(client.request(port, "DELETE", "/api/delete", { model = "base" }).status, 200)
  lu.assertEquals({ asked("child").sampler.temperature, show("disk").status }, { 0.1, 404 })
end

-- A model made anew from itself keeps what is not named, and stays.
function TestCreate:test_a_model_made_of_itself()
  create({ model = "a", from = "tiny", system = "S", parameters = { temperature = 0.1 } })
  for i = 1, 2 do
    lu.assertEquals(create({ model = "a", from = "a", parameters = { seed = i } }).status, 200)
    local m = show("a").json
    lu.assertEquals({ m.system, m.details.parent_model }, { "S", "tiny:latest" })
    lu.assertStrContains(m.parameters, "seed                           " .. i)
    lu.assertStrContains(m.parameters, "temperature")
  end
end

function TestCreate:test_a_modelfile_shown_can_be_read_again()
  local texts = { ' two " quotes', "line\nbreak ", "\nleading", "trailing ", '"quoted"', "" }
  create({ model = "a", from = "tiny", system = '  say "x"\n', parameters = { stop = texts }, messages = { { role = "user", content = " hi\n" } }, license = "L\n" })
  lu.assertEquals(create({ model = "b", modelfile = show("a").json.modelfile }).status, 200)
  local a, b = show("a").json, show("b").json
  lu.assertEquals({ b.system, b.parameters, b.messages }, { a.system, a.parameters, a.messages })
end

-- What is wrong with files in the folder is said once, and hides nothing else.
function TestCreate:test_files_that_cannot_be_used_are_told()
  write("bad.Modelfile", "FROM tiny\nPARAMETER temperatur 1\n")
  write("orphan.Modelfile", "FROM nobody\n")
  write("good.Modelfile", "FROM tiny\nSYSTEM s\n")
  ctx.catalog:refresh(true)
  lu.assertEquals({ show("bad").status, show("orphan").status, show("good").status }, { 404, 404, 200 })
  local text = table.concat(log)
  lu.assertEquals(#log, 2, text)
  lu.assertStrContains(text, "bad.Modelfile")
  lu.assertStrContains(text, "line 2: unknown parameter")
  lu.assertStrContains(text, "nobody")
end

TestChanged = {}
TestChanged.setUp, TestChanged.tearDown = TestCreate.setUp, TestCreate.tearDown

function TestChanged:test_new_settings_hold_for_the_next_request()
  create({ model = "a", from = "tiny", system = "old", parameters = { top_k = 3 } })
  local seen
  fake.reply = function(prompt) seen = prompt return "ok" end
  lu.assertEquals(asked("a").sampler.top_k, 3)
  lu.assertStrContains(seen, "old")
  create({ model = "a", from = "tiny", system = "new", parameters = { top_k = 4 } })
  lu.assertEquals(asked("a").sampler.top_k, 4)
  lu.assertStrContains(seen, "new")
  lu.assertEquals(fake.loads, 1, "the weights stay")
  create({ model = "a", from = "tiny", parameters = { num_ctx = 512 } })
  asked("a")
  lu.assertEquals({ fake.loads, ctx.pool:list()[1].n_ctx }, { 2, 512 })
end

-- T66: another file under the same name is another model.
function TestChanged:test_another_file_is_loaded_anew()
  asked("tiny")
  asked("tiny")
  lu.assertEquals(fake.loads, 1)
  write("tiny.gguf", ("y"):rep(2000))
  asked("tiny")
  lu.assertEquals({ fake.loads, ctx.pool.n }, { 2, 1 })
  assert(uv.fs_utime(dir .. "/tiny.gguf", 1e9, 1e9)) -- the same size
  ctx.catalog:refresh(true)
  asked("tiny")
  lu.assertEquals({ fake.loads, ctx.pool.n }, { 3, 1 })
  create({ model = "a", from = "tiny" })
  asked("a")
  write("tiny.gguf", ("z"):rep(3000))
  asked("a")
  lu.assertEquals(fake.loads, 4) -- the second had the weights of the first, then the new file
end

-- While somebody uses the old one, it goes on.
function TestChanged:test_a_busy_model_is_not_taken_away()
  local c = client.connect(port)
  local body = require("cjson").encode({ model = "tiny", messages = user("@slow{5}@long{1000}"), stream = true })
  c:send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  lu.assertTrue(c:until_found("word1"))
  write("tiny.gguf", ("y"):rep(2000))
  asked("tiny")
  lu.assertEquals(fake.loads, 1)
  c:close()
  lu.assertTrue(client.wait(function() return ctx.n_jobs == 0 end, 5000))
  asked("tiny")
  lu.assertEquals(fake.loads, 2)
end

TestShared = {}
function TestShared:tearDown() fixture.stop(ctx) end

local function start(change)
  ctx, dir, log = fixture.start_logged({ log_level = "warn", max_loaded_models = "3", parallel = "1" }, change)
  port = ctx.port
  create({ model = "a", from = "tiny", system = "S" })
end

-- A model and those made of it have one copy of the weights; each leaves by itself.
function TestShared:test_one_copy_of_the_weights()
  start()
  asked("tiny")
  asked("a", { options = { num_ctx = 512 } })
  lu.assertEquals({ fake.loads, ctx.pool.n, ctx.pool:list()[1].n_ctx ~= ctx.pool:list()[2].n_ctx }, { 1, 2, true })
  asked("other")
  lu.assertEquals({ fake.loads, ctx.pool.n }, { 2, 3 })
  post("/api/generate", { model = "tiny", keep_alive = 0 })
  lu.assertEquals({ ctx.pool.n, fake.loads }, { 2, 2 })
  asked("a")
  asked("tiny")
  lu.assertEquals({ ctx.pool.n, fake.loads }, { 3, 2 })
end

function TestShared:test_a_load_for_both()
  start()
  fake.hold_loads = true
  local open = {}
  for i, name in ipairs({ "tiny", "a" }) do
    local body = require("cjson").encode({ model = name, messages = user("@say{x}"), stream = false })
    open[i] = client.connect(port)
    open[i]:send("POST /api/chat HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  end
  lu.assertTrue(client.wait(function() return ctx.pool.n_loads == 2 end, 3000))
  fake.let_go()
  for _, c in ipairs(open) do
    lu.assertTrue(c:until_closed(3000))
    lu.assertEquals(c:responses()[1].status, 200)
  end
  lu.assertEquals({ fake.loads, ctx.pool.n, ctx.pool.n_loads }, { 1, 2, 0 })
end

-- Memory is wanted for what is new: with room for one copy and two caches both are there.
function TestShared:test_memory_of_the_second()
  local free = 1e9
  start(function(deps)
    local describe = deps.describe
    deps.describe = function(path)
      local info, message = describe(path)
      if info then info.kv_bytes_per_token = 1 end
      return info, message
    end
    deps.free_memory = function() return free end
  end)
  asked("tiny")
  free = 6000 -- a cache of 4096 bytes and its margin; the file's 1000 bytes more would not fit
  asked("a")
  lu.assertEquals(fake.loads, 1)
  free = 3000
  create({ model = "b", from = "tiny" })
  local r = post("/api/chat", { model = "b", messages = user("x"), stream = false }) -- the idle ones leave, with their weights
  lu.assertEquals(r.status, 503)
end
