-- SPDX-License-Identifier: MIT
-- Hostile and broken requests against every route of the live table: always one
-- clear error in JSON, never a 500, and the server goes on. Memory stays flat.
local lu = require("luaunit")
local cjson = require("cjson")
local check = require("mtx.api.check")
local client = require("http_client")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local temp = require("temp")

local ctx, port, dir

TestHostile = {}
function TestHostile:setUp()
  dir = temp.path()
  ctx = fixture.start({ files_dir = dir })
  port = ctx.port
  local pull = ctx.pulls.start
  function ctx.pulls.start(self, name, listener) -- a name that could be pulled is not looked for out there
    if name == "tiny" then return nil, check.fault(404, "there is no such model") end
    return pull(self, name, listener)
  end
end
function TestHostile:tearDown()
  fixture.stop(ctx)
  os.execute("rm -rf " .. dir)
end

local BODIES = { "{:", '{"model":"a\255"}', "\255\254{\0}\0", "", "   ", "[1]", ("["):rep(100000), ('{"a":'):rep(100000), '{"messages":"x"}', "{} trailing", "null", "5", '"x"',
  '{"model":5}', '{"model":{"a":[]}}', '{"model":"\\ud800","messages":[],"prompt":5,"input":{},"content":{}}', '{"model":"tiny","messages":[[]],"prompt":[[]],"input":[[]],"options":5}',
  '{"model":"tiny","max_tokens":1e400,"n":-1,"temperature":"hot","messages":[{"role":"user"}]}', '{"stream":"yes","tools":{},"tool_choice":5,"format":5,"stop":{}}',
  '{"a":1' .. (",\"b\":2"):rep(5000) .. "}", '{"model":"../../etc/passwd","id":"../../etc/passwd","name":"/etc/passwd","filename":"../x"}', '{"__proto__":null,"keep_alive":[]}' }

local function json_error(r, dialect)
  if not r.json or type(r.json) ~= "table" then return false end
  if dialect == "ollama" then return type(r.json.error) == "string" end
  if type(r.json.error) ~= "table" or type(r.json.error.message) ~= "string" then return false end
  return dialect ~= "anthropic" or r.json.type == "error"
end

-- T69: every POST, PUT and DELETE route with every body.
function TestHostile:test_every_route_with_every_bad_body()
  local n = 0
  for _, route in ipairs(ctx.routes.list) do
    if (route.method == "POST" or route.method == "PUT" or route.method == "DELETE") and route.scope ~= "public" then
      local path = route.path:gsub("/[:*]%w+", "/x")
      for i, body in ipairs(BODIES) do
        local r = client.request(port, route.method, path, body)
        local where = ("%s %s with body %d: %d %s"):format(route.method, path, i, r.status, r.body:sub(1, 200))
        lu.assertTrue(r.status >= 200 and (r.status < 500 or r.status == 501), where)
        if r.status >= 400 then lu.assertTrue(json_error(r, route.dialect), where) end
        n = n + 1
      end
    end
  end
  lu.assertTrue(n > 1000)
  lu.assertEquals(client.request(port, "GET", "/api/version").status, 200)
  lu.assertEquals(ctx.n_jobs, 0)
end

-- The same for what a path and its query can hold.
function TestHostile:test_every_route_with_bad_parameters()
  local parts = { "%00", "%ff", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..", "%", "%zz", ("a"):rep(4000), "a%0d%0aX:%20y", "%F0%9F%98%80", "-1", "99999999999999999999" }
  for _, route in ipairs(ctx.routes.list) do
    if route.path:find("/[:*]%w+") and not route.stream_body then
      for _, part in ipairs(parts) do
        local path = route.path:gsub("/[:*]%w+", function() return "/" .. part end)
        local r = client.request(port, route.method, path, route.method ~= "GET" and route.method ~= "HEAD" and "{}" or nil)
        lu.assertTrue(r.status >= 200 and (r.status < 500 or r.status == 501), route.method .. " " .. path:sub(1, 100) .. ": " .. r.status)
        lu.assertNil(r.headers.x)
      end
    end
  end
  for _, query in ipairs({ "", "&&&", "=", "conv_id", "conv_id=%00", "conv_id=%ff&from=-1", "limit=nan", "limit=-5", "limit=1e9", "model=..", "after=" .. ("x"):rep(3000) }) do
    for _, path in ipairs({ "/v1/stream", "/v1/files", "/v1/batches", "/v1/responses", "/slots" }) do
      local r = client.request(port, "GET", path .. "?" .. query)
      lu.assertTrue(r.status >= 200 and r.status < 500, path .. "?" .. query:sub(1, 40) .. ": " .. r.status)
    end
  end
end

local function memory()
  collectgarbage()
  collectgarbage()
  local f = io.open("/proc/self/status")
  local text = f:read("a")
  f:close()
  return collectgarbage("count") * 1024, (tonumber(text:match("RssAnon:%s+(%d+)")) + tonumber(text:match("VmSwap:%s+(%d+)"))) * 1024
end

-- T76: unique requests with logprobs, equal ones, cancelled ones: no growth per request.
function TestHostile:test_memory_per_request()
  local function run(n, unique)
    for i = 1, n do
      local body = cjson.encode({ model = "tiny", messages = { { role = "user", content = "@say{a b c} " .. (unique and i or "") } }, logprobs = true, stream = i % 2 == 0 })
      local c = client.connect(port)
      c:send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
      if i % 5 == 0 then c:until_found("HTTP") else c:until_closed() end
      c:close()
    end
    fake.engines[1].submitted = {}
    client.wait(function() return ctx.n_jobs == 0 end)
  end
  run(1000, true)
  run(500)
  local lua_before, rss_before = memory()
  run(1000, true)
  run(1000)
  client.sleep(50)
  local lua_after, rss_after = memory()
  lu.assertTrue((lua_after - lua_before) / 2000 < 256, "Lua bytes per request: " .. (lua_after - lua_before) / 2000)
  lu.assertTrue((rss_after - rss_before) / 2000 < 1024, "bytes of memory per request: " .. (rss_after - rss_before) / 2000)
  lu.assertEquals(ctx.http.n_conns, 0)
end
