-- SPDX-License-Identifier: MIT
-- Writes README's status table from what the golden tests print: `make status`.
-- A row stands only for something a test just passed.
local build = arg[1] or "build"

local function run(command)
  local pipe = assert(io.popen(command .. " 2>&1"))
  local text = pipe:read("a")
  return text, pipe:close()
end

-- The names and the worst distance of a test that prints "ok NAME nmse X".
local function golden(program)
  local text, ok = run(build .. "/tests/c/" .. program)
  assert(ok, program .. " fails; mend it first")
  local names, worst = {}, 0
  for name, nmse in text:gmatch("ok (%S+) nmse (%S+)") do
    names[#names + 1] = name
    worst = math.max(worst, tonumber(nmse))
  end
  return names, worst
end

local function types_multiplied()
  local text, ok = run(build .. "/tests/kern/test_matmul")
  assert(ok, "test_matmul fails; mend it first")
  local names = {}
  for name in text:gmatch("ok (%S+)\n") do names[#names + 1] = name end
  return names
end

-- The names of the tests of a Lua test file that passed and match one of the patterns (its capture), each once.
local function passed(file, ...)
  local text, ok = run(("%s/mtx tests/lua/run.lua tests/lua/%s.lua"):format(build, file))
  assert(ok, file .. " fails; mend it first")
  local names, seen = {}, {}
  for test in text:gmatch("(Test%S+) %.%.%. Ok") do
    for _, pattern in ipairs({ ... }) do
      local name = test:match(pattern)
      if name and not seen[name] then
        seen[name] = true
        names[#names + 1] = name
      end
    end
  end
  assert(#names > 0, file .. " has no such test")
  return names
end

local function list(names) return table.concat(names, ", ") end

local archs, worst = golden("test_arch")
local adapters = golden("test_lora")
local roundtrips, never = passed("test_tools_roundtrip", "^TestRoundTrip%.test_(.+)$"), 0
for _, name in ipairs(roundtrips) do
  if name:find("^never_") then never = never + 1 end
end

local rows = {
  { "architectures: reference logits, bit-identical in any cut", ("`tests/c/test_arch` (worst NMSE %.1g)"):format(worst), list(archs) },
  { "tensor types: decoded as ggml does, multiplied on every CPU tier", "`tests/c/test_quant`, `tests/kern/test_matmul`", list(types_multiplied()) },
  { "`mtx quantize`: files byte for byte as llama-quantize writes them", "`tests/lua/test_quantize.lua`", list(passed("test_quantize", "^TestGolden%.test_file_(.+)$")) },
  { "LoRA adapters: reference logits, mixed in one step; on every architecture the merged model's", "`tests/c/test_lora`, `test_lora_archs`", list(adapters) },
  { "model folders: transformers' logits, bit-identical in any cut", "`tests/lua/test_hf.lua`", list(passed("test_hf", "^TestFamilies%.test_(.+)$")) },
  { "real models: reference tokens, perplexity, vectors", "`tests/lua/test_real.lua`", list(passed("test_real", "^TestReal%.test_([%w]+)$")) },
  { "vocabularies: the reference's ids and bytes", "`tests/lua/test_tokenizer.lua`", list(passed("test_tokenizer", "^TestGolden%.test_ggml_vocab_(.+)$", "^TestGolden%.test_real_(.+)$", "^TestSmall%.test_(.+)$")) },
  { "`tokenizer.json`, `tokenizer.model`", "`tests/lua/test_tokenizer_hf.lua`", list(passed("test_tokenizer_hf", "^TestHf%.test_(.+)$")) },
  { "formats of tool calls and thoughts, cut at every point", "`tests/lua/test_parse.lua`", list(passed("test_parse", "^TestParse%.test_([%l_]+)_%d+_at_every_cut$")) },
  { "chat templates whose calls come back byte for byte", "`tests/lua/test_tools_roundtrip.lua`", ("%d; %d more cannot, with the reason"):format(#roundtrips - never, never) },
  { "recorded sessions of clients", "`tests/lua/test_http_sessions.lua`", list(passed("test_http_sessions", "^TestSessions%.test_(.+)$")) },
}
local lines = { "| what | shown by | works |", "|---|---|---|" }
for _, row in ipairs(rows) do lines[#lines + 1] = "| " .. table.concat(row, " | ") .. " |" end

local file = assert(io.open("README.md"))
local readme = file:read("a")
file:close()
local first, last = "<!-- status:begin -->\n", "<!-- status:end -->"
local a, b = readme:find(first, 1, true), readme:find(last, 1, true)
assert(a and b, "README.md has no status marks")
readme = readme:sub(1, a + #first - 1) .. table.concat(lines, "\n") .. "\n" .. readme:sub(b)
file = assert(io.open("README.md", "w"))
file:write(readme)
file:close()
