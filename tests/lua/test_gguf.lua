-- SPDX-License-Identifier: MIT
-- mtx.core.gguf and mtx.core.sha256 as Lua sees them.
local lu = require("luaunit")
local core = require("mtx.core")

local function read(path)
  local f = assert(io.open(path, "rb"))
  local s = f:read("a")
  f:close()
  return s
end

TestSha256 = {}

function TestSha256.test_known_digests()
  lu.assertEquals(core.sha256.of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
  local h = core.sha256.new():update("a"):update("bc")
  lu.assertEquals(h:hex(), core.sha256.of("abc"))
  lu.assertEquals(h:update(""):hex(), core.sha256.of("abc"))
end

function TestSha256.test_file()
  lu.assertEquals(core.sha256.file("LICENSE"), core.sha256.of(read("LICENSE")))
  local r, message, code = core.sha256.file("no/such/file")
  lu.assertNil(r)
  lu.assertStrContains(message, "no/such/file")
  lu.assertEquals(code, "notfound")
end

TestGgufRead = {}

local MODEL = "build/golden/arch/llama.gguf"

function TestGgufRead.test_metadata_and_tensors()
  local g <close> = assert(core.gguf.open(MODEL))
  lu.assertEquals(g:metadata("general.architecture"), "llama")
  local list = g:metadata()
  lu.assertEquals(list[1].key, "general.architecture")
  lu.assertEquals(list[1].type, "string")
  lu.assertEquals({ g:metadata("llama.block_count") }, { 2, "u32" })
  lu.assertEquals(select("#", g:metadata("no.such.key")), 0)
  local tokens, type, item = g:metadata("tokenizer.ggml.tokens")
  lu.assertEquals({ #tokens, type, item }, { 128, "array", "string" })
  local tensors = g:tensors()
  lu.assertEquals(#tensors, 21)
  lu.assertEquals(tensors[1].name, "token_embd.weight")
  lu.assertEquals(tensors[1].shape, { 64, 128 })
  lu.assertEquals(tensors[1].type, "F32")
  lu.assertEquals(tensors[1].bytes, 64 * 128 * 4)
  local bytes = read(MODEL)
  lu.assertEquals(g:tensor_data("token_embd.weight"), bytes:sub(tensors[1].offset + 1, tensors[1].offset + tensors[1].bytes))
  lu.assertEquals(g:tensor_data("token_embd.weight", 8, 4), bytes:sub(tensors[1].offset + 9, tensors[1].offset + 12))
  lu.assertEquals(g:info().bytes, #bytes)
  lu.assertEquals(g:info().version, 3)
end

function TestGgufRead.test_failures_return_misuse_raises()
  local g, message, code = core.gguf.open("LICENSE")
  lu.assertNil(g)
  lu.assertStrContains(message, "not a GGUF file")
  lu.assertEquals(code, "format")
  g = assert(core.gguf.open(MODEL, { vocab_only = true }))
  lu.assertEquals(select("#", g:tensor_data("token_embd.weight")), 0)
  g:close()
  g:close()
  lu.assertErrorMsgContains("closed", g.metadata, g)
  lu.assertErrorMsgContains("closed", g.tensors, g)
  lu.assertStrContains(tostring(g), "closed")
  lu.assertError(core.gguf.open)
  lu.assertError(core.gguf.open, MODEL, 7)
  lu.assertError(g.metadata, io.stdout)
  g = assert(core.gguf.open(MODEL))
  lu.assertErrorMsgContains("outside the tensor", g.tensor_data, g, "token_embd.weight", -1)
  lu.assertErrorMsgContains("outside the tensor", g.tensor_data, g, "token_embd.weight", 0, 1 << 40)
  lu.assertErrorMsgContains("outside the tensor", g.tensor_data, g, "token_embd.weight", 64 * 128 * 4, 1)
end
