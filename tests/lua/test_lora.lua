-- SPDX-License-Identifier: MIT
-- LoRA adapters in Lua and on the command line: the option `lora` of every call, and `mtx run`, `generate`, `logits`, `info`.
local lu = require("luaunit")
local mtx = require("mtx")
local cjson = require("cjson")
local adapters = require("mtx.model.adapters")
local temp = require("temp")

local BUILD = os.getenv("BUILD") or "build"
local MODEL = "build/golden/arch/llama.gguf"
local A, B = "tests/golden/lora/llama-all.gguf", "tests/golden/lora/llama-qv.gguf"
local IDS = {}
for i = 1, 40 do IDS[i] = 4 + i * 37 % 120 end

local function load(opts)
  opts = opts or {}
  opts.threads = 1
  return assert(mtx.load(MODEL, opts))
end

local function ask(model, lora, more)
  local r = { tokens = IDS, max_tokens = 8, temperature = 0, ignore_eos = true, logprobs = 0, lora = lora }
  for k, v in pairs(more or {}) do r[k] = v end
  local result = assert(model:generate(r))
  local out = {}
  for i, l in ipairs(result.logprobs) do out[i] = l.id .. ":" .. l.logprob end
  return table.concat(out, " "), result
end

TestLora = {}

function TestLora:test_forms_of_the_option()
  local model = load()
  local a = assert(model:adapter(A))
  local base, one, half = ask(model), ask(model, A), ask(model, { { A, 0.5 } })
  lu.assertNotEquals(base, one)
  lu.assertNotEquals(one, half)
  lu.assertEquals(ask(model, a), one)
  lu.assertEquals(ask(model, { a }), one)
  lu.assertEquals(ask(model, { { a, 1 } }), one)
  lu.assertEquals(ask(model, { { a, 0 } }), base)
  lu.assertEquals(ask(model, false), base)
  lu.assertEquals(ask(model, {}), base)
  local both = ask(model, { A, { B, 2 } })
  lu.assertEquals(ask(model, { { B, 2 }, a }), both, "the order does not matter")
  lu.assertNotEquals(both, one)
  model:close()
end

function TestLora:test_defaults_of_a_model()
  local plain = load()
  local base, one, both = ask(plain), ask(plain, A), ask(plain, { { A, 0.25 }, B })
  plain:close()
  local model = load({ lora = A })
  lu.assertEquals(ask(model), one)
  lu.assertEquals(ask(model, false), base)
  lu.assertEquals(ask(model, { { A, 0.25 }, B }), both)
  local session, other = assert(model:session()), assert(model:session({ lora = false }))
  lu.assertNotEquals(session:eval(IDS):totable(), other:eval(IDS):totable())
  session:close()
  other:close()
  model:close()
end

