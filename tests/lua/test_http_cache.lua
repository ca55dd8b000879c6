-- SPDX-License-Identifier: MIT
-- The prompt cache of a real server: slots saved, restored in another server, erased;
-- what comes from a file says what a cold model says.
local lu = require("luaunit")
local uv = require("luv")
local client = require("http_client")
local config = require("mtx.config")
local serve = require("mtx.serve")
local temp = require("temp")

local MODELS = os.getenv("MTX_MODELS_DIR") or "models"
local NAME = "SmolLM2-135M-Instruct.Q4_1"

local ctx, port, dir

-- A server that sees the one model; flags: further options.
local function start(flags)
  flags.persist_dir = flags.persist_dir or dir .. "/prompts"
  flags.port, flags.models_dir, flags.log_level, flags.ctx = "0", dir .. "/models", "error", "1024"
  ctx = assert(serve.new(assert(config.load({ env = function() end, flags = flags }))))
  assert(serve.listen(ctx))
  port = ctx.port
end

local function stop()
  ctx.config.drain_timeout = 0
  local done = false
  serve.drain(ctx, function() done = true end)
  lu.assertTrue(client.wait(function() return done end, 120000))
end

local function post(path, body) return client.request(port, "POST", path, body, nil, 120000) end

TestCache = {}

function TestCache:setUp()
  dir = temp.dir()
  uv.fs_mkdir(dir .. "/models", 493)
  assert(uv.fs_symlink(assert(uv.fs_realpath(MODELS .. "/" .. NAME .. ".gguf")), dir .. "/models/" .. NAME .. ".gguf"))
end

function TestCache:tearDown() os.execute("rm -r " .. dir) end

local PROMPT = ("The river runs through hills and towns, past mills and under bridges. "):rep(12) .. "At last it comes to"

local function complete(prompt)
  local r = post("/completion", { prompt = prompt or PROMPT, n_predict = 8, temperature = 0, return_tokens = true })
  lu.assertEquals(r.status, 200, r.body)
  return r.json
end

