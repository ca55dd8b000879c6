-- SPDX-License-Identifier: MIT
-- Grammars as scripts and the command line meet them: what compiles, what a text or token
-- may be, errors with their place, exit codes, and input that means harm.
local lu = require("luaunit")
local mtx = require("mtx")
local temp = require("temp")
local G = mtx.core.grammar

local MTX = (os.getenv("BUILD") or "build") .. "/mtx "
local MODELS = os.getenv("MTX_MODELS_DIR") or "models"

local function set(list)
  local s = {}
  for _, v in ipairs(list) do s[v] = true end
  return s
end

-- ---- what compiles ---------------------------------------------------------------------------

TestCompile = {}

function TestCompile:test_each_kind()
  local g = assert(G.gbnf('root ::= "a" [0-9]+'))
  lu.assertEquals({ g:match("a1"), g:match("a"), (g:match("b")) }, { "complete", "partial" })
  g = assert(G.regex("^[a-z]{2}$"))
  lu.assertEquals({ g:match("ab"), (g:match("abc")) }, { "complete" })
  g = assert(G.choice({ "red", "green", "red" }))
  lu.assertEquals({ g:match("green"), g:match("gr"), (g:match("blue")) }, { "complete", "partial" })
  g = assert(G.schema('{"type":"array","items":{"type":"integer"}}'))
  lu.assertEquals({ g:match("[1, 2]"), g:match("[1"), (g:match("[a")) }, { "complete", "partial" })
end

function TestCompile:test_unicode_properties()
  for pattern, texts in pairs({ ["^\\p{L}+$"] = { "école", "e1" }, ["^[\\p{N}\\p{S}]$"] = { "Ⅷ", "é" }, ["^\\P{Letter}$"] = { "1", "ß" },
    ["^[^\\p{Punctuation}]$"] = { "a", "。" }, ["\\p{White_Space}"] = { "a\u{3000}b", "ab" } }) do
    local g = assert(G.regex(pattern))
    lu.assertEquals({ g:match(texts[1]), g:match(texts[2]) == "complete" }, { "complete", false }, pattern)
  end
  for _, pattern in ipairs({ "\\p", "\\p{", "\\p{L", "\\pL", "\\p{Greek}", ("\\p{L}"):rep(1000) }) do lu.assertNil((G.regex(pattern)), pattern) end
end

function TestCompile:test_match_names_the_byte_and_the_rule()
  local g = assert(G.schema('{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}'))
  local state, at, where = g:match('{"n": x}')
  lu.assertEquals({ at, where }, { 7, "n > members > value" })
  lu.assertNil(state)
  lu.assertEquals({ g:match("") }, { "partial" })
  lu.assertEquals(select(2, g:match("\0")), 1)
end

function TestCompile:test_schema_options()
  local text = '{"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"required":["a","b"]}'
  local swapped = '{"b":2,"a":1}'
  lu.assertNil((G.schema(text):match(swapped)))
  lu.assertEquals(G.schema(text, { any_order = true }):match(swapped), "complete")
  lu.assertNil((G.schema('{"maxLength":2}'):match("5")))
  local listed, other = '{"properties":{"a":{"type":"integer"}}%s}', '{"a": 1,"b": 2}'
  lu.assertNotEquals(G.schema(listed:format("")):match(other), "complete")
  lu.assertEquals(G.schema(listed:format("")):match('{"a": 1}'), "complete")
  lu.assertEquals(G.schema(listed:format(""), { open_keys = true }):match(other), "complete")
  for _, says in ipairs({ '"additionalProperties":true', '"additionalProperties":{"type":"integer"}', '"patternProperties":{"^b":{"type":"integer"}}',
    '"propertyNames":{"maxLength":1}', '"dependentRequired":{"a":["b"]}',
    '"if":{"required":["a"]},"then":{"required":["b"]}', '"minProperties":2', '"unevaluatedProperties":{"type":"integer"}', '"allOf":[{"properties":{"b":{"type":"integer"}}}]' }) do
    lu.assertEquals(G.schema(listed:format("," .. says)):match(other), "complete", says)
  end
  lu.assertEquals(G.schema('{"properties":{},"type":"object"}'):match("{}"), "complete")
  lu.assertNotEquals(G.schema('{"properties":{},"type":"object"}'):match('{"a": 1}'), "complete")
  lu.assertEquals(G.schema('{"type":"object"}'):match('{"a": 1}'), "complete")
  lu.assertEquals(G.schema('{"properties":{"a":{"type":"integer"}},"required":["a","b"]}'):match(other), "complete") -- required is said too
  lu.assertEquals(G.schema('{"maxLength":2}', { open_types = true }):match("5"), "complete")
  for ws, spaced in pairs({ none = { false, false }, space = { true, false }, any = { true, true } }) do
    local g = G.schema('{"type":"array","items":{"const":1}}', { ws = ws })
    lu.assertEquals({ g:match("[1,1]") == "complete", g:match("[1, 1]") == "complete", g:match("[ 1,\n1 ]") == "complete" },
      { true, table.unpack(spaced) }, ws)
  end
  lu.assertErrorMsgContains("must be space, none or any", G.schema, "true", { ws = "some" })
  lu.assertErrorMsgContains("true or false", G.schema, "true", { strict = 1 })
