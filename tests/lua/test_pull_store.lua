-- SPDX-License-Identifier: MIT
-- What pulls leave in the models folder: old copies, interrupted pulls, shared files, and how list and rm see them.
-- A name begins with the fault's number in the list of faults.
local lu = require("luaunit")
local uv = require("luv")
local core = require("mtx.core")
local fake = require("fake_hub")
local fixture = require("pull_fixture")
local infile = require("mtx.infile")

local BODY <const>, SIZE <const>, FILE <const> = fixture.BODY, fixture.SIZE, fixture.FILE

local at = fixture.new()

TestPullStore = at:around({})

function TestPullStore:test_T100_the_old_copy_stays_until_the_new_one_is_right()
  at:pulled()
  local new = fixture.bytes(SIZE + 10, 7)
  at.hub.repos["u/r"]["m-Q4_0.gguf"] = new
  at.hub.serve["m-Q4_0.gguf"] = function() return { status = 500 } end
  at:refused(nil, 502, "status 500")
  at:right()
  lu.assertTrue(at.puller.store:intact(at.puller.store:pin("hf.co/u/r:latest")))
  at.hub.serve["m-Q4_0.gguf"] = nil
  at:pulled()
  lu.assertTrue(at:bytes_of(FILE) == new)
  lu.assertEquals(at.puller.store:pin("hf.co/u/r:latest").files[1].sha256, core.sha256.of(new))
end

function TestPullStore:test_T100_files_that_the_new_revision_has_no_more_are_removed()
  at:pulled()
  at.hub.repos["u/r"] = { ["sub/n-Q4_0.gguf"] = BODY }
  at:pulled()
  lu.assertEquals(fixture.files(at.dir), { "hf.co/u/r/sub/n-Q4_0.gguf " .. SIZE })
end

