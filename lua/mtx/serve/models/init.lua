-- SPDX-License-Identifier: MIT
-- Ties the server to the model layers: the C core's loader, file descriptions,
-- template rendering, output parsers and grammars. Tests put their own in `deps`.
local adapters = require("mtx.serve.models.adapters")
local call_texts = require("mtx.serve.generate.call_texts")
local capabilities = require("mtx.serve.models.capabilities")
local catalog = require("mtx.serve.models.catalog")
local check = require("mtx.api.check")
local core = require("mtx.core")
local grammar = require("mtx.serve.models.grammar")
local json = require("mtx.json")
local parse = require("mtx.parse")
local persistence = require("mtx.serve.models.persistence")
local pool = require("mtx.serve.models.pool")
local pull = require("mtx.pull")
local quantization = require("mtx.model.quantization")
local render = require("mtx.serve.models.render")
local source = require("mtx.model.source")

local models = {}

local POOLING = { [0] = "none", [1] = "mean", [2] = "cls", [3] = "last", [4] = "rank" }

-- llama.cpp's numbers of vocabulary kinds.
local VOCAB_TYPES = { llama = 1, gpt2 = 2, bert = 3, t5 = 4, rwkv = 5 }

-- Reads the header of a GGUF file or model folder: {architecture, n_params, n_ctx_train, n_embd, chat_template,
-- quantization, pooling, metadata}; nil, message.
function models.describe(path)
  local g, message = source.open(path, { no_tokenizer = true })
  if not g then return nil, message end
  local meta, n_tokens = json.object(), nil -- in the file's order; long arrays are null
  for _, kv in ipairs(g:metadata()) do
    local v = kv.value
    if kv.key == "tokenizer.ggml.tokens" then n_tokens = kv.n end
    if kv.type == "array" and v then v = json.array(v) end
    meta[kv.key] = v == nil and json.null or v
  end
  if meta["general.type"] == "adapter" then
    g:close()
    return nil, path .. ": this file is an adapter, not a model; requests use it through `lora`"
  end
  local arch = meta["general.architecture"] or "unknown"
  local n_params, tensors = 0, json.array()
  for i, t in ipairs(g:tensors()) do
    tensors[i] = { name = t.name, type = t.type, shape = json.array(t.shape) }
    local n = 1
    for _, d in ipairs(t.shape) do n = n * d end
    n_params = n_params + n
  end
  local info = { architecture = arch, n_params = n_params, n_ctx_train = meta[arch .. ".context_length"], n_embd = meta[arch .. ".embedding_length"],
    chat_template = meta["tokenizer.chat_template"], quantization = quantization.name(meta["general.file_type"], g:tensors()),
    pooling = POOLING[meta[arch .. ".pooling_type"]], n_layer = meta[arch .. ".block_count"], format = g:info().format, metadata = meta,
    tensors = tensors, vocab_type = VOCAB_TYPES[meta["tokenizer.ggml.model"]] or 0, n_vocab = meta[arch .. ".vocab_size"] or n_tokens }
  local n_head_kv, n_embd, n_head = meta[arch .. ".attention.head_count_kv"], info.n_embd, meta[arch .. ".attention.head_count"]
  if type(n_head_kv) == "number" and type(n_head) == "number" and n_head > 0 and n_embd and info.n_layer then
    local head = meta[arch .. ".attention.key_length"] or n_embd // n_head
    info.kv_bytes_per_token = 2 * 2 * n_head_kv * head * info.n_layer
  end
  g:close()
  return info
end

-- The whole metadata, long arrays too, and the tensors [{name, type, shape}].
function models.details(path)
  local g, message = source.open(path)
  if not g then return nil, message end
  local meta, tensors = json.object(), json.array()
  for _, kv in ipairs(g:metadata()) do
    local v = kv.value
    if v == nil then v = g:metadata(kv.key) end
    if kv.type == "array" then v = json.array(v) end
    meta[kv.key] = v
  end
  for i, t in ipairs(g:tensors()) do tensors[i] = { name = t.name, type = t.type, shape = json.array(t.shape) } end
  g:close()
  return meta, tensors
end

