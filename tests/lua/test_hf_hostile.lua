-- SPDX-License-Identifier: MIT
-- What a model folder can get wrong, and what a hostile one tries (SEC-09 and more): weights, index, settings, files.
local lu = require("luaunit")
local cjson = require("cjson")
local core = require("mtx.core")
local mtx = require("mtx")
local folder = require("hf_folder")

local SCRATCH <const> = folder.SCRATCH
local read, write, copy = folder.read, folder.write, folder.copy

TestHostile = {}

local function header(json, n) return ("<I8"):pack(n or #json) .. json end

-- A folder whose weights are `bytes`; -> message, code of opening it.
local function weights(bytes)
  local dir = copy("llama", "bad")
  write(dir .. "/model.safetensors", bytes)
  local g, message, code = core.safetensors.open(dir)
  lu.assertNil(g)
  lu.assertStrContains(message, "model.safetensors")
  return message, code
end

local function refused(bytes, words, code)
  local message, got = weights(bytes)
  lu.assertStrContains(message, words)
  lu.assertEquals(got, code or "format", message)
end

local ONE = '{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}'
local DATA = ("\0"):rep(16)

function TestHostile.test_header()
  refused("abc", "not a safetensors")
  refused(header(ONE, 1 << 40) .. DATA, "not a safetensors")
  refused(header(ONE, 0xFFFFFFFFFFFFFFFF) .. DATA, "not a safetensors")
  refused(header((" "):rep((16 << 20) + 1)), "the limit is", "limit")
  refused(header("{"), "JSON")
  refused(header("[]"), "no JSON object")
  refused(header('{"a":1}'), "no object")
  refused(header(("["):rep(5000)), "nested")
  refused("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull")
  refused("GGUF" .. DATA, "GGUF file")
  refused("PK\3\4" .. DATA, "PyTorch")
  for n = 1, #ONE + 7 do weights((header(ONE) .. DATA):sub(1, n)) end
end

function TestHostile.test_entries()
  local function with(entry) return header('{"a":{' .. entry .. "}}") .. DATA end
  refused(with '"shape":[2,2],"data_offsets":[0,16]', "dtype")
  refused(with '"dtype":"F128","shape":[2,2],"data_offsets":[0,16]', "'F128' is not known", "unsupported")
  refused(with '"dtype":"F32","data_offsets":[0,16]', "shape")
  refused(with '"dtype":"F32","shape":[2.0,2],"data_offsets":[0,16]', "whole number")
  refused(with '"dtype":"F32","shape":[-2,-2],"data_offsets":[0,16]', "whole number")
  refused(with '"dtype":"F32","shape":[1,1,1,1,1,1,1,2,2],"data_offsets":[0,16]', "9 dimensions", "unsupported")
  refused(with '"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]', "64 bits")
  refused(with '"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,16]', "whole number")
  refused(with '"dtype":"F32","shape":[2,2]', "data_offsets")
  refused(with '"dtype":"F32","shape":[2,2],"data_offsets":[0]', "data_offsets")
  refused(with '"dtype":"F32","shape":[2,2],"data_offsets":[16,0]', "leaves the file")
  refused(with '"dtype":"F32","shape":[2,3],"data_offsets":[0,24]', "leaves the file's 16 bytes")
  refused(with '"dtype":"F32","shape":[2,3],"data_offsets":[0,16]', "need 24 bytes, its data has 16")
  refused(with '"dtype":"F4","shape":[31],"data_offsets":[0,16]', "need 15 bytes")
  refused(header('{"a\\u0000b":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}') .. DATA, "zero byte")
end

function TestHostile.test_places()
  local function two(a, b) return ('{"a":{"dtype":"F32","shape":[2],"data_offsets":%s},"b":{"dtype":"F32","shape":[2],"data_offsets":%s}}'):format(a, b) end
  refused(header(two("[0,8]", "[4,12]")) .. DATA, "overlaps")
  refused(header(two("[0,8]", "[0,8]")) .. DATA, "overlaps")
  refused(header(two("[0,8]", "[12,20]")) .. DATA .. "0000", "gap")
  refused(header(two("[4,12]", "[12,20]")) .. DATA .. "0000", "gap")
  refused(header(ONE) .. DATA .. "x", "behind the last tensor")
  refused(header('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}') .. DATA, "twice")
end

function TestHostile.test_index()
  local function index(text, words, code)
    local dir = copy("llama-bias", "bad")
    if text then write(dir .. "/model.safetensors.index.json", text) end
    local g, message, got = core.safetensors.open(dir)
    lu.assertNil(g)
    lu.assertStrContains(message, words)
    lu.assertEquals(got, code or "format", message)
  end
  index("{", "JSON")
  index("{}", "weight_map")
  index('{"weight_map":{}}', "lists no tensors")
  for _, name in ipairs { "../model.safetensors", "/etc/passwd", "a/b.safetensors", ".x.safetensors", "", "x.bin", "x.safetensors\\u0000y.safetensors" } do
    index('{"weight_map":{"a":"' .. name .. '"}}', "plain name")
  end
  index('{"weight_map":{"a":7}}', "plain name")
  index('{"weight_map":{"a":"nosuch.safetensors"}}', "nosuch.safetensors", "notfound")
  index('{"weight_map":{"no.such":"model-00001-of-00006.safetensors"}}', "does not")
  index('{"weight_map":{"model.embed_tokens.weight":"model-00002-of-00006.safetensors"}}', "does not")
  local dir = copy("llama-bias", "bad")
  os.remove(dir .. "/model-00003-of-00006.safetensors")
  local _, message, code = core.safetensors.open(dir)
  lu.assertStrContains(message, "model-00003")
  lu.assertEquals(code, "notfound")
  os.execute(("cp %s/model-00002-of-00006.safetensors %s/model-00003-of-00006.safetensors"):format(dir, dir))
  _, message = core.safetensors.open(dir)
  lu.assertStrContains(message, "twice")
end

-- A config.json with other fields, or one of the files missing.
local function config(changes, words, code, name)
  local dir = copy(name or "llama", "bad")
  local c = cjson.decode(read(dir .. "/config.json"))
  for k, v in pairs(changes) do c[k] = v end
  write(dir .. "/config.json", cjson.encode(c))
  local model, message, got = mtx.load(dir)
  lu.assertNil(model, words)
  lu.assertStrContains(message, words)
  lu.assertStrContains(message, SCRATCH .. "bad")
  lu.assertEquals(got, code or "format", message)
  lu.assertNotStrContains(message, ".lua:")
end

function TestHostile.test_config()
  config({ model_type = "gpt_bigcode" }, "does not know the model_type 'gpt_bigcode' (known: bert,", "unsupported")
  config({ model_type = "../llama" }, "model_type", "unsupported")
  config({ model_type = "need" }, "model_type", "unsupported")
  config({ model_type = 7 }, "model_type", "unsupported")
  config({ hidden_size = cjson.null }, "hidden_size")
  config({ hidden_size = "big" }, "llama.embedding_length has no proper value (big)")
  config({ hidden_size = "big", head_dim = cjson.null }, "hidden_size is big")
  config({ num_attention_heads = 0 }, "num_attention_heads")
  config({ num_attention_heads = 1e300 }, "")
  config({ num_hidden_layers = 3 }, "blk.2.attn_norm.weight")
  config({ num_hidden_layers = -1 }, "block_count")
  config({ vocab_size = 5 }, "model.embed_tokens.weight has 128 rows, config.json says 5 tokens")
  config({ hidden_size = 64 }, "token_embd.weight: tensor has shape 32 x 128")
  config({ hidden_act = "relu" }, "relu", "unsupported")
  config({ quantization_config = { quant_method = "gptq" } }, "quantization_config", "unsupported")
  config({ rope_parameters = { rope_type = "longrope", rope_theta = 1e4 } }, "longrope")
  config({ rope_parameters = { rope_type = "llama3" } }, "lacks a setting")
  config({ rope_parameters = 5 }, "wrong kind")
  config({ rope_parameters = { rope_type = "llama3", rope_theta = 1e4, factor = "x", low_freq_factor = 1, high_freq_factor = 4, original_max_position_embeddings = 32 } }, "wrong kind")
  config({ num_local_experts = 5 }, "expert 4", nil, "mixtral")
  config({ num_local_experts = 3 }, "has 4 experts, config.json says 3", nil, "mixtral")
  config({ layer_types = { "sliding_attention", "full_attention" } }, "mixture", nil, "mistral")
  config({ use_sliding_window = true }, "use_sliding_window", nil, "qwen2")
  config({ norm_topk_prob = false }, "norm_topk_prob", nil, "qwen3-moe")
  config({ layer_types = { "full_attention", "chunked_attention" } }, "chunked_attention", nil, "gemma3")
  config({ layer_types = { "full_attention" } }, "a layer of type nil", nil, "gemma3")
  config({ kv_lora_rank = 17 }, "attn_kv_a_mqa", nil, "deepseek-v3")
  config({ qk_nope_head_dim = 9 }, "not 4 heads with rows 9 to 17", nil, "deepseek-v3")
  config({ v_head_dim = 9 }, "are not 4 heads with rows 8 to 17", nil, "deepseek-v3")
  config({ num_attention_heads = 5 }, "64 rows are not 5 heads", nil, "deepseek-v3")
  config({ num_heads = 5 }, "does not fill", nil, "mamba2")
  config({ linear_num_value_heads = 8 }, "more value heads than key heads", nil, "qwen3-5")
  config({ layer_types = { "full_attention", "linear_attention" } }, "irregular", nil, "qwen3-5")
end

function TestHostile.test_files()
  local function without(name, words, code)
    local dir = copy("llama", "bad")
    os.remove(dir .. "/" .. name)
    local model, message, got = mtx.load(dir)
    lu.assertNil(model)
    lu.assertStrContains(message, words)
    lu.assertEquals(got, code)
  end
  without("model.safetensors", "neither model.safetensors nor", "notfound")
  without("config.json", "config.json", "notfound")
  local dir = copy("llama", "bad")
  for _, text in ipairs { "", "7", "{", ("["):rep(2000) } do
    write(dir .. "/config.json", text)
    local model, message = mtx.load(dir)
    lu.assertNil(model)
    lu.assertStrContains(message, "config.json")
  end
end

-- The first byte of a header's dtype of tensor `name` replaced: same size, another meaning.
local function retyped(name, from, to)
  local dir = copy(name, "bad")
  local bytes, n = read(dir .. "/model.safetensors"):gsub('"dtype":"' .. from .. '"', '"dtype":"' .. to .. '"')
  lu.assertTrue(n > 0)
  write(dir .. "/model.safetensors", bytes)
  return mtx.load(dir)
end

function TestHostile.test_dtypes()
  for _, to in ipairs { "I32", "U32" } do
    local model, message, code = retyped("llama", "F32", to)
    lu.assertNil(model)
    lu.assertStrContains(message, "model.safetensors: ")
    lu.assertStrContains(message, "weights of type " .. to .. " are not read; save the model as BF16, F16 or F32")
    lu.assertEquals(code, "unsupported")
  end
  -- Numbers that begin at an odd byte are refused, not read across.
  local dir = copy("llama", "bad")
  local bytes = read(dir .. "/model.safetensors")
  local n = ("<I8"):unpack(bytes)
  write(dir .. "/model.safetensors", ("<I8"):pack(n + 1) .. bytes:sub(9, 8 + n) .. " " .. bytes:sub(9 + n))
  local model, message = mtx.load(dir)
  lu.assertNil(model)
  lu.assertStrContains(message, "multiple of its numbers' size")
end

-- Without the memory a load says in bytes what it needs and what there is.
function TestHostile.test_memory()
  local dir = copy("llama", "bad")
  local c = cjson.decode(read(dir .. "/config.json"))
  local k = 1 << 8
  local n = core.model.free_memory() * 2 // (4 * k)  -- so the output's matrix takes twice what is free
  c.vocab_size, c.hidden_size, c.num_hidden_layers = n, k, 1
  local parts, at = {}, 0
  local function add(name, shape, bytes)
    parts[#parts + 1] = ('"%s":{"dtype":"F32","shape":%s,"data_offsets":[%d,%d]}'):format(name, shape, at, at + bytes)
    at = at + bytes
  end
  local heads = 4 * 8 * k * 4
  add("model.embed_tokens.weight", ("[%d,%d]"):format(n, k), 4 * n * k)
  add("lm_head.weight", ("[%d,%d]"):format(n, k), 4 * n * k)
  add("model.norm.weight", ("[%d]"):format(k), 4 * k)
  local L = "model.layers.0."
  add(L .. "input_layernorm.weight", ("[%d]"):format(k), 4 * k)
  add(L .. "post_attention_layernorm.weight", ("[%d]"):format(k), 4 * k)
  add(L .. "self_attn.q_proj.weight", ("[32,%d]"):format(k), heads)
  add(L .. "self_attn.k_proj.weight", ("[16,%d]"):format(k), heads // 2)
  add(L .. "self_attn.v_proj.weight", ("[16,%d]"):format(k), heads // 2)
  add(L .. "self_attn.o_proj.weight", ("[%d,32]"):format(k), heads)
  add(L .. "mlp.gate_proj.weight", ("[48,%d]"):format(k), 48 * 4 * k)
  add(L .. "mlp.up_proj.weight", ("[48,%d]"):format(k), 48 * 4 * k)
  add(L .. "mlp.down_proj.weight", ("[%d,48]"):format(k), 48 * 4 * k)
  write(dir .. "/config.json", cjson.encode(c))
  local h = "{" .. table.concat(parts, ",") .. "}"
  h = h .. (" "):rep(-#h % 8)
  local f = assert(io.open(dir .. "/model.safetensors", "wb"))
  f:write(header(h))
  f:seek("set", 8 + #h + at - 1)  -- a hole: nothing is stored
  f:write("\0")
  f:close()
  local model, message, code = mtx.load(dir)
  os.remove(dir .. "/model.safetensors")
  lu.assertNil(model)
  lu.assertEquals(code, "nomem", message)
  local needed, free = message:match("the weights need (%d+) bytes .* (%d+) are free")
  lu.assertTrue(tonumber(needed) > 4 * n * k and tonumber(free) < 4 * n * k, message)
end
