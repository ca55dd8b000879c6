-- SPDX-License-Identifier: MIT
-- Strings as plain text, as some tool formats write them, held to their JSON Schema. What the
-- same schema takes as JSON is the measure: a text is taken exactly when its JSON is and the
-- tag that ends it does not stand in it.
local lu = require("luaunit")
local call_grammar = require("mtx.parse.call_grammar")
local forms = require("mtx.parse.forms")
local G = require("mtx.core").grammar
local json = require("mtx.json")
local parse = require("mtx.parse")

TestTexts = {}

local SCHEMAS = {
  '{"type":"string","minLength":3,"maxLength":9}', '{"type":"string","minLength":20}', '{"type":"string","maxLength":40}', '{"type":"string","pattern":"^[a-z<]+$"}',
  '{"type":"string","pattern":"/p","maxLength":12}', '{"type":"string","pattern":"^[a-z]{2,40}$"}', '{"type":"string","pattern":"^[a-z<>/]{2,30}$"}', '{"type":"string","format":"date"}',
  '{"type":"string","format":"email"}', '{"type":"string","not":{"pattern":"[\\"é]"}}', '{"type":"string","not":{"enum":["","a","</p"]}}', '{"enum":["a","b</p>c","",3]}',
  '{"anyOf":[{"type":"string","maxLength":2},{"type":"integer"},{"type":"string","pattern":"^<p>"}]}', '{"type":"string"}', "{}", '{"$ref":"#/$defs/x","$defs":{"x":{"minLength":4}}}',
  '{"type":"string","if":{"pattern":"<"},"then":{"maxLength":4}}' }
local TEXTS = { "", "a", "ab", "abc", "a<b", "</p", "</p>", "x</p>", "<</p>", "<</p", "<p>a</p", "2024-02-29", "2023-02-29", "a@b.org", "é\"\n\\", "ab<", "</</p>", ("a"):rep(19), ("a"):rep(20),
  ("<"):rep(30), ("é"):rep(40), ("é"):rep(41), ("</p"):rep(13), "b</p>c", "\0\t", "</q>/p</p", "\u{10ffff}" }

-- Short texts of the characters that matter.
local function random_text(n)
  local parts = { "<", "/", "p", ">", "a", "b", "é", '"', "\\", "\n", "</p", "</p>" }
  local out = {}
  for i = 1, math.random(0, n) do out[i] = parts[math.random(#parts)] end
  return table.concat(out)
end

for _, stop in ipairs({ "</p>", false }) do
  TestTexts["test_as_json_without_" .. (stop or "nothing")] = function()
    math.randomseed(5)
    for _, schema in ipairs(SCHEMAS) do
      local as_json = assert(G.schema(schema))
      local as_text = assert(G.gbnf("root ::= text", { text = { schema = schema, stop = stop or nil } }))
      local before_tag = stop and assert(G.gbnf('root ::= text "</p>"', { text = { schema = schema, stop = stop } }))
      lu.assertEquals(#as_text:warnings(), #as_json:warnings(), schema)
      local function check(text)
        local want = as_json:match(json.encode(text)) == "complete" and not (stop and text:find(stop, 1, true))
        lu.assertEquals(as_text:match(text) == "complete", want, schema .. " | " .. text)
        if stop then lu.assertEquals(before_tag:match(text .. stop) == "complete", want, schema .. " | " .. text .. stop) end
      end
      for _, text in ipairs(TEXTS) do check(text) end
      for _ = 1, 300 do check(random_text(14)) end
    end
  end
end

function TestTexts:test_misuse()
  for _, rule in ipairs({ 3, { schema = 3 }, { stop = "x" }, { schema = "{}", stop = 3 } }) do lu.assertErrorMsgContains("needed", G.gbnf, "root ::= a", { a = type(rule) == "table" and rule.stop == 3 and {} or rule }) end
  lu.assertErrorMsgContains("stop must be a string", G.gbnf, "root ::= a", { a = { schema = "{}", stop = {} } })
  lu.assertNil((G.gbnf("root ::= a", { a = { schema = "{}", stop = "\xff" } })))
  lu.assertNil((G.gbnf("root ::= a", { a = { schema = "{}", stop = ("x"):rep(5000) } })))
  lu.assertNil((G.gbnf("root ::= a", { a = { schema = '{"type":"integer"}' } })))
end

-- ---- in the formats ---------------------------------------------------------------------------

local TOOL = json.decode([[{"type":"function","function":{"name":"f","parameters":{"type":"object","required":["s"],"properties":
  {"s":{"type":"string","pattern":"^[a-z]+ <b>","minLength":8,"maxLength":30},"d":{"type":"string","format":"date"},"r":{"$ref":"#/$defs/r"}},"$defs":{"r":{"type":"string","maxLength":3}}}}}]])

-- A form's call with these parameters, as it is defined.
local function written(form, values)
  local parts = {}
  for _, key in ipairs({ "s", "d", "r" }) do
    if values[key] then
      local value = form.quote and form.quote .. values[key] .. form.quote or values[key]
      if form.cdata and value:find("[<&\n]") then value = "<![CDATA[" .. value .. "]]>" end
      local places = { K = form.attribute and form.attribute(key) or key, V = value, L = "" }
      parts[#parts + 1] = ((form.text or form.parameter):gsub("%$(%u)", places))
    end
  end
  local call = form.call:gsub("%$(%u)", { N = "f", P = table.concat(parts, form.between or ""), L = "", I = "0" })
  return (form.head or "") .. call .. (form.tail or "")
end

function TestTexts:test_every_format_with_texts()
  local n = 0
  for name, form in pairs(forms) do
    if type(form) == "function" then form = form("function_calls") end
    if form.parameter and (form.close or form.quote) then
      n = n + 1
      local text, schemas = call_grammar.of({ format = parse.by_name(name), template = "function_calls", tools = { TOOL }, parallel = false })
      local g = assert(G.gbnf(text, schemas))
      for _, case in ipairs({ { { s = "abcd <b>" }, true }, { { s = "abcd <b>\"é\\</b>" .. ("x"):rep(10) }, true }, { { s = "abcd <b>", d = "2024-02-29", r = "<<<" }, true },
        { { s = "abc <b>" }, false }, { { s = "Abcd <b>" }, false }, { { s = "abcd <b>" .. ("x"):rep(23) }, false }, { { s = "abcd <b>", d = "2023-02-29" }, false },
        { { s = "abcd <b>", r = "long" }, false } }) do
        local call = written(form, case[1])
        lu.assertEquals(g:match(call) == "complete", case[2], name .. ": " .. call)
      end
    end
  end
  lu.assertTrue(n >= 9, n)
end

-- What such a format cannot hold to is named, once; formats that write JSON hold to it.
function TestTexts:test_what_is_not_held()
  local tool = json.decode([[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string"},"l":{"type":"array","items":{"type":"integer"},"maxItems":2}},
    "dependentRequired":{"a":["l"]},"if":{"required":["l"]},"then":{"required":["a"]}}}}]])
  local function unheld(name)
    local _, _, list = call_grammar.of({ format = parse.by_name(name), template = "", tools = { tool }, parallel = true })
    local words = {}
    for i, line in ipairs(list) do words[i] = line:match("^(%S+) in the parameters of f is not enforced") end
    return words
  end
  lu.assertEquals(unheld("qwen_xml"), { "dependentRequired", "if" })
  lu.assertEquals(unheld("gemma4"), { "dependentRequired", "if", "maxItems" })
  lu.assertEquals(unheld("hermes"), {})
end
