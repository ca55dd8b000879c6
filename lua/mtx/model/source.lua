-- SPDX-License-Identifier: MIT
-- What a MODEL argument names: a GGUF file, or a folder as Hugging Face has them.
-- Both come out as one mtx.gguf handle.
local core = require("mtx.core")

local source = {}

local EISDIR <const> = 21  -- a folder opens like a file, and cannot be read

function source.is_folder(path)
  local f = io.open(path, "rb")
  if not f then return false end
  local _, _, errno = f:read(1)
  f:close()
  return errno == EISDIR
end

-- opts: vocab_only (the tensors' data is not needed), no_tokenizer (nor a folder's tokenizer, which takes longest)
-- -> mtx.gguf | nil, message, code
function source.open(path, opts)
  if source.is_folder(path) then return require("mtx.hf").open(path, opts) end
  return core.gguf.open(path, opts)
end

-- What core.model.start reads the model by: folders are understood by Lua, on its thread in a state of their own.
function source.for_thread(path)
  if not source.is_folder(path) then return path end
  return { code = 'local lua, c, folder = ... package.path, package.cpath = lua, c return require("mtx.hf").open(folder)',
    args = { package.path, package.cpath, path } }
end

return source
