-- SPDX-License-Identifier: MIT
-- /v1/batches: from validation to output files, cancel, restart, broken input.
local lu = require("luaunit")
local cjson = require("cjson")
local client = require("http_client")
local fake = require("fake_engine")
local filestore = require("mtx.serve.files.store")
local files = require("files_server")
local fixture = require("http_fixture")
local uv = require("luv")

local upload, get, post, delete = files.upload, files.get, files.post, files.delete
local line, batch_of, ended, answers = files.line, files.batch_of, files.ended, files.answers

TestBatches = {}
TestBatches.setUp, TestBatches.tearDown = files.setUp, files.tearDown

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
  lu.assertTrue(client.wait(function() return files.ctx.n_jobs == 0 end))
end

-- A restart in the middle: every line is answered once.
function TestBatches:test_restart()
  local lines = {}
  for i = 1, 12 do lines[i] = line("id" .. i, "@slow{3}@long{20}") end
  local id = batch_of(table.concat(lines, "\n")).json.id
  lu.assertTrue(client.wait(function() return get("/v1/batches/" .. id).json.request_counts.completed >= 4 end))
  fixture.stop(files.ctx)
  files.start()
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
  fixture.stop(files.ctx)
  if change then change(files.dir .. "/" .. id) end
  files.start(flags)
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
  files.ctx.files.max = 20000
  local lines = {}
  for i = 1, 40 do lines[i] = line("id" .. i, "@long{60}") end
  local b = ended(batch_of(table.concat(lines, "\n")).json.id)
  lu.assertEquals(b.status, "failed")
  lu.assertStrContains(b.errors.data[1].message, "room")
  local n = 0
  for _ in pairs(answers(b.output_file_id)) do n = n + 1 end
  lu.assertEquals(n, b.request_counts.completed)
  local sum = 0
  for _, name in ipairs(files.names()) do
    lu.assertNil(name:find("%.out$") or name:find("%.err$"))
    if name:find("^file%-%w+$") then sum = sum + uv.fs_stat(files.dir .. "/" .. name).size end
  end
  lu.assertEquals(files.ctx.files.bytes, sum)
  lu.assertTrue(sum <= files.ctx.files.max)
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
  fixture.stop(files.ctx)
  files.start({ parallel = "1", max_waiting = "1", batch_parallel = "6" })
  local b = ended(batch_of(table.concat(slow_lines(8), "\n")).json.id)
  lu.assertEquals({ b.status, b.request_counts }, { "completed", { total = 8, completed = 8, failed = 0 } })
end
