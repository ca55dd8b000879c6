-- SPDX-License-Identifier: MIT
-- Model folders as Hugging Face has them: tiny models of every family against
-- transformers (tests/golden/hf), a whole folder with tokenizer and template, MiniLM
-- as it is published, and what a folder can get wrong.
local lu = require("luaunit")
local cjson = require("cjson")
local core = require("mtx.core")
local infile = require("mtx.infile")
local mtx = require("mtx")
local source = require("mtx.model.source")

local temp = require("temp")

local GOLDEN, SCRATCH = "tests/golden/hf/", temp.dir() .. "/"
local MODELS = os.getenv("MTX_MODELS_DIR") or "models"

local function read(path) return assert(infile.read(path)) end

local function write(path, text)
  local f = assert(io.open(path, "wb"))
  f:write(text)
  f:close()
end

-- Rows of the whole sequence, read in chunks of n: as one list of numbers.
local function evaluate(model, tokens, n)
  local all = {}
  if not model:info().has_logits then
    for _, row in ipairs(assert(model:embed({ tokens }, { pooling = "none", normalize = false }))[1]) do table.move(row, 1, #row, #all + 1, all) end
    return all
  end
  local session <close> = assert(model:session())
  for at = 1, #tokens, n do
    local part = table.move(tokens, at, math.min(at + n - 1, #tokens), 1, {})
    local rows = assert(session:eval(part, { all = true }))
    for r = 1, #part do
      for c = 1, model:info().n_out do all[#all + 1] = rows:get(r, c) end
    end
  end
  return all
end

local function nmse(bytes, x)
  local num, den = 0, 0
  for i = 1, #x do
    local r = ("<f"):unpack(bytes, i * 4 - 3)
    num, den = num + (r - x[i]) ^ 2, den + r * r
  end
  return num / den
end

TestFamilies = {}

for _, name in ipairs { "llama", "llama-bias", "mistral", "mixtral", "qwen2", "qwen3", "qwen3-moe", "gemma3", "bert",
  "deepseek-v2", "deepseek-v3", "mamba2", "qwen3-5", "gemma", "gemma2", "qwen2-moe", "smollm3", "granite", "olmo2" } do
  TestFamilies["test_" .. name:gsub("-", "_")] = function()
    local ref = cjson.decode(read(GOLDEN .. name .. "/reference.json"))
    local bytes, tokens = read(GOLDEN .. name .. "/reference.f32"), ref.tokens
    lu.assertEquals(#bytes, 4 * ref.rows * ref.width)
    local model = assert(mtx.load(GOLDEN .. name, { kv_type = "f32", threads = 1 }))
    local whole = evaluate(model, tokens, #tokens)
    lu.assertEquals(#whole, #bytes // 4)
    local e = nmse(bytes, whole)
    lu.assertTrue(e <= ref.tolerance_nmse, ("NMSE %g, allowed %g"):format(e, ref.tolerance_nmse))
    local causal = model:info().causal
    model:close()
    model = assert(mtx.load(GOLDEN .. name, { kv_type = "f32", threads = 2 }))
    for _, n in ipairs(causal and { 24, 7, 3, 1 } or { 24 }) do lu.assertEquals(evaluate(model, tokens, n), whole, "in chunks of " .. n) end
    model:close()
  end
end

-- What the face says is what the writer makes of it: a GGUF file of the folder runs with the same bits.
TestFace = {}

function TestFace.test_as_gguf_file()
  for _, name in ipairs { "llama", "qwen3-moe", "gemma3", "deepseek-v3" } do
    local tokens = cjson.decode(read(GOLDEN .. name .. "/reference.json")).tokens
    local file = SCRATCH .. name .. ".gguf"
    local g <close> = assert(source.open(GOLDEN .. name))
    assert(core.gguf.write({ path = file, from = g }))
    local a, b = assert(mtx.load(GOLDEN .. name, { kv_type = "f32" })), assert(mtx.load(file, { kv_type = "f32" }))
    lu.assertEquals(evaluate(a, tokens, 24), evaluate(b, tokens, 24))
    local written <close> = assert(core.gguf.open(file))
    for _, t in ipairs(g:tensors()) do lu.assertEquals(written:tensor_data(t.name), g:tensor_data(t.name), t.name) end
    a:close()
    b:close()
  end
end

-- The language part of a larger model: in `text_config`, its tensors behind another prefix, defaults left out. What
-- else is in the folder is named in a warning.
function TestFace.test_part_of_a_larger_model()
  os.execute("mkdir -p " .. SCRATCH .. "part")
  local c = cjson.decode(read(GOLDEN .. "gemma3/config.json"))
  c.rms_norm_eps, c.num_key_value_heads = nil, math.tointeger(c.num_key_value_heads)
  write(SCRATCH .. "part/config.json", cjson.encode({ model_type = "gemma3", text_config = c, vision_config = { model_type = "siglip" } }))
  local bytes = read(GOLDEN .. "gemma3/model.safetensors")
  local n = ("<I8"):unpack(bytes)
  local h = bytes:sub(9, 8 + n):gsub('"model%.', '"model.language_model.')
  h = h:gsub("}%s*$", (',"model.vision_tower.x":{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}}'):format(#bytes - 8 - n, #bytes - 4 - n))
  h = h .. (" "):rep(-#h % 8)
  write(SCRATCH .. "part/model.safetensors", ("<I8"):pack(#h) .. h .. bytes:sub(9 + n) .. "\0\0\0\0")
  local ref, lines = cjson.decode(read(GOLDEN .. "gemma3/reference.json")), {}
  local model = assert(mtx.load(SCRATCH .. "part", { kv_type = "f32", warn = function(line) lines[#lines + 1] = line end }))
  lu.assertTrue(nmse(read(GOLDEN .. "gemma3/reference.f32"), evaluate(model, ref.tokens, 24)) <= ref.tolerance_nmse)
  lu.assertStrContains(table.concat(lines, "\n"), "1 tensor of the file not used: model.vision_tower.x")
  model:close()
end

-- ---- a whole folder ------------------------------------------------------------------------

TestFolder = {}

function TestFolder.test_chat()
  local ref = cjson.decode(read(GOLDEN .. "chat/reference.json"))
  local loading = assert(mtx.start_load(GOLDEN .. "chat", { kv_type = "f32", warn = error }))
  local model = assert(loading:take())
  local text = assert(model:apply_template(ref.messages))
  lu.assertEquals(text, ref.prompt)
  local r = assert(model:generate({ messages = ref.messages, max_tokens = 24, temperature = 0 }))
  lu.assertEquals(r.prompt_ids, ref.prompt_ids)
  local ids = r.ids
  if ids[#ids] == ref["end"] then ids[#ids] = nil end
  lu.assertEquals(ids, ref.ids)
  lu.assertEquals(r.finish_reason, "stop")  -- at the end that only generation_config.json names
  lu.assertTrue(model:is_eog(1) and model:is_eog(math.tointeger(ref["end"])))
  model:close()
end

local function copy(name, to)
  os.execute(("rm -rf %s%s && mkdir -p %s%s && cp %s%s/* %s%s/"):format(SCRATCH, to, SCRATCH, to, GOLDEN, name, SCRATCH, to))
  return SCRATCH .. to
end

-- A folder without a tokenizer gives logits of ids (TestFamilies); text is refused with one sentence.
function TestFolder.test_no_tokenizer()
  local lines = {}
  local model = assert(mtx.load(GOLDEN .. "llama", { warn = function(line) lines[#lines + 1] = line end }))
  lu.assertEquals(#lines, 1)
  lu.assertStrContains(lines[1], "no tokenizer")
  for _, request in ipairs({ { tokens = { 5, 6 } }, { prompt = "x" }, { messages = { { role = "user", content = "x" } } } }) do
    local r, message, code = model:generate(request)
    lu.assertNil(r)
    lu.assertStrContains(message, "no tokenizer")
    lu.assertEquals(code, "unsupported")
  end
  model:close()
end

function TestFolder.test_tokenizers()
  for _, kind in ipairs { "gpt2", "llama3", "llama2", "deepseek3", "sp-bpe" } do
    local dir = copy("llama", "tok")
    os.execute(("cp tests/golden/tokenizer/hf/%s/tokenizer* %s/"):format(kind, dir))
    local model = assert(mtx.load(dir))
    local n = 0
    for line in io.lines("tests/golden/tokenizer/hf/" .. kind .. "/cases.jsonl") do
      local case = cjson.decode(line)
      lu.assertEquals(model:tokenize(case.text, {}), case.ids, case.text)
      n = n + 1
    end
    lu.assertTrue(n > 200)
    model:close()
  end
end

-- The same folder is the same model to saved state; another tokenizer, setting or weight is another one.
function TestFolder.test_identity()
  local saved, ids = SCRATCH .. "session", { 5, 6, 7, 8, 9 }
  local function loads(dir)
    local model = assert(mtx.load(dir))
    local session = assert(model:session())
    local ok, message = session:load(saved)
    local logits = ok and assert(session:eval({ 11 }))
    session:close()
    model:close()
    return ok and logits:get(1, 1) or nil, message
  end
  local dir = copy("chat", "identity")
  local model = assert(mtx.load(dir))
  local session = assert(model:session())
  session:eval(ids)
  assert(session:save(saved))
  local want = session:eval({ 11 }):get(1, 1)
  session:close()
  model:close()
  lu.assertEquals(loads(copy("chat", "identity")), want)
  local weights = read(dir .. "/model.safetensors")
  for file, change in pairs({
    ["model.safetensors"] = function() return weights:sub(1, -2) .. string.char(weights:byte(-1) ~ 1) end,
    ["config.json"] = function() return (read(dir .. "/config.json"):gsub('"rms_norm_eps": [^,]+', '"rms_norm_eps": 1e-5')) end,
    ["tokenizer.json"] = function() return (read(dir .. "/tokenizer.json"):gsub('"<tool>"', '"<tooL>"')) end,
  }) do
    copy("chat", "identity")
    write(dir .. "/" .. file, change())
    local x, message = loads(dir)
    lu.assertNil(x, file)
    lu.assertStrContains(message, "another model")
  end
end

function TestFolder.test_minilm()
  local g = cjson.decode(read("tests/golden/real/minilm.json"))
  local model = assert(mtx.load(MODELS .. "/all-MiniLM-L6-v2", { kv_type = "f32", warn = error }), "run `make models`")
  lu.assertEquals(model:info().pooling, 1)
  local lists = {}
  for i, t in ipairs(g.texts) do
    lists[i] = assert(model:tokenize(t.text))
    lu.assertEquals(lists[i], t.ids)
  end
  local bytes, worst = read("tests/golden/real/minilm.transformers.f32"), 0
  for i, v in ipairs(assert(model:embed(lists))) do
    for k, x in ipairs(v) do worst = math.max(worst, math.abs(x - ("<f"):unpack(bytes, ((i - 1) * 384 + k - 1) * 4 + 1))) end
  end
  lu.assertTrue(worst <= 1e-5, "largest difference " .. worst)
  model:close()
end

-- ---- hostile and wrong folders: SEC-09 and more ---------------------------------------------------

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
