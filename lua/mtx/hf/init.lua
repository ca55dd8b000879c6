-- SPDX-License-Identifier: MIT
-- A Hugging Face model folder as a model: config.json, the tokenizer and the
-- names of the tensors are translated to what a GGUF file of the model would
-- hold; the weights stay where they are (csrc/st). Nothing is written.
local core = require("mtx.core")
local cjson = require("cjson.safe").new()
local infile = require("mtx.infile")
local sorted_keys = require("mtx.sorted_keys")
local tok = require("mtx.tok")

local hf = {}

local MAX_TEXT_BYTES = 16 << 20  -- of any file but the tokenizer and the weights
local WEIGHTS = { F32 = true, F16 = true, BF16 = true }

-- nulls count as absent.
local function without_nulls(t)
  for k, v in pairs(t) do
    if v == cjson.null then t[k] = nil elseif type(v) == "table" then without_nulls(v) end
  end
  return t
end

local function number_kinds(t)
  for k, v in pairs(t) do
    if type(v) == "number" then t[k] = math.tointeger(v) or v elseif type(v) == "table" then number_kinds(v) end
  end
  return t
end

-- -> text | nil when there is no such file
local function read_text(folder, name)
  local text = infile.read(folder .. "/" .. name, MAX_TEXT_BYTES + 1)
  if text and #text > MAX_TEXT_BYTES then error(("%s has more than %d bytes"):format(name, MAX_TEXT_BYTES), 0) end
  return text
end

-- -> table | nil when there is no such file. What is no JSON object is an error.
local function read_json(folder, name)
  local text = read_text(folder, name)
  if not text then return nil end
  local doc, message = cjson.decode(text)
  if type(doc) ~= "table" then error(name .. " is no JSON object" .. (message and ": " .. message or ""), 0) end
  return number_kinds(without_nulls(doc))
end

-- ---- metadata ----------------------------------------------------------------------------

-- sentence-transformers says how token vectors become one: modules.json names the module, its folder the way.
local POOLING = { pooling_mode_mean_tokens = 1, pooling_mode_cls_token = 2, pooling_mode_lasttoken = 3 }
local POOLING_MODE = { mean = 1, cls = 2, lasttoken = 3 }
local function pooling_of(folder)
  for _, module in ipairs(read_json(folder, "modules.json") or {}) do
    local path = type(module) == "table" and type(module.type) == "string" and module.type:find("%.Pooling$") and module.path
    if type(path) == "string" and path:find("^[%w_%-%.]+$") and not path:find("^%.") then
      local c = read_json(folder, path .. "/config.json") or {}
      local mode = POOLING_MODE[c.pooling_mode]
      for key, value in pairs(POOLING) do
        if c[key] == true then
          if mode and mode ~= value then error(path .. "/config.json asks for more than one kind of pooling, which is not supported", 0) end
          mode = value
        end
      end
      if not mode then error(path .. "/config.json asks for a kind of pooling that is not supported (mean, cls and last token are)", 0) end
      return mode
    end
  end
end

-- chat_template.jinja, or a field of tokenizer_config.json: a text, or a list of named ones.
local function chat_template(folder)
  local text = read_text(folder, "chat_template.jinja")
  if text then return text end
  local t = (read_json(folder, "tokenizer_config.json") or {}).chat_template
  if t == nil then t = (read_json(folder, "chat_template.json") or {}).chat_template end
  if type(t) ~= "table" then return t end
  for _, named in ipairs(t) do
    if named.name == "default" then return named.template end
  end
end

-- Every end of generation that the settings name, not only the tokenizer's.
local function end_ids(folder, config)
  local ids = (read_json(folder, "generation_config.json") or {}).eos_token_id
  if ids == nil then ids = config.eos_token_id end
  if math.type(ids) == "integer" then ids = { ids } end
  if type(ids) ~= "table" or #ids == 0 then return nil end
  for _, id in ipairs(ids) do
    if math.type(id) ~= "integer" or id < 0 or id > 0xFFFFFFFF then error("eos_token_id is no list of token ids", 0) end
  end
  return ids
end

