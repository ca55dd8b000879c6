-- SPDX-License-Identifier: MIT
-- tokenizer.json and tokenizer.model against the libraries that define them:
-- small tokenizers trained with `tokenizers` 0.23.3 and `sentencepiece` 0.2.3,
-- and those libraries' ids.
local lu = require("luaunit")
local cjson = require("cjson")
local tok = require("mtx.tok")
local DIR = "tests/golden/tokenizer/hf/"

local function same(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

TestHf = {}
for _, name in ipairs { "gpt2", "llama3", "qwen2", "starcoder", "deepseek3", "bert", "t5", "llama2", "sp-bpe", "sp-unigram" } do
  TestHf["test_" .. name:gsub("%W", "_")] = function()
    local t = assert(tok.open(DIR .. name))
    local n, bad = 0, {}
    for line in assert(io.open(DIR .. name .. "/cases.jsonl")):lines() do
      local case = cjson.decode(line)
      n = n + 1
      if not same(t:encode(case.text), case.ids) then bad[#bad + 1] = case.text end
      if case.ids_special and not same(t:encode(case.text, { add_special = true }), case.ids_special) then bad[#bad + 1] = "special " .. case.text end
    end
    lu.assertEquals(bad, {})
    lu.assertTrue(n > 200)
  end
end

local function saved(text, suffix)
  os.execute("mkdir -p build/test")
  local path = "build/test/hf" .. suffix
  local f = assert(io.open(path, "wb"))
  f:write(text)
  f:close()
  return path
end

local function refused(text, suffix, words, code)
  local t, message, got = tok.open(saved(text, suffix))
  lu.assertNil(t)
  lu.assertStrContains(message, words)
  lu.assertEquals(got, code, message)
end

TestHfBad = {}

function TestHfBad.test_json()
  refused("{", ".json", "no JSON", "format")
  refused("{}", ".json", "not supported", "unsupported")
  refused('{"model":{"type":"BPE"}}', ".json", "vocab", "format")
  refused('{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}', ".json", "no proper id", "format")
  refused('{"model":{"type":"BPE","vocab":{"a":0.5},"merges":[]}}', ".json", "no proper id", "format")
  refused('{"model":{"type":"BPE","vocab":{"a":1e15},"merges":[]}}', ".json", "no proper id", "format")
  refused('{"model":{"type":"Unigram","vocab":[1,2]}}', ".json", "proper", "format")
  refused('{"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"q+"}},{"type":"ByteLevel","use_regex":false}]},'
    .. '"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}', ".json", "q+", "unsupported")
  local t, _, code = tok.open("no/such/tokenizer.json")
  lu.assertNil(t)
  lu.assertNotNil(code)
end

function TestHfBad.test_model()
  local f = assert(io.open(DIR .. "sp-bpe/tokenizer.model", "rb"))
  local whole = f:read("a")
  f:close()
  for _, n in ipairs { 0, 1, 5, 100, #whole - 3 } do
    local t, message = tok.open(saved(whole:sub(1, n), ".model"))
    if not t then lu.assertStrContains(message, ".model") end
  end
  refused("", ".model", "no pieces", "format")
  refused(("\xff"):rep(40), ".model", "SentencePiece", "format")
  refused("\10\255\255\255\255\255\255\255\255\255\1", ".model", "past the end", "format")
end
