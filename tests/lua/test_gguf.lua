-- SPDX-License-Identifier: MIT
-- mtx.core.gguf and mtx.core.sha256 as Lua sees them.
local lu = require("luaunit")
local core = require("mtx.core")
local temp = require("temp")

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

function TestSha256.test_parts_of_a_file_on_a_thread()
  local text = read("LICENSE")
  local sum = core.sha256.new():update("before ")
  lu.assertEquals(sum:start("LICENSE", 5, 100):take(), 100)
  lu.assertEquals(sum:hex(), core.sha256.of("before " .. text:sub(6, 105)))
  lu.assertEquals(sum:start("LICENSE", 105, 1 << 40):take(), #text - 105)
  lu.assertEquals(sum:hex(), core.sha256.of("before " .. text:sub(6)))
  lu.assertEquals(sum:start("LICENSE", 1 << 40, 10):take(), 0)
  local r, message, code = sum:start("no/such/file", 0, 1):take()
  lu.assertNil(r)
  lu.assertStrContains(message, "no/such/file")
  lu.assertEquals(code, "notfound")
  lu.assertEquals(sum:hex(), core.sha256.of("before " .. text:sub(6)))
  lu.assertErrorMsgContains("negative", sum.start, sum, "LICENSE", -1, 1)
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

TestGgufWrite = {}

function TestGgufWrite:setUp()
  self.path = temp.path()
end

function TestGgufWrite:tearDown()
  os.remove(self.path)
end

local KV = {
  { key = "general.architecture", type = "string", value = "llama" },
  { key = "u8", type = "u8", value = 255 }, { key = "i8", type = "i8", value = -128 },
  { key = "u16", type = "u16", value = 65535 }, { key = "i16", type = "i16", value = -32768 },
  { key = "u32", type = "u32", value = 4294967295 }, { key = "i32", type = "i32", value = -2147483648 },
  { key = "u64", type = "u64", value = math.maxinteger }, { key = "i64", type = "i64", value = math.mininteger },
  { key = "big", type = "u64", value = 2.0 ^ 63 },
  { key = "f32", type = "f32", value = 0.25 }, { key = "f64", type = "f64", value = 0.1 },
  { key = "yes", type = "bool", value = true }, { key = "no", type = "bool", value = false },
  { key = "s", type = "string", value = "a\0b\xff" },
  { key = "l.s", type = "array", item_type = "string", value = { "x", "", "yz" } },
  { key = "l.i", type = "array", item_type = "i32", value = { -1, 0, 7 } },
  { key = "l.b", type = "array", item_type = "bool", value = { true, false } },
  { key = "l.f", type = "array", item_type = "f32", value = { 0.5 } },
  { key = "l.e", type = "array", item_type = "u32", value = {} },
}

function TestGgufWrite:test_round_trip()
  local data = string.pack("<ffffff", 1, 2, 3, 4, 5, 6)
  lu.assertTrue(core.gguf.write { path = self.path, kv = KV, tensors = {
    { name = "w", type = "F32", shape = { 3, 2 }, data = data },
    { name = "q", type = "q8_0", shape = { 32 }, data = ("\1"):rep(34) },
  } })
  local g <close> = assert(core.gguf.open(self.path))
  local got = g:metadata()
  lu.assertEquals(#got, #KV)
  for i, e in ipairs(KV) do
    lu.assertEquals({ got[i].key, got[i].type, got[i].item_type, got[i].value }, { e.key, e.type, e.item_type, e.value })
    lu.assertEquals(math.type(got[i].value), math.type(e.value))
  end
  lu.assertEquals(g:tensors()[1].shape, { 3, 2 })
  lu.assertEquals(g:tensor_data("w"), data)
  lu.assertEquals(g:tensor_data("q"), ("\1"):rep(34))
end

function TestGgufWrite:test_edit_of_an_opened_file()
  local g <close> = assert(core.gguf.open(MODEL))
  lu.assertTrue(core.gguf.write { path = self.path, from = g })
  lu.assertEquals(core.sha256.file(self.path), core.sha256.file(MODEL))
  lu.assertTrue(core.gguf.write { path = self.path, from = g, remove = { "llama.rope.freq_base", "no.such" },
    kv = { { key = "llama.block_count", type = "u32", value = 1 }, { key = "new", type = "bool", value = true } },
    tensors = { { name = "output.weight", from = g }, { name = "extra", type = "F16", shape = { 2 }, data = "abcd" } } })
  local e <close> = assert(core.gguf.open(self.path))
  lu.assertEquals(#e:metadata(), #g:metadata())
  lu.assertEquals(e:metadata("llama.block_count"), 1)
  lu.assertEquals(select("#", e:metadata("llama.rope.freq_base")), 0)
  lu.assertEquals(e:metadata()[#e:metadata()].key, "new")
  lu.assertEquals(#e:tensors(), 2)
  lu.assertEquals(e:tensor_data("output.weight"), g:tensor_data("output.weight"))
  -- Over the file that is open: the old one stays readable.
  local before = e:tensor_data("output.weight")
  lu.assertTrue(core.gguf.write { path = self.path, from = e, tensors = {} })
  lu.assertEquals(e:tensor_data("output.weight"), before)
end

function TestGgufWrite:test_progress_that_closes_a_source_ends_it()
  local g <close> = assert(core.gguf.open(MODEL))
  local ok, message = pcall(core.gguf.write, { path = self.path, from = g, progress = function() g:close() end })
  lu.assertFalse(ok)
  lu.assertStrContains(message, "closed")
  lu.assertNil(io.open(self.path))
end

function TestGgufWrite:test_misuse_raises_with_the_key()
  local write = core.gguf.write
  local function bad(text, args)
    args.path = args.path or self.path
    lu.assertErrorMsgContains(text, write, args)
  end
  lu.assertError(write)
  lu.assertErrorMsgContains("path", write, {})
  bad("zero byte", { path = "a\0b" })
  bad("'kv' must be a list", { kv = 1 })
  bad("no table", { kv = { 1 } })
  bad("'k': there is no type 'x'", { kv = { { key = "k", type = "x", value = 1 } } })
  for type, value in pairs { u8 = 256, i8 = 128, u16 = -1, u32 = 2 ^ 32, i32 = 1.5, u64 = -1, i64 = "1", bool = 1, f32 = 1e300, f64 = "1", string = 1 } do
    bad("'k'", { kv = { { key = "k", type = type, value = value } } })
  end
  bad("'k'", { kv = { { key = "k", type = "array", item_type = "array", value = {} } } })
  bad("item 2", { kv = { { key = "k", type = "array", item_type = "string", value = { "a", 1 } } } })
  bad("'k'", { kv = { { key = "k", type = "array", item_type = "u8", value = 7 } } })
  bad("no such tensor type", { tensors = { { name = "t", type = "Q99", shape = { 1 }, data = "" } } })
  bad("shape", { tensors = { { name = "t", type = "F32", shape = { "a" }, data = "" } } })
  bad("data", { tensors = { { name = "t", type = "F32", shape = { 1 } } } })
  local g = assert(core.gguf.open(MODEL))
  bad("not in the file", { tensors = { { name = "t", from = g } } })
  g:close()
  bad("closed", { from = g })
  bad("closed", { tensors = { { name = "output.weight", from = g } } })
end

function TestGgufWrite:test_failure_returns()
  local ok, message, code = core.gguf.write { path = self.path, tensors = { { name = "t", type = "F32", shape = { 2 }, data = "abcd" } } }
  lu.assertNil(ok)
  lu.assertStrContains(message, "t: the shape needs 8 bytes, 4 are given")
  lu.assertEquals(code, "invalid")
  ok, message, code = core.gguf.write { path = "no/such/folder/x.gguf" }
  lu.assertEquals({ ok, code }, { nil, "io" })
  lu.assertStrContains(message, "no/such/folder/x.gguf")
  ok, message = core.gguf.write { path = self.path, tensors = { { name = "t", type = "F32", shape = { 1, 1, 1, 1, 1 }, data = "abcd" } } }
  lu.assertNil(ok)
  lu.assertStrContains(message, "dimensions")
end