end

function TestCompile:test_host_names()
  local host, mail = G.schema('{"type":"string","format":"hostname"}'), G.schema('{"type":"string","format":"email"}')
  lu.assertEquals({ #host:warnings(), #mail:warnings() }, { 0, 0 })
  local function label(n) return ("a"):rep(n) end
  local function of(n_labels, n) return (label(n) .. "."):rep(n_labels):sub(1, -2) end
  for name, taken in pairs({ [of(15, 15)] = true, [of(3, 63)] = true, [of(3, 63) .. "." .. of(3, 15)] = true, [label(64)] = false,
    [of(4, 63)] = false, [of(127, 1) .. ".aa"] = false, ["a--b.c"] = true, ["ab--c"] = false, ["x.xn--bcher-kva.de"] = false, ["ab-"] = false, ["-a"] = false,
    ["a1-2.b"] = true, ["a..b"] = false }) do
    lu.assertEquals(host:match('"' .. name .. '"') == "complete", taken, name)
    lu.assertEquals(mail:match('"me.x@' .. name .. '"') == "complete", taken, name)
  end
  lu.assertEquals(G.schema('{"format":"hostname","enum":["a.b","a_b","' .. of(4, 63) .. '"]}'):match('"a_b"'), nil)
  lu.assertEquals(G.schema('{"format":"hostname","maxLength":5}'):match('"a.b.cd"'), nil)
end

function TestCompile:test_warnings_and_strict()
  local text = '{"type":"array","uniqueItems":true,"not":{"prefixItems":[{"const":1}]}}'
  local w = G.schema(text):warnings()
  lu.assertEquals(#w, 2)
  lu.assertStrContains(w[1] .. w[2], "uniqueItems at byte 30")
  local g, message, code = G.schema(text, { strict = true })
  lu.assertEquals({ g, code }, { nil, "unsupported" })
  lu.assertStrContains(message, "not cannot be enforced")
  lu.assertEquals(G.gbnf('root ::= "a"'):warnings(), {})
end

function TestCompile:test_errors_have_a_place()
  for text, place in pairs({ ['root ::= "a"\nx ::= ('] = "line 2, column 7", ["root ::= [z-a]"] = "line 1, column 11", ["root ::= y"] = "y is used but not defined",
    ['root ::= root "a" | "b"'] = "root is left-recursive", [""] = "no rule named root" }) do
    local g, message, code = G.gbnf(text)
    lu.assertEquals({ g, code }, { nil, "format" }, text)
    lu.assertStrContains(message, place)
  end
  for text, place in pairs({ ["*a"] = "position 0", ["a{3,1}"] = "position 1", ["[z-a]"] = "position 1", ["("] = "position 0", ["\\"] = "position 0" }) do
    local g, message = G.regex(text)
    lu.assertNil(g)
    lu.assertStrContains(message, place)
  end
  local g, message, code = G.regex("x(?=y)")
  lu.assertEquals({ g, code }, { nil, "unsupported" })
  lu.assertStrContains(message, "position 1")
  for text, place in pairs({ ['{"type":'] = "byte 8", ['{"type":"strin"}'] = "byte 8", ['{"a":1,"$ref":"#/x"}'] = "byte 14" }) do
    g, message = G.schema(text)
    lu.assertNil(g)
    lu.assertStrContains(message, place)
  end
end

function TestCompile:test_misuse_raises()
  lu.assertErrorMsgContains("list of strings", G.choice, { "a", 1 })
  lu.assertErrorMsgContains("table expected", G.choice, "a")
  lu.assertNil((G.choice({})))
  lu.assertErrorMsgContains("string expected", G.gbnf)
  local g = assert(G.gbnf('root ::= "a"'))
  g:close()
  g:close()
  for _, method in ipairs({ "match", "matcher", "warnings" }) do lu.assertErrorMsgContains("closed", g[method], g, "a") end
end

-- Whatever comes, it ends soon, with a grammar or a message.
function TestCompile:test_hostile_texts()
  local deep = ("["):rep(100000)
  for _, text in ipairs({ deep, ("{"):rep(100000), ('{"items":'):rep(5000) .. "1", "\0\0\0", "\255\254", ("("):rep(100000),
    "root ::= " .. ("("):rep(100000), "root ::= " .. ('"a" | '):rep(50000), "root ::= " .. ("x"):rep(100000),
    "root ::= [" .. ("a-z"):rep(100000) .. "]", 'root ::= "' .. ("\\x41"):rep(100000) .. '"', "root ::= ((a*)*)*\na ::= [a-z]*",
    ("((((((((((a*)*)*)*)*)*)*)*)*)*)*b"), ("(a|b)*a"):rep(40), "a{1000000000}", "[" .. ("\\u{10FFFF}"):rep(1000) .. "]",
    '{"pattern":"' .. ("(a?){9}"):rep(100) .. '"}', '{"enum":[' .. ("1,"):rep(200000) .. "1]}", (" "):rep(5 << 20) }) do
    for name, f in pairs({ gbnf = G.gbnf, regex = G.regex, schema = G.schema }) do
      local t = os.clock()
      local g, message = f(text)
      lu.assertTrue(g ~= nil or type(message) == "string", name .. " " .. text:sub(1, 20))
      -- the compiler stops itself after a second of its own; parsing comes on top
      lu.assertTrue(os.clock() - t < 10, name .. " " .. text:sub(1, 20))
      if g then g:match(text:sub(1, 1000)) end
    end
  end
end

-- ---- matchers ----------------------------------------------------------------------------------

TestMatcher = {}

function TestMatcher:setUp()
  if not TestMatcher.model then TestMatcher.model = assert(mtx.load(MODELS .. "/SmolLM2-135M-Instruct.Q4_1.gguf", { ctx = 64 })) end
  self.tok = self.model.handle:tokenizer()
end

function TestMatcher:test_bytes()
  local m = assert(assert(G.gbnf('root ::= "{" item* "}"\nitem ::= [a-c]')):matcher())
  lu.assertTrue(m:accept("{ab"))
  lu.assertEquals({ m:accept("cx}") }, { nil, 2 })
  lu.assertFalse(m:complete())
  lu.assertTrue(m:accept("}"))  -- it stood before the x
  lu.assertTrue(m:complete())
  lu.assertErrorMsgContains("made without a model", m.allowed, m)
  lu.assertErrorMsgContains("made without a model", m.accept, m, 5)
  m:close()
  m:close()
  lu.assertErrorMsgContains("closed", m.complete, m)
end

-- The oracle of allowed() is the definition: what accept takes.
function TestMatcher:test_tokens()
  local g = assert(G.schema('{"type":"object","properties":{"city":{"type":"string","maxLength":9}},"required":["city"],"additionalProperties":false}'))
  for _, text in ipairs({ "", "{", '{"ci', '{"city": ', '{"city": "Os', '{"city": "123456', '{"city": "Oslo"}' }) do
    local m = assert(g:matcher(self.model.handle))
    lu.assertTrue(m:accept(text))
    local allowed = set(assert(m:allowed()))
    for id = 0, 49151, 97 do
      local other = assert(g:matcher(self.model.handle))
      assert(other:accept(text))
      lu.assertEquals(other:accept(id) == true, allowed[id] == true, text .. " + " .. id)
    end
    lu.assertEquals(next(allowed) ~= nil and m:complete(), text == '{"city": "Oslo"}')
  end
end

function TestMatcher:test_tokens_follow_a_text_and_end_it()
  local m = assert(assert(G.schema('{"enum":["one","two"]}')):matcher(self.model.handle))
  for _, id in ipairs(self.tok:encode('"two"')) do
    lu.assertTrue(set(m:allowed())[id])
    lu.assertTrue(m:accept(id))
  end
  lu.assertTrue(m:complete())
  local ends = m:allowed()
  lu.assertTrue(#ends >= 1)
  lu.assertTrue(m:accept(ends[1]))
  lu.assertEquals(m:allowed(), {})
  local ok, message, code = m:accept(ends[1])
  lu.assertEquals({ ok, message, code }, { nil, "the generation has ended", "invalid" })
  lu.assertErrorMsgContains("no token has this id", m.accept, m, 1 << 40)
  lu.assertErrorMsgContains("no token has this id", m.accept, m, -1)
end

-- ---- mtx grammar check --------------------------------------------------------------------------

TestCommand = {}

-- A word of the command that is a table stands for a file with that text.
local function run(...)
  local words, files = {}, {}
  for _, w in ipairs({ ... }) do
    if type(w) == "table" then
      w = temp.file(w[1])
      files[#files + 1] = w
    end
    words[#words + 1] = "'" .. w .. "'"
  end
  local out, err = temp.path(), temp.path()
  files[#files + 1], files[#files + 2] = out, err
  local _, _, code = os.execute(MTX .. "grammar " .. table.concat(words, " ") .. " >" .. out .. " 2>" .. err .. " </dev/null")
  local said = {}
  for i, path in ipairs({ out, err }) do
    local file = assert(io.open(path, "rb"))
    said[i] = file:read("a")
    file:close()
  end
  for _, path in ipairs(files) do os.remove(path) end
  return code, said[1], said[2]
end

function TestCommand:test_it_compiles_or_says_where_not()
  local code, out, err = run("check", { 'root ::= "a"\n' })
  lu.assertEquals({ code, err }, { 0, "" })
  lu.assertStrContains(out, "compiles")
  code, out, err = run("check", { 'root ::= "a"\nb ::= [' })
  lu.assertEquals({ code, out }, { 1, "" })
  lu.assertStrContains(err, "line 2, column 7: this class has no closing bracket")
  lu.assertNotStrContains(err, "--schema")
  code, out, err = run("check", { '{"type":"integer"}' })
  lu.assertEquals({ code, out }, { 1, "" })
  lu.assertStrContains(err, "line 1, column 1: a rule must begin with its name (a JSON Schema is checked with --schema)")
  code, out = run("check", "--schema", { '{"type":"array","uniqueItems":true}' })
  lu.assertEquals(code, 0)
  lu.assertStrContains(out, "warning: uniqueItems at byte 30 is not enforced")
  code, _, err = run("check", "--strict", "--schema", { '{"type":"array","uniqueItems":true}' })
  lu.assertEquals(code, 1)
  lu.assertStrContains(err, "uniqueItems cannot be enforced")
  code, _, err = run("check", "--schema", { '{"type":"array",' })
  lu.assertEquals(code, 1)
  lu.assertStrContains(err, "byte 16")
end

function TestCommand:test_texts()
  local schema = { '{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false}' }
  local code, out, err = run("check", "--schema", schema, "--text", { '{"a": 1}' })
  lu.assertEquals({ code, err }, { 0, "" })
  lu.assertStrContains(out, " fits\n")
  code, out = run("check", "--schema", schema, "--text", { '{"a": 1}\n' })
  lu.assertEquals(code, 0)
  lu.assertStrContains(out, "fits (without the line break at its end)")
  code, _, err = run("check", "--schema", schema, "--text", { '{"a": "é"}' })
  lu.assertEquals(code, 1)
  lu.assertStrContains(err, "line 1, column 7 (byte 7): '\"' cannot stand there, in a > members > value")
  code, _, err = run("check", "--schema", schema, "--text", { '{"a": ' })
  lu.assertEquals(code, 1)
  lu.assertStrContains(err, "ends before the grammar does")
  code, _, err = run("check", { 'root ::= "é\\n" "b"' }, "--text", { "é\n\255" })
  lu.assertEquals(code, 1)
  lu.assertStrContains(err, "line 2, column 1 (byte 4): byte 0xff cannot stand there")
end

function TestCommand:test_wrong_usage()
  for _, words in ipairs({ {}, { "check" }, { "chekc", "x" }, { "check", "a", "b" }, { "check", "--schema", "a", "b" }, { "check", "--schema" }, { "check", "--no-such", "x" } }) do
    local code, out, err = run(table.unpack(words))
    lu.assertEquals({ code, out }, { 2, "" }, table.concat(words, " "))
    lu.assertStrContains(err, "mtx grammar")
  end
  for _, words in ipairs({ { "check", "/no/such/file" }, { "check", "/tmp" }, { "check", "--schema", "/no/such/file" }, { "check", { 'root ::= "a"' }, "--text", "/no/such/file" } }) do
    local code, out, err = run(table.unpack(words))
    lu.assertEquals({ code, out }, { 1, "" })
    lu.assertStrMatches(err, "mtx: [^\n]+\n")
  end
end

function TestCommand:test_hostile_files()
  for _, text in ipairs({ "", "\0", ("["):rep(200000), ("{"):rep(200000), "root ::= " .. ("("):rep(200000), ("\255"):rep(1000), (" "):rep(5 << 20) }) do
    for _, words in ipairs({ { "check", { text } }, { "check", "--schema", { text } } }) do
      local code, out, err = run(table.unpack(words))
      lu.assertEquals({ code, out }, { 1, "" })
      lu.assertStrMatches(err, "mtx: [^\n]+\n")
    end
    local code = run("check", { 'root ::= "x"' }, "--text", { text })
    lu.assertEquals(code, 1)
  end
end
