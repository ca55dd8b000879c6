-- SPDX-License-Identifier: MIT
-- POST /api/pull in Ollama's dialect. The status code is honest: the stream begins only
-- when the source has answered, so an unknown model is a 404 and a dead hub a 502. Whoever
-- hangs up leaves the pull; the last one ends it, and the next one goes on from there.
local answer = require("mtx.serve.answer")
local check = require("mtx.api.check")
local fiber = require("mtx.serve.fiber")
local wire = require("mtx.api.wire")

local M = {}

-- Events as NDJSON, from the first one on that is more than the intention.
local function writer(x)
  local w, held = {}, {}
  function w.event(e)
    local line = wire.encode(e) .. "\n"
    if not w.begun then
      held[#held + 1] = line
      if e.status == "pulling manifest" then return end
      w.begun = true
      x:start(200, "application/x-ndjson")
      line = table.concat(held)
    end
    x:write(line)
  end
  return w
end

-- Waits for the end of the pull -> Fault | nil
local function pull(ctx, name, event)
  local go_on
  local handle, refusal = ctx.pulls:start(name, { event = event, done = function(fault) go_on(fault) end })
  if not handle then error(refusal, 0) end
  return fiber.wait(function(go)
    go_on = go
    return function()
      handle.leave()
      go(check.fault(499, "the client has gone"))
    end
  end)
end

-- Models whose files are others now: an idle one leaves memory, so that the next request gets the new files.
local function refresh(ctx)
  ctx.catalog:refresh(true)
  for _, l in ipairs(ctx.pool:list()) do
    local e = ctx.catalog:find(l.entry.name)
    if e and l.inflight == 0 and ctx.catalog:digest(e) ~= ctx.catalog:digest(l.entry) then ctx.pool:unload(l, "pulled anew") end
  end
end

local function handler(ctx)
  return function(x)
    local body = answer.body(x)
    local name = answer.model_name(body)
    check.boolean(body, "insecure") -- Ollama's; certificates are always checked
    local w = check.boolean(body, "stream") ~= false and writer(x) or nil
    local fault = pull(ctx, name, w and w.event)
    if x.gone then return end
    if fault and fault.status == 499 then fault = check.fault(503, "the server stops; what is there is kept, the next pull goes on from it") end
    if not fault then
      refresh(ctx)
      ctx.log("info", "pulled", { model = name })
    end
    if not w then
      if fault then error(fault, 0) end
      return x:send(200, '{"status":"success"}')
    end
    if fault and not w.begun then error(fault, 0) end
    if fault then
      ctx.log("warn", "pull failed", { model = name, fault = fault.message })
      x:write(wire.encode({ error = fault.message }) .. "\n")
    end
    x:finish()
  end
end

function M.add(ctx)
  ctx.routes:add("POST", "/api/pull", { scope = "admin", dialect = "ollama", handler = handler(ctx) })
end

return M
