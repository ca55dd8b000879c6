-- SPDX-License-Identifier: MIT
-- /v1/files: uploads to disk and their limits, ownership by key (of batches too).
local lu = require("luaunit")
local client = require("http_client")
local fake = require("fake_engine")
local filestore = require("mtx.serve.files.store")
local files = require("files_server")
local fixture = require("http_fixture")
local multipart = require("mtx.http.multipart")
local uv = require("luv")
local temp = require("temp")

local upload, get, post, delete = files.upload, files.get, files.post, files.delete
local line, ended = files.line, files.ended

TestFiles = {}
TestFiles.setUp, TestFiles.tearDown = files.setUp, files.tearDown

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
  fixture.stop(files.ctx)
  files.start() -- the folder is the store
  lu.assertEquals(get("/v1/files/" .. f.id .. "/content").body, bytes)
  lu.assertEquals(delete("/v1/files/" .. f.id).json, { id = f.id, object = "file", deleted = true })
  lu.assertEquals(get("/v1/files/" .. f.id).status, 404)
  lu.assertEquals({ files.names(), files.ctx.files.bytes, files.ctx.files.n }, { {}, 0, 0 })
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
  local function try(body, headers) return client.request(files.port, "POST", "/v1/files", body, headers or files.FORM).status end
  lu.assertEquals(try(files.form({ purpose = "batch" })), 400)
  lu.assertEquals(try(files.form({}, "x")), 400)
  lu.assertEquals(try(files.form({ purpose = "evil" }, "x")), 400)
  lu.assertEquals(try(files.form({ purpose = ("x"):rep(5000) }, "x")), 400)
  lu.assertEquals(try(files.form({ purpose = "batch" }, "x", ("n"):rep(300))), 400)
  lu.assertEquals(try((files.form({ purpose = "batch" }, "x"):gsub("%-%-XX%-%-\r\n$", ""))), 400, "cut")
  lu.assertEquals(try((files.form({ purpose = "batch" }, "x"):gsub("form%-data", "attachment"))), 400)
  lu.assertEquals(try("{}", { ["Content-Type"] = "application/json" }), 400)
  lu.assertEquals(try("x", { ["Content-Type"] = "multipart/form-data; boundary=" .. ("b"):rep(71) }), 400)
  lu.assertEquals(try("", { ["Content-Type"] = files.FORM["Content-Type"], ["Content-Length"] = "0" }), 400)
  local c = client.connect(files.port)
  c:send("POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=XX\r\nContent-Length: 100000\r\n\r\n" .. files.form({ purpose = "batch" }, "half"):sub(1, -9))
  lu.assertTrue(client.wait(function() return #files.names() == 1 end))
  c:close() -- gone in the middle
  lu.assertTrue(client.wait(function() return #files.names() == 0 end))
  lu.assertEquals({ files.ctx.files.bytes, files.ctx.files.n }, { 0, 0 })
end

function TestFiles:test_a_name_is_only_a_name()
  for _, name in ipairs({ "../../../etc/passwd", "/tmp/x", "a\\\"b.jsonl", "", ".." }) do
    local r = client.request(files.port, "POST", "/v1/files", files.form({ purpose = "batch" }, "x", name), files.FORM)
    lu.assertEquals(r.status, 200)
    lu.assertEquals(delete("/v1/files/" .. r.json.id).status, 200)
  end
  lu.assertEquals(files.names(), {})
  for _, id in ipairs({ "..%2f..%2fetc%2fpasswd", "file-x", "%2e%2e" }) do lu.assertEquals(get("/v1/files/" .. id .. "/content").status, 404) end
end

function TestFiles:test_room()
  fixture.stop(files.ctx)
  files.start({ files_mb = "1" })
  local mb = ("x"):rep(700000)
  lu.assertEquals(upload(mb).status, 200)
  lu.assertEquals(upload(mb).status, 413)
  lu.assertEquals({ files.ctx.files.n, files.ctx.files.bytes }, { 1, 700000 })
  local max = filestore.MAX_FILE
  filestore.MAX_FILE = 1000
  lu.assertEquals(upload(("x"):rep(2000)).status, 413)
  filestore.MAX_FILE = max
  lu.assertEquals(files.ctx.files.bytes, 700000)
  local c = client.connect(files.port)
  c:send("POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=XX\r\nContent-Length: 600000000\r\n\r\n")
  lu.assertTrue(c:until_found("413"))
end

TestFileKeys = {}
function TestFileKeys:setUp()
  files.dir = temp.path()
end
TestFileKeys.tearDown = files.tearDown

function TestFileKeys:test_files_and_batches_belong_to_their_key()
  files.start({ api_key = "one,two" })
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
  files.start({ keys_file = keys, batch_parallel = "1" })
  local f = upload(line("a", "@say{x}") .. "\n" .. line("b", "@slow{5}@long{2000}") .. "\n" .. line("c", "@say{x}"), "one").json
  local id = post("/v1/batches", { input_file_id = f.id, endpoint = "/v1/chat/completions" }, "one").json.id
  lu.assertTrue(client.wait(function() return fake.engines[1] and #fake.engines[1].submitted == 2 end, 5000))
  local h = assert(io.open(keys, "w"))
  h:write(two)
  h:close()
  lu.assertNotNil(files.ctx.reload())
  lu.assertTrue(client.wait(function() return files.ctx.n_jobs == 0 and next(files.ctx.batches.active) == nil end, 5000))
  lu.assertEquals({ get("/v1/batches/" .. id, "one").status, #fake.engines[1].submitted }, { 401, 2 })
end

-- The lines of a batch count as requests of its key.
function TestFileKeys:test_a_batch_keeps_to_the_limit_of_its_key()
  local now = 0
  files.dir = temp.path()
  files.ctx = fixture.start({ api_key = "one", key_requests_per_minute = "6", files_dir = files.dir }, function(deps) deps.clock = function() return now end end)
  files.port = files.ctx.port
  local lines = {}
  for i = 1, 5 do lines[i] = line("id" .. i, "@say{x}") end
  local f = upload(table.concat(lines, "\n"), "one").json
  local id = post("/v1/batches", { input_file_id = f.id, endpoint = "/v1/chat/completions" }, "one").json.id
  local b = files.ctx.batches.by_id[id]
  lu.assertTrue(client.wait(function() return b.counts.completed == 4 end, 5000)) -- the upload and its creation were two
  client.sleep(100)
  lu.assertEquals({ b.counts.completed, get("/v1/models", "one").status }, { 4, 429 })
  now = 10
  local run = files.ctx.batches.active[id]
  run.resume_at = 0
  lu.assertTrue(client.wait(function() return b.counts.completed == 5 end, 5000))
end

function TestFileKeys:test_off_without_a_folder()
  files.ctx = fixture.start()
  files.port = files.ctx.port
  uv.fs_mkdir(files.dir, 448)
  lu.assertEquals(upload("x").status, 501)
  for _, path in ipairs({ "/v1/files", "/v1/files/x", "/v1/batches", "/v1/batches/x", "/v1/batch_jobs/x/output" }) do lu.assertEquals(get(path).status, 501, path) end
  lu.assertEquals(post("/v1/batches", {}).status, 501)
end

function TestFileKeys:test_a_folder_that_cannot_be_written()
  files.dir = temp.file("")
  local c = assert(require("mtx.config").load({ env = function() end, flags = { files_dir = files.dir .. "/x" } }))
  local none, message = require("mtx.serve").new(c, (fake.deps()))
  lu.assertNil(none)
  lu.assertStrContains(message, "files folder")
  os.remove(files.dir)
  uv.fs_mkdir(files.dir, 448)
  files.ctx = fixture.start()
end
