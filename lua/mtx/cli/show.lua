-- SPDX-License-Identifier: MIT
-- `mtx show NAME`: what is known about one model.
local capabilities = require("mtx.serve.models.capabilities")
local local_models = require("mtx.cli.local_models")
local modelfile = require("mtx.serve.models.modelfile")

local command = { name = "show", summary = "show one model: sizes, template, parameters" }

command.help = [[
usage: mtx show NAME [--models-dir DIR]

Prints the model's facts, its parameters and its Modelfile.]]

function command.run(args)
  local cat, words = local_models.open(command, args, 1)
  if not cat then return words end
  local e, code = local_models.find(command, cat, words[1])
  if not e then return code end
  local info = cat:info_of(e)
  if info.error then
    io.stderr:write("mtx show: ", info.error, "\n")
    return 1
  end
  local m = e.manifest or {}
  local template = m.template or info.chat_template
  local function row(k, v) if v then print(("%-18s %s"):format(k, v)) end end
  row("name", e.name)
  row("file", e.path)
  row("size", local_models.size_text(e.size))
  row("architecture", info.architecture)
  row("parameters", info.n_params)
  row("quantisation", info.quantization)
  row("context", info.n_ctx_train)
  row("embedding", info.n_embd)
  row("abilities", table.concat(capabilities.list(capabilities.of(info, template)), ", "))
  row("chat template", template and (#template .. " bytes, " .. (m.template and "from the Modelfile" or "from the file")) or "none in the file")
  print("\n" .. modelfile.write({ from = e.parent or e.manifest_path and e.path or e.name, system = m.system, parameters = m.parameters, messages = m.messages, license = m.license }))
  return 0
end

return command
