-- SPDX-License-Identifier: MIT
-- `mtx stop`: ends the server named by the PID file, waiting for the drain.
local pid_file = require("mtx.pid_file")
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
  local function failure(message)
    io.stderr:write("mtx stop: ", message, "\n")
    return 1
  end
  if path == "" then return failure("which server? Give --pid-file the file it was started with") end
  local pid, runs = pid_file.read(path) -- nil: a file named by mistake, which is left alone
  if not pid then return failure(runs) end
  if not runs then
    os.remove(path)
    return failure("no server runs under the PID in " .. path)
  end
  local sent, message = uv.kill(pid, "sigterm")
  if not sent then return failure("cannot end process " .. pid .. ": " .. message) end
  local until_ms = uv.hrtime() / 1e6 + (c.values.drain_timeout + 5) * 1000
  -- The server removes its PID file as the last thing it does.
  while uv.kill(pid, 0) == 0 and uv.fs_stat(path) do
    if uv.hrtime() / 1e6 > until_ms then
      return failure("the server still runs; send the signal again to end it at once")
    end
    uv.sleep(50)
  end
  return 0
end

return command
