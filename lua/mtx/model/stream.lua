-- SPDX-License-Identifier: MIT
-- A request of a script while it runs: called, it gives the next piece of text.
local misuse = require("mtx.model.misuse")

local stream = {}

-- Seconds; without luv those that the processor has worked.
local has_uv, uv = pcall(require, "luv")
stream.clock = has_uv and function() return uv.hrtime() / 1e9 end or os.clock

local Stream = {}
Stream.__index = Stream

-- of: {model, engine, id, seed, prompt_ids, want_logprobs, started}
function stream.new(of)
  of.queue, of.parts, of.ids, of.logprobs = {}, {}, {}, {}
  of.model.streams = of.model.streams or {}
  of.model.streams[of.id] = of
  return setmetatable(of, Stream)
end

-- Takes events until there is text, or the end. -> piece | nil at the end, with message and code when the request failed
function Stream:next()
  while not self.finished do
    local event = table.remove(self.queue, 1)
    if not event then
      self.engine:wait(100)
      for _, ev in ipairs(self.engine:drain()) do
        local owner = self.model.streams[ev.id]
        if owner then owner.queue[#owner.queue + 1] = ev end
      end
      if #self.queue == 0 and self.on_idle then self.on_idle() end
    elseif event.kind == "token" then
      table.move(event.tokens, 1, #event.tokens, #self.ids + 1, self.ids)
      for _, l in ipairs(event.logprobs or {}) do self.logprobs[#self.logprobs + 1] = l end
      self.first = self.first or stream.clock()
      if event.text ~= "" then
        self.parts[#self.parts + 1] = event.text
        return event.text
      end
    elseif event.kind == "start" then
      self.n_cached = event.n_cached
    else
      self.finished = event
      self.model.streams[self.id] = nil
    end
  end
  if self.finished.reason == "error" then return nil, self.finished.message, self.finished.code end
  return nil
end

-- The iterator of a for loop: what next gives, but a failure raises, since a loop would take it for the end (as io.lines raises
-- where file:read gives nil and a reason).
function stream.iterate(self)
  local piece, message = self:next()
  if not piece and message then misuse(message) end
  return piece
end

Stream.__call = stream.iterate

-- Ends the request; the pieces that are there still come.
function Stream:cancel() self.engine:cancel(self.id) end

local function per_second(n, ms) return ms > 0 and n / ms * 1000 or 0 end

-- After the last piece: {text, ids, prompt_ids, finish_reason, stop_string, logprobs, seed, timings}
-- | nil, message, code when the request failed.
function Stream:result()
  while self:next() do end
  local done = self.finished
  if done.reason == "error" then return nil, done.message, done.code end
  local n_new = done.n_prompt - done.n_cached
  return {
    text = table.concat(self.parts), ids = self.ids, prompt_ids = self.prompt_ids,
    finish_reason = done.reason == "stop_string" and "stop" or done.reason, stop_string = done.stop_string,
    logprobs = self.want_logprobs and self.logprobs or nil, seed = self.seed,
    timings = {
      n_prompt = done.n_prompt, n_cached = done.n_cached, n_generated = done.n_generated, n_drafted = done.n_drafted,
      n_draft_accepted = done.n_draft_accepted, queue_ms = done.t_queue_ms,
      prefill_ms = done.t_prefill_ms, decode_ms = done.t_decode_ms, first_token_ms = self.first and (self.first - self.started) * 1000,
      prompt_per_second = per_second(n_new, done.t_prefill_ms),
      -- The first token comes out of the prefill.
      decode_per_second = per_second(math.max(done.n_generated - 1, 0), done.t_decode_ms),
    },
  }
end

return stream
