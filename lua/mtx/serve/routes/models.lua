-- SPDX-License-Identifier: MIT
-- Model management in Ollama's dialect (tags, show, ps, copy, delete, create,
-- blobs) and OpenAI's model list.
local uv = require("luv")
local adapters = require("mtx.serve.models.adapters")
local answer = require("mtx.serve.answer")
local capabilities = require("mtx.serve.models.capabilities")
local check = require("mtx.api.check")
local creation = require("mtx.serve.models.creation")
local fiber = require("mtx.serve.fiber")
local modelfile = require("mtx.serve.models.modelfile")
local names = require("mtx.serve.models.names")
local settings = require("mtx.serve.models.settings")
local whole_file = require("mtx.whole_file")
local wire = require("mtx.api.wire")

local M = {}

local list, model_name = wire.list, answer.model_name

local function rfc3339(t) return os.date("!%Y-%m-%dT%H:%M:%SZ", math.tointeger(t) or math.floor(t)) end

local function size_text(n)
  if not n then return "" end
  if n >= 1e9 then return string.format("%.1fB", n / 1e9) end
  if n >= 1e6 then return string.format("%.2fM", n / 1e6):gsub("%.00M$", "M") end
  return string.format("%.1fK", n / 1e3)
end

-- The `details` object of tags, show and ps.
function M.details(entry, info)
  return { parent_model = entry.parent or "", format = info.format or (entry.folder and "safetensors" or "gguf"), family = info.architecture or "",
    families = list({ info.architecture }), parameter_size = size_text(info.n_params), quantization_level = info.quantization or "",
    context_length = info.n_ctx_train, embedding_length = info.n_embd }
end

local function template_of(entry, info) return entry.manifest and entry.manifest.template or info.chat_template end

local function abilities(entry, info) return list(capabilities.list(capabilities.of(info, template_of(entry, info)))) end

local function find(ctx, name)
  local entry, message = ctx.catalog:find(name)
  if not entry then check.fail(404, message) end
  return entry
end

local function tags(ctx)
  return function(x)
    local out = list()
    for _, e in ipairs(ctx.catalog:list()) do
      local info = ctx.catalog:info_of(e)
      if not info.error then
        out[#out + 1] = { name = e.name, model = e.name, modified_at = rfc3339(e.modified), size = e.size, digest = ctx.catalog:digest(e),
          details = M.details(e, info), capabilities = abilities(e, info), estimated_ram_gb = math.floor(e.size / 1e7) / 100 }
      end
    end
    x:send(200, wire.encode({ models = out }))
  end
end

