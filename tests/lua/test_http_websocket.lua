-- SPDX-License-Identifier: MIT
-- WebSocket: the codec (RFC 6455 samples, every refusal) and /v1/chat/ws.
local lu = require("luaunit")
local cjson = require("cjson")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local websocket = require("mtx.http.websocket")
local client = require("http_client")

local MASK, masked = client.MASK, client.masked

local function read(bytes, max)
  local r, out = websocket.reader(max), {}
  r:feed(bytes)
  while true do
    local kind, a = r:next()
    if not kind then break end
    out[#out + 1] = kind .. ":" .. tostring(a)
  end
  return out
end

TestCodec = {}

function TestCodec:test_rfc_samples()
  lu.assertEquals(websocket.accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
  lu.assertEquals(read("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"), { "text:Hello" })
  lu.assertEquals(websocket.text("Hello"), "\x81\x05Hello")
  lu.assertEquals(websocket.frame(2, ("x"):rep(256)):sub(1, 4), "\x82\x7e\x01\x00")
  lu.assertEquals(websocket.frame(2, ("x"):rep(65536)):sub(1, 10), "\x82\x7f\0\0\0\0\0\1\0\0")
end

function TestCodec:test_sizes_fragments_and_splits()
  for _, n in ipairs({ 0, 1, 7, 8, 9, 125, 126, 127, 300, 65535, 65536, 70001 }) do
    local s = {}
    for i = 1, n do s[i] = string.char(97 + i % 26) end
    s = table.concat(s)
    lu.assertEquals(read(masked(0x81, s)), { "text:" .. s }, n)
  end
  lu.assertEquals(read(masked(0x01, "a") .. masked(0x89, "p") .. masked(0x00, "b") .. masked(0x80, "c")), { "ping:p", "text:abc" })
  local all = masked(0x81, "hello") .. masked(0x82, "b") .. masked(0x88, "\x03\xe8bye")
  local r, out = websocket.reader(), {}
  for i = 1, #all do
    r:feed(all:sub(i, i))
    local kind, a = r:next()
    if kind then out[#out + 1] = kind .. ":" .. tostring(a) end
  end
  lu.assertEquals(out, { "text:hello", "binary:b", "close:1000" })
end

function TestCodec:test_refusals()
  for name, c in pairs({ unmasked = { "\x81\x05Hello", 1002 }, rsv = { masked(0xC1, "x"), 1002 }, opcode = { masked(0x83, "x"), 1002 }, opcode11 = { masked(0x8b, "x"), 1002 },
    fragmented_ping = { masked(0x09, "x"), 1002 }, long_ping = { masked(0x89, ("x"):rep(126)), 1002 }, lone_continuation = { masked(0x80, "x"), 1002 },
    nested = { masked(0x01, "a") .. masked(0x81, "b"), 1002 }, utf8 = { masked(0x81, "\xff"), 1007 }, split_utf8 = { masked(0x01, "\xc3") .. masked(0x80, "x"), 1007 },
    big = { masked(0x81, ("x"):rep(200)), 1009 }, fragments = { masked(0x01, ("x"):rep(90)) .. masked(0x80, ("x"):rep(90)), 1009 },
    close1 = { masked(0x88, "x"), 1002 }, close_code = { masked(0x88, "\x03\xed"), 1002 }, close_utf8 = { masked(0x88, "\x03\xe8\xff"), 1007 },
    not_minimal = { "\x81\xfe\0\5" .. MASK .. "Hello", 1002 }, negative = { "\x81\xff\255\255\255\255\255\255\255\255" .. MASK, 1002 } }) do
    local out = read(c[1], 100)
    lu.assertEquals(out[#out], "error:" .. c[2], name)
  end
end

function TestCodec:test_noise()
  math.randomseed(3)
  for _ = 1, 2000 do
    local b = {}
    for i = 1, math.random(1, 40) do b[i] = string.char(math.random(0, 255)) end
    lu.assertTrue(#read(table.concat(b), 1000) <= 40)
  end
end

local ctx, port

TestSocket = {}
function TestSocket:setUp() ctx = fixture.start() port = ctx.port end
function TestSocket:tearDown() fixture.stop(ctx) end

local function connect(headers) return client.websocket(port, headers) end

-- Frames received so far: decoded JSON, or {close = code}.
local function frames(c)
  local s = c.data:match("\r\n\r\n(.*)$")
  local out, pos = {}, 1
  while #s - pos + 1 >= 2 do
    local b1, n = s:byte(pos, pos + 1)
    local at = pos + 2
    if n == 126 then n, at = string.unpack(">I2", s, at), at + 2 end
    if #s - at + 1 < n then break end
    local payload = s:sub(at, at + n - 1)
    pos = at + n
    if b1 & 15 == 1 then out[#out + 1] = cjson.decode(payload)
    elseif b1 & 15 == 8 then out[#out + 1] = { close = string.unpack(">I2", payload) }
    elseif b1 & 15 == 10 then out[#out + 1] = { pong = payload } end
  end
  return out
end

local function send(c, t) c:send(masked(0x81, type(t) == "string" and t or cjson.encode(t))) end

local function joined(list, id)
  local s = ""
  for _, f in ipairs(list) do if f.type == "token" and f.id == id then s = s .. f.delta end end
  return s
end

function TestSocket:test_simple_form_equals_sse()
  local c = connect()
  lu.assertStrContains(c.data, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
  send(c, { model = "tiny", messages = { { role = "user", content = "@say{Hello there wörld}" } } })
  lu.assertTrue(c:until_closed())
  local f = frames(c)
  lu.assertEquals(joined(f), "Hello there wörld")
  lu.assertEquals({ f[#f - 1].type, f[#f - 1].finish_reason, f[#f].close }, { "done", "stop", 1000 })
  lu.assertTrue(f[#f - 1].usage.completion_tokens > 0)
  c:close()
  c = connect()
  send(c, { model = "tiny", messages = { { role = "user", content = "@say{Other}" } } })
  lu.assertTrue(c:until_closed())
  lu.assertEquals(joined(frames(c)), "Other")
  c:close()
end

function TestSocket:test_several_replies_and_cancel()
  local c = connect()
  send(c, { id = "a", model = "tiny", messages = { { role = "user", content = "@slow{5}@long{500}" } } })
  send(c, { id = "b", model = "tiny", messages = { { role = "user", content = "@think{hm}@say{second}" } } })
  client.wait(function() return c.data:find('"type":"done"', 1, true) end)
  lu.assertEquals(joined(frames(c), "b"), "second")
  send(c, { type = "cancel", id = "a" })
  lu.assertTrue(client.wait(function() return fake.cancelled == 1 end, 1000))
  local function n_done()
    local n = 0
    for _, f in ipairs(frames(c)) do if f.type == "done" then n = n + 1 end end
    return n
  end
  lu.assertTrue(client.wait(function() return n_done() == 2 end, 1000))
  send(c, "not json")
  send(c, { id = "c", model = "nope", messages = { { role = "user", content = "x" } } })
  c:send(masked(0x89, "hi"))
  client.wait(function() return frames(c)[#frames(c)].pong end, 1000)
  local f = frames(c)
  lu.assertEquals({ f[#f - 2].type, f[#f - 1].id, f[#f].pong }, { "error", "c", "hi" })
  c:close()
end

function TestSocket:test_closing_cancels_and_bad_frames_close()
  local c = connect()
  send(c, { id = 1, model = "tiny", messages = { { role = "user", content = "@slow{5}@long{500}" } } })
  client.sleep(30)
  c:close()
  lu.assertTrue(client.wait(function() return fake.cancelled == 1 end, 1000))
  c = connect()
  c:send("\x81\x05Hello")
  lu.assertTrue(c:until_closed())
  lu.assertEquals(frames(c)[1].close, 1002)
  c:close()
  c = connect()
  for _ = 1, 300 do c:send(masked(0x89, "")) end
  lu.assertTrue(c:until_closed())
  local f = frames(c)
  lu.assertEquals(f[#f].close, 1008)
  c:close()
end

function TestSocket:test_cancel_by_request_id()
  local c = connect()
  send(c, { id = "a", request_id = "r1", model = "tiny", messages = { { role = "user", content = "@slow{5}@long{500}" } } })
  send(c, { id = "b", request_id = "r2", model = "tiny", messages = { { role = "user", content = "@slow{5}@long{500}" } } })
  client.wait(function() return joined(frames(c), "a") ~= "" and joined(frames(c), "b") ~= "" end)
  send(c, { type = "cancel", request_id = "r3" })
  send(c, { type = "cancel", request_id = "r1" })
  lu.assertTrue(client.wait(function() return c.data:find('"type":"done"', 1, true) end, 5000) ~= nil)
  local ended = {}
  for _, f in ipairs(frames(c)) do if f.type == "done" then ended[#ended + 1] = f.id end end
  lu.assertEquals({ ended, fake.cancelled }, { { "a" }, 1 })
  c:close()
end

function TestSocket:test_handshake_refusals()
  local r = client.request(port, "GET", "/v1/chat/ws")
  lu.assertEquals(r.status, 426)
  local c = connect("Origin: https://evil.com\r\n")
  lu.assertStrMatches(c.data, "HTTP/1.1 403.*")
  c:close()
end
