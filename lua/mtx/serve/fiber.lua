-- SPDX-License-Identifier: MIT
-- Handlers as coroutines: one that has to wait (for a model to load) gives the
-- event loop back and goes on where it was. A client that hangs up meanwhile
-- ends the wait.
local uv = require("luv")

local fiber = {}

-- coroutine -> {x = the exchange it answers, or nil}
local fibers = setmetatable({}, { __mode = "k" })

-- An error before the first wait is raised here, a later one where the wait ends.
local function resume(co, ...)
  local ok, err = coroutine.resume(co, ...)
  if ok then return end
  error(type(err) == "string" and debug.traceback(co, err) or err, 0)
end

-- Runs f(...) until it ends or waits. x: the exchange it answers, or nil.
function fiber.start(x, f, ...)
  local co = coroutine.create(f)
  fibers[co] = { x = x }
  resume(co, ...)
end

-- Waits until go(...) is called (not from within begin) and gives its arguments.
-- begin(go) starts what is waited for and gives a function that makes it call go early.
function fiber.wait(begin)
  local co = coroutine.running()
  local self = fibers[co]
  if not self then error("nothing can be waited for here", 2) end
  local x = self.x
  local before = x and x.on_abort
  local cancel = begin(function(...) return resume(co, ...) end)
  if x then x.on_abort = cancel end
  local result = table.pack(coroutine.yield())
  if x then x.on_abort = before end
  return table.unpack(result, 1, result.n)
end

-- Lets everybody else have a turn of the event loop.
function fiber.pause()
  fiber.wait(function(go)
    local idle = uv.new_idle() -- a timer of 0 ms would fire before sockets are looked at
    idle:start(function()
      idle:close()
      go()
    end)
    return function() end
  end)
end

-- Waits for a call of libuv's form, f(..., callback(err, result)); a client that hangs up does not end it.
-- -> result | nil, err
function fiber.uv(f, ...)
  local args = table.pack(...)
  local err, result = fiber.wait(function(go)
    args[args.n + 1] = go
    f(table.unpack(args, 1, args.n + 1))
    return function() end
  end)
  if err then return nil, err end
  return result
end

return fiber
