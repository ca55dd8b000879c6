-- SPDX-License-Identifier: MIT
-- Resumable streams: they outlive their client, are read again from any byte,
-- belong to their key, and stay within their memory.
local lu = require("luaunit")
local cjson = require("cjson")
local client = require("http_client")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local replay = require("mtx.http.replay")

local ctx, port

local function start(flags)
  ctx = fixture.start(flags)
  port = ctx.port
end

local function open(text, id, more)
  local body = { model = "tiny", messages = { { role = "user", content = text } }, stream = true }
  for k, v in pairs(more or {}) do body[k] = v end
  body = cjson.encode(body)
  local c = client.connect(port)
  c:send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-Conversation-Id: " .. id .. "\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  return c
end

local function get(query, headers) return client.request(port, "GET", "/v1/stream?" .. query, nil, headers) end
local function lookup(ids, headers) return client.request(port, "POST", "/v1/streams/lookup", { conversation_ids = ids }, headers) end
local function delete(query, headers) return client.request(port, "DELETE", "/v1/stream?" .. query, nil, headers) end

TestReplay = {}
function TestReplay:setUp() start() end
function TestReplay:tearDown() fixture.stop(ctx) end

function TestReplay:test_replay_is_the_same_bytes()
  local c = open("@say{one two three}", "a")
  lu.assertTrue(c:until_found("%[DONE%]"))
  local whole = c:responses()[1].body
  local r = get("conv_id=a")
  lu.assertEquals({ r.status, r.body }, { 200, whole })
  lu.assertStrContains(r.headers["content-type"], "text/event-stream")
  for _, from in ipairs({ 1, 57, #whole - 1, #whole }) do lu.assertEquals(get("conv_id=a&from=" .. from).body, whole:sub(from + 1), tostring(from)) end
  local info = lookup({ "a", "unknown" }).json
  lu.assertEquals({ #info, info[1].conversation_id, info[1].is_done, info[1].total_bytes }, { 1, "a", true, #whole })
end

function TestReplay:test_a_lost_client_loses_nothing()
  local c = open("@slow{2}@long{60}", "b")
  lu.assertTrue(c:until_found("word5"))
  c:close()
  client.sleep(20)
  lu.assertEquals(ctx.n_jobs, 1)
  local seen = lookup({ "b" }).json[1]
  lu.assertFalse(seen.is_done)
  local r = get("conv_id=b") -- joins while it runs and stays to the end
  lu.assertStrContains(r.body, "word60")
  lu.assertStrContains(r.body, "[DONE]")
  lu.assertTrue(client.wait(function() return ctx.n_jobs == 0 end))
end

-- Without the header nothing changes: the client's end is the answer's end.
function TestReplay:test_without_the_header()
  local body = cjson.encode({ model = "tiny", messages = { { role = "user", content = "@slow{5}@long{200}" } }, stream = true })
  local c = client.connect(port)
  c:send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  lu.assertTrue(c:until_found("word3"))
  c:close()
  lu.assertTrue(client.wait(function() return ctx.n_jobs == 0 end))
  lu.assertEquals(ctx.streams.bytes, 0)
end

function TestReplay:test_delete_stops_and_a_second_question_replaces()
  open("@slow{5}@long{500}", "c")
  lu.assertTrue(client.wait(function() return ctx.n_jobs == 1 and lookup({ "c" }).json[1] ~= nil end))
  lu.assertEquals(delete("conv_id=c").status, 204)
  lu.assertTrue(client.wait(function() return ctx.n_jobs == 0 end))
  lu.assertEquals(get("conv_id=c").status, 404)
  lu.assertEquals(delete("conv_id=c").status, 204, "idempotent")
  local first = open("@slow{5}@long{500}", "d")
  lu.assertTrue(first:until_found("word3"))
  lu.assertTrue(open("@say{new}", "d"):until_found("%[DONE%]"))
  lu.assertTrue(client.wait(function() return ctx.n_jobs == 0 end))
  lu.assertStrContains(get("conv_id=d").body, "new")
end

function TestReplay:test_refusals_and_faults()
  for _, q in ipairs({ "", "conv_id=", "from=5" }) do lu.assertEquals(get(q).status, 400, q) end
  lu.assertEquals(get("conv_id=nope").status, 404)
  open("@say{x}", "e"):until_found("%[DONE%]")
  for _, from in ipairs({ "-1", "x", "1e3", "99999999", ("9"):rep(40) }) do lu.assertEquals(get("conv_id=e&from=" .. from).status, 400, from) end
  lu.assertEquals(client.request(port, "POST", "/v1/streams/lookup", {}).status, 400)
  lu.assertEquals(lookup({ 5 }).status, 400)
  -- An error before the first byte leaves nothing behind; one after it is part of the stream.
  local c = open("x", "f", { model = "nope" })
  lu.assertTrue(c:until_found("404"))
  lu.assertEquals(get("conv_id=f").status, 404)
  c = open("@error@say{a b c d}", "g")
  lu.assertTrue(c:until_closed())
  lu.assertStrContains(get("conv_id=g").body, "on purpose")
  lu.assertEquals(open("x", ("i"):rep(300)):until_found("HTTP/1.1 400"), true)
end

function TestReplay:test_ring_drops_the_oldest_and_says_so()
  local size = replay.RING_BYTES
  replay.RING_BYTES = 4000
  local c = open("@long{200}", "h")
  lu.assertTrue(c:until_found("%[DONE%]"))
  replay.RING_BYTES = size
  local whole = c:responses()[1].body
  local info = lookup({ "h" }).json[1]
  lu.assertEquals(info.total_bytes, #whole)
  local r = get("conv_id=h")
  lu.assertEquals(r.status, 400)
  local from = tonumber(r.json.error.message:match("before (%d+)"))
  lu.assertTrue(#whole - from <= 4000)
  lu.assertEquals(get("conv_id=h&from=" .. from).body, whole:sub(from + 1))
end

function TestReplay:test_memory_is_bounded()
  local store = replay.store(3 * replay.RING_BYTES)
  local a, b = store:open("a", {}), store:open("b", {})
  for _, s in ipairs({ a, b }) do for _ = 1, 10 do s:append(("x"):rep(1 << 20)) end end
  lu.assertEquals(store.bytes, 2 * replay.RING_BYTES)
  store:open("c", {}):append(("x"):rep(100))
  lu.assertNil(store:open("d", {}), "all are live")
  a:finish()
  lu.assertNotNil(store:open("d", {}))
  lu.assertNil(store:get("a"))
  for _, id in ipairs({ "b", "c", "d" }) do store:remove(store:get(id)) end
  lu.assertEquals({ store.bytes, #store.order }, { 0, 0 })
end

function TestReplay:test_number_is_bounded()
  local store, last = replay.store(3 * replay.RING_BYTES), nil
  for i = 1, replay.MAX_STREAMS + 2 do
    last = assert(store:open("s" .. i, {}))
    last:append("x")
    last:finish()
  end
  lu.assertEquals({ #store.order, store.order[1].id, store.bytes }, { replay.MAX_STREAMS, "s3", replay.MAX_STREAMS })
  lu.assertTrue(store:get("s2") == nil)
  for _, s in ipairs({ table.unpack(store.order) }) do store:remove(s) end
  lu.assertEquals({ #store.order, store.bytes }, { 0, 0 })
end

function TestReplay:test_kept_for_a_while()
  local keep = replay.KEEP_S
  replay.KEEP_S = 0.05
  open("@say{x}", "i"):until_found("%[DONE%]")
  replay.KEEP_S = keep
  lu.assertEquals(get("conv_id=i").status, 200)
  client.sleep(100)
  lu.assertEquals(get("conv_id=i").status, 404)
end

-- A large kept answer goes to a reader in pieces, and a slow reader holds up nobody.
function TestReplay:test_large_replay()
  fake.reply = function() return { pieces = { ("x"):rep(1000000), ("y"):rep(1000000), ("z"):rep(1000000) }, text = "" } end
  local c = open("x", "j")
  lu.assertTrue(c:until_found("%[DONE%]"))
  local whole = c:responses()[1].body
  lu.assertEquals(client.request(port, "GET", "/v1/stream?conv_id=j", nil, nil, 10000).body, whole)
end

TestReplayKeys = {}
function TestReplayKeys:tearDown() fixture.stop(ctx) end

function TestReplayKeys:test_a_conversation_belongs_to_its_key()
  start({ api_key = "one,two" })
  local one, two = { Authorization = "Bearer one" }, { Authorization = "Bearer two" }
  one["X-Conversation-Id"] = "secret"
  local r = client.request(port, "POST", "/v1/chat/completions", { model = "tiny", stream = true, messages = { { role = "user", content = "@say{mine}" } } }, one)
  lu.assertEquals(r.status, 200)
  lu.assertEquals(get("conv_id=secret", one).status, 200)
  lu.assertEquals(get("conv_id=secret", two).status, 404)
  lu.assertEquals(lookup({ "secret" }, two).json, {})
  lu.assertEquals(delete("conv_id=secret", two).status, 204)
  lu.assertEquals(get("conv_id=secret", one).status, 200, "another key's delete touches nothing")
  lu.assertEquals(get("conv_id=secret").status, 401)
end

function TestReplayKeys:test_other_dialects_and_off()
  start()
  local r = client.request(port, "POST", "/api/chat", { model = "tiny", messages = { { role = "user", content = "@say{hi}" } } }, { ["X-Conversation-Id"] = "o" })
  local again = get("conv_id=o")
  lu.assertEquals({ again.body, again.headers["content-type"] }, { r.body, "application/x-ndjson" })
  fixture.stop(ctx)
  start({ replay_mb = "0" })
  open("@say{x}", "k"):until_found("%[DONE%]")
  lu.assertEquals(get("conv_id=k").status, 404)
end
