-- SPDX-License-Identifier: MIT
-- A router: short questions go to the small model, long or code questions to the
-- large one, whatever model the client named.
--   mtx serve --script examples/serve/router.lua
-- The two names are those of the tests: put two of yours there (`mtx list`).
local SMALL, LARGE = "tiny", "other"

mtx.on("request", function(r)
  if r.task ~= "chat" then return end
  local n, code = 0, false
  for _, m in ipairs(r.messages) do
    n = n + #m.content
    if string.find(m.content, "```", 1, true) then code = true end
  end
  r.model = (n > 2000 or code) and LARGE or SMALL
end)
