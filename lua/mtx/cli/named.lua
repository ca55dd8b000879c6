-- SPDX-License-Identifier: MIT
-- What a command's MODEL means: a path, or a name that `mtx list` shows.
local uv = require("luv")

local named = {}

named.WHICH = "which model? Give the path of a GGUF file or model folder, or a name of `mtx list`"

-- The models folder as the server's options and environment give it, or nil.
local function catalog()
  local c = require("mtx.config").load({ flags = {} })
  if not c or not uv.fs_stat(c.values.models_dir) then return nil end
  return require("mtx.serve.models.catalog").new({ dir = c.values.models_dir, clock = os.clock })
end

-- MODEL as typed -> path of the file, manifest (what a Modelfile or `create` set; nil for a plain file).
-- What is neither a path nor a name comes back as it is: opening it says why.
function named.find(text)
  if uv.fs_stat(text) then return text end
  local cat = catalog()
  local entry = cat and cat:find(text)
  if not entry then return text end
  return entry.path, entry.manifest
end

-- Is a MODEL that is not here the name of one elsewhere (see mtx/cli/pull.lua)?
function named.remote(text) return text:find("^hf%.co/") ~= nil or text:find("^huggingface%.co/") ~= nil or text:find("^https?://") ~= nil end

return named
