-- SPDX-License-Identifier: MIT
-- The event loop (luv): its next turn, and the end of a program that may have used it.
local loop = {}

-- Calls f() on the loop's next turn, when whoever asks has gone on. -> timer; closed before that, it calls nothing
function loop.soon(f)
  local timer = require("luv").new_timer()
  timer:start(0, 0, function()
    timer:close()
    f()
  end)
  return timer
end

-- To be called before the Lua state ends: handles that are still closing then, and requests under way, would
-- be touched after they are freed. Closes what is left and lets the loop see all of it end.
function loop.finish()
  local uv = package.loaded.luv
  if not uv then return end
  uv.walk(function(handle)
    if not handle:is_closing() then handle:close() end
  end)
  uv.run()
end

return loop
