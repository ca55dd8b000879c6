-- SPDX-License-Identifier: MIT
-- Pulls in tests: bytes to pull, a puller that does not wait long, and a look at what it left.
local uv = require("luv")
local client = require("http_client")
local pull = require("mtx.pull")

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

return fixture
