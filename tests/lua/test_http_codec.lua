-- SPDX-License-Identifier: MIT
-- The HTTP/1.1 request parser: good requests in any split, and every kind of
-- bad one with its status.
local lu = require("luaunit")
local codec = require("mtx.http.codec")

-- Feeds `parts`, gives a list of events as text.
local function run(parts, limits)
  local p, out = codec.new(limits), {}
  for _, part in ipairs(parts) do
    p:feed(part)
    while true do
      local kind, a, b = p:next()
      if not kind then break end
      if kind == "head" then out[#out + 1] = a.method .. " " .. a.path
      elseif kind == "body" then
        if out[#out] and out[#out]:find("^body ") then out[#out] = out[#out] .. a else out[#out + 1] = "body " .. a end
      elseif kind == "end" then out[#out + 1] = "end"
      else
        out[#out + 1] = "error " .. a
        return out, b
      end
    end
  end
  return out
end

TestGood = {}

local GET = "GET /a?b=1 HTTP/1.1\r\nHost: x\r\n\r\n"
local POST = "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
local CHUNKED = "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nT: v\r\n\r\n"

function TestGood:test_whole_pipelined_and_byte_by_byte()
  local want = { "GET /a", "POST /p", "body hello", "end", "POST /c", "body abc0123456789abcdef", "end", "GET /a" }
  local all = GET .. POST .. CHUNKED .. GET
  lu.assertEquals(run({ all }), want)
  local bytes = {}
  for i = 1, #all do bytes[i] = all:sub(i, i) end
  lu.assertEquals(run(bytes), want)
  for cut = 1, #all - 1 do lu.assertEquals(run({ all:sub(1, cut), all:sub(cut + 1) }), want, "cut at " .. cut) end
end

function TestGood:test_head_fields()
  local p = codec.new()
  p:feed("POST http://h.example:8/x/y?q HTTP/1.1\r\nHost: other\r\nX-A: 1 \r\nx-a:\t2\r\nConnection: close\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
  local kind, r = p:next()
  lu.assertEquals(kind, "head")
  lu.assertEquals({ r.path, r.query, r.headers.host, r.headers["x-a"], r.keep_alive, r.length, r.expect },
    { "/x/y", "q", "h.example:8", "1, 2", false, 3, true })
  lu.assertNil(p:next())
end

function TestGood:test_http10()
  local p = codec.new()
  p:feed("GET / HTTP/1.0\r\n\r\nGET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")
  local _, a = p:next()
  local _, b = p:next()
  lu.assertEquals({ a.keep_alive, b.keep_alive }, { false, true })
end

function TestGood:test_body_less_methods()
  lu.assertEquals(run({ "DELETE /d HTTP/1.1\r\nHost: x\r\n\r\n" .. GET }), { "DELETE /d", "GET /a" })
  lu.assertEquals(run({ "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" .. GET }), { "POST /p", "GET /a" })
  lu.assertEquals(run({ "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n" }), { "OPTIONS *" })
  lu.assertEquals(run({ "\r\n" .. GET }), { "GET /a" })
end

TestBad = {}

local function head(line, ...)
  return line .. "\r\n" .. table.concat({ ... }, "\r\n") .. "\r\n\r\n"
end

local CASES = {
  { "bare LF", 400, "GET / HTTP/1.1\nHost: x\n\n" },
  { "bare LF later", 400, "GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n" },
  { "bare LF, head unfinished", 400, "GET / HTTP/1.1\nHo" },
  { "bare CR", 400, "GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n" },
  { "obs-fold", 400, head("GET / HTTP/1.1", "Host: x", "A: b", " c") },
  { "space before colon", 400, head("GET / HTTP/1.1", "Host : x") },
  { "no colon", 400, head("GET / HTTP/1.1", "Host: x", "Abc") },
  { "empty name", 400, head("GET / HTTP/1.1", "Host: x", ": b") },
  { "NUL in value", 400, head("GET / HTTP/1.1", "Host: x", "A: a\0b") },
  { "DEL in value", 400, head("GET / HTTP/1.1", "Host: x", "A: a\127b") },
  { "no host", 400, head("GET / HTTP/1.1", "A: b") },
  { "two hosts", 400, head("GET / HTTP/1.1", "Host: x", "Host: x") },
  { "two lengths, equal", 400, head("POST / HTTP/1.1", "Host: x", "Content-Length: 5", "Content-Length: 5") },
  { "two lengths, different", 400, head("POST / HTTP/1.1", "Host: x", "Content-Length: 5", "content-length: 6") },
  { "list of lengths", 400, head("POST / HTTP/1.1", "Host: x", "Content-Length: 5, 5") },
  { "negative length", 400, head("POST / HTTP/1.1", "Host: x", "Content-Length: -1") },
  { "signed length", 400, head("POST / HTTP/1.1", "Host: x", "Content-Length: +1") },
  { "hex length", 400, head("POST / HTTP/1.1", "Host: x", "Content-Length: 0x10") },
  { "empty length", 400, head("POST / HTTP/1.1", "Host: x", "Content-Length:") },
  { "huge length", 413, head("POST / HTTP/1.1", "Host: x", "Content-Length: 99999999999999999999") },
  { "TE and CL", 400, head("POST / HTTP/1.1", "Host: x", "Content-Length: 5", "Transfer-Encoding: chunked") },
  { "TE twice", 400, head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked") },
  { "TE chunked, chunked", 400, head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: chunked, chunked") },
  { "TE gzip, chunked", 501, head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: gzip, chunked") },
  { "TE identity", 400, head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: identity") },
  { "TE xchunked", 501, head("POST / HTTP/1.1", "Host: x", "Transfer-Encoding: xchunked") },
  { "TE in 1.0", 400, head("POST / HTTP/1.0", "Host: x", "Transfer-Encoding: chunked") },
  { "POST without length", 411, head("POST / HTTP/1.1", "Host: x") },
  { "unknown expectation", 417, head("POST / HTTP/1.1", "Host: x", "Content-Length: 5", "Expect: tea") },
  { "HTTP/2", 505, head("GET / HTTP/2.0", "Host: x") },
  { "HTTP/0.9", 505, head("GET / HTTP/0.9", "Host: x") },
  { "no version", 400, head("GET /", "Host: x") },
  { "two spaces", 400, head("GET  / HTTP/1.1", "Host: x") },
  { "lower-case http", 400, head("GET / http/1.1", "Host: x") },
  { "bad method", 400, head("GE(T / HTTP/1.1", "Host: x") },
  { "relative target", 400, head("GET a HTTP/1.1", "Host: x") },
  { "fragment", 400, head("GET /a#b HTTP/1.1", "Host: x") },
  { "raw UTF-8 in target", 400, head("GET /\xc3\xa4 HTTP/1.1", "Host: x") },
  { "TLS hello", 400, "\x16\x03\x01\x02\x00\x01" },
  { "binary", 400, "\0\0\0\0" },
  { "long URL", 414, "GET /" .. ("a"):rep(9000) },
  { "long URL, complete", 414, head("GET /" .. ("a"):rep(9000) .. " HTTP/1.1", "Host: x") },
  { "long head", 431, "GET / HTTP/1.1\r\nHost: x\r\nA: " .. ("a"):rep(40000) },
  { "many headers", 431, "GET / HTTP/1.1\r\nHost: x\r\n" .. ("A: b\r\n"):rep(200) .. "\r\n" },
}

for _, c in ipairs(CASES) do
  TestBad["test_" .. c[1]:gsub("[^%w]+", "_")] = function()
    lu.assertEquals(run({ c[3] }), { "error " .. c[2] })
    local bytes = {}
    for i = 1, #c[3] do bytes[i] = c[3]:sub(i, i) end
    if #c[3] < 2000 then lu.assertEquals(run(bytes), { "error " .. c[2] }, "byte by byte") end
  end
end

local START = "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
local CHUNK_CASES = {
  "x\r\n", "-1\r\n", "+1\r\n", "0x1\r\n", " 1\r\n", "1 \r\n", "\r\n", "1\n", "ffffffffffffffffff\r\n", "3\r\nabcX", "3\r\nabc\n",
  "1;" .. ("a"):rep(2000), "1;a\0\r\n", "0\r\nBad Trailer\r\n\r\n", "0\r\nT: v\n\r\n", "0\r\n" .. ("T: v\r\n"):rep(3000),
}

function TestBad:test_chunks()
  for i, c in ipairs(CHUNK_CASES) do
    local out = run({ START .. c })
    lu.assertStrContains(out[#out], "error 4", false, "case " .. i)
  end
end

function TestBad:test_error_is_final_and_names_the_path()
  local p = codec.new()
  p:feed("POST /v1/messages HTTP/1.1\r\nHost: x\r\n\r\n")
  lu.assertEquals(p:next(), "error")
  lu.assertEquals({ p.method, p.path }, { "POST", "/v1/messages" })
  p:feed(GET)
  lu.assertEquals(p:next(), "error")
end

-- Random bytes and random damage never raise and always end in a known event.
function TestBad:test_noise()
  math.randomseed(7)
  local base = GET .. POST .. CHUNKED
  for _ = 1, 3000 do
    local s = base
    for _ = 1, math.random(1, 4) do
      local at = math.random(1, #s)
      s = s:sub(1, at - 1) .. string.char(math.random(0, 255)) .. s:sub(at + math.random(0, 2))
    end
    local cut = math.random(1, #s)
    local out = run({ s:sub(1, cut), s:sub(cut + 1) })
    lu.assertTrue(#out < 40)
  end
end

function TestBad:test_cached_heads_are_not_credentials()
  for _ = 1, 2 do
    local p = codec.new()
    p:feed("GET /k HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\n\r\n")
    local _, first = p:next()
    p = codec.new()
    p:feed("GET /k HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\n\r\n")
    local _, second = p:next()
    lu.assertFalse(first == second)
  end
end
