-- SPDX-License-Identifier: MIT
-- A model on its way into memory. It loads on a thread of its own; everybody who
-- wants it waits for the same load and gets the model, or the same fault. A
-- waiter may leave (hang-up, cancel, deadline); the load goes on for the next.
local uv = require("luv")
local admission = require("mtx.serve.generate.admission")
local check = require("mtx.api.check")
local fiber = require("mtx.serve.fiber")
local loop = require("mtx.loop")

local loading = {}

local Load = {}
Load.__index = Load

function loading.new(entry, n_ctx, max_waiting)
  return setmetatable({ entry = entry, key = entry.key, name = entry.name, n_ctx = n_ctx, max_waiting = max_waiting, waiters = {}, started = uv.hrtime() }, Load)
end

-- Calls f() once the task's descriptor is readable.
function loading.when_ended(task, f)
  local poll = uv.new_poll(task:fd())
  poll:start("r", function()
    poll:close()
    f()
  end)
  return poll
end

-- A model that need not be loaded, with the face of a load's task; f() is called on the next turn of the loop. -> task, poll
function loading.there(model, f)
  return { take = function() return model end, cancel = function() end }, loop.soon(f)
end

-- ms until it is through, by how far it has come so far; nil before it has begun.
function Load:left_ms()
  local done, total = 0, 0
  if self.task and self.task.progress then done, total = self.task:progress() end
  return done > 0 and (uv.hrtime() - self.started) / 1e6 * (total - done) / done or nil
end

-- Waits within a handler. options: deadline_ms, on_wait(waiter): the waiter has
-- leave(fault) until on_wait(nil). -> loaded model, ms waited; raises the Fault.
function Load:join(options)
  if #self.waiters >= self.max_waiting then
    check.fail(503, "the queue of " .. self.name .. " is full: " .. #self.waiters .. " requests wait for it to load, the limit is " .. self.max_waiting,
      { kind = "queue_full", retry_after = admission.retry_after(self:left_ms()) })
  end
  local t0 = uv.hrtime()
  local loaded, fault = fiber.wait(function(go)
    local waiter, timer = {}, nil
    function waiter.go(...)
      for i, w in ipairs(self.waiters) do
        if w == waiter then table.remove(self.waiters, i) break end
      end
      if timer then timer:close() end
      if options.on_wait then options.on_wait(nil) end
      go(...)
    end
    function waiter.leave(why) waiter.go(nil, why) end
    if options.deadline_ms then
      timer = uv.new_timer()
      timer:start(options.deadline_ms, 0, function() waiter.leave(check.fault(503, "the deadline of this request has passed", { kind = "unavailable" })) end)
    end
    self.waiters[#self.waiters + 1] = waiter
    if options.on_wait then options.on_wait(waiter) end
    return function() waiter.leave(check.fault(499, "request canceled")) end
  end)
  if not loaded then error(fault, 0) end
  return loaded, (uv.hrtime() - t0) / 1e6
end

-- Lets every waiter go on, each protected: on_error(trace).
function Load:finish(loaded, fault, on_error)
  while self.waiters[1] do
    local ok, err = xpcall(self.waiters[1].go, debug.traceback, loaded, fault)
    if not ok then on_error(err) end
  end
end

return loading
