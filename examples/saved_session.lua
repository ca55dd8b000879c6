-- SPDX-License-Identifier: MIT
-- A prompt is read once and saved; the next run goes on from the file at once.
-- usage: mtx examples/saved_session.lua MODEL [FILE]
local mtx = require("mtx")
local model = assert(mtx.load(arg[1]))
local path = arg[2] or os.tmpname()

local prompt = assert(model:tokenize("Rivers begin small, high in the hills, and grow as they go. A list of long rivers:"))
local session = assert(model:session())
local n, message = session:load(path)
if not n or n == 0 then
  print("reading the prompt" .. (message and " (" .. message .. ")" or ""))
  assert(session:eval(prompt))
  print(("%d bytes saved"):format(assert(session:save(path))))
  session:close()
  session = assert(model:session())
  n = assert(session:load(path))
end
print(n .. " tokens are there without reading them")

local logits = assert(session:eval(assert(model:tokenize(" the", { add_special = false }))))
for _ = 1, 12 do
  local id = logits:argmax() - 1
  io.write(model:piece(id))
  logits = assert(session:eval({ id }))
end
print()
session:close()
model:close()
if not arg[2] then os.remove(path) end
