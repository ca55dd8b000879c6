-- SPDX-License-Identifier: MIT
-- The models folder for commands that work without a server: list, show, rm, cp.
local catalog = require("mtx.serve.catalog")
local core = require("mtx.core")
local models = require("mtx.serve.models")

local local_models = {}

-- Command's arguments -> catalog, words; or nil, exit code (already said why).
function local_models.open(command, args, n_words)
  local config = require("mtx.config")
  local flags, words = config.parse_flags(args)
  if not flags then
    io.stderr:write("mtx ", command.name, ": ", words, "\nTry `mtx ", command.name, " --help`.\n")
    return nil, 2
  end
  if flags.help then
    print(command.help)
    return nil, 0
  end
  if #words ~= n_words then
    io.stderr:write("mtx ", command.name, ": ", n_words, " name(s) needed\nTry `mtx ", command.name, " --help`.\n")
    return nil, 2
  end
  local file = flags.config
  flags.config = nil
  local c, message = config.load({ file = file, flags = flags })
  if not c then
    io.stderr:write("mtx ", command.name, ": ", message, "\n")
    return nil, 2
  end
  local cat = catalog.new({ dir = c.values.models_dir, describe = models.describe, sha256 = core.sha256, clock = os.clock })
  return cat, words, c
end

-- The entry, or nil, exit code.
function local_models.find(command, cat, name)
  local entry, message = cat:find(name)
  if entry then return entry end
  io.stderr:write("mtx ", command.name, ": ", message, "; `mtx list` shows what is there\n")
  return nil, 1
end

function local_models.size_text(bytes)
  if bytes >= 1e9 then return string.format("%.1f GB", bytes / 1e9) end
  return string.format("%.0f MB", bytes / 1e6)
end

return local_models
