-- SPDX-License-Identifier: MIT
-- Model folders as Hugging Face has them: tiny models of every family against
-- transformers (tests/golden/hf), a whole folder with tokenizer and template, MiniLM
-- as it is published.
local lu = require("luaunit")
local cjson = require("cjson")
local core = require("mtx.core")
local mtx = require("mtx")
local source = require("mtx.model.source")
local folder = require("hf_folder")

local GOLDEN <const>, SCRATCH <const> = folder.GOLDEN, folder.SCRATCH
local MODELS = os.getenv("MTX_MODELS_DIR") or "models"
local read, write, copy = folder.read, folder.write, folder.copy

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