local function show(ctx)
  return function(x)
    local body = answer.body(x)
    local e = find(ctx, model_name(body))
    local info = ctx.catalog:info_of(e)
    if info.error then check.fail(500, "cannot read " .. e.name .. ": not a usable model file") end
    local m = e.manifest or {}
    local verbose = check.boolean(body, "verbose")
    local meta, tensors = info.metadata, list()
    if verbose and not e.folder then meta, tensors = ctx.details(e.path) end
    local template = template_of(e, info)
    local own = {}
    for i, path in ipairs(m.adapters or {}) do own[i] = path:match("[^/]+$") end
    local file = { from = e.parent or e.name, template = template, system = m.system, parameters = m.parameters, messages = m.messages, license = m.license, adapters = own }
    x:send(200, wire.encode({ license = m.license or (info.metadata and info.metadata["general.license"]) or "", modelfile = modelfile.write(file),
      parameters = modelfile.parameter_lines(m.parameters), template = check.string(body, "template") or template or "",
      system = check.string(body, "system") or m.system or "", details = M.details(e, info), messages = m.messages and list(m.messages) or nil,
      model_info = meta or {}, tensors = #tensors > 0 and tensors or info.tensors or list(), capabilities = abilities(e, info), modified_at = rfc3339(e.modified) }))
  end
end

local function ps(ctx)
  return function(x)
    local out, now = list(), ctx.clock()
    for i, l in ipairs(ctx.pool:list()) do
      local e = l.entry
      local expires = l.expires == math.huge and "2318-01-01T00:00:00Z" or rfc3339(os.time() + math.floor(l.expires - now))
      out[i] = { name = e.name, model = e.name, size = l.info.memory_bytes or e.size, digest = ctx.catalog:digest(e),
        details = M.details(e, ctx.catalog:info_of(e)), expires_at = expires, size_vram = l.info.vram_bytes or 0, context_length = l.n_ctx }
    end
    x:send(200, wire.encode({ models = out }))
  end
end

local function store(ctx, name, manifest)
  local ok, fault = ctx.writes:told("a model's manifest", ctx.catalog:manifest_dir(), ctx.catalog:store(name, manifest))
  if not ok then error(fault, 0) end
end

local function copy(ctx)
  return function(x)
    local body = answer.body(x)
    local source = find(ctx, check.string(body, "source") or "")
    local to, message = names.parse(check.string(body, "destination"))
    if not to then check.fail(400, message) end
    local m = {}
    for k, v in pairs(source.manifest or {}) do m[k] = v end
    m.from = source.path
    store(ctx, to, m)
    x:send(200, "")
  end
end

-- Removes what an interrupted pull has left. -> was there something?
local function drop_partial(ctx, text)
  local name = names.parse(text)
  if name and ctx.pulls.jobs[name.key] then check.fail(409, name.full .. " is being pulled") end
  local gone, message = ctx.catalog:remove_partial(text)
  if message then check.fail(409, message) end
  return gone
end

local function delete(ctx)
  return function(x)
    local name = model_name(answer.body(x))
    local e = ctx.catalog:find(name)
    if not e and drop_partial(ctx, name) then return x:send(200, "") end
    e = e or find(ctx, name)
    if ctx.pulls.jobs[e.key] then check.fail(409, e.name .. " is being pulled") end
    local l = ctx.pool.loaded[e.key]
    if l and l.inflight > 0 then check.fail(409, e.name .. " is in use") end
    if l then ctx.pool:unload(l, "deleted") end
    local ok, message = ctx.catalog:remove(e)
    if not ok then check.fail(500, tostring(message):gsub(e.path:gsub("%p", "%%%0"), e.name)) end
    x:send(200, "")
  end
end

local function digest_of(text)
  local hex = text:match("^sha256[:%-](%x+)$")
  if not hex or #hex ~= 64 then check.fail(400, "a digest is sha256: and 64 hex digits") end
  return hex:lower()
end

local function blob_path(ctx, hex) return ctx.catalog:blob_dir() .. "/sha256-" .. hex end

-- Files of a create request: exactly one model blob, by relative path.
local function file_from(ctx, files)
  local path
  for name, digest in pairs(files) do
    if type(digest) ~= "string" or name:find("^/") or name:find("..", 1, true) or name:find("[%c\\]") then
      check.fail(400, "files: paths must be relative")
    end
    local hex = digest_of(digest)
    if not uv.fs_stat(blob_path(ctx, hex)) then check.fail(400, "files: blob sha256:" .. hex .. " is not here; send it to /api/blobs first") end
    if name:find("%.gguf$") or not path then path = blob_path(ctx, hex) end
  end
  return path
end

-- Adapters of a create request: blobs by digest, or what its Modelfile names (a digest, or a path under the models folder).
local function adapters_from(ctx, blobs, named)
  local wanted, out = {}, {}
  for _, digest in pairs(blobs or {}) do wanted[#wanted + 1] = type(digest) == "string" and digest or check.fail(400, "adapters: a digest is sha256: and 64 hex digits") end
  if not wanted[1] then wanted = named or {} end
  for i, text in ipairs(wanted) do
    text = text:gsub("^@", "")
    local blob = text:find("^sha256[:%-]") and blob_path(ctx, digest_of(text))
    if blob and not uv.fs_stat(blob) then check.fail(400, "adapters: blob " .. text .. " is not here; send it to /api/blobs first") end
    out[i] = blob or ctx.adapters:inside(text)
    local info, message = adapters.describe(out[i])
    if not info then check.fail(400, "adapters: " .. tostring(message):gsub("/%S*/", "")) end
  end
  table.sort(out)
  return out[1] and out or nil
end

local function parameters_of(body)
  local p, out = check.object(body, "parameters"), {}
  for k, v in pairs(p or {}) do
    if type(v) == "table" and k ~= "stop" and k ~= "logit_bias" and k ~= "dry_sequence_breakers" and k ~= "banned_strings" then check.fail(400, "parameters." .. k .. " must be a single value") end
    out[k] = v
  end
  if type(out.stop) == "string" then out.stop = { out.stop } end
  local ok, message = settings.read(out)
  if not ok then check.fail(400, message, { param = "parameters" }) end
  return p and out or nil
end

local function create(ctx)
  return function(x)
    local body = answer.body(x)
    local to, message = names.parse(model_name(body))
    if not to then check.fail(400, message) end
    local m = {}
    local text = check.string(body, "modelfile")
    if text then
      local parsed, err = modelfile.parse(text)
      if not parsed then check.fail(400, "modelfile: " .. err) end
      m = parsed
    end
    local files = check.object(body, "files")
    m.from = check.string(body, "from") or m.from
    if files and next(files) then m.from = file_from(ctx, files) end
    if not m.from or m.from == "" then check.fail(400, "neither from nor files was given") end
    if check.string(body, "quantize") and body.quantize ~= "" then
      check.fail(400, "create does not quantize; run `mtx quantize` on the file first")
    end
    m.adapters = adapters_from(ctx, check.object(body, "adapters"), m.adapters)
    local base
    if not m.from:find("^" .. ctx.catalog:blob_dir():gsub("%p", "%%%0")) then
      base = find(ctx, m.from)
      creation.from(base, to, m)
    end
    m.template = check.string(body, "template") or m.template
    m.system = check.string(body, "system") or m.system
    local license = check.strings(body, "license")
    m.license = license and table.concat(license, "\n") or m.license
    m.parameters = parameters_of(body) or m.parameters
    local messages = check.array(body, "messages")
    for i, msg in ipairs(messages or {}) do
      if type(msg) ~= "table" or type(msg.role) ~= "string" or type(msg.content) ~= "string" then
        check.fail(400, "messages[" .. (i - 1) .. "] needs role and content")
      end
      if not settings.ROLES[msg.role] then check.fail(400, "messages[" .. (i - 1) .. "].role must be system, user or assistant") end
    end
    m.messages = messages or m.messages
    local ok, why, param = creation.complete(ctx.catalog, m, base)
    if not ok then check.fail(400, param and why or (why:gsub("/%S*/", "")), { param = param }) end
    store(ctx, to, m)
    if check.boolean(body, "stream") == false then return x:send(200, '{"status":"success"}') end
    x:start(200, "application/x-ndjson")
    for _, status in ipairs({ "reading model metadata", "creating parameters layer", "writing manifest", "success" }) do
      x:write(wire.encode({ status = status }) .. "\n")
    end
    x:finish()
  end
end

local BLOB = "a blob"

-- HEAD: is the blob there. POST: raw bytes, hashed while they arrive, visible only when right.
local function head_blob(ctx)
  return function(x)
    if uv.fs_stat(blob_path(ctx, digest_of(x.params.digest))) then x:send(200, "") else check.fail(404, "no such blob") end
  end
end

local function blob_sink(ctx)
  return function(x)
    local hex, fault = check.try(digest_of, x.params.digest)
    if not hex then return nil, fault end
    whole_file.make_dirs(ctx.catalog:blob_dir())
    local path = blob_path(ctx, hex)
    local tmp = path .. "." .. require("mtx.ids").random(12) .. ".part"
    local fd, message = uv.fs_open(tmp, "wx", tonumber("600", 8))
    if not fd then return nil, ctx.writes:failed(BLOB, tmp, message) end
    x.blob = { hex = hex, path = path, tmp = tmp, fd = fd, sum = require("mtx.core").sha256.new() }
    return function(bytes)
      local b = x.blob
      if not b.fd then return end
      if not bytes then -- the sender went away
        uv.fs_close(b.fd)
        b.fd = nil
        os.remove(b.tmp)
        return
      end
      if b.fault then return end
      local ok, reason = whole_file.put(b.fd, bytes)
      if not ok then b.fault = ctx.writes:failed(BLOB, tmp, reason) end
      b.sum:update(bytes)
    end
  end
end

local function post_blob(ctx)
  return function(x)
    local b = x.blob
    if not b then check.fail(400, "missing request body") end
    local fault, fd = b.fault or b.sum:hex() ~= b.hex and check.fault(400, "digest mismatch: the bytes do not hash to sha256:" .. b.hex), b.fd
    b.fd = nil
    if fault then
      uv.fs_close(fd)
      os.remove(b.tmp)
      error(fault, 0)
    end
    local there, ok = uv.fs_stat(b.path), nil
    ok, fault = ctx.writes:told(BLOB, b.path, whole_file.finish(fd, b.tmp, b.path, function(f) return fiber.uv(uv.fs_fsync, f) end))
    if not ok then error(fault, 0) end
    x:send(there and 200 or 201, "")
  end
end

local function openai_model(ctx, e)
  local info = ctx.catalog:info_of(e)
  return { id = e.name:gsub(":latest$", ""), object = "model", created = math.tointeger(e.modified) or 0, owned_by = "library",
    meta = { vocab_type = info.vocab_type, n_vocab = info.n_vocab, n_ctx_train = info.n_ctx_train, n_embd = info.n_embd, n_params = info.n_params, size = e.size,
      n_ctx = ctx.pool.loaded[e.key] and ctx.pool.loaded[e.key].n_ctx or nil, capabilities = not info.error and abilities(e, info) or nil } }
end

local function openai_list(ctx)
  return function(x)
    local data = list()
    for _, e in ipairs(ctx.catalog:list()) do
      if not ctx.catalog:info_of(e).error then data[#data + 1] = openai_model(ctx, e) end
    end
    -- llama-server's clients read `models`.
    local models = list()
    for i, m in ipairs(data) do
      models[i] = { name = m.id, model = m.id, type = "model", capabilities = m.meta.capabilities or list(), tags = list(), description = "" }
    end
    x:send(200, wire.encode({ object = "list", data = data, models = models }))
  end
end

function M.add(ctx)
  local r = ctx.routes
  local function ollama(method, path, scope, handler, more)
    local route = more or {}
    route.scope, route.dialect, route.handler = scope, "ollama", handler
    r:add(method, path, route)
  end
  ollama("GET", "/api/tags", "infer", tags(ctx))
  ollama("POST", "/api/show", "infer", show(ctx))
  ollama("GET", "/api/ps", "infer", ps(ctx))
  ollama("POST", "/api/copy", "admin", copy(ctx))
  ollama("DELETE", "/api/delete", "admin", delete(ctx))
  ollama("POST", "/api/create", "admin", create(ctx))
  ollama("HEAD", "/api/blobs/:digest", "admin", head_blob(ctx))
  ollama("POST", "/api/blobs/:digest", "admin", post_blob(ctx), { stream_body = blob_sink(ctx) })
  ollama("POST", "/api/push", "admin", function() check.fail(501, "push is not supported; copy the model's file out of the models folder (--models-dir) and put it into the other server's") end)
  r:add("GET", "/v1/models", { scope = "infer", dialect = "openai", handler = openai_list(ctx) })
  r:add("GET", "/v1/models/*id", { scope = "infer", dialect = "openai", handler = function(x)
    x:send(200, wire.encode(openai_model(ctx, find(ctx, x.params.id))))
  end })
  r:add("POST", "/api/infer-capabilities", { scope = "infer", dialect = "ollama", handler = function(x)
    local body = answer.body(x)
    local set = capabilities.of({ architecture = check.string(body, "architecture") })
    x:send(200, wire.encode({ capabilities = list(capabilities.list(set)) }))
  end })
end

return M
