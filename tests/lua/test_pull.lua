-- SPDX-License-Identifier: MIT
-- Models pulled from a hub that misbehaves in every way that people report: broken off,
-- ranges ignored, wrong bytes, redirects elsewhere, full disks, interrupted and come back.
-- A name begins with the fault's number in the list of faults.
local lu = require("luaunit")
local uv = require("luv")
local core = require("mtx.core")
local fake = require("fake_hub")
local fixture = require("pull_fixture")
local infile = require("mtx.infile")
local temp = require("temp")

local SIZE = 300000
local BODY = fixture.bytes(SIZE)
local FILE = "hf.co/u/r/m-Q4_0.gguf"

local hub, dir, puller

local function start(files, values, more)
  hub = fake.hub({ ["u/r"] = files or { ["m-Q4_0.gguf"] = BODY } })
  dir = temp.dir()
  puller = fixture.puller(dir, hub.url, values, more)
end

TestPull = {}
function TestPull:setUp() start() end
function TestPull:tearDown() hub:close() end

local function pulled(name)
  local fault, events = fixture.pull(puller, name or "hf.co/u/r")
  lu.assertNil(fault and fault.message)
  lu.assertEquals(events[#events].status, "success")
  return events
end

local function refused(name, status, words)
  local fault, events = fixture.pull(puller, name or "hf.co/u/r")
  lu.assertNotNil(fault, "it was pulled")
  lu.assertEquals(fault.status, status, fault.message)
  lu.assertStrContains(fault.message, words)
  return events
end

local function bytes_of(path) return infile.read(dir .. "/" .. path) end
local function right() lu.assertTrue(bytes_of(FILE) == BODY, "the file is not right") end
local function nothing_visible() lu.assertEquals(fixture.files(dir), {}) end

-- The first answers are `cut` bytes long though whole ones are announced.
local function cut(at, times)
  hub.serve["m-Q4_0.gguf"] = function(r, bytes)
    local a = fake.bytes(r, bytes)
    if r.n <= (times or 1) then a.length, a.body = #a.body, a.body:sub(1, at) end
    return a
  end
end

function TestPull:test_a_model_arrives_whole()
  local events = pulled()
  right()
  lu.assertEquals(fixture.files(dir, true)[2], FILE .. " " .. SIZE)
  lu.assertEquals(#fixture.files(dir, true), 2) -- and its pin
  local pin = puller.store:pin("hf.co/u/r:latest")
  lu.assertEquals({ pin.source, pin.from, pin.files[1].sha256 }, { "hf.co/u/r", FILE, core.sha256.of(BODY) })
  local seen = {}
  for _, e in ipairs(events) do seen[#seen + 1] = e.status end
  lu.assertEquals({ seen[1], seen[2], seen[#seen - 2], seen[#seen - 1] },
    { "pulling manifest", "pulling " .. core.sha256.of(BODY):sub(1, 12), "verifying sha256 digest", "writing manifest" })
  lu.assertEquals({ events[2].digest, events[2].total, events[2].completed }, { "sha256:" .. core.sha256.of(BODY), SIZE, 0 })
end

function TestPull:test_a_second_pull_verifies_and_fetches_nothing()
  pulled()
  local n = #hub:asked("/resolve/")
  local events = pulled()
  lu.assertEquals(#hub:asked("/resolve/"), n)
  local verified = false
  for _, e in ipairs(events) do verified = verified or e.status == "verifying sha256 digest" end
  lu.assertTrue(verified)
  local f = assert(io.open(dir .. "/" .. FILE, "r+b")) -- a byte rots
  f:seek("set", 1000)
  f:write("X")
  f:close()
  pulled()
  right()
end

function TestPull:test_T94_a_broken_connection_goes_on_where_it_was()
  cut(100000)
  pulled()
  right()
  lu.assertEquals(hub:asked("/resolve/")[2].headers.range, "bytes=100000-")
end

function TestPull:test_T94_many_breaks_cost_nothing_while_bytes_come()
  cut(20000, 12)
  pulled()
  right()
end

function TestPull:test_T94_one_wrong_byte_costs_one_fresh_try()
  hub.serve["m-Q4_0.gguf"] = function(r, bytes)
    if r.n == 1 then return fake.bytes(r, bytes:sub(1, 5000) .. "?" .. bytes:sub(5002)) end
  end
  pulled()
  right()
end

function TestPull:test_T94_wrong_bytes_twice_are_removed_and_reported()
  hub.serve["m-Q4_0.gguf"] = function(r, bytes) return fake.bytes(r, ("\0"):rep(#bytes)) end
  refused(nil, 502, "do not hash to sha256:" .. core.sha256.of(BODY))
  nothing_visible()
  for _, f in ipairs(fixture.files(dir, true)) do lu.assertNil(f:find("%.part"), f) end
  lu.assertNil(puller.store:pin("hf.co/u/r:latest"))
end

function TestPull:test_T94_an_answer_that_is_too_long_or_of_another_size()
  hub.serve["m-Q4_0.gguf"] = function(_, bytes) return { status = 200, body = bytes .. "more" } end
  refused(nil, 502, "300004 bytes")
  hub.serve["m-Q4_0.gguf"] = function(_, bytes) return { status = 200, no_length = true, body = bytes .. "more" } end
  refused(nil, 502, "more than the 300000 bytes announced")
  nothing_visible()
end

function TestPull:test_T94_a_dead_server_is_given_up_and_the_part_kept()
  hub.serve["m-Q4_0.gguf"] = function(r, bytes)
    if r.n > 1 then return { status = 503 } end
    local a = fake.bytes(r, bytes)
    a.length, a.body = #bytes, bytes:sub(1, 70000)
    return a
  end
  refused(nil, 502, "70000 of 300000 bytes")
  hub.serve["m-Q4_0.gguf"] = nil
  pulled()
  right()
  local asked = hub:asked("/resolve/")
  lu.assertEquals(asked[#asked].headers.range, "bytes=70000-")
end

-- What a server makes of the request to go on at a byte.
local function resumed(answer)
  hub.serve["m-Q4_0.gguf"] = function(r, bytes)
    if r.n == 1 then
      local a = fake.bytes(r, bytes)
      a.length, a.body = #bytes, bytes:sub(1, 90000)
      return a
    end
    return answer(r, bytes)
  end
  pulled()
  right()
end

function TestPull:test_T95_ranges_ignored() resumed(function(_, bytes) return { status = 200, body = bytes } end) end

function TestPull:test_T95_range_not_satisfiable()
  resumed(function(r, bytes) return r.headers.range and { status = 416, headers = { ["Content-Range"] = "bytes */300000" } } or { status = 200, body = bytes } end)
end

function TestPull:test_T95_another_range_than_asked_for()
  resumed(function(r, bytes)
    if not r.headers.range then return { status = 200, body = bytes } end
    return { status = 206, headers = { ["Content-Range"] = "bytes 0-299999/300000" }, body = bytes }
  end)
end

function TestPull:test_T95_of_a_file_of_another_size()
  resumed(function(r, bytes)
    if not r.headers.range then return { status = 200, body = bytes } end
    return { status = 206, headers = { ["Content-Range"] = "bytes 90000-299999/300001" }, body = bytes:sub(90001) }
  end)
end

-- A gzip stream of stored blocks: what a server sends that compresses whatever it is asked.
local function gzip(bytes)
  local out, crc = { "\31\139\8\0\0\0\0\0\0\255" }, 0xffffffff
  for at = 1, #bytes, 65535 do
    local block = bytes:sub(at, at + 65534)
    out[#out + 1] = string.pack("<BI2I2", at + 65535 > #bytes and 1 or 0, #block, ~#block & 0xffff) .. block
  end
  for i = 1, #bytes do
    crc = crc ~ bytes:byte(i)
    for _ = 1, 8 do crc = crc & 1 == 1 and crc >> 1 ~ 0xEDB88320 or crc >> 1 end
  end
  out[#out + 1] = string.pack("<I4I4", ~crc & 0xffffffff, #bytes)
  return table.concat(out)
end

function TestPull:test_T95_compressed_on_the_way()
  local packed = gzip(BODY)
  hub.serve["m-Q4_0.gguf"] = function() return { status = 200, headers = { ["Content-Encoding"] = "gzip" }, body = packed } end
  pulled()
  right()
end

function TestPull:test_T95_redirect_to_another_host()
  local far = fake.server(function(r) return fake.bytes(r, BODY) end)
  hub.serve["m-Q4_0.gguf"] = function() return { status = 302, headers = { Location = far.url .. "/blob?sig=1" } } end
  refused(nil, 502, "127.0.0.1:" .. far.port .. " is not among the places")
  lu.assertEquals(#far.requests, 0)
  puller = fixture.puller(dir, hub.url, { pull_hosts = { far.url } })
  pulled()
  right()
  far:close()
end

function TestPull:test_redirects_end()
  hub.serve["m-Q4_0.gguf"] = function(r) return { status = 302, headers = { Location = r.path } } end
  refused(nil, 502, "redirects")
  hub.serve["m-Q4_0.gguf"] = function() return { status = 302, headers = { Location = "file:///etc/passwd" } } end
  refused(nil, 502, "only http and https")
  hub.serve["m-Q4_0.gguf"] = function(r, bytes)
    if r.path:find("resolve") and not r.query then return { status = 307, headers = { Location = "m-Q4_0.gguf?moved" } } end
    return fake.bytes(r, bytes)
  end
  pulled()
  right()
end

local function shards(n, missing)
  local files = {}
  for i = 1, n do
    if i ~= missing then files[("q4/m-%05d-of-%05d.gguf"):format(i, n)] = fixture.bytes(50000 + i, i) end
  end
  return files
end

function TestPull:test_T96_all_parts_of_a_split_model()
  hub:close()
  start(shards(3))
  local events = pulled()
  lu.assertEquals(fixture.files(dir), { "hf.co/u/r/q4/m-00001-of-00003.gguf 50001", "hf.co/u/r/q4/m-00002-of-00003.gguf 50002", "hf.co/u/r/q4/m-00003-of-00003.gguf 50003" })
  local order = {}
  for _, r in ipairs(hub:asked("/resolve/")) do order[#order + 1] = r.path:match("m%-(%d+)") end
  lu.assertEquals(order, { "00001", "00002", "00003" })
  local last
  for _, e in ipairs(events) do last = e.overall_total and e or last end
  lu.assertEquals({ last.overall_total, last.overall_completed }, { 150006, 150006 })
end

function TestPull:test_T96_a_missing_part_is_told_before_anything_is_fetched()
  hub:close()
  start(shards(3, 2))
  refused(nil, 404, "m-00002-of-00003.gguf is missing")
  lu.assertEquals(#hub:asked("/resolve/"), 0)
  lu.assertEquals(fixture.files(dir, true), {})
end

function TestPull:test_T96_each_part_is_resumed_by_itself()
  hub:close()
  start(shards(2))
  hub.serve["q4/m-00002-of-00002.gguf"] = function(r, bytes)
    local a = fake.bytes(r, bytes)
    if r.n == 1 then a.length, a.body = #bytes, bytes:sub(1, 30000) end
    return r.n <= 6 and r.n > 1 and { status = 500 } or a
  end
  refused(nil, 502, "30000 of 50002")
  pulled()
  lu.assertEquals(#hub:asked("00001%-of"), 1)
end

function TestPull:test_T97_the_token_stays_with_the_hub()
  local far = fake.server(function(r) return fake.bytes(r, BODY) end)
  puller = fixture.puller(dir, hub.url, { hub_token = "hf_secret", pull_hosts = { far.url } })
  hub.serve["m-Q4_0.gguf"] = function() return { status = 302, headers = { Location = far.url .. "/blob" } } end
  local events = pulled()
  for _, r in ipairs(hub.requests) do lu.assertEquals(r.headers.authorization, "Bearer hf_secret") end
  lu.assertEquals(#far.requests, 1)
  for _, r in ipairs(far.requests) do lu.assertNil(r.headers.authorization) end
  for _, e in ipairs(events) do lu.assertNil(require("cjson").encode(e):find("hf_secret", 1, true)) end
  for _, f in ipairs(fixture.files(dir, true)) do
    if f:find("json") then lu.assertNil(bytes_of(f:match("^(%S+)")):find("hf_secret", 1, true)) end
  end
  far:close()
end

-- The user's proxy would see a token that goes by plain HTTP to this machine.
function TestPull:test_T97_loopback_needs_no_proxy()
  local proxy = fake.server(function() return { status = 200, body = "{}" } end)
  puller = fixture.puller(dir, hub.url, { hub_token = "hf_secret" })
  for _, name in ipairs({ "http_proxy", "ALL_PROXY" }) do
    uv.os_setenv(name, proxy.url)
    local fault = fixture.pull(puller, "hf.co/u/r")
    uv.os_unsetenv(name)
    lu.assertNil(fault and fault.message)
  end
  proxy:close()
  lu.assertEquals(#proxy.requests, 0)
  right()
end

function TestPull:test_T97_realms_are_not_followed()
  local far = fake.server(function() return { status = 200, body = '{"token":"x"}' } end)
  puller = fixture.puller(dir, hub.url, { hub_token = "hf_secret", pull_hosts = { far.url } })
  hub.serve["m-Q4_0.gguf"] = function() return { status = 401, headers = { ["WWW-Authenticate"] = 'Bearer realm="' .. far.url .. '/token"' } } end
  refused(nil, 502, "401")
  lu.assertEquals(#far.requests, 0)
  far:close()
end

function TestPull:test_T99_no_room_is_told_before_anything_is_fetched()
  local free = 64 << 20
  puller = fixture.puller(dir, hub.url, nil, { free_bytes = function() return free end })
  refused(nil, 507, "needs 293.0 KiB more, 64.0 MiB are free")
  lu.assertEquals(#hub:asked("/resolve/"), 0)
  lu.assertEquals(puller.store:partials(), {})
  free = 65 << 20
  pulled()
  right()
end

function TestPull:test_T99_a_disk_that_fills_keeps_the_part_and_the_next_pull_works()
  local write, n = uv.fs_write, 0
  function uv.fs_write(fd, bytes, at, done)
    if not done then return write(fd, bytes, at) end
    n = n + #bytes
    if n > 100000 then return done("ENOSPC: no space left on device") end
    return write(fd, bytes, at, done)
  end
  local ok, message = pcall(refused, nil, 507, "no space left")
  uv.fs_write = write
  lu.assertTrue(ok, message)
  local partial = puller.store:partials()[1]
  lu.assertEquals({ partial.name, partial.total }, { "hf.co/u/r:latest", SIZE })
  lu.assertTrue(partial.size < SIZE)
  pulled()
  right()
  lu.assertEquals(puller.store:partials(), {})
end

function TestPull:test_T100_the_old_copy_stays_until_the_new_one_is_right()
  pulled()
  local new = fixture.bytes(SIZE + 10, 7)
  hub.repos["u/r"]["m-Q4_0.gguf"] = new
  hub.serve["m-Q4_0.gguf"] = function() return { status = 500 } end
  refused(nil, 502, "status 500")
  right()
  lu.assertTrue(puller.store:intact(puller.store:pin("hf.co/u/r:latest")))
  hub.serve["m-Q4_0.gguf"] = nil
  pulled()
  lu.assertTrue(bytes_of(FILE) == new)
  lu.assertEquals(puller.store:pin("hf.co/u/r:latest").files[1].sha256, core.sha256.of(new))
end

function TestPull:test_T100_files_that_the_new_revision_has_no_more_are_removed()
  pulled()
  hub.repos["u/r"] = { ["sub/n-Q4_0.gguf"] = BODY }
  pulled()
  lu.assertEquals(fixture.files(dir), { "hf.co/u/r/sub/n-Q4_0.gguf " .. SIZE })
end

function TestPull:test_T100_without_a_network_the_local_copy_does()
  pulled()
  hub.down = true
  local events = pulled()
  lu.assertStrContains(events[#events - 1].status, "is kept")
  right()
  os.remove(dir .. "/" .. FILE)
  refused(nil, 502, "cannot reach")
end

function TestPull:test_T101_an_interrupted_pull_shows_and_goes_on()
  hub.serve["m-Q4_0.gguf"] = function(r, bytes)
    local a = fake.bytes(r, bytes)
    if r.n == 1 then a.length, a.body, a.hold = #bytes, bytes:sub(1, 150000), true end
    return a
  end
  local fault = fixture.pull(puller, "hf.co/u/r", function(e) return e.completed and e.completed > 0 end)
  lu.assertNil(fault)
  lu.assertEquals(puller.jobs, {})
  local partial = puller.store:partials()[1]
  lu.assertEquals({ partial.name, partial.total }, { "hf.co/u/r:latest", SIZE })
  nothing_visible()
  pulled()
  right()
  local asked = hub:asked("/resolve/")
  lu.assertNotNil(asked[#asked].headers.range)
end

function TestPull:test_T101_an_interrupted_pull_can_be_removed()
  cut(150000, 100)
  hub.serve["m-Q4_0.gguf"] = function() return { status = 500 } end
  refused(nil, 502, "status 500")
  lu.assertEquals(#puller.store:partials(), 1)
  lu.assertTrue(puller.store:drop_partial("hf.co/u/r:latest"))
  lu.assertEquals(fixture.files(dir, true), {})
  lu.assertFalse(puller.store:drop_partial("hf.co/u/r:latest"))
end

function TestPull:test_T101_two_pulls_of_a_model_share_one_job_and_one_may_leave()
  local first, second = {}, {}
  local a, b
  a = assert(puller:start("hf.co/u/r", { event = function(e) first[#first + 1] = e end, done = function() first.done = true end }))
  b = assert(puller:start("hf.co/u/R:latest", { event = function(e) second[#second + 1] = e end, done = function(f) second.done, second.fault = true, f end }))
  a.leave()
  lu.assertNotNil(next(puller.jobs))
  lu.assertNotNil(b)
  require("http_client").wait(function() return second.done end)
  lu.assertNil(second.fault)
  lu.assertNil(first.done)
  right()
  lu.assertEquals(#hub:asked("/api/models/"), 1)
  lu.assertEquals(#hub:asked("/resolve/"), 1)
end

function TestPull:test_another_process_that_pulls_the_model_is_respected()
  local folder = puller.store:pull_dir("hf.co/u/r:latest")
  local function lock(pid)
    require("mtx.whole_file").make_dirs(folder)
    local f = assert(io.open(folder .. "/lock", "w"))
    f:write(pid, "\n")
    f:close()
  end
  lock(math.tointeger(uv.os_getppid()))
  refused(nil, 409, "another process")
  lock(99999999) -- of a process that is gone
  pulled()
  lock(math.tointeger(uv.os_getpid())) -- of one that had our number before us, as in a container
  pulled()
end

local QUANTS = { ["m.Q8_0.gguf"] = fixture.bytes(1008, 8), ["m.Q4_K_M.gguf"] = fixture.bytes(1004, 4), ["m.Q4_K_S.gguf"] = fixture.bytes(1005, 5),
  ["m-UD-IQ2_M.gguf"] = fixture.bytes(1002, 2), ["mmproj-m-f16.gguf"] = fixture.bytes(900, 9) }

function TestPull:test_T102_spellings_of_a_tag()
  hub:close()
  start(QUANTS)
  for want, file in pairs({ [":Q8"] = "m.Q8_0", [":q8_0"] = "m.Q8_0", [":Q8_0"] = "m.Q8_0", [":latest"] = "m.Q4_K_M", [""] = "m.Q4_K_M",
    [":q4_k_s"] = "m.Q4_K_S", [":m.Q4_K_S.gguf"] = "m.Q4_K_S", [":ud-iq2_m"] = "m-UD-IQ2_M", [":M.q8_0"] = "m.Q8_0" }) do
    local d = temp.dir()
    puller = fixture.puller(d, hub.url)
    local fault = fixture.pull(puller, "hf.co/u/r" .. want)
    lu.assertNil(fault and fault.message, want)
    lu.assertStrContains(fixture.files(d)[1], file, false, want)
    lu.assertEquals(#fixture.files(d), 1, want)
  end
end

function TestPull:test_T102_what_fits_nothing_or_several_lists_the_tags()
  hub:close()
  start(QUANTS)
  for want, words in pairs({ [":Q4"] = "more than one", [":Q3"] = "it has no 'Q3'", [":Q4_K"] = "more than one" }) do
    local fault = fixture.pull(puller, "hf.co/u/r" .. want)
    lu.assertEquals(fault.status, 404)
    lu.assertStrContains(fault.message, words)
    lu.assertStrContains(fault.message, "Q4_K_M, Q4_K_S")
  end
  lu.assertNil(fixture.pull(puller, "hf.co/u/r:Q9").message:find("mmproj", 1, true))
end

function TestPull:test_T102_a_port_is_no_tag()
  lu.assertNil(fixture.pull(puller, "127.0.0.1:" .. hub.port .. "/u/r:q4_0"))
  right()
  refused("localhost:5000/u/r:t", 400, "localhost:5000 is not known")
end

function TestPull:test_names_that_are_refused()
  for name, words in pairs({ [""] = "model is required", ["hf.co/u"] = "hf.co/USER/REPO", ["hf.co/../r"] = "hf.co/USER/REPO", ["hf.co/u/r/x"] = "hf.co/USER/REPO",
    ["hf.co/u/.r"] = "hf.co/USER/REPO", ["ftp://x/y.gguf"] = "only http and https", ["http://u:p@x/y.gguf"] = "cannot read the host",
    ["https://x/y.zip"] = "must end in .gguf", ["https://x/y.gguf#md5=1"] = "#sha256=", ["https://10.0.0.1/y.gguf"] = "not among the places",
    ["a b"] = "invalid model name", ["../x"] = "invalid model name", ["https://huggingface.co/docs"] = "neither a repository" }) do
    local fault = fixture.pull(puller, name)
    lu.assertEquals(fault and fault.status, 400, name)
    lu.assertStrContains(fault.message, words, false, name)
  end
  lu.assertEquals(#hub.requests, 0)
end

function TestPull:test_files_of_a_hostile_hub_stay_in_the_folder()
  local listing = { sha = ("a"):rep(40), siblings = {} }
  for i, path in ipairs({ "../../x-Q4_0.gguf", "/etc/x-Q4_0.gguf", "a/../../x-Q4_0.gguf", ".mtx/x-Q4_0.gguf", "a\\x-Q4_0.gguf", "-x-Q4_0.gguf" }) do
    listing.siblings[i] = { rfilename = path, size = 10, lfs = { sha256 = ("0"):rep(64), size = 10 } }
  end
  hub:close()
  hub = fake.server(function() return { status = 200, body = require("cjson").encode(listing) } end)
  puller = fixture.puller(dir, hub.url)
  refused(nil, 404, "neither GGUF files nor a model folder")
  listing.siblings = { { rfilename = "m.gguf", size = -1 }, { rfilename = 5, size = 5 }, "x" }
  refused(nil, 404, "neither GGUF files")
  for _, body in ipairs({ "", "<html>", "[]", "{}", '{"sha":"../..","siblings":[]}' }) do
    hub:close()
    hub = fake.server(function() return { status = 200, body = body } end)
    puller = fixture.puller(dir, hub.url)
    refused(nil, 502, "no listing")
  end
end

function TestPull:test_models_over_the_cap_are_refused()
  puller = fixture.puller(dir, hub.url, { pull_max_gb = 0.0001 })
  refused(nil, 502, "--pull-max-gb")
  lu.assertEquals(#hub:asked("/resolve/"), 0)
  local listing = { sha = ("a"):rep(40), siblings = {} }
  for i = 1, 4 do listing.siblings[i] = { rfilename = ("m-%05d-of-00004.gguf"):format(i), size = 1 << 62, lfs = { sha256 = ("0"):rep(64), size = 1 << 62 } } end
  hub:close()
  hub = fake.server(function() return { status = 200, body = require("mtx.json").encode(listing) } end)
  puller = fixture.puller(dir, hub.url)
  refused(nil, 502, "--pull-max-gb")
end

function TestPull:test_a_file_of_the_users_own_is_not_replaced()
  require("mtx.whole_file").make_dirs(dir .. "/hf.co/u/r")
  local function own(text)
    local f = assert(io.open(dir .. "/" .. FILE, "wb"))
    f:write(text)
    f:close()
  end
  own("mine")
  refused(nil, 409, "was not pulled")
  own(("x"):rep(SIZE))
  refused(nil, 409, "was not pulled")
  lu.assertEquals(bytes_of(FILE), ("x"):rep(SIZE))
  own(BODY) -- the very file
  pulled()
  lu.assertEquals(#hub:asked("/resolve/"), 0)
end

function TestPull:test_what_the_hub_does_not_have()
  refused("hf.co/u/none", 404, "private or gated and needs a token in HF_TOKEN")
  puller = fixture.puller(dir, hub.url, { hub_token = "t" })
  refused("hf.co/u/none", 404, "token of HF_TOKEN may not read it")
  hub:close()
  start({ ["README.md"] = "x" })
  refused(nil, 404, "neither GGUF files nor a model folder")
  refused("hf.co/u/r:Q4_0", 404, "no GGUF files to choose from")
end

function TestPull:test_a_curl_that_ends_before_it_listens_is_an_error()
  local program = temp.file("#!/bin/sh\nexec 0<&-\necho 'curl: broken' >&2\nexit 3\n")
  assert(uv.fs_chmod(program, tonumber("700", 8)))
  local over, message, code
  assert(require("mtx.pull.curl").start({ url = hub.url, headers = { "X: " .. ("y"):rep(4 << 20) }, program = program }, {
    done = function(m, c) over, message, code = true, m, c end }))
  lu.assertTrue(require("http_client").wait(function() return over end))
  lu.assertEquals({ message, code }, { "broken", 3 })
end

function TestPull:test_without_curl_it_says_what_to_install()
  puller = fixture.puller(dir, hub.url, nil, { program = "no-such-curl" })
  refused(nil, 501, "apt install curl")
end

function TestPull:test_two_names_of_one_file_share_it()
  hub:close()
  start({ ["m-Q4_0.gguf"] = BODY, ["m-Q8_0.gguf"] = fixture.bytes(1000, 3) })
  pulled("hf.co/u/r")
  pulled("hf.co/u/r:Q4_0")
  lu.assertEquals(#hub:asked("/resolve/"), 1)
  lu.assertTrue(puller.store:remove(puller.store:pin("hf.co/u/r:latest")))
  right()
  lu.assertTrue(puller.store:remove(puller.store:pin("hf.co/u/r:q4_0")))
  nothing_visible()
  lu.assertNil(uv.fs_stat(dir .. "/hf.co"))
end

function TestPull:test_T100_two_names_of_one_file_go_on_together()
  pulled("hf.co/u/r")
  local new = fixture.bytes(SIZE + 20, 4)
  hub.repos["u/r"]["m-Q4_0.gguf"] = new
  pulled("hf.co/u/r:Q4_0")
  for _, key in ipairs({ "hf.co/u/r:latest", "hf.co/u/r:q4_0" }) do
    local pin = puller.store:pin(key)
    lu.assertTrue(puller.store:intact(pin), key)
    lu.assertEquals({ pin.files[1].sha256, #pin.pulled }, { core.sha256.of(new), 20 }, key)
  end
  local n = #hub:asked("/resolve/")
  pulled("hf.co/u/r")
  lu.assertEquals(#hub:asked("/resolve/"), n)
end

function TestPull:test_a_model_folder()
  hub:close()
  local files = { ["config.json"] = "{}", ["tokenizer.json"] = "{}", ["model-00001-of-00002.safetensors"] = fixture.bytes(2000, 1), ["README.md"] = "no",
    ["model-00002-of-00002.safetensors"] = fixture.bytes(3000, 2), ["model.safetensors.index.json"] = "{}", ["1_Pooling/config.json"] = "{}", ["pytorch_model.bin"] = "no" }
  start(files)
  pulled()
  lu.assertEquals(fixture.files(dir), { "hf.co/u/r/1_Pooling/config.json 2", "hf.co/u/r/config.json 2", "hf.co/u/r/model-00001-of-00002.safetensors 2000",
    "hf.co/u/r/model-00002-of-00002.safetensors 3000", "hf.co/u/r/model.safetensors.index.json 2", "hf.co/u/r/tokenizer.json 2" })
  local n = #hub:asked("/resolve/")
  pulled()
  lu.assertEquals(#hub:asked("/resolve/"), n) -- without a hash in the listing the commit speaks for the small files
  files["model-00001-of-00002.safetensors"] = nil
  refused(nil, 404, "model-00001-of-00002.safetensors is missing")
end

-- Broken off between the first file's new name and the pin: what is in its place is the pull's own.
function TestPull:test_a_pull_that_ended_while_it_placed_its_files_goes_on()
  hub:close()
  start({ ["config.json"] = "{}", ["tokenizer.json"] = "{}", ["model.safetensors"] = BODY })
  local there = dir .. "/hf.co/u/r/tokenizer.json"
  local fault = fixture.pull(puller, "hf.co/u/r", function(e)
    if e.status == "writing manifest" then require("mtx.whole_file").make_dirs(there) end
  end)
  lu.assertEquals(fault and fault.status, 500)
  lu.assertEquals(fixture.files(dir), { "hf.co/u/r/config.json 2" })
  lu.assertEquals(#puller.store:partials(), 1)
  assert(os.remove(there))
  fixture.pull(puller, "hf.co/u/r", function(e) return e.completed end) -- and once more, before that
  lu.assertEquals(fixture.files(dir), { "hf.co/u/r/config.json 2" })
  pulled()
  lu.assertEquals(#fixture.files(dir), 3)
  lu.assertEquals(puller.store:partials(), {})
end

function TestPull:test_addresses_of_the_hub_are_its_repositories()
  pulled("https://huggingface.co/u/r/resolve/main/m-Q4_0.gguf?download=true")
  right()
  lu.assertEquals(puller.store:pins()[1].name, "hf.co/u/r:m-Q4_0")
  pulled("https://hf.co/u/r")
end

-- A GGUF file at an address.
TestAddress = {}

local far, body, etag
function TestAddress:setUp()
  start()
  body, etag = BODY, '"one"'
  far = fake.server(function(r) return fake.bytes(r, body, etag) end)
  puller = fixture.puller(dir, hub.url, { pull_hosts = { far.url } })
end
function TestAddress:tearDown()
  far:close()
  hub:close()
end

function TestAddress:test_pulled_and_pinned()
  pulled(far.url .. "/a/some%20model.Q4_0.gguf?x=1")
  lu.assertEquals(fixture.files(dir), { "some-model.Q4_0.gguf " .. SIZE })
  lu.assertEquals(puller.store:pin("some-model.q4_0:latest").files[1].sha256, core.sha256.of(BODY))
  local n = #far.requests
  pulled(far.url .. "/a/some%20model.Q4_0.gguf?x=1")
  lu.assertEquals(#far.requests, n + 1) -- asked whether it is still the same
  body, etag = fixture.bytes(SIZE, 5), '"two"'
  pulled(far.url .. "/a/some%20model.Q4_0.gguf?x=1")
  lu.assertTrue(bytes_of("some-model.Q4_0.gguf") == body)
  refused(far.url .. "/b/some%20model.Q4_0.gguf", 409, "is here already, from " .. far.url)
end

function TestAddress:test_a_changed_file_is_not_glued_to_an_old_part()
  local address = far.url .. "/m.gguf"
  far:close()
  local broken = true
  far = fake.server(function(r)
    local a = fake.bytes(r, body, etag)
    if broken and r.method == "GET" then
      if r.n > 2 then return { status = 500 } end
      a.length, a.body = #a.body, a.body:sub(1, 100000)
    end
    return a
  end)
  puller = fixture.puller(dir, hub.url, { pull_hosts = { far.url } })
  address = far.url .. "/m.gguf"
  refused(address, 502, "100000 of 300000")
  broken, body, etag = false, fixture.bytes(SIZE, 9), '"two"'
  pulled(address)
  lu.assertTrue(bytes_of("m.gguf") == body)
end

function TestAddress:test_without_an_etag_it_comes_whole()
  etag = nil
  far:close()
  far = fake.server(function(r)
    local a = fake.bytes(r, body)
    if r.method == "GET" and r.n == 2 then a.length, a.body = #a.body, a.body:sub(1, 100000) end
    return a
  end)
  puller = fixture.puller(dir, hub.url, { pull_hosts = { far.url } })
  pulled(far.url .. "/m.gguf")
  for _, r in ipairs(far.requests) do lu.assertNil(r.headers.range) end
  lu.assertTrue(bytes_of("m.gguf") == body)
end

function TestAddress:test_the_hash_that_the_user_gives()
  pulled(far.url .. "/m.gguf#sha256=" .. core.sha256.of(BODY))
  refused(far.url .. "/n.gguf#sha256=" .. ("0"):rep(64), 502, "do not hash to")
  lu.assertEquals(fixture.files(dir), { "m.gguf " .. SIZE })
end

function TestAddress:test_the_hash_of_a_split_model_is_its_first_parts()
  body = shards(2)["q4/m-00001-of-00002.gguf"]
  refused(far.url .. "/m-00001-of-00002.gguf#sha256=" .. ("0"):rep(64), 502, "m-00001-of-00002.gguf: its bytes do not hash to")
  nothing_visible()
  pulled(far.url .. "/m-00001-of-00002.gguf#sha256=" .. core.sha256.of(body))
end

function TestAddress:test_all_parts()
  pulled(far.url .. "/m-00001-of-00002.gguf")
  lu.assertEquals(fixture.files(dir), { "m-00001-of-00002.gguf " .. SIZE, "m-00002-of-00002.gguf " .. SIZE })
  lu.assertEquals(puller.store:pins()[1].name, "m:latest")
end

function TestAddress:test_what_is_no_model_or_has_no_size()
  body = "<html>" .. ("x"):rep(1000)
  refused(far.url .. "/m.gguf", 502, "no GGUF file")
  nothing_visible()
  far:close()
  far = fake.server(function() return { status = 200, no_length = true, body = "GGUF" } end)
  puller = fixture.puller(dir, hub.url, { pull_hosts = { far.url } })
  refused(far.url .. "/m.gguf", 502, "does not tell the size")
end

-- Ollama's registry.
TestRegistry = {}

local layers
function TestRegistry:setUp()
  start()
  local function layer(kind, text) return { mediaType = "application/vnd.ollama.image." .. kind, digest = "sha256:" .. core.sha256.of(text), size = #text, text = text } end
  layers = { layer("model", BODY), layer("params", '{"stop":["<|a|>","<|b|>"],"temperature":0.5,"num_ctx":null,"x":{}}'), layer("system", "Be kind."),
    layer("license", "MIT"), layer("license", "and more"), layer("template", "{{ .Prompt }}"), layer("messages", '[{"role":"user","content":"hi"},5]') }
  far = fake.server(function(r)
    local name, kind, what = r.path:match("^/v2/(.-)/(%a+)/([^/]+)$")
    if name ~= "library/m" then return { status = 404, body = '{"errors":[]}' } end
    if kind == "manifests" then
      lu.assertEquals(r.headers.accept, "application/vnd.docker.distribution.manifest.v2+json")
      local list = {}
      for i, l in ipairs(layers) do list[i] = { mediaType = l.mediaType, digest = l.digest, size = l.size } end
      return { status = 200, body = require("cjson").encode({ schemaVersion = 2, layers = list }) }
    end
    for _, l in ipairs(layers) do
      if l.digest == what then return fake.bytes(r, l.text) end
    end
  end)
  puller = fixture.puller(dir, hub.url, { pull_hosts = { far.url } })
end
TestRegistry.tearDown = TestAddress.tearDown

function TestRegistry:test_weights_and_what_a_modelfile_says()
  local name = "127.0.0.1:" .. far.port .. "/library/m:1b"
  pulled(name)
  lu.assertEquals(fixture.files(dir), { "127.0.0.1_" .. far.port .. "/library/m/1b.gguf " .. SIZE })
  local m = puller.store:pin(name).modelfile
  lu.assertEquals({ m.system, m.license, m.template, m.parameters.temperature, m.parameters.stop[2], m.parameters.num_ctx, m.parameters.x, #m.messages, m.messages[1].content },
    { "Be kind.", "MIT\nand more", nil, 0.5, "<|b|>", nil, nil, 1, "hi" })
  pulled(name)
  lu.assertEquals(#far:asked("/blobs/" .. layers[1].digest), 1)
  layers[3].text = "Be evil."
  refused(name, 502, "do not hash to")
end

function TestRegistry:test_what_is_refused()
  local base = "127.0.0.1:" .. far.port .. "/library/"
  refused(base .. "none", 404, "there is no model")
  layers[#layers + 1] = { mediaType = "application/vnd.ollama.image.adapter", digest = layers[1].digest, size = 5 }
  refused(base .. "m", 501, "stored as adapters")
  layers[#layers] = { mediaType = "application/vnd.ollama.image.model", digest = layers[1].digest, size = 5 }
  refused(base .. "m", 502, "2 files of weights")
  layers[#layers] = { mediaType = "x", digest = "sha256:../../x", size = 5 }
  refused(base .. "m", 502, "without kind, digest or size")
end

function TestRegistry:test_T97_a_login_is_not_followed()
  local elsewhere = fake.server(function() return { status = 200, body = '{"token":"x"}' } end)
  far:close()
  far = fake.server(function() return { status = 401, headers = { ["WWW-Authenticate"] = 'Bearer realm="' .. elsewhere.url .. '/token"' } } end)
  puller = fixture.puller(dir, hub.url, { hub_token = "hf_secret", pull_hosts = { far.url, elsewhere.url } })
  refused("127.0.0.1:" .. far.port .. "/library/m", 502, "wants a login")
  lu.assertNil(far.requests[1].headers.authorization)
  lu.assertEquals(#elsewhere.requests, 0)
  elsewhere:close()
end

-- The models folder as list, show and rm see it.
TestPulledModels = {}
TestPulledModels.setUp, TestPulledModels.tearDown = TestPull.setUp, TestPull.tearDown

local function catalog()
  return require("mtx.serve.models.catalog").new({ dir = dir, describe = function() return { architecture = "fake" } end, sha256 = core.sha256, clock = os.clock })
end

local function names_of(cat)
  local out = {}
  for _, e in ipairs(cat:list()) do out[#out + 1] = e.name .. " " .. e.size end
  return out
end

function TestPulledModels:test_T96_one_model_is_listed_and_removed_whole()
  hub:close()
  start(shards(3))
  pulled("hf.co/u/r:q4")
  local cat = catalog()
  lu.assertEquals(names_of(cat), { "hf.co/u/r:q4 150006" })
  local e = assert(cat:find("HF.co/u/r:Q4"))
  lu.assertEquals(e.path, uv.fs_realpath(dir) .. "/hf.co/u/r/q4/m-00001-of-00003.gguf")
  lu.assertEquals(#cat:digest(e), 64)
  os.remove(dir .. "/hf.co/u/r/q4/m-00002-of-00003.gguf") -- what is not whole is not listed as the pulled model
  lu.assertNil(catalog():find("hf.co/u/r:q4"))
  pulled("hf.co/u/r:q4")
  cat = catalog()
  lu.assertTrue(cat:remove(assert(cat:find("hf.co/u/r:q4"))))
  lu.assertEquals(fixture.files(dir, true), {})
end

function TestPulledModels:test_T101_partial_ones_are_listed_apart_and_removed()
  hub.serve["m-Q4_0.gguf"] = function(r, bytes)
    local a = fake.bytes(r, bytes)
    a.length, a.body = #bytes, bytes:sub(1, 70000)
    return r.n == 1 and a or { status = 500 }
  end
  refused(nil, 502, "70000 of 300000")
  local cat = catalog()
  lu.assertEquals(names_of(cat), {})
  lu.assertEquals(cat:partials(), { { name = "hf.co/u/r:latest", key = "hf.co/u/r:latest", size = 70000, total = SIZE } })
  local f = assert(io.open(puller.store:pull_dir("hf.co/u/r:latest") .. "/lock", "w"))
  f:write(math.tointeger(uv.os_getppid()), "\n")
  f:close()
  lu.assertStrContains(select(2, cat:remove_partial("hf.co/u/r")), "is being pulled by process")
  os.remove(puller.store:pull_dir("hf.co/u/r:latest") .. "/lock")
  lu.assertEquals(cat:remove_partial("hf.co/u/r"), "hf.co/u/r:latest")
  lu.assertEquals(fixture.files(dir, true), {})
  lu.assertNil(cat:remove_partial("hf.co/u/r"))
end

function TestPulledModels:test_a_pin_that_leads_out_of_the_folder_is_none()
  pulled()
  local path = dir .. "/.mtx/pins/" .. core.sha256.of("hf.co/u/r:latest"):sub(1, 32) .. ".json"
  local text = infile.read(path)
  for _, bad in ipairs({ "../x.gguf", "/etc/passwd", ".mtx/x", "a/../../x" }) do
    for _, field in ipairs({ "path", "from" }) do
      local f = assert(io.open(path, "w"))
      f:write((text:gsub('"' .. field .. '":%s*"[^"]*"', '"' .. field .. '":"' .. bad .. '"')))
      f:close()
      lu.assertNil(puller.store:pin("hf.co/u/r:latest"), bad)
    end
  end
end

function TestPulledModels:test_pins_of_the_wrong_shape()
  pulled()
  local path = dir .. "/.mtx/pins/" .. core.sha256.of("hf.co/u/r:latest"):sub(1, 32) .. ".json"
  local text = infile.read(path)
  local function pin(change)
    local f = assert(io.open(path, "w"))
    f:write((change(text)))
    f:close()
  end
  pin(function(t) return t:gsub('"source":%s*"[^"]*"', '"source":5') end)
  lu.assertNil(puller.store:pin("hf.co/u/r:latest"))
  pin(function(t) return t:gsub("^{", '{"modelfile":{"parameters":5},') end)
  local cat = catalog()
  cat:store({ full = "child:latest", key = "child:latest" }, { from = "hf.co/u/r:latest" })
  lu.assertEquals(#cat:list(), 2)
  lu.assertNil(cat:find("hf.co/u/r").manifest)
end
