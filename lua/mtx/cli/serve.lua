-- SPDX-License-Identifier: MIT
-- `mtx serve`: the HTTP server in the foreground. Options are config.lua's.
local config = require("mtx.config")
local options = require("mtx.cli.options")

local serve = { name = "serve", tells_unknown = true, summary = "serve models over HTTP (Ollama, OpenAI, Anthropic and llama-server APIs)",
  no_words = "; models come from the folder --models-dir DIR" }

local function option_lines()
  local lines = {}
  for _, o in ipairs(config.OPTIONS) do
    local flag = "--" .. o.name:gsub("_", "-")
    if o.kind ~= "boolean" then flag = flag .. " " .. (o.kind == "list" and "A,B" or o.kind == "string" and "TEXT" or o.unit or "N") end
    local default = type(o.default) == "table" and "" or tostring(o.default)
    lines[#lines + 1] = ("  %-32s %s%s"):format(flag, o.help, default ~= "" and o.kind ~= "boolean" and " (default " .. default .. ")" or "")
  end
  return table.concat(lines, "\n")
end

serve.help = [[
usage: mtx serve [--config FILE] [OPTIONS]

Serves every model under --models-dir. SIGTERM or Ctrl-C ends it after running
answers have ended (at most --drain-timeout); a second signal ends it at once.
SIGHUP reads the config file again (limits, keys, origins, log level, ...; the log names what
only a restart changes), the policy, the script and the keys, and opens the trace file anew. `mtx config` shows where each value comes from.

Options (each also as MTX_NAME in the environment, or in the config file):
]] .. option_lines()

function serve.run(args)
  local c, code = options.read(serve, args)
  if not c then return code end
  local dir = c.values.models_dir
  if c.sources.models_dir ~= "default" and not require("luv").fs_stat(dir) then -- the default one may come to be
    io.stderr:write("mtx serve: there is no folder ", dir, "; give one with --models-dir\n")
    return 1
  end
  local server = require("mtx.serve")
  local ctx, message = server.new(c)
  if not ctx then io.stderr:write("mtx serve: ", message, "\n") end
  return ctx and server.run(ctx) or 1
end

return serve
