-- SPDX-License-Identifier: MIT
-- `mtx show NAME`: what is known about one model.
local capabilities = require("mtx.serve.models.capabilities")
local json = require("mtx.json")
local local_models = require("mtx.cli.local_models")
local modelfile = require("mtx.serve.models.modelfile")
local print_json = require("mtx.cli.args").print_json

local command = { name = "show", summary = "show one model: sizes, template, parameters", flags = { json = true } }

command.help = [[
usage: mtx show NAME [--models-dir DIR] [--json]

Prints the model's facts, its parameters and its Modelfile. With --json one object.]]

function command.run(args)
  local cat, words, own = local_models.open(command, args, 1)
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
  local abilities = capabilities.list(capabilities.of(info, template))
  local file = modelfile.write({ from = e.parent or e.manifest_path and e.path or e.name, system = m.system, parameters = m.parameters, messages = m.messages, license = m.license })
  if own.json then
    return print_json(json.object("name", e.name, "file", e.path, "size", e.size, "architecture", info.architecture,
      "parameters", info.n_params, "quantization", info.quantization, "context_length", info.n_ctx_train, "embedding_length", info.n_embd,
      "capabilities", json.array(abilities), "template", template, "modelfile", file))
  end
  local function row(k, v) if v then print(("%-18s %s"):format(k, v)) end end
  row("name", e.name)
  row("file", e.path)
  row("size", local_models.size_text(e.size))
  row("architecture", info.architecture)
  row("parameters", info.n_params)
  row("quantisation", info.quantization)
  row("context", info.n_ctx_train)
  row("embedding", info.n_embd)
  row("abilities", table.concat(abilities, ", "))
  row("chat template", template and (#template .. " bytes, " .. (m.template and "from the Modelfile" or "from the file")) or "none in the file")
  print("\n" .. file)
  return 0
end

return command
