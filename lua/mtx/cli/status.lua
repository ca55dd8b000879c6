-- SPDX-License-Identifier: MIT
-- `mtx status`: is the server there, and what does it do.
local json = require("mtx.json")
local options = require("mtx.cli.options")
local print_json = require("mtx.cli.args").print_json

local command = { name = "status", summary = "say whether the server runs, is ready, and what it has loaded", flags = { json = true } }

command.help = [[
usage: mtx status [--host H] [--port N] [--api-key KEY] [--json]

Asks the running server. Exit code 0: ready; 1: not running; 3: running, not ready.
With --json {"running", "ready", "reason", "models" of /api/ps}.]]

function command.run(args)
  local c, code, own = options.read(command, args)
  if not c then return code end
  local client = require("mtx.http.client")
  local target, key = client.target(c.values), c.values.api_key[1] or c.values.admin_key[1]
  local ready, message = client.request(target, "GET", "/ready", { key = key })
  local function answer(code_, ...)
    print_json(json.object(...))
    return code_
  end
  if not ready then
    if own.json then return answer(1, "running", false, "ready", false, "reason", message) end
    print("not running at " .. client.where(target) .. " (" .. message .. ")")
    return 1
  end
  local state = json.decode(ready.body) or {}
  local ps = client.request(target, "GET", "/api/ps", { key = key })
  local list = ps and ps.status == 200 and json.decode(ps.body)
  if own.json then
    return answer(state.ready and 0 or 3, "running", true, "ready", state.ready or false, "reason", state.reason, "models", list and json.array(list.models) or nil)
  end
  print(state.ready and "ready" or "not ready: " .. tostring(state.reason))
  for _, m in ipairs(list and list.models or {}) do
    print(("  %-40s context %d, until %s"):format(m.name, m.context_length, m.expires_at))
  end
  if ps and ps.status == 401 then print("  (give --api-key to see the loaded models)") end
  return state.ready and 0 or 3
end

return command
