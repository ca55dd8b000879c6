-- SPDX-License-Identifier: MIT
-- A thousand requests on a real model, most of them given up in every phase:
-- no page, descriptor, handler or memory stays behind.
local lu = require("luaunit")
local uv = require("luv")
local cjson = require("cjson")
local client = require("http_client")
local config = require("mtx.config")
local fixture = require("http_fixture")
local serve = require("mtx.serve")

local MODEL = "SmolLM2-135M-Instruct.Q4_1"

TestGrowth = {}

local function descriptors()
  local n, handle = 0, uv.fs_scandir("/proc/self/fd")
  while uv.fs_scandir_next(handle) do n = n + 1 end
  return n
end

local function lua_bytes()
  collectgarbage()
  collectgarbage()
  return collectgarbage("count") * 1024
end

-- Numbers from a fixed sequence, so that a failure can be repeated.
local seed = 1
local function random(n)
  seed = (seed * 1103515245 + 12345) & 0x7fffffff
  return (seed >> 8) % n
end

-- One request; how it ends: 0 it is read to its end, 1 its client hangs up after some
-- milliseconds, 2 after the first bytes of the answer, 3 before the body is whole, 4 it
-- is cancelled by its id.
local function request(ctx, i, ended)
  local how = random(5)
  local long = how ~= 0
  local body = how == 4 and { model = MODEL, prompt = "A" .. i, raw = true, request_id = "r" .. i, options = { num_predict = 16, temperature = 0 } }
    or { model = MODEL, prompt = "A" .. i, max_tokens = long and 16 or 3, stream = how == 2 or i % 2 == 0, ignore_eos = true }
  local path, text = how == 4 and "/api/generate" or "/v1/completions", cjson.encode(body)
  local sock, timer = uv.new_tcp(), uv.new_timer()
  local function finish()
    if sock:is_closing() then return end
    sock:close()
    timer:close()
    ended()
  end
  sock:connect("127.0.0.1", ctx.port, function(err)
    lu.assertNil(err)
    sock:read_start(function(_, bytes)
      if not bytes or how == 2 then finish() end
    end)
    local head = "POST " .. path .. " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " .. #text .. "\r\n\r\n"
    sock:write(head .. (how == 3 and text:sub(1, 10) or text))
    if how == 1 or how == 3 then
      timer:start(random(20), 0, finish)
    elseif how == 4 then
      timer:start(random(20), 0, function()
        local job = ctx.jobs["\0r" .. i] -- no key's
        if job then job:cancel() end
      end)
    end
  end)
end

local function run(ctx, from, to)
  local next_one, running = from, 0
  local function go()
    while running < 16 and next_one <= to do
      running, next_one = running + 1, next_one + 1
      request(ctx, next_one, function()
        running = running - 1
        go()
      end)
    end
  end
  go()
  lu.assertTrue(client.wait(function() return running == 0 and next_one > to end, 300000))
  lu.assertTrue(client.wait(function() return ctx.n_jobs == 0 and ctx.http.n_conns == 0 end, 10000))
end

function TestGrowth:test_a_thousand_requests_with_cancels()
  local dir = os.getenv("MTX_MODELS_DIR") or "models"
  local ctx = assert(serve.new(assert(config.load({ env = function() end, flags = { port = "0", models_dir = dir, log_level = "error", ctx = "512", cache_mb = "0" } }))))
  assert(serve.listen(ctx))
  run(ctx, 0, 200) -- whatever is made once has been made
  local fds, bytes, rss = descriptors(), lua_bytes(), uv.resident_set_memory()
  run(ctx, 200, 1200)
  lu.assertEquals(descriptors(), fds)
  lu.assertTrue(lua_bytes() - bytes < 200000, "Lua's memory grew by " .. lua_bytes() - bytes)
  lu.assertTrue(uv.resident_set_memory() - rss < 8 << 20, "resident memory grew by " .. uv.resident_set_memory() - rss)
  local l = ctx.pool:list()[1]
  lu.assertTrue(client.wait(function() return l.engine:stats().n_running == 0 end, 5000))
  local s = l.engine:stats(true)
  lu.assertTrue(s.kv_ok)
  lu.assertEquals({ s.pages_free, s.n_waiting, s.cache_entries }, { s.pages_total, 0, 0 })
  lu.assertTrue(s.n_cancelled > 300, s.n_cancelled .. " of " .. s.n_submitted .. " were cancelled")
  lu.assertEquals({ next(l.handlers), next(l.jobs), next(ctx.jobs), l.inflight }, { nil, nil, nil, 0 })
  fixture.stop(ctx)
end
