-- SPDX-License-Identifier: MIT
-- `mtx config`: every option, its value and where the value comes from.
local config = require("mtx.config")
local json = require("mtx.json")
local options = require("mtx.cli.options")
local print_json = require("mtx.cli.args").print_json

local command = { name = "config", tells_unknown = true, flags = { json = true }, summary = "print every option with its value and where it comes from" }

command.help = [[
usage: mtx config [--config FILE] [--json] [OPTIONS]

Prints each option of the server, its value, its source (default, the config
file, an environment variable or a flag) and what it means, then the variables
MTX_... that are no option. Takes the same options as `mtx serve`. Keys are not shown.
With --json an array of {"name", "value", "unit", "source", "help"}.]]

local SECRET = { api_key = true, admin_key = true, hub_token = true }

local function text_of(name, v)
  if SECRET[name] then return type(v) == "table" and #v > 0 and "(" .. #v .. " set)" or #v > 0 and "(set)" or "" end
  if type(v) == "table" then return table.concat(v, ",") end
  if v == math.huge then return "-1" end
  return tostring(v)
end

function command.run(args)
  local c, code, own = options.read(command, args)
  if not c then return code end
  if own.json then
    local rows = json.array()
    for _, o in ipairs(config.OPTIONS) do
      local v = c.values[o.name]
      if SECRET[o.name] or v == math.huge then v = text_of(o.name, v) end
      rows[#rows + 1] = json.object("name", o.name, "value", type(v) == "table" and json.array(v) or v, "unit", o.unit, "source", c.sources[o.name], "help", o.help)
    end
    for _, v in ipairs(c.unknown) do rows[#rows + 1] = json.object("name", v.name, "source", "ignored", "help", config.unknown_text(v)) end
    return print_json(rows)
  end
  for _, o in ipairs(config.OPTIONS) do
    local value = text_of(o.name, c.values[o.name]) .. (o.unit and " " .. o.unit or "")
    print(("%-24s %-20s %-20s %s"):format(o.name, value, c.sources[o.name], o.help))
  end
  for _, v in ipairs(c.unknown) do print(("%-24s %-20s %-20s %s"):format(v.name, "", "(ignored)", config.unknown_text(v))) end
  return 0
end

return command
