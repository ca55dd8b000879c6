-- SPDX-License-Identifier: MIT
-- Tokenizers against llama.cpp's ids: every vocabulary of tests/golden/tokenizer,
-- every case, all four flag combinations, and the text back.
--
-- Gemma 3's vocabulary is not shipped: its cases read the model from
-- $MTX_MODELS_DIR or ./models (`make models`) and fail without it.
local lu = require("luaunit")
local core = require("mtx.core")
local cjson = require("cjson")
local vocab = require("golden_vocab")
local DIR = "tests/golden/tokenizer/"

local function unhex(h)
  return (h:gsub("%x%x", function(x) return string.char(tonumber(x, 16)) end))
end
local function bytes(v) return type(v) == "table" and unhex(v.hex) or v end

local function lines(path)
  local list = {}
  for line in assert(io.open(path)):lines() do list[#list + 1] = cjson.decode(line) end
  return list
end

local opened = {}
local function open(name)
  if not opened[name] then opened[name] = assert(core.tokenizer.open(vocab.path(name))) end
  return opened[name]
end

local manifest = cjson.decode(assert(io.open(DIR .. "manifest.json")):read("a"))

-- The ids of a case for (add_special, parse_special), as tests/golden's README says.
local function wanted(case)
  local parse = case.ids_parse or case.ids
  local function wrap(v, around)
    if not v.before then return v end
    local list = {}
    for _, part in ipairs { v.before, around, v.after } do table.move(part, 1, #part, #list + 1, list) end
    return list
  end
  local special = wrap(case.ids_special, case.ids)
  local both = case.ids_special_parse and wrap(case.ids_special_parse, parse) or wrap(case.ids_special, case.ids)
  return case.ids, parse, special, both
end

local function same(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

local function check_case(t, case, fail)
  local text = bytes(case.text)
  if case.aborts then
    -- llama.cpp dies of this text; here it becomes replacement characters.
    if not t:encode(text) then fail("aborts") end
    return
  end
  local plain, parse, special, both = wanted(case)
  local function ids(what, want, opts)
    local got, message = t:encode(text, opts)
    if not got or not same(got, want) then fail(what .. ": " .. (message or table.concat(got, " ", 1, math.min(#got, 20)))) end
  end
  ids("ids", plain)
  ids("ids_parse", parse, { parse_special = true })
  ids("ids_special", special, { add_special = true })
  ids("ids_special_parse", both, { add_special = true, parse_special = true })
  if not case.back then return end  -- ids only
  local function text_of(v) return v == "=" and text or bytes(v) end
  local back = text_of(case.back)
  if t:decode(plain) ~= back then fail("back") end
  local pieces = {}
  for i, id in ipairs(plain) do pieces[i] = t:piece(id) end
  if table.concat(pieces) ~= (case.pieces and text_of(case.pieces) or back) then fail("pieces") end
  local bare = t:decode(both, { remove_special = true, special = false })
  if bare ~= (case.back_special and text_of(case.back_special) or back) then fail("back_special") end
end

local function check_entry(t, entry)
  lu.assertEquals(t:n_tokens(), entry.tokens)
  local special = t:special()
  for _, key in ipairs { "bos", "eos", "sep", "pad", "mask" } do lu.assertEquals(special[key] or -1, entry[key], key) end
  for _, key in ipairs { "add_bos", "add_eos", "add_sep" } do lu.assertEquals(special[key], entry[key], key) end
end

local function check_vocab(t, case_file, entry)
  local failures, n = {}, 0
  for _, case in ipairs(lines(DIR .. case_file)) do
    n = n + 1
    check_case(t, case, function(what) failures[#failures + 1] = case.name .. " " .. what end)
  end
  lu.assertEquals(failures, {})
  lu.assertEquals(n, entry.cases)
  check_entry(t, entry)
end

TestGolden = {}
local n_vocabs = 0
for name, entry in pairs(manifest.vocabs) do
  local model = ({ ["real-gemma3-270m"] = "gemma3-270m-q4_k_m" })[name]
  n_vocabs = n_vocabs + 1
  TestGolden["test_" .. name:gsub("[^%w]", "_")] = function()
    local t = model and assert(core.tokenizer.open((os.getenv("MTX_MODELS_DIR") or "models") .. "/" .. model .. ".gguf")) or open(name)
    check_vocab(t, entry.file, entry)
  end
end
function TestGolden.test_all_vocabularies_are_there() lu.assertEquals(n_vocabs, 22) end

-- Kinds without a public vocabulary here: small ones made for the purpose. Line 1
-- of the cases is the vocabulary's entry, with the end-of-generation ids.
TestSmall = {}
for _, name in ipairs {
  "rwkv", "plamo2", "gemma4", "sarvam", "hybriddna", "tekken", "gpt4o", "whitespace", "t5", "spm-glue", "spm-noprefix",
} do
  TestSmall["test_" .. name:gsub("%W", "_")] = function()
    local t = assert(core.tokenizer.open(DIR .. "small/" .. name .. ".gguf"))
    local list, failures = lines(DIR .. "small/" .. name .. ".jsonl"), {}
    for i = 2, #list do
      check_case(t, list[i], function(what) failures[#failures + 1] = list[i].text .. " " .. what end)
    end
    lu.assertEquals(failures, {})
    check_entry(t, list[1])
    local eog = {}
    for id = 0, t:n_tokens() - 1 do
      if t:is_eog(id) then eog[#eog + 1] = id end
    end
    lu.assertEquals(eog, list[1].eog)
  end
end

-- Every pre-tokenizer rule against cuts made by llama.cpp's own splitter.
TestPretok = {}
function TestPretok.test_cuts()
  local list = lines(DIR .. "pretok.jsonl")
  local texts = list[1].texts
  lu.assertTrue(#texts > 200 and #list > 30)
  for i = 2, #list do
    local bad = {}
    for k, text in ipairs(texts) do
      local ends, at = {}, 0
      for j, piece in ipairs(core.tokenizer.presplit(list[i].pre, text)) do
        at = at + #piece
        ends[j] = at
      end
      if not same(ends, list[i].cuts[k]) then bad[#bad + 1] = text end
    end
    lu.assertEquals(bad, {}, list[i].pre)
  end
end

-- Not held against llama.cpp: its std::regex misreads \b inside the look-ahead.
function TestPretok.test_tiny_aya_follows_its_expression()
  local function cut(s) return table.concat(core.tokenizer.presplit("tiny_aya", s), "|") end
  lu.assertEquals(cut("12345"), "12|345")
  lu.assertEquals(cut("a 1234567."), "a| |1|234|567|.")
  lu.assertEquals(cut("12345x"), "123|45|x")
  lu.assertEquals(cut("7 12_ 88"), "7| |12|_| |88")
end

function TestPretok.test_names()
  local names = core.tokenizer.presplit_names()
  lu.assertTrue(#names >= 80)
  for _, name in ipairs(names) do lu.assertEquals(table.concat(core.tokenizer.presplit(name, "a 1\n b")), "a 1\n b") end
end

TestSpecial = {}

function TestSpecial.test_only_trusted_text_becomes_control_tokens()
  local t = open("real-SmolLM2-135M-Instruct")
  local head, user, tail = "<|im_start|>user\n", "say <|im_end|> twice", "<|im_end|>\n"
  local text = head .. user .. tail
  local ids = t:encode(text, { parse_special = true, spans = { { 1, #head }, { #head + #user + 1, #text } } })
  local control = 0
  for _, id in ipairs(ids) do
    if t:attr(id).control then control = control + 1 end
  end
  lu.assertEquals(control, 2)
  lu.assertEquals(t:decode(ids), text)
  lu.assertEquals(t:encode(text, { parse_special = true, spans = {} }), t:encode(text))
  -- A control token half in a span is text.
  local half = t:encode("<|im_end|>", { parse_special = true, spans = { { 1, 4 } } })
  lu.assertTrue(#half > 1)
  local r, message, code = t:encode("abc", { parse_special = true, spans = { { 2, 9 } } })
  lu.assertNil(r)
  lu.assertStrContains(message, "outside the text")
  lu.assertEquals(code, "invalid")
end

function TestSpecial.test_bos_exactly_once()
  local t = open("ggml-vocab-llama-bpe")
  local bos = t:special().bos
  local with, without = "<|begin_of_text|>Hi", "Hi"
  local opts = { add_special = true, parse_special = true, bos_once = true }
  lu.assertEquals(t:encode(with, opts), t:encode(without, opts))
  lu.assertEquals(t:encode(with, opts)[1], bos)
  lu.assertNotEquals(t:encode(with, opts)[2], bos)
  opts.spans = {}  -- a user who writes BOS does not take the real one away
  lu.assertEquals(t:encode(with, opts)[1], bos)
  lu.assertNotEquals(t:encode(with, opts)[2], bos)
end

function TestSpecial.test_end_of_generation()
  local t = open("ggml-vocab-llama-bpe")
  lu.assertTrue(t:is_eog(t:find("<|eot_id|>")))
  lu.assertTrue(t:is_eog(t:find("<|end_of_text|>")))
  lu.assertFalse(t:is_eog(t:find("<|begin_of_text|>")))
  lu.assertFalse(t:is_eog(-1))
  lu.assertFalse(t:is_eog(1 << 40))
  lu.assertTrue(open("real-SmolLM2-135M-Instruct"):is_eog(2))
end

TestBack = {}

function TestBack.test_runs_of_white_space_come_back()
  for _, name in ipairs { "ggml-vocab-llama-spm", "ggml-vocab-gpt-2", "ggml-vocab-qwen2", "ggml-vocab-deepseek-llm", "ggml-vocab-gpt-neox" } do
    local t = open(name)
    for n = 1, 256 do
      for _, c in ipairs { " ", "\n", "\t" } do
        local text = c:rep(n) .. "X"
        lu.assertEquals(t:decode(t:encode(text)), text, name)
      end
    end
  end
end

function TestBack.test_stream_gives_whole_characters()
  for _, name in ipairs { "ggml-vocab-llama-spm", "ggml-vocab-gpt-2", "ggml-vocab-command-r" } do
    local t = open(name)
    local text = "😀 naïve 𠮷野家\u{1F469}\u{200D}\u{1F52C}  x"
    local d, out = t:stream { at_start = true }, {}
    for _, id in ipairs(t:encode(text)) do
      local piece = d:feed(id)
      lu.assertTrue(core.tokenizer.valid_utf8(piece))
      out[#out + 1] = piece
    end
    lu.assertEquals(d:flush(), "")
    lu.assertEquals(table.concat(out), text)
  end
end

function TestBack.test_broken_bytes_become_one_replacement()
  local t = open("ggml-vocab-llama-spm")
  local d = t:stream()
  local e2, x82 = t:find("<0xE2>"), t:find("<0x82>")
  lu.assertEquals(d:feed(e2), "")
  lu.assertEquals(d:feed(x82), "")
  lu.assertEquals(d:feed(t:find("<0x41>")), "\u{FFFD}A")
  lu.assertEquals(d:feed(e2), "")
  lu.assertEquals(d:flush(), "\u{FFFD}")
  lu.assertEquals(d:flush(), "")
  lu.assertEquals(d:feed(x82), "\u{FFFD}")
  lu.assertEquals(core.tokenizer.repair_utf8("a\xff\xf0\x9f\x98b\xe2\x82"), "a\u{FFFD}\u{FFFD}b\u{FFFD}")
  lu.assertEquals({ core.tokenizer.valid_utf8("ab\xc0\xaf") }, { false, 3 })
  lu.assertEquals({ core.tokenizer.valid_utf8("\xed\xa0\x80") }, { false, 1 })
  local r, message = d:feed(1 << 33)
  lu.assertNil(r)
  lu.assertStrContains(message, "out of range")
  lu.assertNil((t:decode { 5, -3 }))
end

-- SEC-79: a megabyte of anything in well under a second (the limit allows for a
-- loaded machine and sanitizers).
TestLinear = {}
function TestLinear.test_megabyte()
  local texts = { ("a"):rep(1 << 20), (" "):rep(1 << 20), ("😀"):rep(1 << 18), ("\n"):rep(1 << 20), ("1"):rep(1 << 20), ("ab "):rep(350000) }
  local limit = os.getenv("MTX_TEST_SLOW") and 30 or 5
  for _, name in ipairs {
    "ggml-vocab-gpt-2", "ggml-vocab-llama-bpe", "ggml-vocab-qwen2", "ggml-vocab-deepseek-llm", "ggml-vocab-llama-spm", "ggml-vocab-phi-3",
    "ggml-vocab-bert-bge", "ggml-vocab-nomic-bert-moe", "ggml-vocab-gpt-neox",
  } do
    local t = open(name)
    for _, text in ipairs(texts) do
      local start = os.clock()
      local ids = assert(t:encode(text, { parse_special = true }))
      lu.assertTrue(#ids > 0 or text:find("^%s") ~= nil)
      local took = os.clock() - start
      lu.assertTrue(took < limit, ("%s: %.2f s for %q..."):format(name, took, text:sub(1, 4)))
    end
  end
end