local function check_value(key, kind, value)
  local fits
  if kind == "u32" then fits = math.type(value) == "integer" and value >= 0 and value <= 0xFFFFFFFF
  elseif kind == "f32" then fits = type(value) == "number"
  elseif kind == "array:bool" then fits = type(value) == "table"
  elseif kind == "bool" then fits = type(value) == "boolean"
  else fits = type(value) == "string" end
  if not fits then error(("the setting for %s has no proper value (%s)"):format(key, tostring(value)), 0) end
end

-- -> kv (see mtx.tok), values of the tensor rope_freqs or nil
local function metadata(folder, family, config)
  local kv = {}
  local function put(key, kind, value)
    check_value(key, kind, value)
    kv[#kv + 1] = { key, kind, value }
  end
  local function put_arch(key, kind, value) put(family.arch .. "." .. key, kind, value) end
  put("general.architecture", "string", family.arch)
  put("general.name", "string", folder:match("([^/]+)$") or folder)
  if not family.own_settings then require("mtx.hf.families").decoder_settings(config, put_arch) end
  local divisors = family.settings(config, put_arch)
  if config.vocab_size then put_arch("vocab_size", "u32", config.vocab_size) end
  local pooling = pooling_of(folder)
  if pooling then put_arch("pooling_type", "u32", pooling) end
  local template = chat_template(folder)
  if type(template) == "string" then put("tokenizer.chat_template", "string", template) end
  local ends = end_ids(folder, config)
  if ends then kv[#kv + 1] = { "tokenizer.mtx.eog_token_ids", "array:u32", ends } end
  return kv, divisors
end

-- ---- tensors -----------------------------------------------------------------------------

-- Names differ in what wraps the model: "model.layers.0...", "language_model.model.layers.0...", "layers.0...".
local PREFIXES = { "^model%.language_model%.", "^language_model%.model%.", "^language_model%.", "^model%.", "^bert%.", "^backbone%." }
local function bare(name)
  for _, prefix in ipairs(PREFIXES) do
    local rest, n = name:gsub(prefix, "")
    if n > 0 then return rest end
  end
  return name
end

-- -> GGUF's name, number of the expert or nil; or nil: not a tensor of the family.
local function gguf_name(family, names, name)
  local families = require("mtx.hf.families")
  local rest = bare(name)
  if names.top[rest] then return names.top[rest] end
  local layer, whole = rest:match(names.pattern)
  if not layer then return nil end
  if family.whole and family.whole[whole] then return ("blk.%s.%s"):format(layer, family.whole[whole]) end
  local part, kind = whole:match("^(.+)%.(%a+)$")
  if not part then return nil end
  for _, folder in ipairs(family.experts or {}) do
    local at = part:sub(1, #folder + 1) == folder .. "." and part:sub(#folder + 2)
    local expert, matrix = (at or ""):match("^(%d+)%.(.+)$")
    if expert and families.EXPERT[matrix] then return ("blk.%s.%s.%s"):format(layer, families.EXPERT[matrix], kind), math.tointeger(expert) end
  end
  local to = family.layer and family.layer[part] or names.parts[part]
  return to and ("blk.%s.%s.%s"):format(layer, to, kind)
end

local function names_of(family)
  local families = require("mtx.hf.families")
  return {
    top = family.top or families.DECODER_TOP, parts = family.parts or families.DECODER_LAYER,
    pattern = "^" .. (family.layers or "layers"):gsub("%.", "%%.") .. "%.(%d+)%.(.+)$",
  }
end

-- Numbers 0, 1, 2, ... without a gap, or an error.
local function check_experts(use, config)
  local n = config.num_local_experts or config.num_experts or config.n_routed_experts
  for i = 1, n do
    if not use.from[i] then error(("expert %d of %s is missing"):format(i - 1, use.name), 0) end
  end
  if #use.from ~= n then error(("%s has %d experts, config.json says %d"):format(use.name, #use.from, n), 0) end
end

-- Old files hold the rotary frequencies too, which follow from the settings.
local function is_unused(family, name)
  if name:find("rotary_emb%.inv_freq$") then return true end
  for _, pattern in ipairs(family.unused or {}) do
    if bare(name):find(pattern) then return true end
  end
  return false
end

-- -> list for weights:model. Tensors of no meaning to the family keep their names, so that loading can warn of them.
local function translate(family, config, tensors)
  local names, uses, by_name = names_of(family), {}, {}
  local tied = config.tie_word_embeddings
  if tied == nil then tied = family.tied == true end
  for _, t in ipairs(tensors) do
    local name, expert = gguf_name(family, names, t.name)
    local use = name and by_name[name]
    if name == "output.weight" and tied then
      use = nil  -- a copy of the embedding table, which counts
    elseif expert then
      if not use then
        use = { name = name, from = {} }
        uses[#uses + 1], by_name[name] = use, use
      end
      if use.from[expert + 1] then error(("the tensor %s occurs twice"):format(t.name), 0) end
      use.from[expert + 1] = t.name
    elseif use then
      error(("the tensors %s and %s mean the same"):format(use.from, t.name), 0)
    elseif name or WEIGHTS[t.dtype] and not is_unused(family, t.name) then
      if name == "token_embd.weight" and config.vocab_size and t.shape[1] ~= config.vocab_size then
        error(("%s has %s rows, config.json says %s tokens (vocab_size)"):format(t.name, t.shape[1], tostring(config.vocab_size)), 0)
      end
      use = { name = name or t.name, from = t.name }
      by_name[use.name] = use
      local function add(u) uses[#uses + 1] = u end
      add(use)
      if name and family.tensor then family.tensor(config, use, add) end
    end
  end
  for _, use in ipairs(uses) do
    if type(use.from) == "table" then check_experts(use, config) end
  end
  if not family.encoder and not tied and not by_name["output.weight"] then
    error("lm_head.weight is missing, and config.json does not say that the output is tied to the embeddings", 0)
  end
  return uses
end

-- ---- opening -----------------------------------------------------------------------------

local function family_of(config)
  local families = require("mtx.hf.families")
  local kind = config.model_type
  local family = type(kind) == "string" and kind:find("^[%w_]+$") and families[kind]
  if type(family) == "table" and family.arch then return family end
  local known = {}
  for _, name in ipairs(sorted_keys(families)) do
    if type(families[name]) == "table" and families[name].arch then known[#known + 1] = name end
  end
  return nil, ("mtx does not know the model_type '%s' (known: %s); a GGUF file of the model may run"):format(tostring(kind), table.concat(known, ", "))
end

local function open(folder, weights, opts)
  local config = read_json(folder, "config.json")
  if not config then return nil, "the folder holds no config.json", "notfound" end
  if type(config.text_config) == "table" then config = config.text_config end  -- the language part of a larger model
  local family, message = family_of(config)
  if not family then return nil, message, "unsupported" end
  for key, value in pairs(family.defaults or {}) do
    if config[key] == nil then config[key] = value end
  end
  if config.quantization_config then
    return nil, "its weights are quantised in a way that is not read (quantization_config); use the original model or a GGUF file", "unsupported"
  end
  local act = config.hidden_activation or config.hidden_act
  if act and not family.act[act] then return nil, ("the activation '%s' is not supported for this family"):format(tostring(act)), "unsupported" end
  local tensors = weights:tensors()
  local kv, divisors = metadata(folder, family, config)
  if not opts.no_tokenizer then
    local words, why, code = tok.read(folder)
    if words then table.move(words, 1, #words, #kv + 1, kv) elseif code ~= "notfound" then return nil, why, code end
  end
  local uses = translate(family, config, tensors)
  if divisors then uses[#uses + 1] = { name = "rope_freqs.weight", values = divisors } end
  return weights:model(tok.gguf_bytes(kv), uses)
end

-- opts: no_tokenizer (leave it unread) -> mtx.gguf | nil, message, code
function hf.open(path, opts)
  local folder = path:gsub("(.)/+$", "%1")
  local weights <close>, message, code = core.safetensors.open(folder)
  if not weights then return nil, message, code end
  local ok, g, why, what = pcall(open, folder, weights, opts or {})
  if not ok then  -- arithmetic on what is no number, or our own words
    return nil, folder .. ": " .. tostring(g):gsub("^[^:]*%.lua:%d+: ", "a setting of config.json is of the wrong kind: "), "format"
  end
  if g then return g end
  if why:sub(1, #folder) ~= folder then why = folder .. ": " .. why end
  return nil, why, what
end

return hf
