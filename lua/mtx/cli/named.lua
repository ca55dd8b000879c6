-- SPDX-License-Identifier: MIT
-- What a command's MODEL means: a path, or a name that `mtx list` shows.
local uv = require("luv")

local named = {}

named.WHICH = "which model? Give the path of a GGUF file or model folder, or a name of `mtx list`"

-- For commands that find a MODEL by its name.
named.option = { name = "models-dir", kind = "string", value = "DIR", help = "folder of the models that names stand for (default $MTX_MODELS_DIR, else ./models)" }

-- The models folder (nil: as the server's options and environment give it), or nil when there is none.
local function catalog(dir)
  if not dir then
    local c = require("mtx.config").load({ flags = {} })
    dir = c and c.values.models_dir
  end
  if not dir or not uv.fs_stat(dir) then return nil end
  return require("mtx.serve.models.catalog").new({ dir = dir, clock = os.clock })
end

-- MODEL as typed, the models folder or nil -> path of the file, manifest (what a Modelfile or `create` set; nil for a plain file).
-- What is neither a path nor a name comes back as it is, with no manifest and, where a description of that name cannot be used,
-- the reason; else opening it says why.
function named.find(text, dir)
  if uv.fs_stat(text) then return text end
  local cat = catalog(dir)
  if not cat then return text, nil, dir and "there is no folder " .. dir end
  local entry, _, reason = cat:find(text)
  if not entry then return text, nil, reason end
  return entry.path, entry.manifest
end

-- Is a MODEL that is not here the name of one elsewhere (see mtx/cli/pull.lua)?
function named.remote(text) return text:find("^hf%.co/") ~= nil or text:find("^huggingface%.co/") ~= nil or text:find("^https?://") ~= nil end

return named
