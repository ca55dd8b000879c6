-- SPDX-License-Identifier: MIT
-- Embeddings: texts or token lists -> vectors. The engine's thread computes them,
-- a slice at a time, so that several requests share it.
local uv = require("luv")
local admission = require("mtx.serve.generate.admission")
local check = require("mtx.api.check")
local fiber = require("mtx.serve.fiber")
local generate = require("mtx.serve.generate")

local embed = {}

-- Tokens of one slice, which others may overtake; bytes of text tokenized in one turn of the event loop.
local SLICE, PAUSE_BYTES = 1024, 1 << 16

local function tokens_of(loaded, input, i, req)
  local n_max = req.n_ctx
  local ids = input
  if type(input) == "string" then
    local message
    ids, message = loaded.model:tokenize(input, { add_special = true, parse_special = false })
    if not ids then check.fail(400, "input[" .. (i - 1) .. "]: " .. tostring(message)) end
  else
    if input.parts then check.fail(400, "input[" .. (i - 1) .. "] mixes texts and token ids", { param = "input" }) end
    for _, id in ipairs(ids) do
      if id >= loaded.info.n_vocab then check.fail(400, "input[" .. (i - 1) .. "]: " .. id .. " is no token of this model", { param = "input" }) end
    end
  end
  if #ids == 0 then check.fail(400, "input[" .. (i - 1) .. "] has no tokens", { param = "input" }) end
  if #ids > n_max then
    if not req.truncate then
      check.fail(400, "the input length exceeds the context length: input[" .. (i - 1) .. "] has " .. #ids .. " tokens, the limit is " .. n_max,
        { kind = "context", param = "input", extra = { n_prompt_tokens = #ids, n_ctx = n_max } })
    end
    local last = ids[#ids]
    ids = table.move(ids, 1, n_max, 1, {})
    local tok = loaded.model.tok
    if type(input) == "string" and tok and tok:attr(last).control then ids[n_max] = last end -- the closing special token stays
  end
  return ids
end

local function shorten(v, n)
  local out, sum = {}, 0
  for k = 1, n do
    out[k] = v[k]
    sum = sum + v[k] * v[k]
  end
  local norm = sum > 0 and math.sqrt(sum) or 1
  for k = 1, n do out[k] = out[k] / norm end
  return out
end

local Job = {}
Job.__index = Job

-- Ends the work before the next step; the request is answered then.
function Job:cancel()
  self.cancelled = true
  if self.id then self.loaded.engine:cancel(self.id) end
end

-- Tokens of all inputs; others have their turns between them.
local function tokenize(job)
  local req, bytes = job.req, 0
  for i, input in ipairs(req.inputs) do
    job.lists[i] = tokens_of(job.loaded, input, i, req)
    job.n_tokens = job.n_tokens + #job.lists[i]
    bytes = bytes + (type(input) == "string" and #input or 8 * #input)
    if bytes >= PAUSE_BYTES then
      bytes = 0
      fiber.pause()
      if job.cancelled or job.x.gone then return end
    end
  end
end

-- Gives back what the job held, however it ended; once.
local function release(job)
  if job.released then return end
  job.released = true
  if job.lora then job.lora:close() end
  local l = job.loaded
  l.jobs[job], l.n_embeds = nil, l.n_embeds - 1
  job.ctx.pool:release(l, job.req.keep_alive)
end

local function fail(job, status, message)
  release(job)
  job.ctx.app:refuse(job.x, status, message)
end

-- What the engine gave for the batch: with "none" one vector per token, input after input.
local function take(job, got)
  local from, req, vectors = 1, job.req, job.vectors
  for _, ids in ipairs(job.batch) do
    local v = got[from]
    if req.pooling == "none" then v = table.move(got, from, from + #ids - 1, 1, {}) end
    from = from + (req.pooling == "none" and #ids or 1)
    vectors[#vectors + 1] = req.dimensions and shorten(v, req.dimensions) or v
  end
end

local submit

local function ended(job, ev)
  local ctx, l = job.ctx, job.loaded
  l.handlers[job.id], job.id = nil, nil
  l.rates.inputs:ends(uv.hrtime() / 1e6, ev.reason == "stop" and job.size or nil)
  if job.x.gone then return release(job) end
  if job.cancelled or ev.reason == "cancelled" then return fail(job, 499, "request canceled") end
  if ev.reason == "error" then return fail(job, ev.code == "unsupported" and 400 or 500, "embedding failed: " .. tostring(ev.message)) end
  take(job, ev.vectors)
  job.n_done = job.n_done + job.size
  if job.at <= #job.lists then return submit(job) end
  release(job)
  ctx.limits:charge(job.req.key, job.n_tokens)
  ctx.on_embed(l, job.n_tokens)
  job.done(job.vectors, { n_tokens = job.n_tokens, load_ms = job.load_ms, total_ms = (uv.hrtime() - job.t0) / 1e6, model = l })
end

function submit(job)
  local lists, size = job.lists, 0
  job.batch = {}
  while job.at <= #lists and (size == 0 or size + #lists[job.at] <= SLICE) do
    job.batch[#job.batch + 1] = lists[job.at]
    size = size + #lists[job.at]
    job.at = job.at + 1
  end
  job.size = size
  local l, req = job.loaded, job.req
  local id, message, code = l.engine:embed_submit(job.batch, { normalize = req.normalize ~= false, pooling = req.pooling, lora = job.lora })
  if not id then return fail(job, code == "unsupported" and 400 or 500, "embedding failed: " .. tostring(message)) end
  job.id = id
  l.rates.inputs:begins(uv.hrtime() / 1e6)
  l.handlers[id] = function(ev)
    if not job.ctx.app:guard(job.x, ended, job, ev) then release(job) end
  end
end

-- req: {model, inputs, lora, truncate, dimensions, keep_alive, key, normalize, pooling or pooling_of(info)}. With
-- pooling "none" an input's vector is a list of vectors, one per token. done(vectors, info) with
-- info = {n_tokens, load_ms, total_ms}. Raises Faults of the request itself.
function embed.run(ctx, x, req, done)
  local t0 = uv.hrtime()
  local loaded, load_ms = generate.model(ctx, req)
  local lora = ctx.adapters:of(loaded, req.lora)
  local n_embd = loaded.info.n_embed or loaded.info.n_embd
  if req.warning then x:header("X-Mtx-Warning", req.warning) end
  if req.pooling_of then req.pooling = req.pooling_of(loaded.info) end
  if req.dimensions and req.dimensions > n_embd then
    check.fail(400, "dimensions is " .. req.dimensions .. ", the model has " .. n_embd, { param = "dimensions" })
  end
  admission.check_embeds(ctx, loaded)
  local job = setmetatable({ ctx = ctx, x = x, req = req, loaded = loaded, done = done, t0 = t0, load_ms = load_ms, lora = lora, lists = {}, n_tokens = 0, n_done = 0,
    vectors = {}, at = 1 }, Job)
  loaded.n_embeds, loaded.jobs[job] = (loaded.n_embeds or 0) + 1, true
  ctx.pool:hold(loaded)
  x.job = job
  local ok, fault = pcall(tokenize, job)
  if not ok then
    release(job)
    error(fault, 0)
  end
  if x.gone then return release(job) end
  if job.cancelled then return fail(job, 499, "request canceled") end
  if #job.lists == 0 then
    release(job)
    return done({}, { n_tokens = 0, load_ms = load_ms, total_ms = (uv.hrtime() - t0) / 1e6, model = loaded })
  end
  x.on_abort = function() job:cancel() end
  submit(job)
end

return embed
