-- SPDX-License-Identifier: MIT
-- Writes that fail: logged once with path and reason, answered without the path, nothing half written stays;
-- and long ones: nobody else waits for them.
local lu = require("luaunit")
local uv = require("luv")
local client = require("http_client")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local temp = require("temp")

local ctx, port, dir, log

local function start(flags, change)
  ctx, dir, log = fixture.start_logged(flags, change)
  port = ctx.port
end

local function logged(pattern)
  local n = 0
  for _, line in ipairs(log) do n = n + (line:find(pattern) and 1 or 0) end
  return n
end

-- The disk is full for regular files while it lasts.
local write, full = uv.fs_write, false
function uv.fs_write(fd, ...)
  local stat = full and uv.fs_fstat(fd)
  if stat and stat.type == "file" then return nil, "ENOSPC: no space left on device", "ENOSPC" end
  return write(fd, ...)
end

local function get(path) return client.request(port, "GET", path) end
local function post(path, body, headers) return client.request(port, "POST", path, body, headers) end
local function chat() return post("/v1/chat/completions", { model = "tiny", messages = { { role = "user", content = "@say{a b}" } } }) end

local function upload(text)
  local body = '--X\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--X\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    .. text .. "\r\n--X--\r\n"
  return post("/v1/files", body, { ["Content-Type"] = "multipart/form-data; boundary=X" })
end

