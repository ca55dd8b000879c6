-- SPDX-License-Identifier: MIT
-- `mtx list`: the models in the models folder.
local capabilities = require("mtx.serve.models.capabilities")
local json = require("mtx.json")
local local_models = require("mtx.cli.local_models")
local print_json = require("mtx.cli.args").print_json

local command = { name = "list", summary = "list the models in the models folder",
  flags = { json = true }, no_words = "; models come from the folder --models-dir DIR" }

command.help = [[
usage: mtx list [--models-dir DIR] [--json]

Prints name, size, architecture, quantisation and abilities of each model. A file
that cannot be read is listed with the reason, a pull that was broken off with how far it came. With --json
an array of {"name", "size" in bytes, "architecture", "quantization",
"capabilities"}; "error" says why a file is unusable, "size_here" how much of a
broken-off pull is here.]]

-- Entry e -> what is told of it, ready for JSON.
local function row(cat, e)
  local info = cat:info_of(e)
  if info.error then return json.object("name", e.name, "size", e.size, "error", info.error) end
  return json.object("name", e.name, "size", e.size, "architecture", info.architecture, "quantization", info.quantization,
    "capabilities", json.array(capabilities.list(capabilities.of(info, e.manifest and e.manifest.template))))
end

function command.run(args)
  local cat, code, own = local_models.open(command, args, 0)
  if not cat then return code end
  local rows = json.array()
  for _, e in ipairs(cat:list()) do rows[#rows + 1] = row(cat, e) end
  for _, p in ipairs(cat:partials()) do rows[#rows + 1] = json.object("name", p.name, "size", p.total, "size_here", p.size) end
  if own.json then return print_json(rows) end
  print(("%-44s %-9s %-12s %-10s %s"):format("NAME", "SIZE", "FAMILY", "QUANT", "ABILITIES"))
  for _, r in ipairs(rows) do
    local size = local_models.size_text(r.size)
    if r.error then
      print(("%-44s %-9s unusable: %s"):format(r.name, size, r.error))
    elseif r.size_here then
      print(("%-44s %-9s partial: %s are here; `mtx pull` goes on, `mtx rm` removes them"):format(r.name, size, local_models.size_text(r.size_here)))
    else
      print(("%-44s %-9s %-12s %-10s %s"):format(r.name, size, r.architecture, r.quantization or "", table.concat(r.capabilities, ",")))
    end
  end
  return 0
end

return command
