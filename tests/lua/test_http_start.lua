-- SPDX-License-Identifier: MIT
-- The server's two ends: where it may listen and what it refuses, and the drain.
local lu = require("luaunit")
local uv = require("luv")
local config = require("mtx.config")
local serve = require("mtx.serve")
local client = require("http_client")
local temp = require("temp")
local bare = require("bare_server")

local start, stop = bare.start, bare.stop
local function nothing() end

TestStart = {}

function TestStart:test_public_address_needs_a_key()
  local function try(flags) return serve.new(assert(config.load({ env = nothing, flags = flags }))) end
  local ctx, message = try({ host = "0.0.0.0" })
  lu.assertNil(ctx)
  lu.assertStrContains(message, "--insecure")
  lu.assertNil((try({ listen = "192.168.0.1:80" })))
  for _, flags in ipairs({ { host = "0.0.0.0", insecure = true, log_level = "error" }, { host = "0.0.0.0", api_key = "k" }, { host = "::1" } }) do
    local good = assert(try(flags))
    good.http:close()
  end
end

function TestStart:test_nothing_to_listen_on()
  for _, flags in ipairs({ { host = "" }, { listen = "127.0.0.1:65536" }, { listen = "here" }, { listen = "unix:" } }) do
    local ctx, message = serve.new(assert(config.load({ env = nothing, flags = flags })))
    lu.assertNil(ctx)
    lu.assertStrContains(message, "listen")
  end
end

function TestStart:test_unix_socket()
  local path = temp.path()
  local ctx = start({ listen = "unix:" .. path })
  local pipe, data = uv.new_pipe(false), ""
  pipe:connect(path, function(err)
    assert(not err, err)
    pipe:read_start(function(_, d) data = data .. (d or "") end)
    pipe:write("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
  end)
  lu.assertTrue(client.wait(function() return data:find("ok") ~= nil end))
  pipe:close()
  stop(ctx)
  lu.assertNil(uv.fs_stat(path))
end

TestDrain = {}

function TestDrain:test_running_answers_end_and_new_ones_are_refused()
  local ctx = start({ drain_timeout = "2" })
  local stream, idle = client.connect(ctx.port), client.connect(ctx.port)
  stream:send("GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
  lu.assertTrue(stream:until_found("line 1"))
  local done = false
  serve.drain(ctx, function() done = true end)
  lu.assertTrue(idle:until_closed(1000))
  local late = client.connect(ctx.port)
  lu.assertNotNil(late.failed)
  lu.assertTrue(client.wait(function() return done end, 3000))
  client.wait(function() return stream.closed end, 500)
  lu.assertStrContains(stream.data, "line 20\n")
  lu.assertStrContains(stream.data, "\r\n0\r\n\r\n")
end

function TestDrain:test_hanging_answer_is_cancelled_after_the_grace()
  local ctx = start({ drain_timeout = "0.2" })
  local c = client.connect(ctx.port)
  c:send("GET /hang HTTP/1.1\r\nHost: localhost\r\n\r\n")
  client.sleep(20)
  local done, told = false, false
  ctx.cancel_all = function() told = true end
  serve.drain(ctx, function() done = true end)
  lu.assertTrue(client.wait(function() return done end, 6000))
  lu.assertTrue(told)
  lu.assertEquals(ctx.aborted, 1)
end
