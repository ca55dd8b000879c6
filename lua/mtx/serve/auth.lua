-- SPDX-License-Identifier: MIT
-- API keys with scopes. Only SHA-256 hashes are kept, in memory and in the key
-- file; a presented key is hashed and compared with every entry without early
-- exit. Failures are counted per peer address, so that guessing is slow.
local infile = require("mtx.infile")
local sha256 = require("mtx.core").sha256
local origin = require("mtx.serve.origin")

local auth = {}

local Auth = {}
Auth.__index = Auth

local SCOPES = { infer = true, embed = true, admin = true }
-- Failed keys per address and minute before 429; addresses remembered at most.
local MAX_FAILURES, MAX_ADDRESSES = 30, 1024

-- required: a key is needed even when there is none (an empty key file).
function auth.new() return setmetatable({ keys = {}, required = false, failures = {}, n_failures = 0 }, Auth) end

-- Whose is what a request made: the name of its key, "" without one. Names outlast a reload, entries do not.
function auth.owner(key) return key and key.name or "" end

-- An id that a client chose, as a place in a table: two keys may choose the same.
function auth.own(key, id) return auth.owner(key) .. "\0" .. id end

-- Adds a key by its hash (64 hex digits). scopes: list; admin implies the others.
function Auth:add_hash(name, hash, scopes, limits)
  local set = {}
  for _, s in ipairs(scopes) do
    if not SCOPES[s] then return nil, "unknown scope " .. s .. " (use infer, embed, admin)" end
    set[s] = true
  end
  if set.admin then set.infer, set.embed = true, true end
  self.keys[#self.keys + 1] = { name = name, hash = hash, scopes = set, limits = limits or {} }
  self.required = true
  return true
end

-- Takes the keys of another one, as a reload has read them; failures stay counted.
function Auth:adopt(other) self.keys, self.required = other.keys, other.required end

-- May the key that a connection came with still do this? (It was checked when the connection began.)
function Auth:still(key, scope)
  if not self.required then return true end
  for _, k in ipairs(key and self.keys or {}) do
    if k.hash == key.hash then return k.scopes[scope] == true end
  end
  return false
end

function Auth:add_key(name, key, scopes) return self:add_hash(name, sha256.of(key), scopes) end

-- Key file: one key per line, `NAME SCOPES SHA256 [requests_per_minute [tokens_per_minute]]`,
-- scopes joined by commas, `#` starts a comment.
function Auth:load(path)
  local f, err = infile.open(path)
  if not f then return nil, "cannot read the key file: " .. err end
  self.required = true
  local n = 0
  for line in f:lines() do
    n = n + 1
    line = line:gsub("#.*", "")
    if line:find("%S") then
      local name, scopes, hash, rpm, tpm = line:match("^%s*(%S+)%s+(%S+)%s+(%x+)%s*(%d*)%s*(%d*)%s*$")
      if not name or #hash ~= 64 then
        f:close()
        return nil, path .. ":" .. n .. ": expected NAME SCOPES SHA256 [REQUESTS_PER_MINUTE [TOKENS_PER_MINUTE]]"
      end
      local list = {}
      for s in scopes:gmatch("[^,]+") do list[#list + 1] = s end
      local ok, message = self:add_hash(name, hash:lower(), list, { requests = tonumber(rpm), tokens = tonumber(tpm) })
      if not ok then
        f:close()
        return nil, path .. ":" .. n .. ": " .. message
      end
    end
  end
  f:close()
  return n
end

local function same(a, b)
  local diff = #a ~ #b
  for i = 1, 64 do diff = diff | ((a:byte(i) or 0) ~ (b:byte(i) or 0)) end
  return diff == 0
end

local function presented(headers)
  local h = headers.authorization
  local token = h and h:match("^[Bb][Ee][Aa][Rr][Ee][Rr]%s+(%S+)%s*$")
  return token or headers["x-api-key"]
end

-- Decides scope for a request: gives the key entry (or false for "no key needed"),
-- or nil, status, message. `peer` is the socket's address; unknown means deny.
function Auth:check(headers, scope, peer, now)
  if scope == "public" then return false end
  peer = peer or "?"
  if not self.required then
    if scope == "admin" and not origin.is_loopback(peer) then
      return nil, 403, "admin routes need a key with the admin scope, or a caller on this machine"
    end
    return false
  end
  local fails = self.failures[peer]
  if fails and now - fails.since > 60 then
    self.failures[peer], fails = nil, nil
    self.n_failures = self.n_failures - 1
  end
  if fails and fails.n >= MAX_FAILURES then return nil, 429, "too many wrong keys from this address; wait a minute" end
  local token = presented(headers)
  if not token then return nil, 401, "missing API key: send `Authorization: Bearer KEY` or `x-api-key: KEY`" end
  local hash, found = sha256.of(token), nil
  for _, k in ipairs(self.keys) do
    if same(hash, k.hash) then found = k end
  end
  if not found then
    -- Behind a Unix socket stands a proxy that speaks for everybody: one guesser must not lock out the others.
    if peer == "unix" then return nil, 401, "invalid API key" end
    if not fails then
      if self.n_failures >= MAX_ADDRESSES then self.failures, self.n_failures = {}, 0 end
      fails = { n = 0, since = now }
      self.failures[peer] = fails
      self.n_failures = self.n_failures + 1
    end
    fails.n = fails.n + 1
    return nil, 401, "invalid API key"
  end
  if not found.scopes[scope] then return nil, 403, "this key does not have the scope " .. scope end
  return found
end

return auth
