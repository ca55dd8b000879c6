-- SPDX-License-Identifier: MIT
-- Waiting inside a pull. A pull is a fiber (mtx/serve/fiber.lua) that answers a job;
-- whoever cancels the job ends whatever it waits for, with fault 499.
local uv = require("luv")
local check = require("mtx.api.check")
local fiber = require("mtx.serve.fiber")

local wait = {}

local CANCELLED <const> = {}

local function cancelled() error(check.fault(499, "the pull was cancelled; what is there is kept, the next pull goes on from it"), 0) end

-- begin(go) starts something that calls go(...) once, later, and gives a function that stops it. -> go's arguments
function wait.on(job, begin)
  if job.cancelled then cancelled() end
  local over = false
  local r = table.pack(fiber.wait(function(go)
    local function once(...)
      if over then return end
      over = true
      go(...)
    end
    local stop = begin(once)
    return function()
      if over then return end
      stop()
      once(CANCELLED)
    end
  end))
  if r[1] == CANCELLED then cancelled() end
  return table.unpack(r, 1, r.n)
end

function wait.ms(job, ms)
  wait.on(job, function(go)
    local timer = uv.new_timer()
    timer:start(ms, 0, function()
      timer:close()
      go()
    end)
    return function() timer:close() end
  end)
end

return wait
