-- SPDX-License-Identifier: MIT
-- Pulls in tests: bytes to pull, a puller that does not wait long, and a look at what it left.
local lu = require("luaunit")
local uv = require("luv")
local client = require("http_client")
local fake = require("fake_hub")
local infile = require("mtx.infile")
local pull = require("mtx.pull")
local temp = require("temp")

local fixture = {}

-- n bytes that begin like a GGUF file; another seed, other bytes.
function fixture.bytes(n, seed)
  local out, x = { "GGUF" }, seed or 1
  for i = 2, n // 4 + 1 do
    x = (x * 1103515245 + 12345) & 0x7fffffff
    out[i] = string.pack("<I4", x)
  end
  return table.concat(out):sub(1, n)
end

-- The file of the hub that `start` gives, and where it lies once it is pulled.
fixture.SIZE, fixture.FILE = 300000, "hf.co/u/r/m-Q4_0.gguf"
fixture.BODY = fixture.bytes(fixture.SIZE)

-- A split model in n parts; `missing` is not there.
function fixture.shards(n, missing)
  local files = {}
  for i = 1, n do
    if i ~= missing then files[("q4/m-%05d-of-%05d.gguf"):format(i, n)] = fixture.bytes(50000 + i, i) end
  end
  return files
end

function fixture.puller(dir, hub, values, more)
  local v = { models_dir = dir, hub = hub, hub_token = "", pull_hosts = {}, pull_max_gb = 1 }
  for k, x in pairs(values or {}) do v[k] = x end
  local m = { retry_ms = 1, progress_ms = 0 }
  for k, x in pairs(more or {}) do m[k] = x end
  return assert(pull.new(v, m))
end

-- Pulls and waits -> fault | nil, events. stop(event) ends it early when it gives true.
function fixture.pull(puller, name, stop)
  local events, over, fault = {}, false, nil
  local handle, refusal
  handle, refusal = puller:start(name, {
    event = function(e)
      events[#events + 1] = e
      if stop and stop(e) then handle.leave() end
    end,
    done = function(f) over, fault = true, f end })
  if not handle then return refusal, events end
  client.wait(function() return over or stop and not puller.jobs[next(puller.jobs) or ""] end, 60000)
  return fault, events
end

-- Another process of this program, which does nothing. -> pid, close(); it ends with this one.
function fixture.process()
  local input, ended = uv.new_pipe(false), false
  local process, pid = assert(uv.spawn((os.getenv("BUILD") or "build") .. "/mtx", { args = { "-e", "io.read()" }, stdio = { input } }, function() ended = true end))
  return math.tointeger(pid), function()
    input:close()
    lu.assertTrue(client.wait(function() return ended end))
    process:close()
  end
end

-- Files under dir that are no state of ours, sorted: "path size".
function fixture.files(dir, with_state)
  local out = {}
  local function walk(at, relative)
    local handle = uv.fs_scandir(at)
    while handle do
      local name, kind = uv.fs_scandir_next(handle)
      if not name then break end
      local rel = relative == "" and name or relative .. "/" .. name
      if kind == "directory" then
        if with_state or name ~= ".mtx" then walk(at .. "/" .. name, rel) end
      else
        out[#out + 1] = rel .. " " .. math.tointeger(uv.fs_stat(at .. "/" .. name).size)
      end
    end
  end
  walk(dir, "")
  table.sort(out)
  return out
end

-- What a test of pulls works with: {hub, dir (the models folder), puller}, anew for each test.
local At = {}
At.__index = At

function fixture.new() return setmetatable({}, At) end

-- files, values: other ones of the hub's repository u/r, of the puller
function At:start(files, values)
  self:close()
  self.hub, self.dir = fake.hub({ ["u/r"] = files or { ["m-Q4_0.gguf"] = fixture.BODY } }), temp.dir()
  self.puller = fixture.puller(self.dir, self.hub.url, values)
end

function At:close()
  if self.hub then self.hub:close() end
end

-- The methods of a LuaUnit class around each test.
function At:around(class)
  function class.setUp() self:start() end
  function class.tearDown() self:close() end
  return class
end

-- A pull that must succeed, of the hub's model or another name -> events
function At:pulled(name)
  local fault, events = fixture.pull(self.puller, name or "hf.co/u/r")
  lu.assertNil(fault and fault.message)
  lu.assertEquals(events[#events].status, "success")
  return events
end

-- One that must fail.
function At:refused(name, status, words)
  local fault = fixture.pull(self.puller, name or "hf.co/u/r")
  lu.assertNotNil(fault, "it was pulled")
  lu.assertEquals(fault.status, status, fault.message)
  lu.assertStrContains(fault.message, words)
end

-- The first answers have n bytes though whole ones are announced; those behind them are `rest`, or whole.
function At:cut(n, times, rest)
  self.hub.serve["m-Q4_0.gguf"] = function(r, bytes)
    if r.n > times and rest then return rest end
    local a = fake.bytes(r, bytes)
    if r.n <= times then a.length, a.body = #a.body, a.body:sub(1, n) end
    return a
  end
end

function At:bytes_of(path) return infile.read(self.dir .. "/" .. path) end
function At:right() lu.assertTrue(self:bytes_of(fixture.FILE) == fixture.BODY, "the file is not right") end
function At:nothing_visible() lu.assertEquals(fixture.files(self.dir), {}) end

return fixture
