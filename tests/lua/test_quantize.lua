-- SPDX-License-Identifier: MIT
-- Quantising: whole files and tensors byte for byte as llama-quantize wrote them (tests/golden/quantised), rules of
-- one's own, folders, and everything that is refused.
local lu = require("luaunit")
local uv = require("luv")
local core = require("mtx.core")
local free_disk = require("mtx.free_disk")
local json = require("mtx.json")
local mixes = require("mtx.quantize.mixes")
local mtx = require("mtx")
local plan = require("mtx.quantize.plan")
local quantize = require("mtx.quantize")
local temp = require("temp")

local GOLDEN <const> = "tests/golden/quantised/"
local SOURCE <const>, IMATRIX <const> = GOLDEN .. "q256-f32.gguf", GOLDEN .. "q256.imatrix.gguf"

-- hashes.txt -> files {MIX -> {sha256, imatrix}}, tensors {MIX -> {NAME -> {type, sha256}}}
local function golden()
  local files, tensors = {}, {}
  for line in io.lines(GOLDEN .. "hashes.txt") do
    local mix, sha, imatrix = line:match("^file (%S+) (%x+) ?(%a*)$")
    if mix then files[mix] = { sha256 = sha, imatrix = imatrix == "imatrix" } end
    local m, name, type_name, hash = line:match("^tensor (%S+) (%S+) (%S+) (%x+)$")
    if m then
      tensors[m] = tensors[m] or {}
      tensors[m][name] = { type_name, hash }
    end
  end
  return files, tensors
end

local FILES <const>, TENSORS <const> = golden()

-- llama-quantize has no mix for these two: every matrix was forced to the type.
local FORCED <const> = { MXFP4 = true, NVFP4 = true }

-- The file's name is part of what is written, and it was used from its own folder.
local function in_golden(fn)
  local here = uv.cwd()
  assert(uv.chdir(GOLDEN))
  local results = table.pack(pcall(fn))
  assert(uv.chdir(here))
  assert(results[1], results[2])
  return table.unpack(results, 2, results.n)
end

local function options(mix, more)
  local out = { from = "q256-f32.gguf", to = temp.path(".gguf"), type = FORCED[mix] and "Q8_0" or mix }
  if FORCED[mix] then out.tensor_types = { "attn_=" .. mix, "ffn_=" .. mix, "^token_embd=" .. mix, "^output%.=" .. mix:lower() } end
  for k, v in pairs(more or {}) do out[k] = v end
  return out
end

local function made(opts)
  local result, message = in_golden(function() return quantize.run(opts) end)
  lu.assertNotNil(result, message)
  return result
end

local function digests(path)
  local g, out = assert(core.gguf.open(path)), {}
  for _, t in ipairs(g:tensors()) do out[t.name] = { t.type, core.sha256.of(g:tensor_data(t.name)) } end
  g:close()
  return out
end

local function refused(opts, ...)
  local result, message = quantize.run(opts)
  lu.assertNil(result)
  for _, part in ipairs({ ... }) do lu.assertStrContains(message, part) end
  return message
end

TestGolden = {}

function TestGolden.test_every_mix_is_covered()
  local n = 0
  for _ in pairs(FILES) do n = n + 1 end
  lu.assertEquals(n, 33)
  for _, name in ipairs(mixes.names()) do
    if name ~= "F32" then lu.assertNotNil(FILES[name], name) end
  end
end

local function check_file(mix, want)
  local opts = options(mix, { imatrix = want.imatrix and "q256.imatrix.gguf" or nil, threads = 2 })
  local result = made(opts)
  lu.assertEquals(core.sha256.file(opts.to), want.sha256)
  lu.assertEquals(uv.fs_stat(opts.to).size, result.file_bytes)
end

-- One test a mix: README's table names them.
for mix, want in pairs(FILES) do
  TestGolden["test_file_" .. mix] = function() check_file(mix, want) end
end

