-- SPDX-License-Identifier: MIT
-- Quantising: a model file or folder -> a GGUF file in other types.
local uv = require("luv")
local core = require("mtx.core")
local free_disk = require("mtx.free_disk")
local imatrix = require("mtx.quantize.imatrix")
local mixes = require("mtx.quantize.mixes")
local plan = require("mtx.quantize.plan")
local source = require("mtx.model.source")

local quantize = {}

-- "PATTERN=TYPE" -> {pattern, type, text} | nil, message
local function pattern_of(text)
  local pattern, name = text:match("^(.+)=([^=]+)$")
  if not pattern then return nil, "wants PATTERN=TYPE, not '" .. text .. "'" end
  local type_name, message = plan.type(name)
  if not type_name then return nil, message end
  return { pattern = pattern, type = type_name, text = text }
end

-- The options as the plan wants them | nil, message
local function settings(opts)
  local mix = mixes.find(opts.type)
  if not mix then return nil, ("there is no mix '%s'; there are %s"):format(opts.type, table.concat(mixes.names(), ", ")) end
  local out = { mix = mix, patterns = {}, rules = opts.rules, requantize = opts.requantize }
  for i, text in ipairs(opts.tensor_types or {}) do
    local message
    out.patterns[i], message = pattern_of(text)
    if not out.patterns[i] then return nil, "--tensor-type " .. message end
  end
  if opts.imatrix then
    local message
    out.imatrix, message = imatrix.open(opts.imatrix)
    if not out.imatrix then return nil, message end
  end
  return out
end

-- Why `to` may not be written, or nil.
local function unwritable(from, to, opts)
  local there = uv.fs_stat(to)
  if not there then return nil end
  if there.type ~= "file" then return to .. ": there is something that is no file" end
  local real = uv.fs_realpath(to)
  for _, path in ipairs(from) do
    if uv.fs_realpath(path) == real then return to .. ": that is the model itself" end
  end
  if opts.imatrix and uv.fs_realpath(opts.imatrix) == real then return to .. ": that is the importance matrix itself" end
  return not opts.force and to .. ": the file exists (--force replaces it)" or nil
end

local function entries(g, made, s)
  local out = {}
  for i, t in ipairs(made.tensors) do
    out[i] = { name = t.name, from = g }
    if t.to ~= t.from then
      out[i].type = t.to
      if t.importance then out[i].importance = s.imatrix:weights(t.name) end
    end
  end
  return out
end

-- What is new in the metadata, in llama-quantize's order: behind everything else.
local function metadata(s)
  local out = { { key = "general.quantization_version", type = "u32", value = 2 },
    { key = "general.file_type", type = "u32", value = s.mix.file_type } }
  for _, entry in ipairs(s.imatrix and s.imatrix:metadata() or {}) do out[#out + 1] = entry end
  return out
end

local function write(g, to, made, s, opts)
  local kv, remove = metadata(s), {}
  for i, entry in ipairs(kv) do remove[i] = entry.key end
  return core.gguf.write({ path = to, from = g, remove = remove, kv = kv, tensors = entries(g, made, s), threads = opts.threads, progress = opts.progress })
end

-- opts: from (GGUF file or model folder), to (path of the new file), type (a mix: mixes.names()), and
--   tensor_types  list of "PATTERN=TYPE" (Lua patterns in tensors' names): for those tensors instead of the mix's type
--   rules         function(tensor, type) -> type, "keep" or nil; after all else. tensor: {name, type, shape, role, layer, n_layers, architecture, mix}
--   imatrix       path of an importance matrix (GGUF)
--   threads       0 or nil: all cores
--   requantize    also from types that are quantised already
--   dry_run       write nothing
--   force         replace a file of that name
--   progress(done, total)  bytes written; true ends it
-- -> {tensors = {{name, shape, from, to, instead_of, from_bytes, bytes, importance}}, bytes, from_bytes, file_bytes (nil in a dry run), needs_importance} | nil, message
function quantize.run(opts)
  local s, message = settings(opts)
  if not s then return nil, message end
  local g <close>, why = source.open(opts.from)
  if not g then return nil, why end
  s.from_folder = g:info().format == "safetensors"
  local made
  made, message = plan.make(g, s)
  if not made then return nil, opts.from .. ": " .. message end
  if opts.dry_run then return made end
  if made.needs_importance then
    return nil, ("%s needs importance for tensor '%s' (--imatrix FILE): without it the model would be garbage"):format(s.mix.name, made.needs_importance)
  end
  message = unwritable(g:info().shards, opts.to, opts)
  if message then return nil, message end
  local folder = opts.to:match("^(.*)/") or "."
  message = free_disk.short(folder == "" and "/" or folder, made.bytes + free_disk.SPARE_BYTES)
  if message then return nil, opts.to .. ": " .. message end
  local ok
  ok, message = write(g, opts.to, made, s, opts)
  if not ok then return nil, message end
  made.file_bytes = uv.fs_stat(opts.to).size
  return made
end

return quantize
