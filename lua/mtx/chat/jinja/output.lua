-- SPDX-License-Identifier: MIT
-- Writing to the output of the render that is running, and taking out what was written.
local text = require("mtx.chat.jinja.text")
local values = require("mtx.chat.jinja.values")
local S = require("mtx.chat.jinja.state")

local output = {}
local type, str = type, values.str

--- Writes any value.
function output.emit(v)
  if type(v) ~= "string" then v = str(v) end
  local n = S.n + 1
  S.n = n
  S.out[n] = v
  S.charge(#(v[0] or v)) -- v[0]: the text of marked text (text.lua), nil for a plain string
end

--- What was written since the output had `base` pieces, taken out of it.
function output.take(base)
  local result = text.join(S.out, base + 1, S.n)
  S.n = base
  return result
end

--- Runs f(F) and returns what it wrote, taken out of the output. f's signal is second.
function output.capture(f, F)
  local base = S.n
  local signal = f(F)
  return output.take(base), signal
end

return output