function TestGolden.test_tensors_with_importance()
  local n = 0
  for mix, want in pairs(TENSORS) do
    local opts = options(mix, { imatrix = "q256.imatrix.gguf" })
    made(opts)
    local got = digests(opts.to)
    for name, w in pairs(want) do
      lu.assertEquals(got[name], w, mix .. " " .. name)
      n = n + 1
    end
  end
  lu.assertEquals(n, 320)
end

function TestGolden.test_threads_change_nothing()
  for _, threads in ipairs({ 1, 3, 7 }) do
    local opts = options("IQ2_XXS", { imatrix = "q256.imatrix.gguf", threads = threads })
    made(opts)
    lu.assertEquals(core.sha256.file(opts.to), FILES.IQ2_XXS.sha256)
  end
end

TestMixes = {}

-- A model of `layers` layers as the plan sees it.
local function header(meta, tensors)
  return { metadata = function(_, key) return meta[key] end, tensors = function() return tensors end }
end

local function types_of(mix, meta, tensors, more)
  local opts = { mix = mixes.find(mix), patterns = {} }
  for k, v in pairs(more or {}) do opts[k] = v end
  local p = assert(plan.make(header(meta, tensors), opts))
  local out = {}
  for _, t in ipairs(p.tensors) do out[t.name] = t.to end
  return out, p
end

local function matrix(name, n, type_name) return { name = name, type = type_name or "F16", shape = { n or 256, 256 }, bytes = (n or 256) * 512 } end