local function names(folder)
  local out, handle = {}, uv.fs_scandir(folder)
  while handle do
    local name = uv.fs_scandir_next(handle)
    if not name then break end
    out[#out + 1] = name
  end
  return out
end

-- The answer to a write that found no room, and what the log has of it.
local function refused(r, what)
  lu.assertEquals(r.status, 507, r.body)
  lu.assertStrContains(r.body, "no space left")
  lu.assertStrContains(r.body, what)
  lu.assertNil(r.body:find(dir, 1, true))
  lu.assertEquals(logged('cannot write".*path=.*reason=.*what="' .. what), 1, table.concat(log))
end

TestFull = {}
function TestFull:tearDown()
  full = false
  fixture.stop(ctx)
end

function TestFull:test_uploads_and_batches()
  local folder = temp.path()
  start({ files_dir = folder })
  local line = '{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"tiny","messages":[{"role":"user","content":"x"}]}}'
  full = true
  refused(upload(line), "an uploaded file")
  refused(upload(line), "an uploaded file") -- and logged no second time
  lu.assertEquals({ names(folder), ctx.files.bytes, ctx.files.n }, { {}, 0, 0 })
  full = false
  local file = upload(line)
  lu.assertEquals(file.status, 200, file.body)
  lu.assertEquals(logged('writing works again.*what="an uploaded file"'), 0) -- the level is error
  full = true
  local order = { endpoint = "/v1/chat/completions", input_file_id = file.json.id }
  refused(post("/v1/batches", order), "a record of files and batches")
  lu.assertEquals(get("/v1/batches").json.data, {})
  full = false
  fake.reply = function()
    full = true -- from here on: the batch runs, its answer finds no room
    return "x"
  end
  local id = post("/v1/batches", order).json.id
  lu.assertTrue(client.wait(function() return ctx.batches.by_id[id].status == "failed" end, 5000))
  lu.assertStrContains(get("/v1/batches/" .. id).body, "cannot write a batch's answers: ENOSPC")
  lu.assertEquals(logged("what=\"a batch's answers"), 1)
  full = false
  lu.assertEquals(upload(line).status, 200)
  full = true
  lu.assertEquals({ upload(line).status, logged('what="an uploaded file"') }, { 507, 2 }) -- it has worked in between: logged again
  full = false
end

-- fsync and rename may fail, too.
function TestFull:test_the_last_steps_of_an_upload()
  local folder = temp.path()
  start({ files_dir = folder })
  for _, name in ipairs({ "fs_fsync", "fs_rename" }) do
    local own = uv[name]
    uv[name] = function(...)
      local args = { ... }
      local back = type(args[#args]) == "function" and args[#args]
      if back then return uv.new_idle():start(function() back("EIO: i/o error") end) end
      return nil, "EIO: i/o error", "EIO"
    end
    local r = upload("x")
    uv[name] = own
    lu.assertEquals(r.status, 500, r.body)
    lu.assertStrContains(r.body, "EIO")
    lu.assertEquals({ names(folder), ctx.files.bytes, ctx.files.n }, { {}, 0, 0 }, name)
  end
  lu.assertEquals(upload("x").status, 200)
end

function TestFull:test_models()
  start()
  local bytes = ("x"):rep(100000)
  local path = "/api/blobs/sha256:" .. require("mtx.core").sha256.of(bytes)
  full = true
  refused(post(path, bytes), "a blob")
  lu.assertEquals(names(ctx.catalog:blob_dir()), {})
  refused(post("/api/copy", { source = "tiny", destination = "new" }), "a model's manifest")
  refused(post("/api/create", { model = "new", from = "tiny" }), "a model's manifest")
  lu.assertEquals(post("/api/show", { model = "new" }).status, 404)
  full = false
  lu.assertEquals({ post(path, bytes).status, post("/api/copy", { source = "tiny", destination = "new" }).status }, { 201, 200 })
end

function TestFull:test_settings_of_the_prompt_cache()
  start()
  full = true
  refused(client.request(port, "PUT", "/api/cache/persistence", { enabled = true, budget_mb = 7 }), "the settings of the prompt cache")
  lu.assertFalse(get("/api/cache/persistence").json.enabled)
  full = false
  lu.assertEquals(client.request(port, "PUT", "/api/cache/persistence", { enabled = true, budget_mb = 7 }).json.budget_mb, 7)
end

-- Nobody depends on these: the request goes on.
function TestFull:test_trace_and_script()
  local trace, folder = temp.path(), temp.dir()
  local script = temp.file('mtx.route("GET", "/note", function() local ok, why = mtx.file.write("a", "b") return 200, { ok = ok or false, why = why } end)')
  start({ trace = trace, script = script, script_allow = "file=" .. folder })
  full = true
  lu.assertEquals({ chat().status, chat().status }, { 200, 200 })
  lu.assertEquals(logged('cannot write.*path=' .. trace:gsub("%p", "%%%0") .. '.*what="the trace"'), 1)
  local r = get("/note")
  lu.assertEquals(r.json.ok, false, r.body)
  lu.assertStrContains(r.json.why, "no space left")
  lu.assertEquals({ logged("what=\"a script's file"), names(folder) }, { 1, {} })
  full = false
  lu.assertEquals({ chat().status, get("/note").json.ok, names(folder) }, { 200, true, { "a" } })
end

-- What engines save by themselves: on idle, now and then, at the end.
function TestFull:test_saved_prompts()
  local now = 1000
  start({ persist = "true", persist_every = "60", keep_alive = "3600" }, function(deps) deps.clock = function() return now end end)
  chat()
  local engine, answers = fake.engines[#fake.engines], {}
  lu.assertEquals(engine.disk.dir, ctx.persistence.dir)
  fake.store = function() return table.unpack(answers) end
  answers = { nil, "/p/x: cannot write: No space left on device", "io" }
  local function stored(n) return client.wait(function() return engine.stored == n and not next(ctx.pool:list()[1].tasks) end, 3000) end
  client.sleep(600)
  lu.assertNil(engine.stored) -- not yet idle for long
  now = now + 6
  lu.assertTrue(stored(1))
  lu.assertEquals(logged('cannot write.*path=.*No space left.*what="the prompt cache"'), 1, table.concat(log))
  now = now + 6
  lu.assertTrue(stored(2)) -- once more, since it failed; not logged again
  lu.assertEquals(logged('what="the prompt cache"'), 1)
  answers = { 1 }
  now = now + 6
  lu.assertTrue(stored(3))
  now = now + 100
  client.sleep(600)
  lu.assertEquals(engine.stored, 3) -- nothing new
  fake.reply = function() return { text = "a b", delay_ms = 700 } end -- busy: every 60 s all the same
  chat()
  local c = client.connect(port)
  c:send('POST /api/generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 32\r\n\r\n{"model":"tiny","prompt":"slow"}')
  lu.assertTrue(client.wait(function() return ctx.n_jobs == 1 end))
  now = now + 61
  lu.assertTrue(stored(4))
  c:close()
  fake.lost = { "/p/y: cannot write: No space left on device" }
  ctx.pool:unload(ctx.pool:list()[1], "test")
  lu.assertTrue(client.wait(function() return logged('reason=.*/p/y.*what="the prompt cache"') == 1 end, 3000))
end

TestLong = {}
function TestLong:tearDown() fixture.stop(ctx) end

-- /health and other work are answered while a slot's file is written, read or forgotten.
function TestLong:test_slot_files()
  local folder = temp.path()
  start({ slot_save_path = folder })
  lu.assertEquals(chat().status, 200)
  for _, case in ipairs({ { "save", { filename = "a" } }, { "restore", { filename = "a" } }, { "erase", {} } }) do
    fake.hold_work = true
    local body = require("mtx.json").encode(case[2])
    local c = client.connect(port)
    c:send("POST /slots/0?action=" .. case[1] .. " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
    lu.assertTrue(client.wait(function() return #fake.held == 1 end, 3000))
    lu.assertEquals({ get("/health").status, chat().status, #fake.held, c.data }, { 200, 200, 1, "" }, case[1])
    fake.let_go()
    c:until_closed(3000)
    lu.assertEquals(c:responses()[1].status, 200, case[1])
  end
end

-- A model's checksum is read before the model is there; other requests go on meanwhile.
function TestLong:test_checksum_of_a_loading_model()
  start({ persist = "true" })
  fake.hold_work = true
  local body = '{"model":"tiny","prompt":"x","stream":false}'
  local c = client.connect(port)
  c:send("POST /api/generate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  lu.assertTrue(client.wait(function() return #fake.held == 1 end, 3000))
  lu.assertEquals({ get("/health").status, get("/ready").json.reason, c.data }, { 200, "loading", "" })
  fake.let_go()
  c:until_closed(3000)
  lu.assertEquals({ c:responses()[1].status, fake.engines[#fake.engines].disk.dir }, { 200, ctx.persistence.dir })
end

-- The server stops while such work is under way.
function TestLong:test_stop_during_work()
  start({ persist = "true", slot_save_path = dir })
  chat()
  fake.hold_work = true
  local c = client.connect(port)
  c:send("POST /slots/0?action=erase HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
  lu.assertTrue(client.wait(function() return #fake.held == 1 end, 3000))
  c:close()
end

function TestLong:test_fsync_of_an_upload()
  local folder, own, back = temp.path(), uv.fs_fsync, nil
  start({ files_dir = folder })
  uv.fs_fsync = function(fd, f)
    if not f then return own(fd) end
    back = function() own(fd, f) end
  end
  local part = '--X\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--X\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nxyz\r\n--X--\r\n'
  local c = client.connect(port)
  c:send("POST /v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: multipart/form-data; boundary=X\r\nContent-Length: " .. #part .. "\r\n\r\n" .. part)
  lu.assertNotNil(client.wait(function() return back end, 3000))
  lu.assertEquals({ get("/health").status, get("/v1/files").json.data, c.data }, { 200, {}, "" })
  uv.fs_fsync = own
  back()
  c:until_closed(3000)
  lu.assertEquals({ c:responses()[1].status, #get("/v1/files").json.data }, { 200, 1 })
end
