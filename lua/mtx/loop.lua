-- SPDX-License-Identifier: MIT
-- The event loop (luv) at the end of a program that may have used it.
local loop = {}

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