-- The checksum of a model of 500 MB (most of it a hole) is read on a thread: /health is answered before it is known.
function TestCache:test_health_during_a_checksum()
  local big = dir .. "/models/big.gguf"
  assert(uv.fs_copyfile(assert(uv.fs_realpath(MODELS .. "/" .. NAME .. ".gguf")), big))
  local fd = assert(uv.fs_open(big, "r+", 420))
  assert(uv.fs_ftruncate(fd, 500 << 20))
  uv.fs_close(fd)
  start({ persist = "true" })
  local body = '{"model":"big","prompt":"A","n_predict":1}'
  local c = client.connect(port)
  c:send("POST /completion HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  local load
  lu.assertTrue(client.wait(function()
    load = ctx.pool:loading()[1]
    return load and load.loaded ~= nil
  end, 60000))
  local health = client.request(port, "GET", "/health").status
  lu.assertEquals({ health, load.task:ended(), c.data }, { 200, false, "" })
  c:until_closed(60000)
  lu.assertEquals(c:responses()[1].status, 200)
  stop()
end

-- Every step that read a part of the prompt is told, up to the whole of it.
function TestCache:test_progress_of_a_long_prompt()
  start({})
  local r = post("/completion", { prompt = PROMPT .. PROMPT .. PROMPT .. PROMPT, n_predict = 1, stream = true, return_progress = true })
  local seen = {}
  for _, e in ipairs(client.sse(r.body)) do seen[#seen + 1] = e.data.prompt_progress end
  stop()
  lu.assertTrue(#seen >= 3, r.body) -- at admission, and more than one step's rows
  local total = seen[1].total
  lu.assertTrue(total > 600, tostring(total))
  lu.assertEquals({ seen[1].processed, seen[#seen].processed }, { 0, total })
  for i = 2, #seen do
    lu.assertEquals({ seen[i].total, seen[i].cache }, { total, 0 })
    lu.assertTrue(seen[i].processed > seen[i - 1].processed and seen[i].time_ms >= seen[i - 1].time_ms)
  end
end

-- T77: while a long prompt is read everything that does not need the model is answered, before its first token.
function TestCache:test_answers_during_a_long_prompt()
  start({})
  local body = require("mtx.json").encode({ prompt = PROMPT .. PROMPT .. PROMPT .. PROMPT, n_predict = 1, stream = true, return_progress = true })
  local c = client.connect(port)
  c:send("POST /completion HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  lu.assertTrue(c:until_found('"processed":0'))
  for _, path in ipairs({ "/health", "/api/ps", "/metrics", "/slots", "/v1/models", "/ready" }) do
    lu.assertEquals(client.request(port, "GET", path).status, 200, path)
    lu.assertNil(c.data:find('"stop":true', 1, true), path .. " was answered behind the prompt")
  end
  c:until_closed()
  lu.assertStrContains(c.data, '"stop":true')
  stop()
end

function TestCache:test_slot_in_another_server()
  uv.fs_mkdir(dir .. "/slots", 493)
  start({ slot_save_path = dir .. "/slots" })
  local first = complete()
  lu.assertEquals(first.tokens_cached, 0)
  local saved = post("/slots/0?action=save", { filename = "river" })
  lu.assertEquals(saved.status, 200, saved.body)
  lu.assertEquals(saved.json.n_saved, first.tokens_evaluated + 7) -- the last token was never evaluated
  lu.assertEquals(uv.fs_stat(dir .. "/slots/river").size, saved.json.n_written)
  stop()

  start({ slot_save_path = dir .. "/slots" })
  local restored = post("/slots/2?action=restore", { filename = "river", model = NAME })
  lu.assertEquals(restored.status, 200, restored.body)
  lu.assertEquals({ restored.json.n_restored, restored.json.n_read }, { saved.json.n_saved, saved.json.n_written })
  local again = complete()
  lu.assertEquals({ again.tokens_cached, again.content, again.tokens }, { first.tokens_evaluated - 1, first.content, first.tokens })
  local erased = post("/slots/2?action=erase", {})
  lu.assertEquals(erased.json.n_erased, saved.json.n_saved, erased.body)
  lu.assertEquals(complete().tokens_cached, 0)

  -- A damaged file is refused and named without its folder.
  local f = assert(io.open(dir .. "/slots/river", "r+b"))
  f:seek("set", 5000)
  f:write("?")
  f:close()
  local bad = post("/slots/2?action=restore", { filename = "river" })
  lu.assertEquals(bad.status, 400)
  lu.assertStrContains(bad.json.error.message, "river: the saved state is damaged")
  lu.assertNil(bad.body:find(dir, 1, true))
  stop()
end

-- T65, T66: prompts outlast the server, without any call of a client; another KV type finds nothing.
function TestCache:test_prompts_outlast_the_server()
  local other = ("Bread needs flour, water, salt and time, and an oven that is hot enough. "):rep(12) .. "First you"
  local url, flags = "/api/cache/persistence", function(t) t.persist_dir = dir .. "/a/prompts" return t end
  start(flags({}))
  local river, bread = complete(), complete(other)
  lu.assertEquals({ river.tokens_cached, client.request(port, "GET", url).json.enabled }, { 0, false })
  stop()
  lu.assertNil(uv.fs_stat(dir .. "/a")) -- off writes nothing

  start(flags({ persist = "true" }))
  complete()
  complete(other)
  stop()
  start(flags({ persist = "true" }))
  local status = client.request(port, "GET", url).json
  lu.assertEquals({ status.enabled, status.files }, { true, 2 })
  lu.assertEquals(uv.fs_stat(dir .. "/a/prompts").mode & 511, 448)
  local again = complete()
  lu.assertEquals({ again.tokens_cached, again.content, again.tokens }, { river.tokens_evaluated - 1, river.content, river.tokens })
  again = complete(other)
  lu.assertEquals({ again.tokens_cached, again.content }, { bread.tokens_evaluated - 1, bread.content })
  stop()
  start(flags({ persist = "true", kv_type = "f32" }))
  lu.assertEquals(complete().tokens_cached, 0)
  lu.assertEquals(client.request(port, "PUT", url, { enabled = false }).json.files, 0)
  stop()
  start(flags({ persist = "true" })) -- what the request said holds
  lu.assertEquals(client.request(port, "GET", url).json.enabled, false)
  lu.assertEquals(complete().tokens_cached, 0)
  stop()
end

-- One conversation is dropped by its tag: from disk though its model is not loaded, from memory, and what still runs.
function TestCache:test_drop_a_chat()
  local flags = { persist = "true", persist_dir = dir .. "/p" }
  local other = ("Bread needs flour, water, salt and time, and an oven that is hot enough. "):rep(12) .. "First you"
  local function ask(tag, prompt)
    local r = post("/api/generate", { model = NAME, prompt = prompt, raw = true, stream = false, cache_tag = tag, options = { num_predict = 4, temperature = 0 } })
    lu.assertEquals(r.status, 200, r.body)
    return r.json.prompt_cached_count or 0
  end
  local function drop(tag) return client.request(port, "DELETE", "/api/cache/persistence/chats/" .. tag) end
  start(flags)
  lu.assertEquals({ ask("river", PROMPT), ask("bread 1", other) }, { 0, 0 })
  stop()
  start(flags)
  lu.assertEquals({ drop("nobody").json.files, drop("river").json.files }, { 2, 1 })
  lu.assertEquals(ask("river", PROMPT), 0)
  lu.assertTrue(ask("bread 1", other) > 100)
  lu.assertEquals(drop("bread%201").status, 200) -- loaded, in memory and on disk
  lu.assertEquals(ask(nil, other), 0)
  lu.assertTrue(ask("river", PROMPT) > 100)
  local body = '{"model":"' .. NAME .. '","prompt":"' .. ("Clouds drift over the sea. "):rep(30) .. '","raw":true,"cache_tag":"late","options":{"num_predict":400,"ignore_eos":true}}'
  local c = client.connect(port)
  c:send("POST /api/generate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  lu.assertTrue(c:until_found('"done":false'))
  lu.assertEquals(drop("late").status, 200)
  c:close()
  lu.assertTrue(client.wait(function() return ctx.n_jobs == 0 and ctx.pool:list()[1].inflight == 0 end, 10000))
  lu.assertEquals(ask(nil, ("Clouds drift over the sea. "):rep(30)), 0)
  for _, what in ipairs({ "chat-" }) do
    local handle = uv.fs_scandir(flags.persist_dir)
    for name in function() return uv.fs_scandir_next(handle) end do
      if name:sub(1, 5) == what then lu.assertEquals(uv.fs_stat(flags.persist_dir .. "/" .. name).mode & 511, 384) end
    end
  end
  lu.assertEquals(uv.fs_stat(flags.persist_dir).mode & 511, 448)
  lu.assertEquals(client.request(port, "DELETE", "/api/cache/persistence").json.files, 0)
  local left = {}
  local handle = uv.fs_scandir(flags.persist_dir)
  for name in function() return uv.fs_scandir_next(handle) end do left[#left + 1] = name end
  lu.assertEquals(left, {})
  stop()
end
