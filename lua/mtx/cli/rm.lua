-- SPDX-License-Identifier: MIT
-- `mtx rm NAME`: removes a model from the models folder.
local local_models = require("mtx.cli.local_models")

local command = { name = "rm", summary = "remove a model from the models folder" }

command.help = [[
usage: mtx rm NAME [--models-dir DIR]

Removes the model's file (all parts of a split file; all files of a pulled model that no other
pulled one shares), or, for a model made by `mtx create`, `mtx cp` or /api/create, only its description. The
beginnings of a model whose pull was broken off go by its name, too.]]

function command.run(args)
  local cat, words = local_models.open(command, args, 1)
  if not cat then return words end
  local partial, why
  if not cat:find(words[1]) then partial, why = cat:remove_partial(words[1]) end
  if partial then
    print("removed what was there of " .. partial)
    return 0
  elseif why then
    io.stderr:write("mtx rm: ", why, "\n")
    return 1
  end
  local e, code = local_models.find(command, cat, words[1])
  if not e then return code end
  local ok, message = cat:remove(e)
  if not ok then
    io.stderr:write("mtx rm: ", tostring(message), "\n")
    return 1
  end
  print("removed " .. e.name)
  return 0
end

return command
