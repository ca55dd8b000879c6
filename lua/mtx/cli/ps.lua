-- SPDX-License-Identifier: MIT
-- `mtx ps`: what the running server has in memory.
local json = require("mtx.json")
local options = require("mtx.cli.options")
local print_json = require("mtx.cli.args").print_json

local command = { name = "ps", summary = "list the models the running server has loaded", flags = { json = true } }

command.help = [[
usage: mtx ps [--host H] [--port N] [--api-key KEY] [--json]

Prints name, size, context length and when each model leaves memory. With --json
the "models" of /api/ps, as the server gives them.]]

function command.run(args)
  local c, code, own = options.read(command, args)
  if not c then return code end
  local client = require("mtx.http.client")
  local target = client.target(c.values)
  local r, message = client.request(target, "GET", "/api/ps", { key = c.values.api_key[1] or c.values.admin_key[1] })
  if not r or r.status ~= 200 then
    local silent = ("no server answers at %s (%s); start one with `mtx serve`, or say where it is with --host and --port"):format(client.where(target), message)
    io.stderr:write("mtx ps: ", r and (json.decode(r.body) or {}).error or silent, "\n")
    return 1
  end
  local models = json.decode(r.body).models
  if own.json then return print_json(json.array(models)) end
  print(("%-44s %-9s %-8s %s"):format("NAME", "SIZE", "CONTEXT", "UNTIL"))
  for _, m in ipairs(models) do
    print(("%-44s %-9s %-8d %s"):format(m.name, require("mtx.cli.local_models").size_text(m.size), m.context_length, m.expires_at))
  end
  return 0
end

return command
