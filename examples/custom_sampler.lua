-- SPDX-License-Identifier: MIT
-- A sampler of your own: never the same token twice in the last eight.
-- usage: mtx examples/custom_sampler.lua MODEL "text to continue"
local mtx = require("mtx")
local model = assert(mtx.load(arg[1]))

-- logits: a tensor (index = id + 1); history: list of ids. Returns an id.
local function no_echo(logits, history)
  for i = math.max(1, #history - 7), #history do logits[history[i] + 1] = -math.huge end
  return logits:argmax() - 1
end

local history = assert(model:tokenize(arg[2] or "The rain in Spain"))
local session <close> = assert(model:session())
local logits = assert(session:eval(history))
for _ = 1, 24 do
  local id = no_echo(logits, history)
  if model:is_eog(id) then break end
  io.write(model:piece(id))
  history[#history + 1] = id
  logits = assert(session:eval({ id }))
end
io.write("\n")
session:close()
model:close()
