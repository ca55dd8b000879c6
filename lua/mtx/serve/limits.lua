-- SPDX-License-Identifier: MIT
-- Token buckets: requests and model tokens per minute, for each key and for the
-- whole server. Buckets exist only for configured keys plus one for everybody
-- without a key, so the map cannot grow with traffic.
local auth = require("mtx.serve.auth")

local limits = {}

local Bucket = {}
Bucket.__index = Bucket

-- per_minute: refill; a full bucket holds one minute's worth. Times in seconds.
function limits.bucket(per_minute, now)
  return setmetatable({ rate = per_minute / 60, size = per_minute, level = per_minute, at = now }, Bucket)
end

local function refill(b, now)
  b.level = math.min(b.size, b.level + (now - b.at) * b.rate)
  b.at = now
end

-- Takes n, or gives the seconds until n would be there.
function Bucket:take(n, now)
  refill(self, now)
  if self.level >= n then
    self.level = self.level - n
    return true
  end
  return false, math.max(1, math.ceil((n - self.level) / self.rate))
end

-- Charges what has been used already; may go below zero (paid back by waiting).
function Bucket:charge(n, now)
  refill(self, now)
  self.level = self.level - n
end

local Limits = {}
Limits.__index = Limits

-- config: {requests_per_minute, tokens_per_minute, key_requests_per_minute, key_tokens_per_minute}; 0 or nil = no limit.
function limits.new(config, clock)
  local self = setmetatable({ clock = clock, by_key = {} }, Limits)
  self:configure(config)
  return self
end

-- Other limits from now on; a bucket whose limit is the same keeps what it holds.
function Limits:configure(config)
  self.config = config
  local requests, tokens = config.requests_per_minute, config.tokens_per_minute
  if self.all and self.all.n_requests == requests and self.all.n_tokens == tokens then return end
  self.all = self:pair(requests, tokens)
  self.all.n_requests, self.all.n_tokens = requests, tokens
end

function Limits:pair(requests, tokens)
  local now = self.clock()
  return { requests = requests and requests > 0 and limits.bucket(requests, now) or nil,
    tokens = tokens and tokens > 0 and limits.bucket(tokens, now) or nil }
end

local function of_key(self, key)
  local name, own = auth.owner(key), key and key.limits or {}
  local requests, tokens = own.requests or self.config.key_requests_per_minute, own.tokens or self.config.key_tokens_per_minute
  local p = self.by_key[name]
  if not p or p.n_requests ~= requests or p.n_tokens ~= tokens then -- new, or a reload has changed its limits
    p = self:pair(requests, tokens)
    p.n_requests, p.n_tokens = requests, tokens
    self.by_key[name] = p
  end
  return p
end

-- true, or false, seconds to wait, message.
function Limits:admit(key)
  local now = self.clock()
  for _, p in ipairs({ of_key(self, key), self.all }) do
    if p.tokens then
      refill(p.tokens, now)
      if p.tokens.level <= 0 then
        return false, math.max(1, math.ceil((1 - p.tokens.level) / p.tokens.rate)), "token limit reached"
      end
    end
    if p.requests then
      local ok, wait = p.requests:take(1, now)
      if not ok then return false, wait, "request limit reached" end
    end
  end
  return true
end

function Limits:charge(key, n_tokens)
  local now = self.clock()
  for _, p in ipairs({ of_key(self, key), self.all }) do
    if p.tokens then p.tokens:charge(n_tokens, now) end
  end
end

return limits
