-- SPDX-License-Identifier: MIT
-- Reads a Hugging Face tokenizer.json (and tokenizer_config.json beside it).
--
-- That file describes a pipeline; what it means is looked up, not interpreted:
-- the pre-tokenizer's expressions must be ones that mtx has a scanner for, and
-- an unknown one is an error that shows it. Format: the `tokenizers` library.
local cjson = require("cjson.safe").new()
local infile = require("mtx.infile")
local null = cjson.null

local MAX_BYTES = 128 << 20  -- the largest published are about 35 MB

local hf = {}

local pre_name = require("mtx.tok.hf_pre")
local sorted_keys = require("mtx.sorted_keys")

local function get(t, ...)
  for _, k in ipairs { ... } do
    if type(t) ~= "table" then return nil end
    t = t[k]
  end
  if t == null then return nil end
  return t
end

-- A component or a Sequence of them -> flat list. `parts`: the Sequence's field.
local function flatten(c, parts, out)
  out = out or {}
  if get(c, "type") == "Sequence" then
    for _, part in ipairs(get(c, parts) or {}) do flatten(part, parts, out) end
  elseif get(c, "type") then
    out[#out + 1] = c
  end
  return out
end

local function describe(steps)
  local names = {}
  for _, s in ipairs(steps) do
    if s.type == "Split" then
      local p = get(s, "pattern", "Regex") or get(s, "pattern", "String") or "?"
      names[#names + 1] = (p:gsub("\r", "\\r"):gsub("\n", "\\n"))
    elseif s.type == "ByteLevel" then
      if get(s, "add_prefix_space") then return nil, "a space put before every text (ByteLevel, add_prefix_space)" end
      if get(s, "use_regex") ~= false then names[#names + 1] = "bytelevel" end
    elseif s.type == "Digits" and get(s, "individual_digits") then
      names[#names + 1] = "digits"
    elseif s.type == "Punctuation" then
      names[#names + 1] = "punctuation"
    else
      return nil, "the step " .. tostring(s.type)
    end
  end
  local key = table.concat(names, "\n")
  if pre_name[key] then return pre_name[key] end
  return nil, "the expression " .. key:gsub("\n", " then ")
end

-- Tokens by id: texts, added tokens, gaps as unused.
local function collect(doc, vocab)
  local added, tokens, n = {}, {}, 0
  local function put(text, id)
    id = math.tointeger(id)
    if type(text) ~= "string" or not id or id < 0 or id >= 1 << 26 then error("a token has no proper id", 0) end
    tokens[id + 1] = text
    if id + 1 > n then n = id + 1 end
  end
  for text, id in pairs(vocab) do put(text, id) end
  for _, a in ipairs(get(doc, "added_tokens") or {}) do
    put(a.content, a.id)
    added[math.tointeger(a.id) + 1] = a
  end
  return tokens, added, n
end

local function token_types(tokens, added, n, bytes)
  local types = {}
  for i = 1, n do
    local a = added[i]
    if not tokens[i] then
      tokens[i], types[i] = "[PAD" .. i - 1 .. "]", 5
    elseif a then
      types[i] = a.special == true and 3 or 4
    else
      types[i] = bytes and tokens[i]:match("^<0x%x%x>$") and 6 or 1
    end
  end
  return types
end

local function merge_list(model)
  local list = {}
  for i, m in ipairs(get(model, "merges") or {}) do list[i] = type(m) == "table" and m[1] .. " " .. m[2] or m end
  return list
end

-- BPE on raw text with byte tokens (Llama 2, Gemma): SentencePiece's own merges,
-- so a token's score is the rank of the first merge that makes it.
local function scores_of_merges(model, tokens, n)
  local rank, scores = {}, {}
  for i, m in ipairs(merge_list(model)) do
    local whole = m:gsub(" ", "", 1)
    rank[whole] = rank[whole] or i
  end
  for i = 1, n do scores[i] = -(rank[tokens[i]] or 0) + 0.0 end
  return scores
end

local B64 = {}
for i = 0, 63 do B64[("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"):byte(i + 1)] = i end
local function base64(s)
  local out = {}
  for four in s:gsub("[^%w+/]", ""):gmatch("..?.?.?") do
    local v = 0
    for i = 1, 4 do v = v << 6 | (B64[four:byte(i)] or 0) end
    out[#out + 1] = string.pack(">I3", v):sub(1, #four - 1)
  end
  return table.concat(out)
end

-- How spaces are treated: -> prefix (one is put before the text), merge (runs become one).
local function spaces(normalizers, steps)
  local prefix, merge = false, false
  for _, s in ipairs(normalizers) do
    if s.type == "Prepend" then prefix = true end
    if s.type == "Replace" and (get(s, "pattern", "Regex") or ""):match("^ {2,}") then merge = true end
  end
  for _, s in ipairs(steps) do
    if s.type == "WhitespaceSplit" then merge = true end
    if s.type == "Metaspace" then
      local scheme = get(s, "prepend_scheme")
      prefix = prefix or (scheme and scheme ~= "never") or (scheme == nil and get(s, "add_prefix_space") ~= false)
    end
  end
  return prefix, merge
end

local KIND = {}

function KIND.BPE(doc, steps, normalizers)
  local model = doc.model
  local level = get(doc, "decoder", "type") == "ByteLevel"
  for _, s in ipairs(steps) do level = level or s.type == "ByteLevel" end
  local tokens, added, n = collect(doc, model.vocab)
  local kv
  if level then
    local pre, what = describe(steps)
    if not pre then return nil, "its pre-tokenizer uses " .. what .. ", which mtx does not know", "unsupported" end
    kv = {
      { "tokenizer.ggml.model", "string", "gpt2" }, { "tokenizer.ggml.pre", "string", pre },
      { "tokenizer.ggml.merges", "array:string", merge_list(model) },
      { "tokenizer.mtx.ignore_merges", "bool", get(model, "ignore_merges") == true },
      { "tokenizer.mtx.clean_spaces", "bool", false },
    }
  else
    kv = {
      { "tokenizer.ggml.model", "string", "llama" }, { "tokenizer.ggml.scores", "array:f32", scores_of_merges(model, tokens, n) },
      { "tokenizer.ggml.add_space_prefix", "bool", (spaces(normalizers, steps)) },
    }
  end
  return kv, tokens, added, n
end

function KIND.WordPiece(doc, _, normalizers)
  local tokens, added, n = collect(doc, doc.model.vocab)
  local types = token_types(tokens, added, n, false)
  local lower, strip = false, nil
  for _, s in ipairs(normalizers) do
    if s.type == "BertNormalizer" then lower, strip = get(s, "lowercase") ~= false, get(s, "strip_accents") end
    if s.type == "Lowercase" then lower = true end
  end
  for i = 1, n do
    if types[i] == 1 then tokens[i] = tokens[i]:sub(1, 2) == "##" and tokens[i]:sub(3) or "\u{2581}" .. tokens[i] end
  end
  if strip == nil then strip = lower end
  return {
    { "tokenizer.ggml.model", "string", "bert" }, { "tokenizer.ggml.normalizer.lowercase", "bool", lower },
    { "tokenizer.ggml.normalizer.strip_accents", "bool", strip },
  }, tokens, added, n
end

function KIND.Unigram(doc, steps, normalizers)
  local vocab, scores = {}, {}
  for i, v in ipairs(doc.model.vocab) do vocab[v[1]], scores[i] = i - 1, v[2] + 0.0 end
  local tokens, added, n = collect(doc, vocab)
  for i = 1, n do scores[i] = scores[i] or 0.0 end
  local prefix, merge = spaces(normalizers, steps)
  local mapped = false
  for _, s in ipairs(normalizers) do mapped = mapped or s.type == "Precompiled" end
  for _, s in ipairs(steps) do
    -- Newlines and tabs become spaces only by the compiled map.
    if s.type == "WhitespaceSplit" and not mapped then return nil, "WhitespaceSplit without a Precompiled normalizer is not supported", "unsupported" end
  end
  local kv = {
    { "tokenizer.ggml.model", "string", "t5" }, { "tokenizer.ggml.scores", "array:f32", scores },
    { "tokenizer.ggml.add_space_prefix", "bool", prefix }, { "tokenizer.ggml.remove_extra_whitespaces", "bool", merge },
  }
  for _, s in ipairs(normalizers) do
    local map = s.type == "Precompiled" and get(s, "precompiled_charsmap")
    if map and #map > 0 then kv[#kv + 1] = { "tokenizer.ggml.precompiled_charsmap", "array:u8", base64(map) } end
  end
  local unk = get(doc.model, "unk_id")
  if unk then kv[#kv + 1] = { "tokenizer.ggml.unknown_token_id", "u32", math.tointeger(unk) } end
  return kv, tokens, added, n
end

-- What the post-processor puts before and after a text: token texts or nil.
local function around(doc)
  local first, last
  for _, p in ipairs(flatten(get(doc, "post_processor"), "processors")) do
    if p.type == "TemplateProcessing" then
      local single = p.single or {}
      first = get(single[1], "SpecialToken", "id") or first
      last = #single > 1 and get(single[#single], "SpecialToken", "id") or last
    elseif p.type == "BertProcessing" or p.type == "RobertaProcessing" then
      first, last = get(p, "cls", 1), get(p, "sep", 1)
    end
  end
  return first, last
end

local NAMED = {
  bos_token = "bos_token_id", eos_token = "eos_token_id", unk_token = "unknown_token_id", pad_token = "padding_token_id",
  mask_token = "mask_token_id", sep_token = "seperator_token_id",
}

local function specials(kv, doc, config, tokens, bert)
  local id = {}
  for i, text in ipairs(tokens) do id[text] = id[text] or i - 1 end
  local found, first, last = {}, around(doc)
  local function name(key, text)
    text = type(text) == "table" and text.content or text
    if type(text) == "string" and id[text] then found[key] = id[text] end
  end
  for token, key in pairs(NAMED) do name(key, get(config, token)) end
  name("unknown_token_id", get(doc, "model", "unk_token"))
  name("bos_token_id", bert and get(config, "cls_token"))
  if first then name("bos_token_id", first) end
  if last then name(bert and "seperator_token_id" or "eos_token_id", last) end
  for _, key in ipairs(sorted_keys(found)) do kv[#kv + 1] = { "tokenizer.ggml." .. key, "u32", found[key] } end
  local function flag(key, token, from_config)
    local on = token ~= nil
    if token == nil and from_config ~= nil then on = from_config == true end
    kv[#kv + 1] = { "tokenizer.ggml." .. key, "bool", on }
  end
  if bert then return end
  flag("add_bos_token", first, get(config, "add_bos_token"))
  flag("add_eos_token", last, get(config, "add_eos_token"))
end

local function load(path)
  local text, message = infile.read(path, MAX_BYTES + 1)
  if not text then return nil, message end
  if #text > MAX_BYTES then return nil, "more than " .. MAX_BYTES .. " bytes" end
  local doc
  doc, message = cjson.decode(text)
  if type(doc) ~= "table" then return nil, "no JSON: " .. tostring(message) end
  return doc
end

local function translate(doc, config)
  local kind = get(doc, "model", "type") or (get(doc, "model", "merges") and "BPE")
  if not KIND[kind] then return nil, "a tokenizer model of type " .. tostring(kind) .. " is not supported", "unsupported" end
  if type(get(doc, "model", "vocab")) ~= "table" then return nil, "model.vocab is missing", "format" end
  local steps = flatten(get(doc, "pre_tokenizer"), "pretokenizers")
  local kv, tokens, added, n = KIND[kind](doc, steps, flatten(get(doc, "normalizer"), "normalizers"))
  if not kv then return nil, tokens, added end
  local bytes = get(doc, "model", "byte_fallback") == true
  kv[#kv + 1] = { "tokenizer.ggml.token_type", "array:i32", token_types(tokens, added, n, bytes) }
  kv[#kv + 1] = { "tokenizer.ggml.tokens", "array:string", tokens }
  specials(kv, doc, config, tokens, kind == "WordPiece")
  return kv
end

-- -> kv (see mtx.tok) | nil, message, code
function hf.read(path)
  local doc, message = load(path)
  if not doc then return nil, message, "format" end
  local config = load((path:gsub("[^/]*$", "")) .. "tokenizer_config.json") or {}
  local ok, kv, why, code = pcall(translate, doc, config)
  if not ok then return nil, "not a proper tokenizer.json: " .. tostring(kv), "format" end
  return kv, why, code
end

return hf
