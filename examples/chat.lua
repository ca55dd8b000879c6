-- SPDX-License-Identifier: MIT
-- One streamed answer. usage: mtx examples/chat.lua MODEL "question"
local mtx = require("mtx")
local model = assert(mtx.load(arg[1]))

local messages = { { role = "user", content = arg[2] or "Say hello." } }
local stream = assert(model:stream({ messages = messages, max_tokens = 64, temperature = 0 }))
for piece in stream do
  io.write(piece)
  io.flush()
end
io.write("\n")

local result = assert(stream:result())
io.write(("%d tokens, finish reason %s\n"):format(#result.ids, result.finish_reason))
model:close()
