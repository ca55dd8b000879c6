-- SPDX-License-Identifier: MIT
-- Damaged and hostile vocabularies: an error that names the key, or the
-- documented tolerance; never a crash, never a slow path.
local lu = require("luaunit")
local core = require("mtx.core")
local gguf = require("gguf_bytes")

local P = "tokenizer.ggml."
local TOKENS = { "<unk>", "<s>", "</s>", "<0x0A>", "\u{2581}", "a", "b", "ab", "\u{2581}a", "<0x63>" }
local TYPES = { 2, 3, 3, 6, 1, 1, 1, 1, 1, 6 }
local SCORES = { 0, 0, 0, 0, -1, -2, -3, -1, -2, 0 }

-- An SPM vocabulary with keys replaced (or removed: false).
local function spm(change)
  local kv = {
    { P .. "model", "string", "llama" },
    { P .. "tokens", "array:string", TOKENS },
    { P .. "scores", "array:f32", SCORES },
    { P .. "token_type", "array:i32", TYPES },
  }
  for key, v in pairs(change or {}) do
    local at
    for i, e in ipairs(kv) do
      if e[1] == P .. key then at = i end
    end
    if v == false then
      table.remove(kv, at)
    else
      kv[at or #kv + 1] = { P .. key, v[1], v[2] }
    end
  end
  return kv
end

local n_saved = 0
local function open(kv)
  n_saved = n_saved + 1
  local path = gguf.save("tok" .. n_saved, kv)
  local t, message, code = core.tokenizer.open(path)
  os.remove(path)
  return t, message, code
end

local function refused(kv, key, code, words)
  local t, message, got = open(kv)
  lu.assertNil(t, key)
  lu.assertStrContains(message, key)
  lu.assertEquals(got, code, message)
  if words then lu.assertStrContains(message, words) end
end

TestHostile = {}

function TestHostile.test_sound_one_opens()
  local t = assert(open(spm()))
  lu.assertEquals(t:encode("ab\nc"), { 4, 7, 3, 9 })
  lu.assertEquals(t:decode { 4, 7, 3, 9 }, "ab\nc")
  lu.assertEquals(t:encode("z"), { 4, 0 })  -- no byte token for z: the unknown token
end

function TestHostile.test_keys_are_named()
  refused(spm { model = false }, P .. "model", "notfound", "no tokenizer")
  refused(spm { model = { "string", "no_vocab" } }, P .. "model", "notfound")
  refused(spm { model = { "string", "magic" } }, P .. "model", "unsupported", "magic")
  refused(spm { model = { "u32", 7 } }, P .. "model", "format")
  refused(spm { model = { "string", "gpt2" }, pre = { "string", "not-known-yet" } }, P .. "pre", "unsupported", "not-known-yet")
  refused(spm { model = { "string", "gpt2" } }, P .. "merges", "format")
  refused(spm { model = { "string", "gpt2" }, merges = { "array:u32", { 1 } } }, P .. "merges", "format")
  refused(spm { tokens = false }, P .. "tokens", "format")
  refused(spm { tokens = { "array:u32", { 1, 2 } } }, P .. "tokens", "format")
  refused(spm { tokens = { "array:string", {} } }, P .. "tokens", "format", "empty")
  refused(spm { scores = { "array:f32", { 1, 2 } } }, P .. "scores", "format", "2 entries for 10 tokens")
  refused(spm { scores = { "array:string", TOKENS } }, P .. "scores", "format")
  refused(spm { token_type = { "array:i32", { 1 } } }, P .. "token_type", "format")
  refused(spm { token_type = { "array:f32", SCORES } }, P .. "token_type", "format")
  refused(spm { add_bos_token = { "u32", 1 } }, P .. "add_bos_token", "format")
  refused(spm { add_sep_token = { "bool", true } }, P .. "add_sep_token", "format")
end

function TestHostile.test_special_ids_out_of_range()
  for _, id in ipairs { 10, 0xFFFFFFFF } do
    refused(spm { bos_token_id = { "u32", id } }, P .. "bos_token_id", "format", tostring(id))
    refused(spm { eos_token_id = { "u32", id } }, P .. "eos_token_id", "format", tostring(id))
    local t = assert(open(spm { padding_token_id = { "u32", id }, unknown_token_id = { "u32", 0 } }))
    lu.assertNil(t:special().pad)
  end
  -- The kind's default ids do not exist in a vocabulary of two tokens.
  refused({ { P .. "model", "string", "llama" }, { P .. "tokens", "array:string", { "x" } } }, P .. "add_bos_token", "format", "bos_token_id")
end

function TestHostile.test_odd_types_scores_and_duplicates()
  local types = { table.unpack(TYPES) }
  types[6], types[7] = 99, -5
  local scores = { table.unpack(SCORES) }
  scores[8], scores[9] = 0 / 0, 1 / 0
  local tokens = { table.unpack(TOKENS) }
  tokens[10] = "ab"
  tokens[7] = ""
  local t = assert(open(spm { tokens = { "array:string", tokens }, scores = { "array:f32", scores }, token_type = { "array:i32", types } }))
  lu.assertEquals(t:encode(" a"), { 4, 8 })
  lu.assertEquals(t:find("ab"), 7)
  lu.assertEquals(t:piece(6), "")
  lu.assertNil(t:find(""))
  lu.assertNotNil(t:encode("ab ab"))
end

-- Merges that lead back to themselves, name no tokens, or have no two parts.
function TestHostile.test_merges()
  local tokens = { "a", "b", "aa", "ab", "<e>" }
  local merges = { "a a", "aa aa", "a", " ", "", "b\u{1F600} c", "ab ab", "ab a", "a b", "a b", ("a"):rep(5000) .. " " .. ("a"):rep(5000) }
  local t = assert(open {
    { P .. "model", "string", "gpt2" }, { P .. "pre", "string", "gpt-2" }, { P .. "tokens", "array:string", tokens },
    { P .. "merges", "array:string", merges },
  })
  lu.assertEquals(t:encode("aaaa"), { 0, 0, 0, 0 })  -- merged to a string that is no token: as letters
  lu.assertEquals(t:encode("ab"), { 3 })
  lu.assertEquals(#assert(t:encode(("a"):rep(1 << 18))), 1 << 18)
  lu.assertEquals(t:encode("\u{1F600}"), {})
end

function TestHostile.test_charsmap_bounds()
  local function t5(map)
    return {
      { P .. "model", "string", "t5" }, { P .. "tokens", "array:string", { "<pad>", "</s>", "<unk>", "a" } },
      { P .. "token_type", "array:i32", { 3, 3, 2, 1 } }, { P .. "scores", "array:f32", { 0, 0, 0, -1 } },
      { P .. "precompiled_charsmap", "array:u8", { map:byte(1, -1) } },
    }
  end
  refused(t5("\1\2"), P .. "precompiled_charsmap", "format", "too short")
  refused(t5("\255\0\0\0abc"), P .. "precompiled_charsmap", "format", "outside")
  for _, entry in ipairs { 0xFFFFFFFF, 0x400, 0x10 << 10, 0x300 | 0x61 } do
    local t = assert(open(t5(string.pack("<I4I4I4", 8, entry, entry) .. "x\0")))
    local ids, message, code = t:encode("aéa")
    if not ids then
      lu.assertStrContains(message, "precompiled_charsmap")
      lu.assertEquals(code, "format")
    end
  end
end

function TestHostile.test_kinds_that_lack_what_they_need()
  refused({ { P .. "model", "string", "plamo2" }, { P .. "tokens", "array:string", TOKENS }, { P .. "token_type", "array:i32", TYPES } }, P .. "tokens",
    "format", "<0x00>")
  local t = assert(open { { P .. "model", "string", "rwkv" }, { P .. "tokens", "array:string", { "a", "\\x", "\\", "\\xg1", "b\\n" } } })
  lu.assertEquals(t:encode("ab\n"), { 0, 4 })
  local ids, message, code = t:encode("z")
  lu.assertNil(ids)
  lu.assertStrContains(message, "0x7A")
  lu.assertEquals(code, "format")
end

function TestHostile.test_misuse_raises_and_close_is_final()
  local t = assert(open(spm()))
  lu.assertError(function() t:encode({}) end)
  lu.assertError(function() t:encode("a", 5) end)
  lu.assertError(function() t:decode { "x" } end)
  lu.assertError(function() t:encode("a", { spans = { 3 } }) end)
  local d = t:stream()
  t:close()
  t:close()
  lu.assertErrorMsgContains("closed", function() t:encode("a") end)
  lu.assertErrorMsgContains("closed", function() d:feed(5) end)
end

-- Thousands of special tokens that overlap, in a text made of them.
function TestHostile.test_many_overlapping_specials()
  local tokens, types = { "a" }, { 1 }
  for n = 2, 400 do tokens[n], types[n] = ("a"):rep(n), 4 end
  local t = assert(open {
    { P .. "model", "string", "gpt2" }, { P .. "pre", "string", "gpt-2" }, { P .. "tokens", "array:string", tokens },
    { P .. "token_type", "array:i32", types }, { P .. "merges", "array:string", {} },
  })
  local ids = assert(t:encode(("a"):rep(100 * 400 + 7)))
  lu.assertEquals(#ids, 101)
  lu.assertEquals(ids[101], 6)
end

-- One token of 60,000 letters must not make every letter of a text cost as much.
function TestHostile.test_giant_tokens()
  local giant = ("a"):rep(60000)
  for _, model in ipairs { "t5", "bert", "rwkv", "llama" } do
    local t = assert(open {
      { P .. "model", "string", model }, { P .. "tokens", "array:string", { "<pad>", "</s>", "<unk>", "a", giant, giant .. "b", "\u{2581}a" } },
      { P .. "token_type", "array:i32", { 3, 3, 2, 1, 4, 3, 1 } }, { P .. "scores", "array:f32", { 0, 0, 0, -1, -2, -3, -1 } },
      { P .. "unknown_token_id", "u32", 2 }, { P .. "bos_token_id", "u32", 1 }, { P .. "seperator_token_id", "u32", 1 },
    })
    local start = os.clock()
    lu.assertTrue(#assert(t:encode(("a"):rep(1 << 20), { parse_special = true })) > 1000, model)
    local limit = os.getenv("MTX_TEST_SLOW") and 60 or 10
    lu.assertTrue(os.clock() - start < limit, model)
  end
end
