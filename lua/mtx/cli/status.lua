-- SPDX-License-Identifier: MIT
-- `mtx status`: is the server there, and what does it do.
local json = require("mtx.json")
local options = require("mtx.cli.options")

local command = { name = "status", summary = "say whether the server runs, is ready, and what it has loaded" }

command.help = [[
usage: mtx status [--host H] [--port N] [--api-key KEY]

Asks the running server. Exit code 0: ready; 1: not running; 3: running, not ready.]]

function command.run(args)
  local c, code = options.read(command, args)
  if not c then return code end
  local client = require("mtx.http.client")
  local target, key = client.target(c.values), c.values.api_key[1] or c.values.admin_key[1]
  local ready, message = client.request(target, "GET", "/ready", { key = key })
  if not ready then
    print("not running at " .. client.where(target) .. " (" .. message .. ")")
    return 1
  end
  local state = json.decode(ready.body) or {}
  print(state.ready and "ready" or "not ready: " .. tostring(state.reason))
  local ps = client.request(target, "GET", "/api/ps", { key = key })
  local list = ps and ps.status == 200 and json.decode(ps.body)
  for _, m in ipairs(list and list.models or {}) do
    print(("  %-40s context %d, until %s"):format(m.name, m.context_length, m.expires_at))
  end
  if ps and ps.status == 401 then print("  (give --api-key to see the loaded models)") end
  return state.ready and 0 or 3
end

return command
