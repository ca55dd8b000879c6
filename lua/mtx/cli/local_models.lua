-- SPDX-License-Identifier: MIT
-- The models folder for commands that work without a server: list, show, rm, cp.
local catalog = require("mtx.serve.models.catalog")
local core = require("mtx.core")
local models = require("mtx.serve.models")
local options = require("mtx.cli.options")
local uv = require("luv")

local local_models = {}

-- Command's arguments (command.makes_folder: the default folder may come to be) -> catalog, words, its own flags that were given; or nil, exit code (already said why).
function local_models.open(command, args, n_words)
  local c, words, own = options.read(command, args, n_words)
  if not c then return nil, words end
  local dir = c.values.models_dir
  if not uv.fs_stat(dir) and not (command.makes_folder and c.sources.models_dir == "default") then
    io.stderr:write("mtx ", command.name, ": there is no folder ", dir, "; give one with --models-dir, or `mtx pull` a model\n")
    return nil, 1
  end
  local cat = catalog.new({ dir = dir, describe = models.describe, sha256 = core.sha256, clock = os.clock,
    warn = function(path, message) io.stderr:write("mtx ", command.name, ": ", path, ": ", message, "\n") end })
  return cat, words, own
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
