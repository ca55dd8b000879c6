-- SPDX-License-Identifier: MIT
-- What a model's engine did lately, measured from the events of its requests: how fast it reads prompts and inputs of
-- embeddings, how fast one reply is written beside the others, how long replies are. nil = nothing measured yet.
local rates = {}

-- Work that is remembered: what is older counts for half whenever so much has come.
local WINDOW_MS, WINDOW_REPLIES = 60000, 256

-- Tokens that several at once get through in the time in which anybody works at them.
local Meter = {}
Meter.__index = Meter

local function meter() return setmetatable({ tokens = 0, ms = 0, n = 0, since = 0 }, Meter) end

function Meter:add(tokens, ms)
  self.tokens, self.ms = self.tokens + tokens, self.ms + ms
  if self.ms > WINDOW_MS then self.tokens, self.ms = self.tokens / 2, self.ms / 2 end
end

-- One began at `at` (ms), which may be told late: what has been counted until then is not counted again.
function Meter:begins(at)
  if self.n == 0 then self.since = math.max(at, self.since) end
  self.n = self.n + 1
end

-- One of them has ended; tokens: its own, nil when it was broken off.
function Meter:ends(now, tokens)
  self.n = self.n - 1
  if tokens then self:add(tokens, math.max(0, now - self.since)) end
  self.since = now
end

-- ms since the work under way began, 0 when there is none.
function Meter:elapsed(now) return self.n > 0 and math.max(0, now - self.since) or 0 end

function Meter:ms_per_token() return self.tokens > 0 and self.ms / self.tokens or nil end

local Rates = {}
Rates.__index = Rates

function rates.new()
  return setmetatable({ prompts = meter(), inputs = meter(), writing = meter(), replies = { tokens = 0, n = 0 }, read = { cached = 0, all = 0 } }, Rates)
end

-- A prompt was let in: n tokens, of which n_cached need not be read.
function Rates:let_in(now, n, n_cached)
  self.prompts:begins(now)
  local r = self.read
  r.cached, r.all = r.cached + n_cached, r.all + n
  if r.all > 1 << 20 then r.cached, r.all = r.cached / 2, r.all / 2 end
end

-- A reply of n tokens has ended; the second to the last took ms.
function Rates:replied(n, ms)
  if n > 1 then self.writing:add(n - 1, ms) end
  local r = self.replies
  r.tokens, r.n = r.tokens + n, r.n + 1
  if r.n > WINDOW_REPLIES then r.tokens, r.n = r.tokens / 2, r.n / 2 end
end

-- {prompt_ms, reply_ms (per token, of one reply), reply_tokens (mean length), new_share (of a prompt, what had to be
-- read)}, or nil before the first reply has ended.
function Rates:known()
  local prompt_ms, reply_ms, replies, read = self.prompts:ms_per_token(), self.writing:ms_per_token(), self.replies, self.read
  if not prompt_ms or replies.n == 0 then return nil end
  return { prompt_ms = prompt_ms, reply_ms = reply_ms or prompt_ms, reply_tokens = replies.tokens / replies.n, new_share = read.all > 0 and 1 - read.cached / read.all or 1 }
end

return rates