-- Adds to a loaded model's info what its vocabulary knows: bos, eos, add_bos, fim_*.
function models.facts(model)
  local info = model:info()
  local special = model.tok and model.tok:special()
  if special then
    info.bos, info.eos, info.add_bos = special.bos, special.eos, special.add_bos
    info.fim_prefix, info.fim_suffix, info.fim_middle = special.fim_pre, special.fim_suf, special.fim_mid
  end
  return info
end

-- The output parser of one choice, or nil when its text goes out as it is.
function models.parser(loaded, req)
  local calls = req.tools ~= nil and req.tool_choice ~= "none"
  local format, think = parse.detect(loaded.template), loaded.can.thinking and req.reasoning_format ~= "none"
  if not think and not calls and not format.always then return nil end
  local p = parse.new({ template = loaded.template, format = format, tools = calls and req.tools or nil, bare = req.bare_call,
    think = think and (req.think == false and "drop" or true) or false, opened = think and parse.opened(loaded.template, req.rendered or "") })
  local tok = loaded.model.tok
  if tok then p.shown = p:control_tokens(tok) end
  return p
end

-- Adds catalog, pulls, pool, persistence, render, parser, grammar to ctx. nil, message on failure.
function models.attach(ctx)
  local deps = ctx.deps
  ctx.core = deps.core or require("mtx")
  ctx.free_memory = deps.free_memory or core.model.free_memory
  ctx.catalog = catalog.new({ dir = ctx.config.models_dir, describe = deps.describe or models.describe,
    sha256 = core.sha256, clock = ctx.clock, warn = function(path, message) ctx.log("warn", "a model cannot be used", { file = path, why = message }) end })
  local message
  ctx.adapters, message = adapters.new(ctx)
  if not ctx.adapters then return nil, message end
  ctx.pool = pool.new(ctx)
  ctx.persistence, message = persistence.new(ctx.config)
  if not ctx.persistence then return nil, message end
  local more = { on_error = function(trace) ctx.log("error", "pull failed", { trace = trace }) end }
  for k, v in pairs(deps.pull or {}) do more[k] = v end
  ctx.pulls, message = pull.new(ctx.config, more)
  if not ctx.pulls then return nil, message end
  ctx.facts = models.facts
  ctx.call_texts = call_texts.new()
  ctx.details = deps.details or models.details
  ctx.render, ctx.parser = deps.render or render.messages, deps.parser or models.parser
  ctx.grammar = deps.grammar or function(loaded, req)
    return grammar.of(loaded, req, function(line) ctx.log("warn", "schema in part", { model = loaded.name, what = line }) end)
  end
  if not deps.render then
    ctx.fallback_template = function(loaded)
      local name, source = render.fallback(loaded)
      ctx.log("warn", "the model file has no chat template", { model = loaded.name, using = name or "none" })
      return source
    end
  end
  ctx.closing = function(loaded) return parse.closing(loaded.template) end -- what ends a thought, or nil
  ctx.close_models = function() ctx.pool:close() end
  ctx.cancel_all = function()
    ctx.pulls:cancel_all()
    for _, l in pairs(ctx.pool.loaded) do
      for job in pairs(l.jobs) do job:cancel() end
    end
    ctx.pool:cancel_waiters(check.fault(503, "the server stops", { kind = "unavailable" }))
  end
  -- A request without a model gets the loaded one, else the only or newest fitting one.
  ctx.default_model = function(wanted)
    local function fits(entry)
      local info = ctx.catalog:info_of(entry)
      if info.error then return false end
      local can = capabilities.of(info, entry.manifest and entry.manifest.template)
      return can[wanted or "completion"]
    end
    for _, l in ipairs(ctx.pool:list()) do
      if fits(l.entry) then return l.name end
    end
    for _, entry in ipairs(ctx.catalog:list()) do
      if fits(entry) then return entry.name end
    end
  end
  ctx.readiness = function()
    local load = ctx.pool:loading()[1]
    if load then return { ready = false, reason = "loading", model = load.name } end
    local queue, names = 0, {}
    for _, l in ipairs(ctx.pool:list()) do
      names[#names + 1] = l.name
      queue = queue + l.engine:stats().n_waiting
    end
    if queue >= ctx.config.max_waiting then return { ready = false, reason = "overloaded", queue = queue } end
    return { ready = true, model = names[1], models = require("mtx.api.wire").list(names), queue = queue }
  end
  return true
end

return models
