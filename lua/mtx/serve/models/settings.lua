-- SPDX-License-Identifier: MIT
-- What the parameters of a Modelfile mean: the same fields, types and ranges as the options of a request.
local check = require("mtx.api.check")
local json = require("mtx.json")
local ollama = require("mtx.api.ollama")

local settings = {}

-- Parameters of older Modelfiles: accepted, without effect.
local OLD = {}
for _, name in ipairs({ "penalize_newline", "low_vram", "f16_kv", "logits_all", "vocab_only", "use_mlock", "embedding_only", "numa", "num_gqa", "tfs_z",
  "rope_frequency_base", "rope_frequency_scale" }) do OLD[name] = true end

settings.ROLES = { system = true, user = true, assistant = true }

-- parameters: {name = value} or nil -> {sampler, max_tokens, n_keep, stop, num_ctx, ignore_eos} (request.lua), or nil, message.
function settings.read(parameters)
  local known = {}
  for k, v in pairs(parameters or {}) do
    if not OLD[k] then known[k] = v end
  end
  local r, fault = check.try(ollama.options, { options = known }, {})
  if not r then return nil, (fault.message:gsub("^option ", "parameter ")) end
  if r.unknown_options then return nil, 'unknown parameter "' .. r.unknown_options[1] .. '"' end
  return r
end

local function shaped(m)
  for _, k in ipairs({ "parameters", "template", "system", "license", "messages", "adapters" }) do
    local v = m[k]
    if v == json.null or type(v) == "table" and next(v) == nil then m[k] = nil end
  end
  check.object(m, "parameters")
  for _, k in ipairs({ "template", "system", "license" }) do check.string(m, k) end
  for i, msg in ipairs(check.array(m, "messages") or {}) do
    if not check.is_object(msg) or type(msg.role) ~= "string" or type(msg.content) ~= "string" then check.fail(400, "messages[" .. (i - 1) .. "] needs role and content") end
  end
  for i, path in ipairs(check.array(m, "adapters") or {}) do
    if type(path) ~= "string" then check.fail(400, "adapters[" .. (i - 1) .. "] must be a string") end
  end
  return true
end

-- Has a manifest the shape that its readers take for granted? The models folder's files can be anybody's. -> true | nil, message
function settings.check_shape(m)
  local ok, fault = check.try(shaped, m)
  return ok, fault and fault.message
end

-- What a model made of another has of it: all that it does not set itself. m, base: manifests; m is changed.
function settings.inherit(m, base)
  for _, k in ipairs({ "template", "system", "license", "messages", "adapters" }) do
    if m[k] == nil then m[k] = base[k] end
  end
  local parameters = {}
  for _, from in ipairs({ base.parameters or {}, m.parameters or {} }) do
    for k, v in pairs(from) do parameters[k] = v end
  end
  m.parameters = next(parameters) and parameters or nil
end

return settings
