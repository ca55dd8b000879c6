-- SPDX-License-Identifier: MIT
-- Beam search: against tests/golden/beam (plain Python, see make.py there) on a model
-- that is a table, and on a real model against a search that evaluates every
-- hypothesis from the start and ranks the whole vocabulary.
local lu = require("luaunit")
local cjson = require("cjson")
local core = require("mtx.core")
local mtx = require("mtx")
local temp = require("temp")

local MODELS = os.getenv("MTX_MODELS_DIR") or "models"
local SMOL = MODELS .. "/SmolLM2-135M-Instruct.Q4_1.gguf"
local D = 64

local function floats(rows, cols, f)
  local out = {}
  for r = 1, rows do
    local row = {}
    for c = 1, cols do row[c] = string.pack("<f", f(r, c)) end
    out[r] = table.concat(row)
  end
  return table.concat(out)
end

-- A llama whose one block does nothing: the embedding is one-hot, so output.weight is the table.
local function table_model(logits)
  local n = #logits
  local kv, tensors = {}, {}
  local function put(key, type, value, item) kv[#kv + 1] = { key = key, type = type, value = value, item_type = item } end
  put("general.architecture", "string", "llama")
  for k, v in pairs({ block_count = 1, context_length = 64, embedding_length = D, feed_forward_length = D, ["attention.head_count"] = 4,
    ["attention.head_count_kv"] = 4, ["rope.dimension_count"] = D // 4 }) do put("llama." .. k, "u32", v) end
  put("llama.attention.layer_norm_rms_epsilon", "f32", 1e-9)
  put("tokenizer.ggml.model", "string", "gpt2")
  put("tokenizer.ggml.pre", "string", "gpt-2")
  local names, types = {}, {}
  for i = 1, n do names[i], types[i] = i == 1 and "<|end|>" or "t" .. i, i == 1 and 3 or 1 end
  put("tokenizer.ggml.tokens", "array", names, "string")
  put("tokenizer.ggml.token_type", "array", types, "i32")
  put("tokenizer.ggml.merges", "array", { "t 1" }, "string")
  put("tokenizer.ggml.eos_token_id", "u32", 0)
  put("tokenizer.ggml.add_bos_token", "bool", false)
  local function add(name, shape, data) tensors[#tensors + 1] = { name = name, type = "F32", shape = shape, data = data } end
  add("token_embd.weight", { D, n }, floats(n, D, function(r, c) return r == c and 1 or 0 end))
  for _, name in ipairs({ "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down" }) do
    add("blk.0." .. name .. ".weight", { D, D }, ("\0"):rep(4 * D * D))
  end
  for _, name in ipairs({ "blk.0.attn_norm", "blk.0.ffn_norm", "output_norm" }) do add(name .. ".weight", { D }, floats(1, D, function() return 1 end)) end
  -- The norm leaves sqrt(D) in the one place.
  add("output.weight", { D, n }, floats(n, D, function(r, c) return c <= n and logits[c][r] / math.sqrt(D) or 0 end))
  local path = temp.path()
  assert(core.gguf.write({ path = path, kv = kv, tensors = tensors }))
  local model = assert(mtx.load(path))
  os.remove(path)
  return model
end

TestGolden = {}

function TestGolden:test_all_cases()
  local n_models, n_cases, n_stop, model = 0, 0, 0, nil
  for line in io.lines("tests/golden/beam/cases.jsonl") do
    local c = cjson.decode(line)
    if c.logits then
      if model then model:close() end
      model, n_models = table_model(c.logits), n_models + 1
    else
      n_cases = n_cases + 1
      for i, v in ipairs(c.prompt) do c.prompt[i] = math.tointeger(v) end
      local got = assert(model:beam({ tokens = c.prompt, n_beams = math.tointeger(c.n_beams), n_best = math.tointeger(c.n_best), max_tokens = math.tointeger(c.max_tokens),
        length_penalty = c.length_penalty, ignore_eos = c.ignore_eos }))
      local what = ("model %d, case %d"):format(n_models, n_cases)
      lu.assertEquals(#got, #c.result, what)
      for i, want in ipairs(c.result) do
        lu.assertAlmostEquals(got[i].score, want.score, 2e-5, what)
        lu.assertAlmostEquals(got[i].logprob, want.logprob, 2e-4, what)
        lu.assertEquals(got[i].finish_reason, want.finish_reason, what)
        lu.assertEquals(#got[i].ids, #want.ids, what)
        for k, id in ipairs(want.ids) do lu.assertEquals(got[i].ids[k], math.tointeger(id), what) end
        if want.finish_reason == "stop" then n_stop = n_stop + 1 end
      end
    end
  end
  model:close()
  lu.assertEquals({ n_models, n_cases }, { 3, 144 })
  lu.assertTrue(n_stop > 50, n_stop)
end

TestReal = {}

function TestReal:setUp()
  if not TestReal.model then TestReal.model = assert(mtx.load(SMOL, { ctx = 256 })) end
end

-- The same definition with no forks, no cuts and no shared steps.
local function naive(model, prompt, n_beams, max_tokens, penalty)
  local live, done = { { ids = {}, sum = 0 } }, {}
  for length = 1, max_tokens do
    local ranked = {}
    for order, h in ipairs(live) do
      local session <close> = assert(model:session())
      local all = table.move(h.ids, 1, #h.ids, #prompt + 1, table.move(prompt, 1, #prompt, 1, {}))
      local logits = assert(session:eval(all))
      local first = logits:log_softmax_at(1, 1) - logits[1]
      for i, x in ipairs(logits:totable()) do ranked[#ranked + 1] = { h.sum + x + first, order, i - 1 } end
    end
    table.sort(ranked, function(a, b)
      for k = 1, 3 do
        if a[k] ~= b[k] then
          if k == 1 then return a[k] > b[k] end
          return a[k] < b[k]
        end
      end
      return false
    end)
    local next_live = {}
    for rank, c in ipairs(ranked) do
      local ids = table.move(live[c[2]].ids, 1, length - 1, 1, {})
      if model:is_eog(c[3]) then
        if rank <= n_beams then done[#done + 1] = { ids = ids, score = c[1] / length ^ penalty } end
      elseif #next_live < n_beams then
        ids[length] = c[3]
        next_live[#next_live + 1] = { ids = ids, sum = c[1] }
      end
      if rank > 2 * n_beams + 20 then break end
    end
    live = next_live
  end
  for _, h in ipairs(live) do done[#done + 1] = { ids = h.ids, score = h.sum / max_tokens ^ penalty } end
  table.sort(done, function(a, b) return a.score > b.score end)
  return done
end

function TestReal:test_against_full_evaluation()
  local prompt = assert(self.model:tokenize("The three primary colours are"))
  for _, c in ipairs({ { 3, 6, 1 }, { 4, 5, 0 } }) do
    local want = naive(self.model, prompt, c[1], c[2], c[3])
    local got = assert(self.model:beam({ tokens = prompt, n_beams = c[1], n_best = c[1], max_tokens = c[2], length_penalty = c[3] }))
    for i, g in ipairs(got) do
      lu.assertEquals(g.ids, want[i].ids, i)
      lu.assertAlmostEquals(g.score, want[i].score, 1e-9)
      lu.assertEquals(g.text, self.model:detokenize(g.ids))
    end
    lu.assertEquals(#got, c[1])
  end
end

-- One beam is greedy; the same again and beside other work; no session or page is lost.
function TestReal:test_deterministic_and_clean()
  local engine = self.model:engine()
  local greedy = assert(self.model:generate({ prompt = "Once upon a time", temperature = 0, max_tokens = 10 }))
  lu.assertEquals(assert(self.model:beam({ prompt = "Once upon a time", n_beams = 1, max_tokens = 10 }))[1].ids, greedy.ids)
  local request = { messages = { { role = "user", content = "Say hi." } }, n_beams = 6, n_best = 6, max_tokens = 12 }
  local first = assert(self.model:beam(request))
  local stream = assert(self.model:stream({ prompt = "A long story:", temperature = 1, seed = 3, max_tokens = 60 }))
  lu.assertEquals(assert(self.model:beam(request)), first)
  assert(stream:result())
  local s = engine:stats(true)
  lu.assertEquals({ s.n_sessions, s.kv_ok, s.pages_free }, { 0, true, s.pages_total })
end

function TestReal:test_limits_are_errors()
  for _, bad in ipairs({ { n_beams = 0 }, { n_beams = 33 }, { n_beams = 1.5 }, { n_best = 5, n_beams = 4 }, { max_tokens = 0 }, { length_penalty = 0 / 0 }, { n_beams = "4" } }) do
    bad.prompt = "x"
    lu.assertErrorMsgContains("beam: ", self.model.beam, self.model, bad)
  end
  local held = {}
  for i = 1, 30 do held[i] = assert(self.model:session()) end
  local result, message, code = self.model:beam({ prompt = "x", n_beams = 8 })
  lu.assertNil(result)
  lu.assertStrContains(message, "sessions are open")
  lu.assertEquals(code, "limit")
  for _, session in ipairs(held) do session:close() end
  lu.assertEquals(self.model:engine():stats().n_sessions, 0)
  -- the context ends before max_tokens
  local long = {}
  for i = 1, 250 do long[i] = 30 end
  local got = assert(self.model:beam({ tokens = long, n_beams = 3, max_tokens = 50, ignore_eos = true }))
  lu.assertEquals({ #got[1].ids, got[1].finish_reason }, { 6, "length" })
  for i = 251, 256 do long[i] = 30 end
  local none, why, code_of = self.model:beam({ tokens = long })
  lu.assertEquals({ none, why, code_of }, { nil, "the prompt has 256 tokens, the context is 256 tokens", "limit" })
  local engine = self.model:engine()
  local a = assert(self.model:session())
  lu.assertError(engine.eval, engine, { a, a }, { 1 })
  lu.assertNil((engine:eval({ a, a }, { 1, 2 })))
  lu.assertNil((engine:eval({ a }, { 1 << 30 })))
  lu.assertEquals(assert(engine:eval({}, {})), {})
  a:close()
  lu.assertError(engine.eval, engine, { a }, { 1 })
end
