-- SPDX-License-Identifier: MIT
-- systemd's watchdog (WatchdogSec= of the unit): as long as the event loop turns, the service manager hears of it, twice in the
-- time that it allows; a server whose loop hangs is restarted.
local uv = require("luv")

local watchdog = {}

-- env(name) -> text | nil; notify(text). -> timer | nil: nobody watches
function watchdog.start(env, notify)
  local usec, pid = math.tointeger(tonumber(env("WATCHDOG_USEC"))), math.tointeger(tonumber(env("WATCHDOG_PID")))
  if not usec or usec < 1 or pid and pid ~= uv.os_getpid() then return nil end
  local ms, timer = math.max(1, usec // 2000), uv.new_timer()
  timer:start(ms, ms, function() notify("WATCHDOG=1") end)
  timer:unref()
  return timer
end

return watchdog
