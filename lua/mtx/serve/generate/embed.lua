-- SPDX-License-Identifier: MIT
-- Embeddings: texts or token lists -> vectors. The engine's thread computes them,
-- a slice at a time, so that several requests share it.
local uv = require("luv")
local check = require("mtx.api.check")
local generate = require("mtx.serve.generate")

local embed = {}

-- Tokens of one slice.
local SLICE = 1024

local function tokens_of(loaded, input, i, req)
  local n_max = loaded.n_ctx
  local ids = input
  if type(input) == "string" then
    local message
    ids, message = loaded.model:tokenize(input, { add_special = true, parse_special = false })
    if not ids then check.fail(400, "input[" .. (i - 1) .. "]: " .. tostring(message)) end
  else
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

-- req: {model, inputs, truncate, dimensions, keep_alive, key, normalize, pooling or pooling_of(info)}. With
-- pooling "none" an input's vector is a list of vectors, one per token. done(vectors, info) with
-- info = {n_tokens, load_ms, total_ms}; failed(fault). Raises Faults of the request itself.
function embed.run(ctx, x, req, done)
  local t0 = uv.hrtime()
  local loaded, load_ms = generate.model(ctx, req)
  local n_embd = loaded.info.n_embed or loaded.info.n_embd
  if req.pooling_of then req.pooling = req.pooling_of(loaded.info) end
  if req.dimensions and req.dimensions > n_embd then
    check.fail(400, "dimensions is " .. req.dimensions .. ", the model has " .. n_embd, { param = "dimensions" })
  end
  local lists, n_tokens = {}, 0
  for i, input in ipairs(req.inputs) do
    lists[i] = tokens_of(loaded, input, i, req)
    n_tokens = n_tokens + #lists[i]
  end
  ctx.pool:hold(loaded)
  local vectors, at, batch, id = {}, 1, nil, nil
  local function stop()
    if not batch then return end
    batch = nil
    ctx.pool:release(loaded, req.keep_alive)
  end
  local function fail(message, code)
    stop()
    ctx.app:refuse(x, code == "unsupported" and 400 or 500, "embedding failed: " .. tostring(message))
  end
  -- What the engine gave for the batch: with "none" one vector per token, input after input.
  local function take(got)
    local from = 1
    for _, ids in ipairs(batch) do
      local v = got[from]
      if req.pooling == "none" then v = table.move(got, from, from + #ids - 1, 1, {}) end
      from = from + (req.pooling == "none" and #ids or 1)
      vectors[#vectors + 1] = req.dimensions and shorten(v, req.dimensions) or v
    end
  end
  local submit
  local function ended(ev)
    loaded.handlers[id] = nil
    if x.gone or ev.reason == "cancelled" then return stop() end
    if ev.reason == "error" then return fail(ev.message, ev.code) end
    take(ev.vectors)
    if at <= #lists then return submit() end
    stop()
    ctx.limits:charge(req.key, n_tokens)
    ctx.on_embed(loaded, n_tokens)
    done(vectors, { n_tokens = n_tokens, load_ms = load_ms, total_ms = (uv.hrtime() - t0) / 1e6, model = loaded })
  end
  function submit()
    batch = {}
    local size = 0
    while at <= #lists and (size == 0 or size + #lists[at] <= SLICE) do
      batch[#batch + 1] = lists[at]
      size = size + #lists[at]
      at = at + 1
    end
    local message, code
    id, message, code = loaded.engine:embed_submit(batch, { normalize = req.normalize ~= false, pooling = req.pooling })
    if not id then return fail(message, code) end
    loaded.handlers[id] = function(ev)
      if not ctx.app:guard(x, ended, ev) then stop() end
    end
  end
  x.on_abort = function()
    if id then loaded.engine:cancel(id) end
  end
  submit()
end

return embed
