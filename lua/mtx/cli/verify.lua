-- SPDX-License-Identifier: MIT
-- `mtx verify NAME`: are the files of a pulled model still those that were pulled?
local core = require("mtx.core")
local local_models = require("mtx.cli.local_models")
local store = require("mtx.pull.store")

local command = { name = "verify", summary = "check the files of a pulled model against their SHA-256" }

command.help = [[
usage: mtx verify NAME [--models-dir DIR]

Reads every file of the model and compares it with the SHA-256 that was noted when it was
pulled. Exit code 0: all are right; 1: one is not (`mtx pull NAME` mends it).]]

function command.run(args)
  local cat, words = local_models.open(command, args, 1)
  if not cat then return words end
  local e, code = local_models.find(command, cat, words[1])
  if not e then return code end
  if not e.pin then
    io.stderr:write("mtx verify: ", e.name, " was not pulled, so there is nothing to compare it with\n")
    return 1
  end
  local files = store.new(cat.dir)
  for _, f in ipairs(e.pin.files) do
    local sum, message = core.sha256.file(files:path(f.path))
    local right = sum == f.sha256
    print((right and "right  " or "WRONG  ") .. f.path .. (sum and "" or ": " .. message))
    if not right then code = 1 end
  end
  if code == 1 then io.stderr:write("mtx verify: not all files are as they were pulled; `mtx pull ", e.pin.source, "` mends them\n") end
  return code or 0
end

return command
