-- SPDX-License-Identifier: MIT
-- /v1/files and /v1/batches: uploads to disk and their limits, ownership by key,
-- batches from validation to output files, cancel, restart, broken input.
local lu = require("luaunit")
local cjson = require("cjson")
local client = require("http_client")
local fake = require("fake_engine")
local filestore = require("mtx.serve.files.store")
local fixture = require("http_fixture")
local multipart = require("mtx.http.multipart")
local uv = require("luv")
local temp = require("temp")

local ctx, port, dir

local function start(flags)
  flags = flags or {}
  flags.files_dir = dir
  ctx = fixture.start(flags)
  port = ctx.port
end

local function names()
  local out, handle = {}, uv.fs_scandir(dir)
  while handle do
    local name = uv.fs_scandir_next(handle)
    if not name then break end
    out[#out + 1] = name
  end
  table.sort(out)
  return out
end

local function form(fields, file, filename)
  local out = {}
  for k, v in pairs(fields) do out[#out + 1] = '--XX\r\nContent-Disposition: form-data; name="' .. k .. '"\r\n\r\n' .. v .. "\r\n" end
  if file then out[#out + 1] = '--XX\r\nContent-Disposition: form-data; name="file"; filename="' .. (filename or "in.jsonl") .. '"\r\nContent-Type: application/octet-stream\r\n\r\n' .. file .. "\r\n" end
  return table.concat(out) .. "--XX--\r\n"
end

local FORM = { ["Content-Type"] = 'multipart/form-data; boundary="XX"' }

local function headers_of(key, more)
  local h = {}
  for k, v in pairs(more or {}) do h[k] = v end
  if key then h.Authorization = "Bearer " .. key end
  return h
end

local function upload(file, key, purpose)
  return client.request(port, "POST", "/v1/files", form({ purpose = purpose or "batch" }, file), headers_of(key, FORM), 10000)
end
local function get(path, key) return client.request(port, "GET", path, nil, headers_of(key)) end
local function post(path, body, key) return client.request(port, "POST", path, body, headers_of(key)) end
local function delete(path, key) return client.request(port, "DELETE", path, nil, headers_of(key)) end

local function line(id, text, more)
  local body = { model = "tiny", messages = { { role = "user", content = text } } }
  for k, v in pairs(more or {}) do body[k] = v end
  return cjson.encode({ custom_id = id, method = "POST", url = "/v1/chat/completions", body = body })
end

local function batch_of(text, key, endpoint)
  local file = upload(text, key).json
  return post("/v1/batches", { input_file_id = file.id, endpoint = endpoint or "/v1/chat/completions", completion_window = "24h" }, key)
end

local function ended(id, key)
  local b
  client.wait(function()
    b = get("/v1/batches/" .. id, key).json
    return b.status == "completed" or b.status == "failed" or b.status == "cancelled" or b.status == "expired"
  end)
  return b
end

local function answers(id, key)
  local by_id = {}
  for text in get("/v1/files/" .. id .. "/content", key).body:gmatch("[^\n]+") do
    local a = cjson.decode(text)
    by_id[a.custom_id] = a
  end
  return by_id
end

TestFiles = {}
function TestFiles:setUp()
  dir = temp.path()
  start()
end
function TestFiles:tearDown()
  fixture.stop(ctx)
  os.execute("rm -r " .. dir)
end

function TestFiles:test_life_of_a_file()
  local bytes = ("line\0\r\n--X\n--XX\n"):rep(20000) .. "\r\n--X"
  local r = upload(bytes)
  lu.assertEquals(r.status, 200)
  local f = r.json
  lu.assertStrMatches(f.id, "file%-[a-z0-9]+")
  lu.assertEquals({ f.object, f.bytes, f.filename, f.purpose }, { "file", #bytes, "in.jsonl", "batch" })
  lu.assertEquals(get("/v1/files/" .. f.id).json, f)
  lu.assertEquals(get("/v1/files/" .. f.id .. "/content").body, bytes)
  lu.assertEquals(get("/v1/files").json.data, { f })
  lu.assertEquals(get("/v1/files?purpose=assistants").json.data, {})
  fixture.stop(ctx)
  start() -- the folder is the store
  lu.assertEquals(get("/v1/files/" .. f.id .. "/content").body, bytes)
  lu.assertEquals(delete("/v1/files/" .. f.id).json, { id = f.id, object = "file", deleted = true })
  lu.assertEquals(get("/v1/files/" .. f.id).status, 404)
  lu.assertEquals({ names(), ctx.files.bytes, ctx.files.n }, { {}, 0, 0 })
end

function TestFiles:test_pages()
  local all = {}
  for i = 1, 5 do all[i] = upload("x" .. i).json.id end
  local seen, after = {}, nil
  repeat
    local p = get("/v1/files?limit=2" .. (after and "&after=" .. after or "")).json
    for _, f in ipairs(p.data) do seen[#seen + 1] = f.id end
    after = p.last_id
  until not p.has_more
  table.sort(all)
  table.sort(seen)
  lu.assertEquals(seen, all)
end

function TestFiles:test_refused_uploads_leave_nothing()
  local function try(body, headers) return client.request(port, "POST", "/v1/files", body, headers or FORM).status end
  lu.assertEquals(try(form({ purpose = "batch" })), 400)
  lu.assertEquals(try(form({}, "x")), 400)
  lu.assertEquals(try(form({ purpose = "evil" }, "x")), 400)
  lu.assertEquals(try(form({ purpose = ("x"):rep(5000) }, "x")), 400)
  lu.assertEquals(try(form({ purpose = "batch" }, "x", ("n"):rep(300))), 400)
  lu.assertEquals(try((form({ purpose = "batch" }, "x"):gsub("%-%-XX%-%-\r\n$", ""))), 400, "cut")
  lu.assertEquals(try((form({ purpose = "batch" }, "x"):gsub("form%-data", "attachment"))), 400)
  lu.assertEquals(try("{}", { ["Content-Type"] = "application/json" }), 400)
  lu.assertEquals(try("x", { ["Content-Type"] = "multipart/form-data; boundary=" .. ("b"):rep(71) }), 400)
  lu.assertEquals(try("", { ["Content-Type"] = FORM["Content-Type"], ["Content-Length"] = "0" }), 400)
  local c = client.connect(port)
  c:send("POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=XX\r\nContent-Length: 100000\r\n\r\n" .. form({ purpose = "batch" }, "half"):sub(1, -9))
  lu.assertTrue(client.wait(function() return #names() == 1 end))
  c:close() -- gone in the middle
  lu.assertTrue(client.wait(function() return #names() == 0 end))
  lu.assertEquals({ ctx.files.bytes, ctx.files.n }, { 0, 0 })
end

function TestFiles:test_a_name_is_only_a_name()
  for _, name in ipairs({ "../../../etc/passwd", "/tmp/x", "a\\\"b.jsonl", "", ".." }) do
    local r = client.request(port, "POST", "/v1/files", form({ purpose = "batch" }, "x", name), FORM)
    lu.assertEquals(r.status, 200)
    lu.assertEquals(delete("/v1/files/" .. r.json.id).status, 200)
  end
  lu.assertEquals(names(), {})
  for _, id in ipairs({ "..%2f..%2fetc%2fpasswd", "file-x", "%2e%2e" }) do lu.assertEquals(get("/v1/files/" .. id .. "/content").status, 404) end
end

function TestFiles:test_room()
  fixture.stop(ctx)
  start({ files_mb = "1" })
  local mb = ("x"):rep(700000)
  lu.assertEquals(upload(mb).status, 200)
  lu.assertEquals(upload(mb).status, 413)
  lu.assertEquals({ ctx.files.n, ctx.files.bytes }, { 1, 700000 })
  local max = filestore.MAX_FILE
  filestore.MAX_FILE = 1000
  lu.assertEquals(upload(("x"):rep(2000)).status, 413)
  filestore.MAX_FILE = max
  lu.assertEquals(ctx.files.bytes, 700000)
  local c = client.connect(port)
  c:send("POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=XX\r\nContent-Length: 600000000\r\n\r\n")
  lu.assertTrue(c:until_found("413"))
end

TestFileKeys = {}
function TestFileKeys:setUp()
  dir = temp.path()
end
TestFileKeys.tearDown = TestFiles.tearDown

function TestFileKeys:test_files_and_batches_belong_to_their_key()
  start({ api_key = "one,two" })
  local f = upload(line("a", "@say{secret}"), "one").json
  lu.assertEquals(get("/v1/files/" .. f.id, "two").status, 404)
  lu.assertEquals(get("/v1/files/" .. f.id .. "/content", "two").status, 404)
  lu.assertEquals(delete("/v1/files/" .. f.id, "two").status, 404)
  lu.assertEquals(get("/v1/files", "two").json.data, {})
  lu.assertEquals(post("/v1/batches", { input_file_id = f.id, endpoint = "/v1/chat/completions" }, "two").status, 404)
  local b = post("/v1/batches", { input_file_id = f.id, endpoint = "/v1/chat/completions" }, "one").json
  lu.assertEquals(get("/v1/batches/" .. b.id, "two").status, 404)
  lu.assertEquals(post("/v1/batches/" .. b.id .. "/cancel", "{}", "two").status, 404)
  b = ended(b.id, "one")
  lu.assertEquals(b.status, "completed")
  lu.assertEquals(get("/v1/files/" .. b.output_file_id .. "/content", "two").status, 404)
  lu.assertEquals(upload("x").status, 401)
end

-- A batch goes on only while its key is known.
function TestFileKeys:test_a_key_that_is_taken_away_ends_its_batch()
  local sha256 = require("mtx.core").sha256
  local one, two = "one infer " .. sha256.of("one") .. "\n", "two infer " .. sha256.of("two") .. "\n"
  local keys = temp.file(one .. two)
  start({ keys_file = keys, batch_parallel = "1" })
  local f = upload(line("a", "@say{x}") .. "\n" .. line("b", "@slow{5}@long{2000}") .. "\n" .. line("c", "@say{x}"), "one").json
  local id = post("/v1/batches", { input_file_id = f.id, endpoint = "/v1/chat/completions" }, "one").json.id
  lu.assertTrue(client.wait(function() return fake.engines[1] and #fake.engines[1].submitted == 2 end, 5000))
  local h = assert(io.open(keys, "w"))
  h:write(two)
  h:close()
  lu.assertNotNil(ctx.reload())
  lu.assertTrue(client.wait(function() return ctx.n_jobs == 0 and next(ctx.batches.active) == nil end, 5000))
  lu.assertEquals({ get("/v1/batches/" .. id, "one").status, #fake.engines[1].submitted }, { 401, 2 })
end

-- The lines of a batch count as requests of its key.
function TestFileKeys:test_a_batch_keeps_to_the_limit_of_its_key()
  local now = 0
  dir = temp.path()
  ctx = fixture.start({ api_key = "one", key_requests_per_minute = "6", files_dir = dir }, function(deps) deps.clock = function() return now end end)
  port = ctx.port
  local lines = {}
  for i = 1, 5 do lines[i] = line("id" .. i, "@say{x}") end
  local f = upload(table.concat(lines, "\n"), "one").json
  local id = post("/v1/batches", { input_file_id = f.id, endpoint = "/v1/chat/completions" }, "one").json.id
  local b = ctx.batches.by_id[id]
  lu.assertTrue(client.wait(function() return b.counts.completed == 4 end, 5000)) -- the upload and its creation were two
  client.sleep(100)
  lu.assertEquals({ b.counts.completed, get("/v1/models", "one").status }, { 4, 429 })
  now = 10
  local run = ctx.batches.active[id]
  run.resume_at = 0
  lu.assertTrue(client.wait(function() return b.counts.completed == 5 end, 5000))
end

function TestFileKeys:test_off_without_a_folder()
  ctx = fixture.start()
  port = ctx.port
  uv.fs_mkdir(dir, 448)
  lu.assertEquals(upload("x").status, 501)
  for _, path in ipairs({ "/v1/files", "/v1/files/x", "/v1/batches", "/v1/batches/x", "/v1/batch_jobs/x/output" }) do lu.assertEquals(get(path).status, 501, path) end
  lu.assertEquals(post("/v1/batches", {}).status, 501)
end

function TestFileKeys:test_a_folder_that_cannot_be_written()
  dir = temp.file("")
  local c = assert(require("mtx.config").load({ env = function() end, flags = { files_dir = dir .. "/x" } }))
  local none, message = require("mtx.serve").new(c, (fake.deps()))
  lu.assertNil(none)
  lu.assertStrContains(message, "files folder")
  os.remove(dir)
  uv.fs_mkdir(dir, 448)
  ctx = fixture.start()
end

TestBatches = {}
TestBatches.setUp = TestFiles.setUp
TestBatches.tearDown = TestFiles.tearDown

function TestBatches:test_a_batch()
  local lines = {}
  for i = 1, 20 do lines[i] = line("id" .. i, "@say{answer " .. i .. "}", { stream = true }) end
  lines[21] = line("bad", "x", { temperature = -5 })
  lines[22] = line("nomodel", "x", { model = "nope" })
  local r = batch_of(table.concat(lines, "\n") .. "\n\n")
  lu.assertEquals(r.status, 200)
  lu.assertEquals({ r.json.object, r.json.status, r.json.endpoint }, { "batch", "validating", "/v1/chat/completions" })
  local b = ended(r.json.id)
  lu.assertEquals({ b.status, b.request_counts }, { "completed", { total = 22, completed = 20, failed = 2 } })
  local out, err = answers(b.output_file_id), answers(b.error_file_id)
  for i = 1, 20 do
    local a = out["id" .. i].response
    lu.assertEquals({ a.status_code, a.body.choices[1].message.content }, { 200, "answer " .. i })
  end
  lu.assertEquals({ err.bad.response.status_code, err.nomodel.response.status_code }, { 400, 404 })
  lu.assertEquals(get("/v1/batches").json.data[1].id, b.id)
  lu.assertEquals(get("/v1/batch_jobs/" .. b.id .. "/output").body, get("/v1/files/" .. b.output_file_id .. "/content").body)
  lu.assertEquals(post("/v1/batches/" .. b.id .. "/cancel", "{}").status, 409)
  for _, a in ipairs(fake.engines[1].submitted) do lu.assertTrue(a.priority < 0, "others come first") end
end

function TestBatches:test_other_endpoints()
  local e = cjson.encode({ custom_id = "e", url = "/v1/embeddings", body = { model = "minilm", input = "abc" } })
  lu.assertEquals(#answers(ended(batch_of(e, nil, "/v1/embeddings").json.id).output_file_id).e.response.body.data[1].embedding, 8)
  e = cjson.encode({ custom_id = "r", url = "/v1/responses", body = { model = "tiny", input = "@say{yes}" } })
  lu.assertEquals(answers(ended(batch_of(e, nil, "/v1/responses").json.id).output_file_id).r.response.body.output[1].content[1].text, "yes")
end

function TestBatches:test_broken_files_run_nothing()
  local cases = { "", "\n\n", "{", "[1]", line("", "x"), line("a", "x") .. "\n" .. line("a", "y"), '{"custom_id":"a","url":"/v1/embeddings","body":{}}',
    '{"custom_id":"a","method":"GET","url":"/v1/chat/completions","body":{}}', '{"custom_id":"a","url":"/v1/chat/completions","body":[]}', "\255\254",
    line("ok", "x") .. "\n" .. ("["):rep(100000) }
  for i, text in ipairs(cases) do
    local b = ended(batch_of(text).json.id)
    lu.assertEquals(b.status, "failed", "case " .. i)
    lu.assertTrue(#b.errors.data >= 1)
  end
  lu.assertEquals(#fake.engines, 0, "nothing was run")
  local f = upload("x", nil, "assistants").json.id
  for _, body in ipairs({ {}, { input_file_id = "nope", endpoint = "/v1/chat/completions" }, { input_file_id = f, endpoint = "/v1/chat/completions" },
    { input_file_id = f, endpoint = "/admin/stats" }, { input_file_id = f, endpoint = "/v1/chat/completions", completion_window = "1s" } }) do
    local r = post("/v1/batches", body)
    lu.assertTrue(r.status == 400 or r.status == 404)
  end
end

function TestBatches:test_cancel()
  local lines = {}
  for i = 1, 40 do lines[i] = line("id" .. i, i <= 2 and "@say{x}" or "@slow{5}@long{500}") end
  local id = batch_of(table.concat(lines, "\n")).json.id
  lu.assertTrue(client.wait(function() return get("/v1/batches/" .. id).json.request_counts.completed == 2 end))
  local input = get("/v1/batches/" .. id).json.input_file_id
  lu.assertEquals(delete("/v1/files/" .. input).status, 409)
  lu.assertEquals(post("/v1/batches/" .. id .. "/cancel", "{}").json.status, "cancelling")
  local b = ended(id)
  lu.assertEquals({ b.status, b.request_counts.completed }, { "cancelled", 2 })
  lu.assertTrue(answers(b.output_file_id).id1 ~= nil)
  lu.assertTrue(client.wait(function() return ctx.n_jobs == 0 end))
end

-- A restart in the middle: every line is answered once.
function TestBatches:test_restart()
  local lines = {}
  for i = 1, 12 do lines[i] = line("id" .. i, "@slow{3}@long{20}") end
  local id = batch_of(table.concat(lines, "\n")).json.id
  lu.assertTrue(client.wait(function() return get("/v1/batches/" .. id).json.request_counts.completed >= 4 end))
  fixture.stop(ctx)
  start()
  local b = ended(id)
  lu.assertEquals({ b.status, b.request_counts }, { "completed", { total = 12, completed = 12, failed = 0 } })
  local _, n = get("/v1/files/" .. b.output_file_id .. "/content").body:gsub("\n", "")
  lu.assertEquals(n, 12)
  for i = 1, 12 do lu.assertStrContains(answers(b.output_file_id)["id" .. i].response.body.choices[1].message.content, "word20") end
end

-- A batch that is in the middle when the server goes; change() works on what it left. -> its id
local function interrupted(lines, n_done, change, flags)
  local id = batch_of(table.concat(lines, "\n")).json.id
  lu.assertTrue(client.wait(function() return get("/v1/batches/" .. id).json.request_counts.completed >= n_done end))
  fixture.stop(ctx)
  if change then change(dir .. "/" .. id) end
  start(flags)
  return id
end

local function slow_lines(n)
  local lines = {}
  for i = 1, n do lines[i] = line("id" .. i, "@slow{3}@long{20}") end
  return lines
end

-- A crash cuts the answer that was being written: it comes again, and spoils no other.
function TestBatches:test_an_answer_cut_by_a_crash()
  local id = interrupted(slow_lines(12), 4, function(path)
    local f = assert(io.open(path .. ".out", "a"))
    f:write('{"id":"batch_req_x","custom_id":"id12","resp')
    f:close()
  end)
  local b = ended(id)
  lu.assertEquals({ b.status, b.request_counts }, { "completed", { total = 12, completed = 12, failed = 0 } })
  local by_id, n = answers(b.output_file_id), 0
  for _ in pairs(by_id) do n = n + 1 end
  lu.assertEquals(n, 12)
end

-- Checked under a larger limit than it is run under.
function TestBatches:test_a_line_that_is_too_long_by_now()
  local lines = slow_lines(12)
  lines[13] = line("big", ("x"):rep(300000))
  local id = interrupted(lines, 4, nil, { max_body_mb = "0.1" })
  local b = ended(id)
  lu.assertEquals({ b.status, #b.errors.data }, { "failed", 1 })
  lu.assertStrContains(b.errors.data[1].message, "max_body_mb")
  lu.assertTrue(b.request_counts.completed >= 4 and b.output_file_id ~= cjson.null, "what was answered is kept")
end

function TestBatches:test_blank_lines_count()
  local b = ended(batch_of(line("a", "x") .. ("\n"):rep(require("mtx.serve.files.batches").MAX_LINES + 1)).json.id)
  lu.assertEquals(b.status, "failed")
  lu.assertStrContains(b.errors.data[1].message, "more than 50000 lines")
  b = ended(batch_of("\n \n" .. line("a", "x") .. "\n\n{").json.id)
  lu.assertEquals(b.errors.data[1].line, 5, "as an editor counts")
end

-- Answers need room as uploads do.
function TestBatches:test_answers_count_as_files()
  ctx.files.max = 20000
  local lines = {}
  for i = 1, 40 do lines[i] = line("id" .. i, "@long{60}") end
  local b = ended(batch_of(table.concat(lines, "\n")).json.id)
  lu.assertEquals(b.status, "failed")
  lu.assertStrContains(b.errors.data[1].message, "room")
  local n = 0
  for _ in pairs(answers(b.output_file_id)) do n = n + 1 end
  lu.assertEquals(n, b.request_counts.completed)
  local sum = 0
  for _, name in ipairs(names()) do
    lu.assertNil(name:find("%.out$") or name:find("%.err$"))
    if name:find("^file%-%w+$") then sum = sum + uv.fs_stat(dir .. "/" .. name).size end
  end
  lu.assertEquals(ctx.files.bytes, sum)
  lu.assertTrue(sum <= ctx.files.max)
end

-- The files of answers count among all.
function TestBatches:test_no_batch_without_a_place_for_its_answers()
  local file, max = upload(line("a", "x")).json, filestore.MAX_FILES
  filestore.MAX_FILES = 1
  local r = post("/v1/batches", { input_file_id = file.id, endpoint = "/v1/chat/completions" })
  local another = upload("x")
  filestore.MAX_FILES = max
  lu.assertEquals({ r.status, another.status }, { 429, 507 })
  lu.assertStrContains(r.json.error.message, "delete some")
end

-- "The queue is full" is no answer to a line.
function TestBatches:test_lines_wait_for_a_busy_server()
  fixture.stop(ctx)
  start({ parallel = "1", max_waiting = "1", batch_parallel = "6" })
  local b = ended(batch_of(table.concat(slow_lines(8), "\n")).json.id)
  lu.assertEquals({ b.status, b.request_counts }, { "completed", { total = 8, completed = 8, failed = 0 } })
end

TestLines = {}

function TestLines:test_lines_of_a_stored_file()
  local folder = temp.path()
  local store = assert(filestore.open(folder, 1 << 30, require("mtx.serve.writes").new(print)))
  local function lines_of(text, max)
    local w = assert(store:create())
    assert(w:write(text))
    local record = assert(w:commit({ created_at = 1 }))
    local out, next_line = {}, assert(store:lines(record, max))
    for _ = 1, 10000 do
      local got = next_line()
      if got == nil then break end
      out[#out + 1] = got
      if got == false then break end
    end
    store:remove(record)
    return out
  end
  lu.assertEquals(lines_of("", 10), {})
  lu.assertEquals(lines_of("a\r\n\nbc", 10), { "a", "", "bc" })
  lu.assertEquals(lines_of("a\n", 10), { "a" })
  lu.assertEquals(lines_of("0123456789\n01234567890\n", 10), { "0123456789", false })
  lu.assertEquals(lines_of(("x"):rep(200000), 150000), { false })
  local wanted = {}
  for i = 1, 5000 do wanted[i] = ("z"):rep(i % 97) .. i end
  lu.assertEquals(lines_of(table.concat(wanted, "\n"), 1000), wanted)
  os.execute("rm -r " .. folder)
end

TestMultipart = {}

function TestMultipart:test_every_cut()
  local body = "preamble\r\n--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\n"
    .. 'Content-Disposition: form-data; name="file"; filename="a \\"q\\".jsonl"\r\nContent-Type: text/plain\r\n\r\nline1\r\n--\r\n-b\r\n\r\n--b\r\n'
    .. "Content-Disposition: form-data; name=empty\r\n\r\n\r\n--b--\r\nepilogue"
  for step = 1, #body do
    local got = {}
    local r = multipart.reader("b", function(part)
      local p = { part.name, part.filename or "", "" }
      got[#got + 1] = p
      return function(bytes) if bytes then p[3] = p[3] .. bytes else p[4] = "end" end end
    end)
    for i = 1, #body, step do lu.assertTrue(r:feed(body:sub(i, i + step - 1))) end
    lu.assertTrue(r:complete())
    lu.assertEquals(got, { { "purpose", "", "batch", "end" }, { "file", 'a "q".jsonl', "line1\r\n--\r\n-b\r\n", "end" }, { "empty", "", "", "end" } })
  end
end

function TestMultipart:test_hostile()
  for _, body in ipairs({ "--bX\r\n", "--b\r\nno colon\r\n\r\n", "--b\r\nContent-Disposition: form-data\r\n\r\nx", "--b\r\n" .. ("h"):rep(20000),
    "--b\r\nContent-Disposition: form-data; name=x\r\nContent-Transfer-Encoding: base64\r\n\r\n",
    ("--b\r\nContent-Disposition: form-data; name=x\r\n\r\n\r\n"):rep(40) }) do
    local r = multipart.reader("b", function() return function() end end)
    local ok = r:feed(body)
    lu.assertTrue(not ok, body:sub(1, 40))
    lu.assertFalse(r:complete())
  end
  local r = multipart.reader("b", function() return function() end end)
  lu.assertTrue(r:feed(("x"):rep(1 << 20)))
  lu.assertTrue(#r.buf < 100, "a long preamble is not kept")
end
