-- SPDX-License-Identifier: MIT
-- `mtx stop`: ends the server named by the PID file, waiting for the drain.
local uv = require("luv")
local options = require("mtx.cli.options")

local command = { name = "stop", summary = "end the running server (needs the PID file it was started with)" }

command.help = [[
usage: mtx stop --pid-file FILE

Sends SIGTERM to the process in the PID file and waits until it has ended
(running answers get --drain-timeout seconds).]]

function command.run(args)
  local c, code = options.read(command, args)
  if not c then return code end
  local path = c.values.pid_file
  local f = path ~= "" and io.open(path)
  if not f then
    io.stderr:write("mtx stop: no PID file; give --pid-file the file the server was started with\n")
    return 1
  end
  local pid = math.tointeger(tonumber(f:read("l")))
  f:close()
  if not pid or pid <= 1 or uv.kill(pid, 0) ~= 0 then
    os.remove(path)
    io.stderr:write("mtx stop: no server runs under the PID in ", path, "\n")
    return 1
  end
  uv.kill(pid, "sigterm")
  local until_ms = uv.hrtime() / 1e6 + (c.values.drain_timeout + 5) * 1000
  -- The server removes its PID file as the last thing it does.
  while uv.kill(pid, 0) == 0 and uv.fs_stat(path) do
    if uv.hrtime() / 1e6 > until_ms then
      io.stderr:write("mtx stop: the server still runs; send the signal again to end it at once\n")
      return 1
    end
    uv.sleep(50)
  end
  return 0
end

return command