function TestLora:test_sessions_beams_embeddings_samplers()
  local model = load()
  local session = assert(model:session({ lora = A }))
  local logits = assert(session:eval(IDS))
  local first = logits:argmax() - 1
  session:close()
  local _, result = ask(model, A)
  lu.assertEquals(result.ids[1], first)
  local picked = {}
  assert(model:generate({ tokens = IDS, max_tokens = 3, lora = A, sampler = function(l) picked[#picked + 1] = l:argmax() - 1 return picked[#picked] end }))
  lu.assertEquals(picked, { result.ids[1], result.ids[2], result.ids[3] })
  local beam = assert(model:beam({ tokens = IDS, n_beams = 1, max_tokens = 8, ignore_eos = true, lora = A }))
  lu.assertEquals(beam[1].ids, result.ids)
  lu.assertNotEquals(assert(model:embed({ IDS })), assert(model:embed({ IDS }, { lora = A })))
  model:close()
end

function TestLora:test_the_prefix_cache_knows_adapters()
  local model = load({ cache_bytes = 1 << 26 })
  local base = ask(model)
  local n_cached = function(lora)
    local text, result = ask(model, lora, { cache_key = "k" })
    return result.timings.n_cached, text
  end
  lu.assertEquals(n_cached(), 0)
  lu.assertEquals(n_cached(A), 0)
  lu.assertEquals(n_cached({ { A, 0.5 } }), 0)
  local n, text = n_cached()
  lu.assertEquals(n, #IDS - 1)
  lu.assertEquals(text, base)
  lu.assertEquals(n_cached(A), #IDS - 1)
  -- What is saved and forgotten is found under the key of both.
  local a = assert(model:adapter(A))
  local set = assert(model.handle:lora({ { a, 1.0 } }))
  lu.assertEquals(#set, 1)
  local engine = assert(model:engine())
  lu.assertEquals(engine:forget_prefix(assert(set:key("k")), IDS), #IDS)
  lu.assertEquals(n_cached(A), 0)
  lu.assertEquals(n_cached(), #IDS - 1)
  local key, message, code = set:key("k\x1fx")
  lu.assertNil(key)
  lu.assertStrContains(message, "cache_key")
  lu.assertEquals(code, "invalid")
  model:close()
end

function TestLora:test_facts_and_life()
  local model = load()
  local a = assert(model:adapter(B))
  local info = a:info()
  lu.assertEquals({ info.path, info.name, info.task_name, info.prompt_prefix, info.alpha, info.max_rank, info.n_pairs, info.n_unused },
    { B, "llama-qv", "task of llama-qv", "", 0.0, 3, 4, 0 })
  lu.assertTrue(info.weight_bytes > 0 and info.file_bytes > 0)
  local set = assert(model.handle:lora({ { a, 1.0 } }))
  a:close()
  a:close()
  lu.assertErrorMsgContains("closed", function() a:info() end)
  lu.assertErrorMsgContains("closed", function() model:generate({ tokens = IDS, lora = a }) end)
  local s = assert(assert(model:engine()):session({ lora = set })) -- the set has it still
  assert(s:eval(IDS))
  s:close()
  model:close()
end

function TestLora:test_misuse_raises_and_failure_returns()
  local model = load()
  for _, bad in ipairs({ 3, { 0.5 }, { { A, "much" } }, { true }, { {} } }) do
    lu.assertErrorMsgContains("lora", function() model:generate({ tokens = IDS, lora = bad }) end)
  end
  lu.assertErrorMsgContains("lora", function() assert(model:engine()):submit({ tokens = IDS, lora = "x" }) end)
  local result, message, code = model:generate({ tokens = IDS, lora = "tests/golden/lora/qwen2.gguf" })
  lu.assertNil(result)
  lu.assertStrContains(message, "qwen2")
  lu.assertEquals(code, "unsupported")
  local a = assert(model:adapter(A))
  result, message, code = model:generate({ tokens = IDS, lora = { a, { a, 2 } } })
  lu.assertNil(result)
  lu.assertStrContains(message, "twice")
  lu.assertEquals(code, "invalid")
  local other = load()
  result, message = other:generate({ tokens = IDS, lora = a })
  lu.assertNil(result)
  lu.assertStrContains(message, "another model")
  other:close()
  model:close()
  local m
  m, message, code = mtx.load(MODEL, { lora = "none.gguf" })
  lu.assertNil(m)
  lu.assertStrContains(message, "none.gguf")
  lu.assertEquals(code, "notfound")
end

function TestLora:test_specs_of_the_command_line()
  for text, want in pairs({ ["a.gguf"] = { "a.gguf", 1.0 }, ["a.gguf=0.5"] = { "a.gguf", 0.5 }, ["a=b.gguf"] = { "a=b.gguf", 1.0 },
    ["d/a=b=-1e-1"] = { "d/a=b", -0.1 }, ["a=.5"] = { "a", 0.5 }, ["a="] = { "a=", 1.0 } }) do
    lu.assertEquals(adapters.spec(text), want, text)
  end
end

TestLoraCommands = {}

local function mtx_command(args)
  local pipe = assert(io.popen(BUILD .. "/mtx " .. args .. " 2>&1"))
  local out = pipe:read("a")
  return pipe:close(), out
end

local PROMPT = " --tokens " .. table.concat(IDS, ",") .. " -n 8 --temp 0 --ignore-eos --threads 1"

function TestLoraCommands:test_generate()
  local model = load()
  local ids = { base = select(2, ask(model)).ids, both = select(2, ask(model, { { A, 0.5 }, B })).ids }
  model:close()
  local ok, out = mtx_command("generate " .. MODEL .. PROMPT .. " --json")
  lu.assertTrue(ok, out)
  lu.assertEquals(cjson.decode(out).ids, ids.base)
  ok, out = mtx_command("generate " .. MODEL .. PROMPT .. " --json --lora " .. A .. "=0.5 --lora " .. B)
  lu.assertTrue(ok, out)
  lu.assertEquals(cjson.decode(out).ids, ids.both)
  ok, out = mtx_command("run " .. MODEL .. " --raw hello -n 2 --lora " .. MODEL)
  lu.assertFalse(ok or false, out)
  lu.assertStrContains(out, "general.type")
end

function TestLoraCommands:test_a_modelfile()
  local uv = require("luv")
  local dir = temp.dir()
  assert(uv.fs_copyfile(MODEL, dir .. "/llama.gguf"))
  assert(uv.fs_copyfile(A, dir .. "/a.gguf"))
  local f = assert(io.open(dir .. "/tuned.Modelfile", "w"))
  f:write("FROM llama.gguf\nADAPTER a.gguf\n")
  f:close()
  local pipe = assert(io.popen("MTX_MODELS_DIR=" .. dir .. " " .. BUILD .. "/mtx generate tuned" .. PROMPT .. " --json --lora " .. B .. "=2 2>&1"))
  local out = pipe:read("a")
  pipe:close()
  local model = load()
  local want = select(2, ask(model, { A, { B, 2 } })).ids
  model:close()
  local ok, got = pcall(cjson.decode, out)
  lu.assertTrue(ok, out)
  lu.assertEquals(got.ids, want)
end

function TestLoraCommands:test_info()
  local ok, out = mtx_command("info " .. A)
  lu.assertTrue(ok, out)
  lu.assertStrMatches(out, ".*adapter%s+LoRA for llama, 16 weights, rank 4, alpha 8\n.*")
  ok, out = mtx_command("info --json " .. A)
  lu.assertTrue(ok, out)
  local d = cjson.decode(out)
  lu.assertEquals({ d.adapter.type, d.adapter.rank, d.adapter.alpha, d.adapter.weights, d.adapter.task_name, d.architecture }, { "lora", 4, 8, 16, "task of llama-all", "llama" })
end
