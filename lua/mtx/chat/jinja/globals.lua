-- SPDX-License-Identifier: MIT
-- The functions every template sees, besides its variables.
local json = require("mtx.json")
local text = require("mtx.chat.jinja.text")
local values = require("mtx.chat.jinja.values")
local methods = require("mtx.chat.jinja.methods")
local call = require("mtx.chat.jinja.call")
local clock = require("mtx.chat.jinja.clock")
local S = require("mtx.chat.jinja.state")

local globals = {}
local raw = text.raw

--- Ends the render with the template's own message.
globals.raise_exception = call.builtin(function(args, kwargs)
  local given = args[1] == nil and kwargs and kwargs.message or args[1]
  if given == nil or (args.n or #args) + #(kwargs or {}) > 1 then S.fail("raise_exception takes one message") end
  local message = values.str(given)
  error({ template_message = raw(message), at = S.at, raised = true }, 0)
end)

globals.range = call.builtin(function(args, kwargs)
  if kwargs and kwargs[1] then S.fail("range takes no arguments by name") end
  local n = args.n or #args
  local bounds = {}
  if n < 1 or n > 3 then S.fail("range takes 1 to 3 arguments") end
  for i = 1, n do
    bounds[i] = values.number(args[i])
    if math.type(bounds[i]) ~= "integer" then S.fail("range needs integers, not " .. values.type_name(args[i])) end
  end
  local start, stop, step = bounds[1], bounds[2], bounds[3] or 1
  if not stop then start, stop = 0, start end
  if step == 0 then S.fail("range: the step cannot be zero") end
  local count = step > 0 and (stop - start + step - 1) // step or (start - stop - step - 1) // -step
  -- the limit of Jinja's sandbox
  if math.abs(start) > 2 ^ 53 or math.abs(stop) > 2 ^ 53 or count > 100000 then S.fail("range is too big (more than 100000 numbers)") end
  S.step(math.max(count, 0))
  local items = { [0] = { start, stop, step } }
  for i = 1, count do items[i] = start + (i - 1) * step end
  return setmetatable(items, values.RANGE)
end)

globals.dict = call.builtin(function(args, kwargs) return methods.new_dict(args[1], kwargs) end)

globals.namespace = call.builtin(function(args, kwargs)
  local ns = {}
  local source = args[1] ~= nil and methods.new_dict(args[1]) or {}
  for k, v in pairs(source) do if type(k) == "string" then ns[k] = v end end
  for _, k in ipairs(kwargs or {}) do ns[k] = kwargs[k] end
  return setmetatable(ns, values.NAMESPACE)
end)

globals.strftime_now = call.builtin(function(args, kwargs)
  if (args.n or #args) + #(kwargs or {}) > 1 then S.fail("strftime_now takes one format string") end
  local format = raw(args[1]) or raw(kwargs and kwargs.format) or S.fail("strftime_now needs a format string")
  if #format > 1000 then S.fail("strftime_now: the format is too long") end
  return clock.format(format, S.now)
end)

globals.joiner = call.builtin(function(args, kwargs)
  local separator, used = args[1] or kwargs and kwargs.sep or ", ", false
  return call.builtin(function()
    if used then return separator end
    used = true
    return ""
  end)
end)

-- A cycler is a namespace whose functions share a position.
globals.cycler = call.builtin(function(args)
  local n, at = args.n or #args, 1
  if n == 0 then S.fail("cycler needs at least one item") end
  local c = { current = args[1] }
  local function move(to)
    at = to
    c.current = args[at]
  end
  c.next = call.builtin(function()
    local item = args[at]
    move(at % n + 1)
    return item
  end)
  c.reset = call.builtin(function()
    move(1)
    return json.null
  end)
  return setmetatable(c, values.NAMESPACE)
end)

return globals
