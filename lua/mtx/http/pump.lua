-- SPDX-License-Identifier: MIT
-- Streams bytes to a client as fast as it reads them, in bounded pieces.
local uv = require("luv")

local pump = {}

-- Bytes handed to a connection at once, and how many may wait in it before more are.
pump.PIECE = 1 << 16
local WAITING = 1 << 18

-- Answers x (already started) from read(max) -> bytes | "" (none yet: call the returned
-- function when there are) | false (the end) | nil (broken: the answer is cut). closed()
-- is called once, however it ends.
function pump.run(x, read, closed)
  local timer, over = uv.new_timer(), false
  local function finish(broken)
    if over then return end
    over = true
    timer:close()
    closed()
    if not x.gone then x:finish(broken) end
  end
  local function turn()
    if over then return end
    if x.gone then return finish(true) end
    if x.conn.sock:get_write_queue_size() > WAITING then return end
    local bytes = read(pump.PIECE)
    if not bytes then return finish(bytes == nil) end
    if bytes == "" then return timer:stop() end
    x:write(bytes)
  end
  x.on_abort = function() finish(true) end
  local function wake()
    if not over and not timer:is_active() then timer:start(0, 1, turn) end
  end
  wake()
  return wake
end

return pump
