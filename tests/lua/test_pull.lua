-- SPDX-License-Identifier: MIT
-- Transfers from a hub that misbehaves in every way that people report: broken off, ranges ignored, wrong bytes,
-- redirects elsewhere, full disks.
-- A name begins with the fault's number in the list of faults.
local lu = require("luaunit")
local uv = require("luv")
local core = require("mtx.core")
local fake = require("fake_hub")
local fixture = require("pull_fixture")
local temp = require("temp")

local BODY <const>, SIZE <const>, FILE <const> = fixture.BODY, fixture.SIZE, fixture.FILE

local at = fixture.new()

TestPull = at:around({})

function TestPull:test_a_model_arrives_whole()
  local events = at:pulled()
  at:right()
  lu.assertEquals(fixture.files(at.dir, true)[2], FILE .. " " .. SIZE)
  lu.assertEquals(#fixture.files(at.dir, true), 2) -- and its pin
  local pin = at.puller.store:pin("hf.co/u/r:latest")
  lu.assertEquals({ pin.source, pin.from, pin.files[1].sha256 }, { "hf.co/u/r", FILE, core.sha256.of(BODY) })
  local seen = {}
  for _, e in ipairs(events) do seen[#seen + 1] = e.status end
  lu.assertEquals({ seen[1], seen[2], seen[#seen - 2], seen[#seen - 1] },
    { "pulling manifest", "pulling " .. core.sha256.of(BODY):sub(1, 12), "verifying sha256 digest", "writing manifest" })
  lu.assertEquals({ events[2].digest, events[2].total, events[2].completed }, { "sha256:" .. core.sha256.of(BODY), SIZE, 0 })
end

function TestPull:test_a_second_pull_verifies_and_fetches_nothing()
  at:pulled()
  local n = #at.hub:asked("/resolve/")
  local events = at:pulled()
  lu.assertEquals(#at.hub:asked("/resolve/"), n)
  local verified = false
  for _, e in ipairs(events) do verified = verified or e.status == "verifying sha256 digest" end
  lu.assertTrue(verified)
  local f = assert(io.open(at.dir .. "/" .. FILE, "r+b")) -- a byte rots
  f:seek("set", 1000)
  f:write("X")
  f:close()
  at:pulled()
  at:right()
end

function TestPull:test_T94_a_broken_connection_goes_on_where_it_was()
  at:cut(100000, 1)
  at:pulled()
  at:right()
  lu.assertEquals(at.hub:asked("/resolve/")[2].headers.range, "bytes=100000-")
end

function TestPull:test_T94_many_breaks_cost_nothing_while_bytes_come()
  at:cut(20000, 12)
  at:pulled()
  at:right()
end

function TestPull:test_T94_one_wrong_byte_costs_one_fresh_try()
  at.hub.serve["m-Q4_0.gguf"] = function(r, bytes)
    if r.n == 1 then return fake.bytes(r, bytes:sub(1, 5000) .. "?" .. bytes:sub(5002)) end
  end
  at:pulled()
  at:right()
end

function TestPull:test_T94_wrong_bytes_twice_are_removed_and_reported()
  at.hub.serve["m-Q4_0.gguf"] = function(r, bytes) return fake.bytes(r, ("\0"):rep(#bytes)) end
  at:refused(nil, 502, "do not hash to sha256:" .. core.sha256.of(BODY))
  at:nothing_visible()
  for _, f in ipairs(fixture.files(at.dir, true)) do lu.assertNil(f:find("%.part"), f) end
  lu.assertNil(at.puller.store:pin("hf.co/u/r:latest"))
end

function TestPull:test_T94_an_answer_that_is_too_long_or_of_another_size()
  at.hub.serve["m-Q4_0.gguf"] = function(_, bytes) return { status = 200, body = bytes .. "more" } end
  at:refused(nil, 502, "300004 bytes")
  at.hub.serve["m-Q4_0.gguf"] = function(_, bytes) return { status = 200, no_length = true, body = bytes .. "more" } end
  at:refused(nil, 502, "more than the 300000 bytes announced")
  at:nothing_visible()
end

function TestPull:test_T94_a_dead_server_is_given_up_and_the_part_kept()
  at.hub.serve["m-Q4_0.gguf"] = function(r, bytes)
    if r.n > 1 then return { status = 503 } end
    local a = fake.bytes(r, bytes)
    a.length, a.body = #bytes, bytes:sub(1, 70000)
    return a
  end
  at:refused(nil, 502, "70000 of 300000 bytes")
  at.hub.serve["m-Q4_0.gguf"] = nil
  at:pulled()
  at:right()
  local asked = at.hub:asked("/resolve/")
  lu.assertEquals(asked[#asked].headers.range, "bytes=70000-")
end

-- What a server makes of the request to go on at a byte.
local function resumed(answer)
  at.hub.serve["m-Q4_0.gguf"] = function(r, bytes)
    if r.n == 1 then
      local a = fake.bytes(r, bytes)
      a.length, a.body = #bytes, bytes:sub(1, 90000)
      return a
    end
    return answer(r, bytes)
  end
  at:pulled()
  at:right()
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
  at.hub.serve["m-Q4_0.gguf"] = function() return { status = 200, headers = { ["Content-Encoding"] = "gzip" }, body = packed } end
  at:pulled()
  at:right()
end

function TestPull:test_T95_redirect_to_another_host()
  local far = fake.server(function(r) return fake.bytes(r, BODY) end)
  at.hub.serve["m-Q4_0.gguf"] = function() return { status = 302, headers = { Location = far.url .. "/blob?sig=1" } } end
  at:refused(nil, 502, "127.0.0.1:" .. far.port .. " is not among the places")
  lu.assertEquals(#far.requests, 0)
  at.puller = fixture.puller(at.dir, at.hub.url, { pull_hosts = { far.url } })
  at:pulled()
  at:right()
  far:close()
end

function TestPull:test_redirects_end()
  at.hub.serve["m-Q4_0.gguf"] = function(r) return { status = 302, headers = { Location = r.path } } end
  at:refused(nil, 502, "redirects")
  at.hub.serve["m-Q4_0.gguf"] = function() return { status = 302, headers = { Location = "file:///etc/passwd" } } end
  at:refused(nil, 502, "only http and https")
  at.hub.serve["m-Q4_0.gguf"] = function(r, bytes)
    if r.path:find("resolve") and not r.query then return { status = 307, headers = { Location = "m-Q4_0.gguf?moved" } } end
    return fake.bytes(r, bytes)
  end
  at:pulled()
  at:right()
end

function TestPull:test_T97_the_token_stays_with_the_hub()
  local far = fake.server(function(r) return fake.bytes(r, BODY) end)
  at.puller = fixture.puller(at.dir, at.hub.url, { hub_token = "hf_secret", pull_hosts = { far.url } })
  at.hub.serve["m-Q4_0.gguf"] = function() return { status = 302, headers = { Location = far.url .. "/blob" } } end
  local events = at:pulled()
  for _, r in ipairs(at.hub.requests) do lu.assertEquals(r.headers.authorization, "Bearer hf_secret") end
  lu.assertEquals(#far.requests, 1)
  for _, r in ipairs(far.requests) do lu.assertNil(r.headers.authorization) end
  for _, e in ipairs(events) do lu.assertNil(require("cjson").encode(e):find("hf_secret", 1, true)) end
  for _, f in ipairs(fixture.files(at.dir, true)) do
    if f:find("json") then lu.assertNil(at:bytes_of(f:match("^(%S+)")):find("hf_secret", 1, true)) end
  end
  far:close()
end

-- curl reads its options as lines of quoted texts.
function TestPull:test_T97_nothing_becomes_another_option()
  local token = [[a"b\c\"#{}]]
  at.puller = fixture.puller(at.dir, at.hub.url, { hub_token = token })
  at:pulled()
  lu.assertEquals(at.hub.requests[1].headers.authorization, "Bearer " .. token)
  for _, odd in ipairs({ "a\nb", "a\rb", "a b", "a\0b" }) do
    local puller, message = require("mtx.pull").new({ models_dir = at.dir, hub = at.hub.url, hub_token = odd, pull_hosts = {}, pull_max_gb = 1 })
    lu.assertNil(puller)
    lu.assertStrContains(message, "odd characters")
  end
  at:start()
  for _, odd in ipairs({ '/a"b', "/a\\b", "/a b", "/a\tb", at.hub.url .. '/"' }) do
    at.hub.serve["m-Q4_0.gguf"] = function() return { status = 302, headers = { Location = odd } } end
    at:refused(nil, 502, "a redirect cannot be followed")
  end
end

-- The user's proxy would see a token that goes by plain HTTP to this machine.
function TestPull:test_T97_loopback_needs_no_proxy()
  local proxy = fake.server(function() return { status = 200, body = "{}" } end)
  at.puller = fixture.puller(at.dir, at.hub.url, { hub_token = "hf_secret" })
  for _, name in ipairs({ "http_proxy", "ALL_PROXY" }) do
    uv.os_setenv(name, proxy.url)
    local fault = fixture.pull(at.puller, "hf.co/u/r")
    uv.os_unsetenv(name)
    lu.assertNil(fault and fault.message)
  end
  proxy:close()
  lu.assertEquals(#proxy.requests, 0)
  at:right()
end

function TestPull:test_T97_realms_are_not_followed()
  local far = fake.server(function() return { status = 200, body = '{"token":"x"}' } end)
  at.puller = fixture.puller(at.dir, at.hub.url, { hub_token = "hf_secret", pull_hosts = { far.url } })
  at.hub.serve["m-Q4_0.gguf"] = function() return { status = 401, headers = { ["WWW-Authenticate"] = 'Bearer realm="' .. far.url .. '/token"' } } end
  at:refused(nil, 502, "401")
  lu.assertEquals(#far.requests, 0)
  far:close()
end

function TestPull:test_T99_no_room_is_told_before_anything_is_fetched()
  local free = 64 << 20
  at.puller = fixture.puller(at.dir, at.hub.url, nil, { free_bytes = function() return free end })
  at:refused(nil, 507, "needs 293.0 KiB more, 64.0 MiB are free")
  lu.assertEquals(#at.hub:asked("/resolve/"), 0)
  lu.assertEquals(at.puller.store:partials(), {})
  free = 65 << 20
  at:pulled()
  at:right()
end

function TestPull:test_T99_a_disk_that_fills_keeps_the_part_and_the_next_pull_works()
  local write, n = uv.fs_write, 0
  function uv.fs_write(fd, bytes, offset, done)
    if not done then return write(fd, bytes, offset) end
    n = n + #bytes
    if n > 100000 then return done("ENOSPC: no space left on device") end
    return write(fd, bytes, offset, done)
  end
  local ok, message = pcall(at.refused, at, nil, 507, "no space left")
  uv.fs_write = write
  lu.assertTrue(ok, message)
  local partial = at.puller.store:partials()[1]
  lu.assertEquals({ partial.name, partial.total }, { "hf.co/u/r:latest", SIZE })
  lu.assertTrue(partial.size < SIZE)
  at:pulled()
  at:right()
  lu.assertEquals(at.puller.store:partials(), {})
end

function TestPull:test_a_curl_that_ends_before_it_listens_is_an_error()
  local program = temp.file("#!/bin/sh\nexec 0<&-\necho 'curl: broken' >&2\nexit 3\n")
  assert(uv.fs_chmod(program, tonumber("700", 8)))
  local over, message, code
  assert(require("mtx.pull.curl").start({ url = at.hub.url, headers = { "X: " .. ("y"):rep(4 << 20) }, program = program }, {
    done = function(m, c) over, message, code = true, m, c end }))
  lu.assertTrue(require("http_client").wait(function() return over end))
  lu.assertEquals({ message, code }, { "broken", 3 })
end

function TestPull:test_without_curl_it_says_what_to_install()
  at.puller = fixture.puller(at.dir, at.hub.url, nil, { program = "no-such-curl" })
  at:refused(nil, 501, "apt install curl")
end
