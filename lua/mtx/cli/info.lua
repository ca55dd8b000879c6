-- SPDX-License-Identifier: MIT
-- `mtx info MODEL`: what a model file is, without loading its weights.
local args = require("mtx.cli.args")
local json = require("mtx.json")
local named = require("mtx.cli.named")
local quantization = require("mtx.model.quantization")
local term = require("mtx.cli.term")

local info = { name = "info", summary = "what a model file holds and the memory it needs" }

local options = {
  { name = "tensors", kind = "flag", help = "list every tensor: name, type, shape" },
  { name = "metadata", kind = "flag", help = "list all metadata, or with KEY that one's whole value" },
  { name = "json", kind = "flag", help = "print JSON" },
  named.option,
}

info.help = [=[
usage: mtx info MODEL [--tensors] [--metadata [KEY]] [--json]

Shows architecture, parameters, quantisation mix, context length, tokenizer and
chat template of a GGUF file or model folder, and the memory it will need; of a
LoRA adapter what it changes. Reads headers only.

]=] .. args.help(options)

local function elements(t)
  local n = 1
  for _, d in ipairs(t.shape) do n = n * d end
  return n
end

-- Bytes of keys and values per token at F16, from the header alone; an upper
-- bound for models with sliding windows.
local function kv_bytes_per_token(get, arch)
  local layers, heads = get(arch .. ".block_count") or 0, get(arch .. ".attention.head_count") or 0
  local kv = get(arch .. ".attention.head_count_kv") or heads
  local embd = get(arch .. ".embedding_length") or 0
  if type(heads) == "table" then heads = math.max(table.unpack(heads)) end
  if type(kv) == "table" then kv = math.max(table.unpack(kv)) end
  if heads == 0 then return 0 end
  local dk = get(arch .. ".attention.key_length") or embd // heads
  local dv = get(arch .. ".attention.value_length") or embd // heads
  return layers * kv * (dk + dv) * 2
end

-- What a LoRA adapter says of itself; nil for a model.
local function adapter_of(get, tensors)
  if get("general.type") ~= "adapter" then return nil end
  local rank, n = 0, 0
  for _, t in ipairs(tensors) do
    if t.name:find("%.lora_b$") then rank, n = math.max(rank, t.shape[1]), n + 1 end
  end
  return { type = get("adapter.type"), alpha = get("adapter.lora.alpha"), rank = rank, weights = n,
    task_name = get("adapter.lora.task_name"), prompt_prefix = get("adapter.lora.prompt_prefix") }
end

local function describe(path, g)
  local function get(key) return (g:metadata(key)) end
  local arch = get("general.architecture") or "unknown"
  local tensors = g:tensors()
  local adapter = adapter_of(get, tensors)
  local n_params, weights = 0, 0
  for _, t in ipairs(tensors) do n_params, weights = n_params + elements(t), weights + t.bytes end
  local tokens = get("tokenizer.ggml.tokens")
  local template = get("tokenizer.chat_template")
  local ctx = get(arch .. ".context_length") or 0
  local per_token = kv_bytes_per_token(get, arch)
  local n_ctx = math.min(ctx, 4096)
  return {
    path = path, name = get("general.name"), adapter = adapter, architecture = arch, parameters = n_params, quantization = quantization.mix(tensors), tensors = #tensors,
    context_length = ctx, embedding_length = get(arch .. ".embedding_length"), layers = get(arch .. ".block_count"),
    vocabulary = tokens and #tokens, tokenizer = get("tokenizer.ggml.model"), pre_tokenizer = get("tokenizer.ggml.pre"),
    chat_template = template and #template or 0, license = get("general.license"),
    memory = { weights_bytes = weights, kv_bytes = per_token * n_ctx, kv_tokens = n_ctx, kv_bytes_per_token = per_token },
  }
end

local function print_rows(rows)
  for _, r in ipairs(rows) do print(("%-14s %s"):format(r[1], r[2])) end
