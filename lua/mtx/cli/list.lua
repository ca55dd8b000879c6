-- SPDX-License-Identifier: MIT
-- `mtx list`: the models in the models folder.
local capabilities = require("mtx.serve.models.capabilities")
local local_models = require("mtx.cli.local_models")

local command = { name = "list", summary = "list the models in the models folder",
  no_words = "; models come from the folder --models-dir DIR" }

command.help = [[
usage: mtx list [--models-dir DIR]

Prints name, size, architecture, quantisation and abilities of each model. A file
that cannot be read is listed with the reason, a pull that was broken off with how far it came.]]

function command.run(args)
  local cat, code = local_models.open(command, args, 0)
  if not cat then return code end
  print(("%-44s %-9s %-12s %-10s %s"):format("NAME", "SIZE", "FAMILY", "QUANT", "ABILITIES"))
  for _, e in ipairs(cat:list()) do
    local info = cat:info_of(e)
    if info.error then
      print(("%-44s %-9s unusable: %s"):format(e.name, local_models.size_text(e.size), info.error))
    else
      local can = capabilities.list(capabilities.of(info, e.manifest and e.manifest.template))
      print(("%-44s %-9s %-12s %-10s %s"):format(e.name, local_models.size_text(e.size), info.architecture, info.quantization or "", table.concat(can, ",")))
    end
  end
  for _, p in ipairs(cat:partials()) do
    print(("%-44s %-9s partial: %s are here; `mtx pull` goes on, `mtx rm` removes them"):format(p.name, local_models.size_text(p.total), local_models.size_text(p.size)))
  end
  return 0
end

return command