local function layers(n, names)
  local out = { matrix("token_embd.weight") }
  for i = 0, n - 1 do
    for _, name in ipairs(names) do out[#out + 1] = matrix(("blk.%d.%s.weight"):format(i, name)) end
  end
  return out
end

local function llama(n, heads, kv, experts)
  return { ["general.architecture"] = "llama", ["llama.block_count"] = n, ["llama.attention.head_count"] = heads, ["llama.attention.head_count_kv"] = kv,
    ["llama.expert_count"] = experts }
end

-- The first and last eighth and every third layer between get more bits (llama-quant.cpp, use_more_bits).
function TestMixes.test_layers_with_more_bits()
  local got = types_of("Q4_K_M", llama(32, 32, 8), layers(32, { "ffn_down", "attn_v" }))
  local more = {}
  for i = 0, 31 do
    if got[("blk.%d.ffn_down.weight"):format(i)] == "Q6_K" then more[#more + 1] = i end
    lu.assertEquals(got[("blk.%d.attn_v.weight"):format(i)], got[("blk.%d.ffn_down.weight"):format(i)])
  end
  lu.assertEquals(more, { 0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31 })
  lu.assertEquals(got["token_embd.weight"], "Q6_K")  -- there is no output.weight: it is the output, too
end

function TestMixes.test_shared_heads_experts_and_70b()
  lu.assertEquals(types_of("Q2_K", llama(4, 32, 8), layers(4, { "attn_v" }))["blk.0.attn_v.weight"], "Q4_K")
  lu.assertEquals(types_of("Q2_K", llama(4, 32, 32), layers(4, { "attn_v" }))["blk.0.attn_v.weight"], "Q3_K")
  local eight = types_of("Q4_K_M", llama(4, 32, 8, 8), layers(4, { "attn_v", "attn_k", "attn_q", "attn_output" }))
  lu.assertEquals({ eight["blk.1.attn_v.weight"], eight["blk.1.attn_k.weight"], eight["blk.1.attn_q.weight"], eight["blk.1.attn_output.weight"] },
    { "Q8_0", "Q8_0", "Q4_K", "Q5_K" })
  lu.assertEquals(types_of("Q4_K_M", llama(80, 64, 8), layers(80, { "attn_v" }))["blk.20.attn_v.weight"], "Q5_K")
end

-- Of models with experts the layer is read from the name, whatever order they come in.
function TestMixes.test_layers_of_experts()
  local tensors = {}
  for i = 0, 15 do tensors[#tensors + 1] = { name = ("blk.%d.ffn_down_exps.weight"):format(i), type = "F16", shape = { 256, 4, 60 }, bytes = 122880 } end
  local got = types_of("Q2_K_S", llama(16, 16, 16, 60), tensors, { imatrix = { size = function() return 256 * 60 end } })
  lu.assertEquals({ got["blk.1.ffn_down_exps.weight"], got["blk.2.ffn_down_exps.weight"], got["blk.10.ffn_down_exps.weight"] }, { "Q4_K", "Q2_K", "Q2_K" })
  local p, message = plan.make(header(llama(4, 16, 16, 60), tensors), { mix = mixes.find("Q4_K_M"), patterns = {} })
  lu.assertNil(p)
  lu.assertStrContains(message, "blk.4.ffn_down_exps.weight")
end

function TestMixes.test_widths_that_do_not_divide()
  local got = types_of("Q4_K_M", llama(1, 1, 1), { matrix("a.weight", 96), matrix("b.weight", 40), matrix("output.weight", 96) })
  lu.assertEquals(got, { ["a.weight"] = "Q5_0", ["b.weight"] = "F16", ["output.weight"] = "Q8_0" })
  lu.assertEquals(types_of("IQ4_XS", llama(1, 1, 1), { matrix("a.weight", 96) })["a.weight"], "IQ4_NL")
  lu.assertEquals(types_of("Q4_0", llama(1, 1, 1), { matrix("a.weight", 40) })["a.weight"], "F16")
end

function TestMixes.test_what_is_kept()
  local kept = { { name = "blk.0.attn_norm.weight", type = "F32", shape = { 256 }, bytes = 1024 }, matrix("blk.0.ffn_gate_inp.weight", 256, "F32"),
    matrix("blk.0.ssm_conv1d.weight", 256, "F32"), matrix("position_embd.weight", 256, "F32"), matrix("blk.0.attn_q.bias", 256, "F32"),
    { name = "blk.0.odd.weight", type = "F32", shape = { 256, 1 }, bytes = 1024 } }
  for name, to in pairs(types_of("Q4_K_M", llama(1, 1, 1), kept)) do lu.assertEquals(to, "F32", name) end
  lu.assertEquals(types_of("F16", llama(1, 1, 1), { matrix("a.weight", 256, "BF16") })["a.weight"], "F16")
end

function TestMixes.test_names()
  lu.assertEquals(mixes.find("q4_k"), mixes.find("Q4_K_M"))
  lu.assertNil(mixes.find("Q4_K_X"))
  lu.assertEquals(plan.type("mxfp4"), "MXFP4")
  local _, message = plan.type("Q4_L")
  lu.assertStrContains(message, "did you mean Q4_")
end

TestRules = {}

function TestRules.test_a_rule_decides_last()
  local seen = {}
  local got = types_of("Q4_K_M", llama(2, 4, 4), layers(2, { "ffn_down", "attn_q" }), { patterns = { { pattern = "attn_q", type = "Q8_0", text = "" } },
    rules = function(tensor, to)
      seen[tensor.name] = { tensor.role, tensor.layer, tensor.n_layers, tensor.mix, to }
      if tensor.role == "down" then return tensor.layer == 0 and "iq4_nl" or "keep" end
    end })
  lu.assertEquals(got, { ["token_embd.weight"] = "Q6_K", ["blk.0.attn_q.weight"] = "Q8_0", ["blk.1.attn_q.weight"] = "Q8_0", ["blk.0.ffn_down.weight"] = "IQ4_NL",
    ["blk.1.ffn_down.weight"] = "F16" })
  lu.assertEquals(seen["blk.1.attn_q.weight"], { "query", 1, 2, "Q4_K_M", "Q8_0" })
  lu.assertEquals(seen["token_embd.weight"][1], "embedding")
end

function TestRules.test_faults_of_rules_name_the_tensor()
  local opts = { from = SOURCE, to = temp.path(), type = "Q4_K_M" }
  opts.rules = function() return "Q9" end
  refused(opts, "output.weight", "no tensor type 'Q9'")
  opts.rules = function() error("oh") end
  refused(opts, "rule failed", "oh")
  opts.rules, opts.tensor_types = nil, { "attn_q=Q8" }
  refused(opts, "no tensor type 'Q8'")
  opts.tensor_types = { "nothing=Q8_0" }
  refused(opts, "--tensor-type nothing=Q8_0: no tensor")
  opts.tensor_types = { "attn_norm=Q8_0" }
  refused(opts, "no tensor that may change")
  opts.tensor_types = { "a[=Q8_0" }
  refused(opts, "no Lua pattern")
  opts.tensor_types = { "Q8_0" }
  refused(opts, "PATTERN=TYPE")
end

TestFiles = {}

-- Logits of the two, row by row: sum of squared differences by that of squares.
local function distance(path_a, path_b)
  local rows = {}
  for i, path in ipairs({ path_a, path_b }) do
    local model = assert(mtx.load(path, { no_memory_check = true, warn = function() end }))
    local session = assert(model:session())
    rows[i] = assert(session:eval({ 1, 5, 9, 2, 7, 11, 30, 4 }))
    session:close()
    model:close()
  end
  local d, s = 0, 0
  for i = 1, #rows[1] do d, s = d + (rows[1][i] - rows[2][i]) ^ 2, s + rows[1][i] ^ 2 end
  return d / s
end

function TestFiles.test_a_quantised_file_loads_and_answers_alike()
  for mix, limit in pairs({ Q8_0 = 0.002, Q6_K = 0.02, Q4_K_M = 0.2 }) do
    local to = temp.path(".gguf")
    assert(quantize.run({ from = SOURCE, to = to, type = mix }))
    local d = distance(SOURCE, to)
    lu.assertTrue(d > 0 and d < limit, mix .. " " .. d)
  end
end

-- Every family of tests/golden/hf: in F32 the very logits, in Q8_0 nearly. What is no matrix is F32, as readers of GGUF expect.
local function check_folder(family)
  local from, to = "tests/golden/hf/" .. family, temp.path(".gguf")
  assert(quantize.run({ from = from, to = to, type = "F32" }))
  lu.assertEquals(distance(from, to), 0)
  assert(quantize.run({ from = from, to = to, type = "Q8_0", force = true }))
  local d = distance(from, to)
  lu.assertTrue(d > 0 and d < 0.1, family .. " " .. d)
  local g = assert(core.gguf.open(to))
  for _, t in ipairs(g:tensors()) do
    if #t.shape == 1 then lu.assertEquals(t.type, "F32", t.name) end
  end
  g:close()
end

for _, family in ipairs({ "llama", "llama-bias", "mistral", "mixtral", "qwen2", "qwen2-moe", "qwen3", "qwen3-moe", "qwen3-5", "gemma", "gemma2", "gemma3",
    "granite", "olmo2", "smollm3", "mamba2", "deepseek-v2", "deepseek-v3", "chat" }) do
  TestFiles["test_folder_" .. family] = function() check_folder(family) end
end

-- Tokenizer and template come along.
function TestFiles.test_a_folders_chat_answers_alike()
  local to, texts = temp.path(".gguf"), {}
  assert(quantize.run({ from = "tests/golden/hf/chat", to = to, type = "F32" }))
  for i, path in ipairs({ "tests/golden/hf/chat", to }) do
    local model = assert(mtx.load(path, { no_memory_check = true }))
    texts[i] = assert(model:generate({ messages = { { role = "user", content = "hello" } }, max_tokens = 8, temperature = 0 })).text
    model:close()
  end
  lu.assertTrue(#texts[1] > 0)
  lu.assertEquals(texts[2], texts[1])
end

function TestFiles.test_quantised_sources_need_a_word()
  local opts = { from = GOLDEN .. "q256-q4_k_m.gguf", to = temp.path(), type = "Q8_0" }
  refused(opts, "already quantised", "--requantize")
  opts.requantize = true
  assert(quantize.run(opts))
  lu.assertTrue(distance(opts.from, opts.to) < 0.002)
  opts.type, opts.requantize, opts.to = "Q4_K_M", nil, temp.path()  -- nothing changes its type: a copy
  assert(quantize.run(opts))
  lu.assertEquals(digests(opts.to), digests(opts.from))
end

function TestFiles.test_nothing_is_overwritten_unasked()
  local opts = { from = SOURCE, to = temp.file("mine"), type = "Q8_0" }
  refused(opts, opts.to, "--force")
  opts.force = true
  assert(quantize.run(opts))
  lu.assertEquals(core.sha256.file(opts.to), FILES.Q8_0.sha256)
  local from = opts.to
  refused({ from = from, to = from, type = "Q4_K_M", requantize = true, force = true }, "the model itself")
  refused({ from = from, to = temp.dir(), type = "Q4_K_M", requantize = true, force = true }, "no file")
  refused({ from = SOURCE, to = temp.path() .. "/no/folder", type = "Q8_0" }, "No such file")
  refused({ from = temp.path(), to = temp.path(), type = "Q8_0" }, "No such file")
  refused({ from = SOURCE, to = temp.path(), type = "Q8" }, "no mix 'Q8'", "Q4_K_M")
end

function TestFiles.test_room_on_the_disk()
  lu.assertNil(free_disk.short(".", 1))
  lu.assertStrContains(free_disk.short(".", 1 << 60), "are needed there")
  lu.assertNil(free_disk.short("/no/such/folder", 1 << 60))
end

function TestFiles.test_stopping_leaves_nothing()
  local dir, last = temp.dir(), 0
  local function entries()
    local n = 0
    for _ in uv.fs_scandir_next, uv.fs_scandir(dir) do n = n + 1 end
    return n
  end
  local opts = { from = SOURCE, to = dir .. "/a.gguf", type = "Q8_0" }
  opts.progress = function(done, total)
    lu.assertTrue(done > last and done <= total)
    last = done
    return done > total / 2
  end
  refused(opts, "stopped")
  lu.assertEquals(entries(), 0)
  opts.progress = function() error("broken bar") end
  lu.assertErrorMsgContains("broken bar", quantize.run, opts)
  lu.assertEquals(entries(), 0)
  local all = 0
  opts.progress = function(done, total) all = done / total end
  assert(quantize.run(opts))
  lu.assertEquals(all, 1)
  lu.assertEquals(entries(), 1)
end

-- ---------------------------------------------------------------- hostile input

local function model_with(values, type_name)
  local path = temp.path(".gguf")
  local data = {}
  for i = 1, 32 * 64 do data[i] = string.pack("<f", values[i] or 0.5) end
  data = table.concat(data)
  assert(core.gguf.write({ path = path, kv = { { key = "general.architecture", type = "string", value = "llama" } },
    tensors = { { name = "a.weight", type = type_name or "F32", shape = { 32, 64 }, data = data }, { name = "b.weight", type = "F32", shape = { 32, 64 }, data = data } } }))
  return path
end

TestHostile = {}

function TestHostile.test_nan_and_infinity_are_named()
  local to = temp.path(".gguf")
  for _, bad in ipairs({ 0 / 0, math.huge, -math.huge }) do
    local from = model_with({ [32 * 50 + 8] = bad, [32 * 61 + 3] = bad })
    for _, mix in ipairs({ "Q8_0", "Q4_0", "IQ4_NL", "F16" }) do
      refused({ from = from, to = to, type = mix, threads = 3 }, from, "a.weight", "row 50 holds a NaN or infinity at column 7")
      lu.assertNil(uv.fs_stat(to))
    end
  end
end

function TestHostile.test_values_too_large_for_the_type()
  for _, mix in ipairs({ "F16", "Q8_0", "Q5_1", "IQ4_NL" }) do
    refused({ from = model_with({ [1] = 3e38, [2] = -3e38 }), to = temp.path(), type = mix }, "a.weight", "row 0", "too large for " .. mix)
  end
end

-- The search meets sums that overflow and scales that underflow.
function TestHostile.test_extremes_end()
  local tiny, wide = {}, {}
  for i = 1, 32 * 64 do tiny[i], wide[i] = 1e-45 * (i % 7), (i % 5 - 2) * 2.0 ^ (i % 200 - 120) end
  for _, values in ipairs({ tiny, wide }) do
    for _, type_name in ipairs({ "Q4_0", "Q5_1", "IQ4_NL", "MXFP4" }) do
      local result, message = quantize.run({ from = model_with(values), to = temp.path(), type = "Q8_0", tensor_types = { "weight=" .. type_name } })
      lu.assertTrue(result ~= nil or message:find("too large", 1, true) ~= nil, message)
    end
  end
end

local function imatrix_with(tensors)
  local path, list = temp.path(".gguf"), {}
  for name, t in pairs(tensors) do
    local data = {}
    for i, v in ipairs(t.values) do data[i] = string.pack("<f", v) end
    list[#list + 1] = { name = name, type = "F32", shape = t.shape, data = table.concat(data) }
  end
  assert(core.gguf.write({ path = path, tensors = list }))
  return path
end

function TestHostile.test_importance()
  local opts = { from = model_with({}), to = temp.path(), type = "Q4_0" }
  local sums = {}
  for i = 1, 32 do sums[i] = i end
  local function with(sum_values, shape, count)
    return imatrix_with({ ["a.weight.in_sum2"] = { shape = shape or { 32, 1 }, values = sum_values }, ["a.weight.counts"] = { shape = { 1, 1 }, values = { count or 2 } } })
  end
  opts.imatrix = with(sums)
  local result = assert(quantize.run(opts))
  lu.assertEquals({ result.tensors[1].importance, result.tensors[2].importance }, { true, false })
  opts.to, opts.imatrix = temp.path(), with({ 1, 2 }, { 2, 1 })
  refused(opts, "a.weight", "2 weights, its columns are 32")
  for _, bad in ipairs({ 0 / 0, -1, math.huge }) do
    sums[5], opts.imatrix = bad, nil
    opts.imatrix = with(sums)
    refused(opts, "a.weight", "NaN, an infinity or a negative weight")
  end
  opts.imatrix = SOURCE
  refused(opts, "no importance matrix")
  opts.imatrix = imatrix_with({ ["a.weight.in_sum2"] = { shape = { 1, 1 }, values = { 1 } } })
  refused(opts, "not as llama-imatrix writes it")
  opts.imatrix = temp.path()
  refused(opts, "No such file")
  refused({ from = SOURCE, to = temp.path(), type = "IQ2_XS" }, "needs importance", "--imatrix")
  refused({ from = SOURCE, to = temp.path(), type = "IQ2_XS", imatrix = with(sums, nil, 0) }, "has no importance in the file")
end

TestMisuse = {}

function TestMisuse.test_it_names_the_callers_line()
  local function misused(opts, part)
    local ok, message = pcall(function() local _ = mtx.quantize(opts) end)
    lu.assertFalse(ok)
    lu.assertStrContains(message, part)
    lu.assertStrContains(message, "test_quantize.lua:")
  end
  misused({ from = SOURCE, to = "x", typ = "Q8_0" }, "no field 'typ'; did you mean type?")
  misused({ from = SOURCE, type = "Q8_0" }, "needs a string 'to'")
  misused({ to = "x", type = "Q8_0" }, "needs a string 'from'")
  for name, wrong in pairs({ tensor_types = "ffn=Q6_K", rules = 5, imatrix = 5, threads = 1.5, requantize = 1, force = "no", progress = 5 }) do
    misused({ from = SOURCE, to = "x", type = "Q8_0", [name] = wrong }, "option '" .. name .. "' must be a")
  end
  misused({ from = SOURCE, to = "x", type = "Q8_0", threads = -1 }, "'threads' must be a whole number from 0")
  misused({ from = SOURCE, to = "x", type = "Q8_0", tensor_types = { 5 } }, "'tensor_types' must be a list")
  local result = assert(mtx.quantize({ from = SOURCE, type = "Q8_0", dry_run = true }))
  lu.assertEquals(result.bytes, 1293312)
end

TestCommand = {}

local PROGRAM <const> = (arg and arg[-1] or (os.getenv("BUILD") or "build") .. "/mtx")

local function run(line)
  local p = io.popen(PROGRAM .. " quantize " .. line .. " 2>&1")
  local text = p:read("a")
  local _, _, code = p:close()
  return code, text
end

function TestCommand.test_it_writes_and_says_what()
  local to = temp.path(".gguf")
  local code, text = run(SOURCE .. " " .. to .. " q4_k_m -t 2")
  lu.assertEquals(code, 0, text)
  lu.assertStrContains(text, "Q4_K_M, 4.6 MiB -> 716.4 KiB of weights, 5 of 21 tensors kept")
  lu.assertEquals(core.sha256.file(to), FILES.Q4_K_M.sha256)
  code, text = run(SOURCE .. " " .. to .. " q4_k_m")
  lu.assertEquals(code, 1)
  lu.assertStrContains(text, "--force")
  code, text = run(SOURCE .. " " .. to .. " q8_0 --force --json")
  lu.assertEquals(code, 0, text)
  local answer = json.decode(text)
  lu.assertEquals({ answer.type, #answer.tensors, answer.path, answer.needs_imatrix, answer.file_bytes }, { "Q8_0", 21, to, false, uv.fs_stat(to).size })
end

function TestCommand.test_dry_run()
  local code, text = run(SOURCE .. " IQ2_XS --dry-run")
  lu.assertEquals(code, 0, text)
  lu.assertStrContains(text, "blk.0.attn_v.weight")
  lu.assertStrContains(text, "-> Q2_K")
  lu.assertStrContains(text, "needs --imatrix")
  code, text = run(SOURCE .. " IQ2_XS -n --json --imatrix " .. IMATRIX)
  lu.assertEquals(code, 0, text)
  local answer = json.decode(text)
  lu.assertEquals({ answer.needs_imatrix, answer.path, answer.tensors[3].importance }, { false, nil, true })
  lu.assertEquals(answer.tensors[2], { name = "output_norm.weight", shape = { 256 }, from = "F32", to = "F32", from_bytes = 1024, bytes = 1024, importance = false })
end

function TestCommand.test_rule_files()
  local rule = temp.file('return function(t, to) if t.role == "value" then return "Q8_0" end end', ".lua")
  local code, text = run(SOURCE .. " Q4_0 -n --rules " .. rule .. " --tensor-type 'ffn_up=BF16'")
  lu.assertEquals(code, 0, text)
  local _, n = text:gsub("attn_v.weight%s+256 x 128%s+F32%s+%-> Q8_0", "")
  lu.assertEquals(n, 2)
  _, n = text:gsub("ffn_up.weight%s+256 x 512%s+F32%s+%-> BF16", "")
  lu.assertEquals(n, 2)
  code, text = run(SOURCE .. " Q4_0 -n --rules " .. temp.file("return 1", ".lua"))
  lu.assertEquals(code, 1)
  lu.assertStrContains(text, "gives back a function")
  code, text = run(SOURCE .. " Q4_0 -n --rules " .. temp.file("return (", ".lua"))
  lu.assertEquals(code, 1, text)
end

function TestCommand.test_wrong_usage()
  for line, part in pairs({ [""] = "give IN, OUT and TYPE", [SOURCE .. " x"] = "give IN, OUT and TYPE", [SOURCE .. " x Q4_K_L"] = "did you mean Q3_K_L",
      ["a b Q8_0 c"] = "unexpected word 'c'", ["a b Q8_0 --threads 0"] = "--threads must be 1 to 1024" }) do
    local code, text = run(line)
    lu.assertEquals(code, 2, line)
    lu.assertStrContains(text, part)
  end
end
