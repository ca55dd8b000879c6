-- SPDX-License-Identifier: MIT
-- misuse(message): raises an error that names the line of the caller's own program, however many functions of mtx's
-- lie between (stream below generate, tail calls that leave no level).
local OURS = debug.getinfo(1, "S").source:gsub("model/misuse%.lua$", "")

return function(message)
  local level, frame = 2, debug.getinfo(2, "S")
  while frame and frame.source:sub(1, #OURS) == OURS do
    level = level + 1
    frame = debug.getinfo(level, "S")
  end
  error(message, level)
end
