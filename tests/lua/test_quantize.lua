-- SPDX-License-Identifier: MIT
-- Quantised files: whole ones and tensors byte for byte as llama-quantize wrote them (tests/golden/quantised), of files
-- and folders, and what is left when one is stopped or may not be written.
local lu = require("luaunit")
local uv = require("luv")
local core = require("mtx.core")
local fixture = require("quantize_fixture")
local free_disk = require("mtx.free_disk")
local mixes = require("mtx.quantize.mixes")
local mtx = require("mtx")
local quantize = require("mtx.quantize")
local temp = require("temp")

local SOURCE <const>, FILES <const>, TENSORS <const> = fixture.SOURCE, fixture.FILES, fixture.TENSORS
local refused = fixture.refused

local function digests(path)
  local g, out = assert(core.gguf.open(path)), {}
  for _, t in ipairs(g:tensors()) do out[t.name] = { t.type, core.sha256.of(g:tensor_data(t.name)) } end
  g:close()
  return out
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
  local to = temp.path(".gguf")
  local result = fixture.write(mix, to, { threads = 2 })
  lu.assertEquals(core.sha256.file(to), want.sha256)
  lu.assertEquals(uv.fs_stat(to).size, result.file_bytes)
end

-- One test a mix: README's table names them.
for mix, want in pairs(FILES) do
  TestGolden["test_file_" .. mix] = function() check_file(mix, want) end
end

function TestGolden.test_tensors_with_importance()
  local n = 0
  for mix, want in pairs(TENSORS) do
    local to = temp.path(".gguf")
    fixture.write(mix, to, { imatrix = "q256.imatrix.gguf" })
    local got = digests(to)
    for name, w in pairs(want) do
      lu.assertEquals(got[name], w, mix .. " " .. name)
      n = n + 1
    end
  end
  lu.assertEquals(n, 320)
end

function TestGolden.test_threads_change_nothing()
  for _, threads in ipairs({ 1, 3, 7 }) do
    local to = temp.path(".gguf")
    fixture.write("IQ2_XXS", to, { threads = threads })
    lu.assertEquals(core.sha256.file(to), FILES.IQ2_XXS.sha256)
  end
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
  local opts = { from = temp.path(".gguf"), to = temp.path(), type = "Q8_0" }
  fixture.write("Q4_K_M", opts.from)
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