end

local function print_summary(d)
  local mix = {}
  for i, m in ipairs(d.quantization) do mix[i] = ("%s %.0f%%"):format(m.type, m.share * 100) end
  local a = d.adapter
  if a then
    return print_rows({
      { "name", d.name or "-" },
      { "adapter", ("%s for %s, %d weights, rank %d%s"):format(a.type == "lora" and "LoRA" or tostring(a.type), d.architecture, a.weights, a.rank,
        a.alpha and (", alpha %g"):format(a.alpha) or "") },
      { "task", a.task_name or "-" }, { "prompt prefix", a.prompt_prefix or "-" }, { "types", table.concat(mix, ", ") }, { "licence", d.license or "not stated" },
      { "memory", term.bytes(d.memory.weights_bytes) }, { "use", "mtx run MODEL --lora " .. d.path },
    })
  end
  print_rows({
    { "name", d.name or "-" }, { "architecture", d.architecture }, { "parameters", term.count(d.parameters) },
    { "quantisation", table.concat(mix, ", ") }, { "layers", d.layers or "-" }, { "embedding", d.embedding_length or "-" },
    { "context", ("%d tokens"):format(d.context_length) },
    { "tokenizer", ("%s%s, %s tokens"):format(d.tokenizer or "none", d.pre_tokenizer and (" (" .. d.pre_tokenizer .. ")") or "", d.vocabulary or 0) },
    { "chat template", d.chat_template > 0 and (d.chat_template .. " bytes") or "none" }, { "licence", d.license or "not stated" },
    { "memory", ("%s weights + %s for %d tokens of context"):format(term.bytes(d.memory.weights_bytes), term.bytes(d.memory.kv_bytes), d.memory.kv_tokens) },
  })
end

local function short(value)
  if type(value) == "table" then
    local items = {}
    for i = 1, math.min(#value, 8) do items[i] = tostring(value[i]) end
    return "[" .. table.concat(items, ", ") .. (#value > 8 and (", ... %d items]"):format(#value) or "]")
  end
  local s = tostring(value):gsub("%c", " ")
  return #s > 100 and s:sub(1, 100) .. "..." or s
end

-- A list of the file is a JSON list, also when empty.
local function listed(value) return type(value) == "table" and json.array(value) or value end

local function print_metadata(path, g, key, as_json)
  if key then
    local value, kind = g:metadata(key)
    if kind == nil then return args.failure(("%s: no metadata key '%s'; --metadata lists them"):format(path, key)) end
    if as_json then return args.print_json(listed(value)) end
    if type(value) == "table" then
      for _, v in ipairs(value) do print(v) end
    else print(value) end
    return 0
  end
  if as_json then
    local out = json.array()
    for _, m in ipairs(g:metadata()) do out[#out + 1] = { key = m.key, type = m.type, value = listed(m.value) } end
    return args.print_json(out)
  end
  for _, m in ipairs(g:metadata()) do print(("%-45s %-8s %s"):format(m.key, m.type, m.value == nil and "(long list)" or short(m.value))) end
  return 0
end

function info.run(list)
  local values, code = args.start(info, options, list, function(v) return v.metadata and 2 or 1 end)
  if not values then return code end
  if not values.rest[1] then return args.misuse(info, named.WHICH) end
  local path = named.find(values.rest[1], values.models_dir)
  local g, message = require("mtx.model.source").open(path, { vocab_only = true })
  if not g then return args.failure(message) end
  if values.metadata then return print_metadata(path, g, values.rest[2], values.json) end
  if values.tensors then
    if values.json then return args.print_json(json.array(g:tensors())) end
    for _, t in ipairs(g:tensors()) do print(("%-45s %-8s %s"):format(t.name, t.type, table.concat(t.shape, " x "))) end
    return 0
  end
  local d = describe(path, g)
  if values.json then return args.print_json(d) end
  print_summary(d)
  return 0
end

return info
