-- SPDX-License-Identifier: MIT
-- Ollama's registry: a manifest of layers. The weights become a file, what a Modelfile
-- would say (parameters, system text, licence, first turns) is kept in the pin. Its
-- template is in Go's language, which is not read: the one in the GGUF file holds.
local check = require("mtx.api.check")
local core = require("mtx.core")
local json = require("mtx.json")
local origins = require("mtx.pull.origins")
local request = require("mtx.pull.request")

local registry = {}

local MAX_MANIFEST_BYTES = 4 << 20
local MAX_TEXT_BYTES = 512 << 10 -- of all texts together: escaped, they must fit into the pin
local KIND = "^application/vnd%.ollama%.image%.([%w]+)"

local function fail(name, what) check.fail(502, name.source .. ": " .. what) end

-- -> URL of the repository's API, folder of its files, tag
local function place_of(job, name)
  local path, tag = name.model.full:match("^(.*):([^:]+)$")
  local host, rest = path:match("^([^/]+)/([^/]+/.+)$")
  if not host then
    rest = path:find("/", 1, true) and path or "library/" .. path
    return "https://registry.ollama.ai/v2/" .. rest, "ollama.com/" .. rest, tag
  end
  for _, scheme in ipairs({ "https", "http" }) do
    local u = origins.parse(scheme .. "://" .. host)
    if u and origins.allowed(job.client.rules, u) then return u.url .. "v2/" .. rest, host:gsub(":", "_") .. "/" .. rest, tag end
  end
  check.fail(400, "models are pulled as hf.co/USER/REPO[:QUANT], https://... or NAME[:TAG] of Ollama's registry; " .. host .. " is not known (--pull-hosts adds a registry)")
end

local function hex_of(digest)
  local hex = type(digest) == "string" and digest:match("^sha256:(%x+)$")
  return hex and #hex == 64 and hex:lower() or nil
end

-- A small layer's bytes.
local function text_of(job, name, base, layer)
  local text, status = request.text(job, base .. "/blobs/" .. layer.digest, layer.size)
  if not text then fail(name, "a layer cannot be read (status " .. status .. ")") end
  if core.sha256.of(text) ~= hex_of(layer.digest) then fail(name, "a layer's bytes do not hash to " .. layer.digest) end
  return text
end

-- What layers beside the weights say, as the catalog's manifests have it; what has another shape is left out.
local ADD = {}
function ADD.params(m, text)
  local doc = json.decode(text)
  if not json.is_object(doc) then return end
  m.parameters = json.object()
  for k, v in pairs(doc) do
    local stops = k == "stop" and json.is_array(v)
    for _, s in ipairs(stops and v or {}) do stops = stops and type(s) == "string" end
    if stops or type(v) ~= "table" and v ~= json.null then m.parameters[k] = v end
  end
end
function ADD.system(m, text) m.system = text end
function ADD.license(m, text) m.license = m.license and m.license .. "\n" .. text or text end
function ADD.messages(m, text)
  local doc, list = json.decode(text), json.array()
  for _, msg in ipairs(json.is_array(doc) and doc or {}) do
    if json.is_object(msg) and type(msg.role) == "string" and type(msg.content) == "string" then
      list[#list + 1] = json.object("role", msg.role, "content", msg.content)
    end
  end
  m.messages = list
end

local function layers_of(job, name, base, tag)
  local text, status = request.text(job, base .. "/manifests/" .. tag, MAX_MANIFEST_BYTES, { "Accept: application/vnd.docker.distribution.manifest.v2+json" })
  if not text then
    if status == 404 then check.fail(404, "there is no model '" .. name.source .. "' in the registry") end
    if status == 401 then check.fail(502, name.source .. ": the registry wants a login, which mtx does not do") end
    fail(name, "the registry answers with status " .. status)
  end
  local doc = json.decode(text)
  if not json.is_object(doc) or not json.is_array(doc.layers) then fail(name, "the registry's answer is no manifest") end
  for _, layer in ipairs(doc.layers) do
    if not json.is_object(layer) or type(layer.mediaType) ~= "string" or not hex_of(layer.digest) or math.type(layer.size) ~= "integer" or layer.size < 0 then
      fail(name, "the manifest has a layer without kind, digest or size")
    end
  end
  return doc.layers, core.sha256.of(text)
end

-- As hub.plan, and modelfile.
function registry.plan(job, name)
  local base, folder, tag = place_of(job, name)
  local layers, revision = layers_of(job, name, base, tag)
  local files, m, n_text = {}, json.object(), 0
  for _, layer in ipairs(layers) do
    local kind = layer.mediaType:match(KIND)
    if kind == "model" then
      files[#files + 1] = { path = folder .. "/" .. tag .. ".gguf", size = layer.size, sha256 = hex_of(layer.digest), url = base .. "/blobs/" .. layer.digest }
    elseif kind == "adapter" or kind == "tensor" then
      check.fail(501, name.source .. ": models of the registry that are stored as " .. kind .. "s are not pulled; look for a GGUF file of it at hf.co")
    elseif ADD[kind] then
      n_text = n_text + math.min(layer.size, MAX_TEXT_BYTES + 1)
      if n_text > MAX_TEXT_BYTES then fail(name, "the manifest names more than " .. MAX_TEXT_BYTES .. " bytes of texts") end
      ADD[kind](m, text_of(job, name, base, layer))
    end
  end
  if #files ~= 1 then fail(name, "the manifest names " .. #files .. " files of weights instead of one") end
  return { files = files, from = files[1].path, revision = revision, modelfile = m }
end

return registry
