-- SPDX-License-Identifier: MIT
-- The command line: picks the command and runs it. Returns main(arg, root),
-- which gives the process's exit code (0 fine, 1 failure, 2 wrong usage).
return function(arg, root)
  local file = arg[1]
  if file and file:match("%.lua$") then
    local script, message = loadfile(file)
    if not script then
      io.stderr:write("mtx: ", message, "\n")
      return 1
    end
    local args = { [0] = file }
    for i = 2, #arg do args[i - 1] = arg[i] end
    _G.arg = args
    script(table.unpack(args))
    return 0
  end
  io.stderr:write("usage: mtx FILE.lua [ARGS]\n")
  return 2
end
