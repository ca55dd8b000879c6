-- SPDX-License-Identifier: MIT
-- `mtx cp SOURCE NAME`: another name for a model; weights are shared.
local local_models = require("mtx.cli.local_models")
local names = require("mtx.serve.models.names")

local command = { name = "cp", summary = "give a model another name (the weights are shared)" }

command.help = [[
usage: mtx cp SOURCE NAME [--models-dir DIR]

The copy is a small description that points to the same file; its parameters can
be changed without touching the source.]]

function command.run(args)
  local cat, words = local_models.open(command, args, 2)
  if not cat then return words end
  local source, code = local_models.find(command, cat, words[1])
  if not source then return code end
  local to, message = names.parse(words[2])
  if not to then
    io.stderr:write("mtx cp: ", message, "\n")
    return 2
  end
  local m = {}
  for k, v in pairs(source.manifest or {}) do m[k] = v end
  m.from = source.path
  local ok
  ok, message = cat:store(to, m)
  if not ok then
    io.stderr:write("mtx cp: ", tostring(message), "\n")
    return 1
  end
  print(to.full)
  return 0
end

return command