function TestPullStore:test_T100_without_a_network_the_local_copy_does()
  at:pulled()
  at.hub.down = true
  local events = at:pulled()
  lu.assertStrContains(events[#events - 1].status, "is kept")
  at:right()
  os.remove(at.dir .. "/" .. FILE)
  at:refused(nil, 502, "cannot reach")
end

function TestPullStore:test_T101_an_interrupted_pull_shows_and_goes_on()
  at.hub.serve["m-Q4_0.gguf"] = function(r, bytes)
    local a = fake.bytes(r, bytes)
    if r.n == 1 then a.length, a.body, a.hold = #bytes, bytes:sub(1, 150000), true end
    return a
  end
  local fault = fixture.pull(at.puller, "hf.co/u/r", function(e) return e.completed and e.completed > 0 end)
  lu.assertNil(fault)
  lu.assertEquals(at.puller.jobs, {})
  local partial = at.puller.store:partials()[1]
  lu.assertEquals({ partial.name, partial.total }, { "hf.co/u/r:latest", SIZE })
  at:nothing_visible()
  at:pulled()
  at:right()
  local asked = at.hub:asked("/resolve/")
  lu.assertNotNil(asked[#asked].headers.range)
end

function TestPullStore:test_T101_an_interrupted_pull_can_be_removed()
  at:cut(150000, 1, { status = 500 })
  at:refused(nil, 502, "status 500")
  lu.assertEquals(at.puller.store:partials()[1].size, 150000)
  lu.assertTrue(at.puller.store:drop_partial("hf.co/u/r:latest"))
  lu.assertEquals(fixture.files(at.dir, true), {})
  lu.assertFalse(at.puller.store:drop_partial("hf.co/u/r:latest"))
end

function TestPullStore:test_T101_two_pulls_of_a_model_share_one_job_and_one_may_leave()
  local first, second = {}, {}
  local a, b
  a = assert(at.puller:start("hf.co/u/r", { event = function(e) first[#first + 1] = e end, done = function() first.done = true end }))
  b = assert(at.puller:start("hf.co/u/R:latest", { event = function(e) second[#second + 1] = e end, done = function(f) second.done, second.fault = true, f end }))
  a.leave()
  lu.assertNotNil(next(at.puller.jobs))
  lu.assertNotNil(b)
  require("http_client").wait(function() return second.done end)
  lu.assertNil(second.fault)
  lu.assertNil(first.done)
  at:right()
  lu.assertEquals(#at.hub:asked("/api/models/"), 1)
  lu.assertEquals(#at.hub:asked("/resolve/"), 1)
end

function TestPullStore:test_another_process_that_pulls_the_model_is_respected()
  local folder = at.puller.store:pull_dir("hf.co/u/r:latest")
  local function lock(pid)
    require("mtx.whole_file").make_dirs(folder)
    assert(io.open(folder .. "/lock." .. pid, "w")):close()
  end
  local pid, close = fixture.process()
  lock(pid)
  at:refused(nil, 409, "another process (" .. pid .. ")")
  close()
  lock(1) -- of a process that had this number before the machine was started anew
  at:pulled()
  lock(99999999) -- of a process that is gone
  at:pulled()
  lock(math.tointeger(uv.os_getpid())) -- of one that had our number before us, as in a container
  at:pulled()
end

local MTX = (os.getenv("BUILD") or "build") .. "/mtx"

-- Processes that take and give back the lock of one model as fast as they can never have it together.
function TestPullStore:test_the_lock_is_one_processs_at_a_time()
  local script = require("temp").file([[
    local uv = require("luv")
    local store = require("mtx.pull.store").new(arg[1])
    local n, clashes, mark = 0, 0, arg[1] .. "/held"
    math.randomseed(uv.os_getpid())
    for i = 1, 300 do
      local ok, unlock = pcall(store.lock, store, "m:latest", uv.sleep)
      if ok then
        n = n + 1
        local fd = uv.fs_open(mark, "wx", 384)
        if fd then uv.fs_close(fd) else clashes = clashes + 1 end
        os.remove(mark)
        unlock()
      elseif tostring(unlock.status) ~= "409" then
        clashes = clashes + 1000
      end
    end
    print(n, clashes)]], ".lua")
  local pipes, n, clashes = {}, 0, 0
  for i = 1, 3 do pipes[i] = assert(io.popen(MTX .. " " .. script .. " " .. at.dir)) end
  for _, pipe in ipairs(pipes) do
    local held, bad = pipe:read("n", "n")
    n, clashes = n + held, clashes + bad
    pipe:close()
  end
  lu.assertTrue(n > 0)
  lu.assertEquals(clashes, 0)
end

function TestPullStore:test_a_file_of_the_users_own_is_not_replaced()
  require("mtx.whole_file").make_dirs(at.dir .. "/hf.co/u/r")
  local function own(text)
    local f = assert(io.open(at.dir .. "/" .. FILE, "wb"))
    f:write(text)
    f:close()
  end
  own("mine")
  at:refused(nil, 409, "was not pulled")
  own(("x"):rep(SIZE))
  at:refused(nil, 409, "was not pulled")
  lu.assertEquals(at:bytes_of(FILE), ("x"):rep(SIZE))
  own(BODY) -- the very file
  at:pulled()
  lu.assertEquals(#at.hub:asked("/resolve/"), 0)
end

function TestPullStore:test_two_names_of_one_file_share_it()
  at:start({ ["m-Q4_0.gguf"] = BODY, ["m-Q8_0.gguf"] = fixture.bytes(1000, 3) })
  at:pulled("hf.co/u/r")
  at:pulled("hf.co/u/r:Q4_0")
  lu.assertEquals(#at.hub:asked("/resolve/"), 1)
  lu.assertTrue(at.puller.store:remove(at.puller.store:pin("hf.co/u/r:latest")))
  at:right()
  lu.assertTrue(at.puller.store:remove(at.puller.store:pin("hf.co/u/r:q4_0")))
  at:nothing_visible()
  lu.assertNil(uv.fs_stat(at.dir .. "/hf.co"))
end

function TestPullStore:test_T100_two_names_of_one_file_go_on_together()
  at:pulled("hf.co/u/r")
  local new = fixture.bytes(SIZE + 20, 4)
  at.hub.repos["u/r"]["m-Q4_0.gguf"] = new
  at:pulled("hf.co/u/r:Q4_0")
  for _, key in ipairs({ "hf.co/u/r:latest", "hf.co/u/r:q4_0" }) do
    local pin = at.puller.store:pin(key)
    lu.assertTrue(at.puller.store:intact(pin), key)
    lu.assertEquals({ pin.files[1].sha256, #pin.pulled }, { core.sha256.of(new), 20 }, key)
  end
  local n = #at.hub:asked("/resolve/")
  at:pulled("hf.co/u/r")
  lu.assertEquals(#at.hub:asked("/resolve/"), n)
end

-- Broken off between the first file's new name and the pin: what is in its place is the pull's own.
function TestPullStore:test_a_pull_that_ended_while_it_placed_its_files_goes_on()
  at:start({ ["config.json"] = "{}", ["tokenizer.json"] = "{}", ["model.safetensors"] = BODY })
  local there = at.dir .. "/hf.co/u/r/tokenizer.json"
  local fault = fixture.pull(at.puller, "hf.co/u/r", function(e)
    if e.status == "writing manifest" then require("mtx.whole_file").make_dirs(there) end
  end)
  lu.assertEquals(fault and fault.status, 500)
  lu.assertEquals(fixture.files(at.dir), { "hf.co/u/r/config.json 2" })
  lu.assertEquals(#at.puller.store:partials(), 1)
  assert(os.remove(there))
  fixture.pull(at.puller, "hf.co/u/r", function(e) return e.completed end) -- and once more, before that
  lu.assertEquals(fixture.files(at.dir), { "hf.co/u/r/config.json 2" })
  at:pulled()
  lu.assertEquals(#fixture.files(at.dir), 3)
  lu.assertEquals(at.puller.store:partials(), {})
end

-- And rm takes what has its place, too; not what another pulled model has as well.
function TestPullStore:test_a_pull_that_ended_while_it_placed_its_files_is_removed_whole()
  at:start({ ["config.json"] = "{}", ["tokenizer.json"] = "{}", ["model.safetensors"] = BODY })
  local there = at.dir .. "/hf.co/u/r/tokenizer.json"
  fixture.pull(at.puller, "hf.co/u/r", function(e)
    if e.status == "writing manifest" then require("mtx.whole_file").make_dirs(there) end
  end)
  assert(os.remove(there))
  lu.assertEquals(fixture.files(at.dir), { "hf.co/u/r/config.json 2" })
  lu.assertTrue(at.puller.store:drop_partial("hf.co/u/r:latest"))
  lu.assertEquals(fixture.files(at.dir, true), {})
end

-- The models folder as list, show and rm see it.
TestPulledModels = at:around({})

local function catalog()
  return require("mtx.serve.models.catalog").new({ dir = at.dir, describe = function() return { architecture = "fake" } end, sha256 = core.sha256, clock = os.clock })
end

local function names_of(cat)
  local out = {}
  for _, e in ipairs(cat:list()) do out[#out + 1] = e.name .. " " .. e.size end
  return out
end

function TestPulledModels:test_T96_one_model_is_listed_and_removed_whole()
  at:start(fixture.shards(3))
  at:pulled("hf.co/u/r:q4")
  local cat = catalog()
  lu.assertEquals(names_of(cat), { "hf.co/u/r:q4 150006" })
  local e = assert(cat:find("HF.co/u/r:Q4"))
  lu.assertEquals(e.path, uv.fs_realpath(at.dir) .. "/hf.co/u/r/q4/m-00001-of-00003.gguf")
  lu.assertEquals(#cat:digest(e), 64)
  os.remove(at.dir .. "/hf.co/u/r/q4/m-00002-of-00003.gguf") -- what is not whole is not listed as the pulled model
  lu.assertNil(catalog():find("hf.co/u/r:q4"))
  at:pulled("hf.co/u/r:q4")
  cat = catalog()
  lu.assertTrue(cat:remove(assert(cat:find("hf.co/u/r:q4"))))
  lu.assertEquals(fixture.files(at.dir, true), {})
end

function TestPulledModels:test_T101_partial_ones_are_listed_apart_and_removed()
  at:cut(70000, 1, { status = 500 })
  at:refused(nil, 502, "70000 of 300000")
  local cat = catalog()
  lu.assertEquals(names_of(cat), {})
  lu.assertEquals(cat:partials(), { { name = "hf.co/u/r:latest", key = "hf.co/u/r:latest", size = 70000, total = SIZE } })
  local pid, close = fixture.process()
  local lock = at.puller.store:pull_dir("hf.co/u/r:latest") .. "/lock." .. pid
  assert(io.open(lock, "w")):close()
  lu.assertStrContains(select(2, cat:remove_partial("hf.co/u/r")), "is being pulled by process " .. pid)
  close()
  os.remove(lock)
  lu.assertEquals(cat:remove_partial("hf.co/u/r"), "hf.co/u/r:latest")
  lu.assertEquals(fixture.files(at.dir, true), {})
  lu.assertNil(cat:remove_partial("hf.co/u/r"))
end

function TestPulledModels:test_a_pin_that_leads_out_of_the_folder_is_none()
  at:pulled()
  local path = at.dir .. "/.mtx/pins/" .. core.sha256.of("hf.co/u/r:latest"):sub(1, 32) .. ".json"
  local text = infile.read(path)
  for _, bad in ipairs({ "../x.gguf", "/etc/passwd", ".mtx/x", "a/../../x" }) do
    for _, field in ipairs({ "path", "from" }) do
      local f = assert(io.open(path, "w"))
      f:write((text:gsub('"' .. field .. '":%s*"[^"]*"', '"' .. field .. '":"' .. bad .. '"')))
      f:close()
      lu.assertNil(at.puller.store:pin("hf.co/u/r:latest"), bad)
    end
  end
end

function TestPulledModels:test_pins_of_the_wrong_shape()
  at:pulled()
  local path = at.dir .. "/.mtx/pins/" .. core.sha256.of("hf.co/u/r:latest"):sub(1, 32) .. ".json"
  local text = infile.read(path)
  local function pin(change)
    local f = assert(io.open(path, "w"))
    f:write((change(text)))
    f:close()
  end
  pin(function(t) return t:gsub('"source":%s*"[^"]*"', '"source":5') end)
  lu.assertNil(at.puller.store:pin("hf.co/u/r:latest"))
  pin(function(t) return t:gsub("^{", '{"modelfile":{"parameters":5},') end)
  local cat = catalog()
  cat:store({ full = "child:latest", key = "child:latest" }, { from = "hf.co/u/r:latest" })
  lu.assertEquals(#cat:list(), 2)
  lu.assertNil(cat:find("hf.co/u/r").manifest)
end
