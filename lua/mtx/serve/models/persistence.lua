-- SPDX-License-Identifier: MIT
-- The prompt cache on disk: where, how much, how long. The engines read, write and remove the
-- files (csrc/engine/disk.h); here are the settings, which a request may change and
-- which then outlast the server.
local uv = require("luv")
local chats = require("mtx.serve.models.chats")
local core = require("mtx.core")
local json = require("mtx.json")
local whole_file = require("mtx.whole_file")

local persistence = {}

local Cache = {}
Cache.__index = Cache

local POLICY = "prompt_cache_policy.json"

local function default_dir()
  local base = os.getenv("XDG_CACHE_HOME")
  if not base or base:sub(1, 1) ~= "/" then base = (os.getenv("HOME") or "") .. "/.cache" end
  return base:sub(1, 1) == "/" and base .. "/mtx/prompts" or nil
end

-- Makes the folder and those above it, for this user alone.
local function make_dir(path)
  for at in path:gmatch("()/") do
    if at > 1 then uv.fs_mkdir(path:sub(1, at - 1), tonumber("700", 8)) end
  end
  local ok, message = uv.fs_mkdir(path, tonumber("700", 8))
  local stat = uv.fs_stat(path)
  if stat and stat.type == "directory" then return true end
  return nil, "cannot make the folder of the prompt cache: " .. tostring(message or ok)
end

-- What an earlier server was told by a request; {} when it was told nothing.
local function read_policy(dir)
  local f = io.open(dir .. "/" .. POLICY)
  local saved = f and json.decode(f:read(4096) or "")
  if f then f:close() end
  return type(saved) == "table" and saved or {}
end

-- -> settings, or nil and why the folder cannot be used.
function persistence.new(config)
  local self = setmetatable({ version = 1, dir = config.persist_dir ~= "" and config.persist_dir or default_dir(), enabled = config.persist,
    budget_mb = config.persist_budget_mb, ttl_hours = config.persist_ttl_hours }, Cache)
  local saved = self.dir and read_policy(self.dir) or {}
  if type(saved.enabled) == "boolean" then self.enabled = saved.enabled end
  for _, k in ipairs({ "budget_mb", "ttl_hours" }) do self[k] = math.tointeger(saved[k]) or self[k] end
  if not self.enabled then return self end
  if not self.dir then return nil, "the prompt cache needs a folder: set --persist-dir" end
  local ok, message = make_dir(self.dir)
  if not ok then return nil, message end
  chats.trim(self.dir, self.ttl_hours * 3600)
  return self
end

-- What engines are told (set_disk); changes with self.version.
function Cache:options()
  return self.enabled and { dir = self.dir, budget_bytes = self.budget_mb << 20, ttl_s = self.ttl_hours * 3600 } or nil
end

-- Files and bytes that are left of the folder when its files may take `budget` bytes and lie unused for `ttl` seconds.
local function trim(self, budget, ttl)
  if not self.dir then return 0, 0 end
  if budget < math.maxinteger then chats.trim(self.dir, budget == 0 and -1 or ttl) end
  return core.trim_prompts(self.dir, budget, ttl)
end

-- The form of GET /api/cache/persistence.
function Cache:status()
  local n, bytes = trim(self, math.maxinteger, math.huge)
  return { enabled = self.enabled, budget_mb = self.budget_mb, ttl_hours = self.ttl_hours, files = n, used_bytes = bytes }
end

-- Removes every file.
function Cache:clear() trim(self, 0, math.huge) end

-- Removes what is too old, then the oldest, until the rest fits.
function Cache:enforce() trim(self, self.budget_mb << 20, self.ttl_hours * 3600) end

-- change: {enabled, budget_mb, ttl_hours}, each may be absent. -> true | nil, reason
function Cache:set(change)
  local next = setmetatable({ dir = self.dir }, Cache)
  for _, k in ipairs({ "enabled", "budget_mb", "ttl_hours" }) do
    if change[k] ~= nil then next[k] = change[k] else next[k] = self[k] end
  end
  if not next.dir then return nil, "the prompt cache needs a folder: set --persist-dir" end
  local ok, message = make_dir(next.dir)
  if not ok then return nil, message end
  ok, message = whole_file.write(next.dir .. "/" .. POLICY, json.encode({ enabled = next.enabled, budget_mb = next.budget_mb, ttl_hours = next.ttl_hours }))
  if not ok then return nil, message end
  self.version = self.version + 1
  self.enabled, self.budget_mb, self.ttl_hours = next.enabled, next.budget_mb, next.ttl_hours
  if self.enabled then self:enforce() else self:clear() end
  return true
end

return persistence
