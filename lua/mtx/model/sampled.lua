-- SPDX-License-Identifier: MIT
-- Generation with a sampler written in Lua: function(logits, history, options) ->
-- token id, or nil: the usual samplers go on from the logits.
--
-- It runs in the caller's state over a session, token by token; the object behaves
-- as the stream of model:stream. logits is a tensor (index = id + 1) the function may
-- change; history lists prompt and generated ids, newest last; options is the
-- request's sampler_options. An error in the function, or one that never ends, ends
-- the generation with a message, not the program.
local core = require("mtx.core")
local stream = require("mtx.model.stream")

local sampled = {}

-- Instructions and seconds of processor time one call may take.
local INSTRUCTIONS, SECONDS = 100000000, 5

local Stream = {}
Stream.__index = Stream

-- Text up to the first stop string, and whether there was one; what could be the
-- beginning of one is held back.
local function cut(self, text, last)
  for _, stop in ipairs(self.stop) do
    local at = text:find(stop, 1, true)
    if at then return text:sub(1, at - 1), "", stop end
  end
  local keep = 0
  for _, stop in ipairs(last and {} or self.stop) do
    for k = math.min(#stop - 1, #text), keep + 1, -1 do
      if text:sub(-k) == stop:sub(1, k) then keep = k break end
    end
  end
  return text:sub(1, #text - keep), text:sub(#text - keep + 1)
end

local function give(self, more, last)
  local text, rest, stop = cut(self, self.held .. more, last)
  self.held = rest
  if stop then self.reason, self.stop_string = "stop", stop end
  if text == "" then return nil end
  self.parts[#self.parts + 1] = text
  return text
end

local function fail(self, message, code)
  self.failure = { message, code }
  self.reason = "error"
end

-- The function's choice, or without one the usual samplers'. -> true, id | false, message
local function choose(self)
  local co = coroutine.create(self.fn)
  core.limit(co, INSTRUCTIONS, SECONDS)
  local ok, id = coroutine.resume(co, self.logits, self.history, self.options)
  if ok and coroutine.status(co) ~= "dead" then return false, "it must not wait" end
  if not ok or id ~= nil then return ok, id end
  local message
  if not self.chain then self.chain, message = core.sampler(self.sampler, #self.logits) end
  if self.chain then id, message = self.chain:sample(self.logits, self.history) end
  return id ~= nil, id or message
end

local function step(self)
  local ok, id = choose(self)
  if not ok then return fail(self, "the sampler function failed: " .. tostring(id), "sampler") end
  if math.type(id) ~= "integer" then return fail(self, "the sampler function must return a token id, not " .. type(id), "sampler") end
  if id < 0 or id >= #self.logits then return fail(self, "the sampler function returned " .. id .. ", which is no token", "sampler") end
  self.ids[#self.ids + 1], self.history[#self.history + 1] = id, id
  if self.model:is_eog(id) and not self.ignore_eos then
    self.reason = "stop"
    return give(self, self.detok:flush(), true)
  end
  local piece = give(self, self.detok:feed(id))
  if not self.reason and #self.ids >= self.max_tokens then
    self.reason = "length"
    local tail = give(self, self.detok:flush(), true)
    return piece and tail and piece .. tail or piece or tail
  end
  if not self.reason then
    local message, code
    self.logits, message, code = self.session:eval({ id })
    if not self.logits then fail(self, message, code) end
  end
  return piece
end

function Stream:next()
  while not self.reason do
    local piece = step(self)
    if piece then return piece end
  end
  if self.session then
    self.session:close()
    self.session = nil
  end
  if self.failure then return nil, self.failure[1], self.failure[2] end
end

Stream.__call = stream.iterate

function Stream:cancel() self.reason = self.reason or "cancelled" end

function Stream:result()
  while self:next() do end
  if self.failure then return nil, self.failure[1], self.failure[2] end
  return { text = table.concat(self.parts), ids = self.ids, prompt_ids = self.prompt_ids, finish_reason = self.reason, stop_string = self.stop_string,
    timings = { n_prompt = #self.prompt_ids, n_generated = #self.ids, n_cached = 0 } }
end

-- engine, model, prompt ids, request (max_tokens, stop, ignore_eos, sampler = function, sampler_options), options of the
-- usual samplers, set of adapters or nil -> stream | nil, message, code
function sampled.stream(engine, model, prompt_ids, request, sampler, lora)
  local session, message, code = engine:session({ lora = lora })
  if not session then return nil, message, code end
  local logits
  logits, message, code = session:eval(prompt_ids)
  if not logits then
    session:close()
    return nil, message, code
  end
  return setmetatable({ model = model, session = session, logits = logits, fn = request.sampler, options = request.sampler_options or {}, sampler = sampler, prompt_ids = prompt_ids, ids = {}, parts = {}, held = "",
    history = table.move(prompt_ids, 1, #prompt_ids, 1, {}), stop = request.stop or {}, ignore_eos = request.ignore_eos,
    max_tokens = request.max_tokens or math.huge, detok = model.tok:stream() }, Stream)
end

return sampled
