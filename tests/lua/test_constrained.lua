-- SPDX-License-Identifier: MIT
-- Constrained output on a real model: what comes out always fits, whatever the seed.
local lu = require("luaunit")
local cjson = require("cjson")
local mtx = require("mtx")
local G = mtx.core.grammar

local MODELS = os.getenv("MTX_MODELS_DIR") or "models"

TestPrefixes = {}

-- A comma that no member can follow is a dead end and must not be offered.
function TestPrefixes:test_no_comma_behind_the_last_member()
  for _, t in ipairs({ "boolean", "null", "integer", "string" }) do
    local value = ({ boolean = "true", null = "null", integer = "1", string = '"x"' })[t]
    local g = assert(G.schema(('{"type":"object","properties":{"a":{"type":"%s"}},"required":["a"],"additionalProperties":false}'):format(t)))
    lu.assertEquals(g:match('{"a": ' .. value .. "}"), "complete")
    lu.assertNil((g:match('{"a": ' .. value .. ",")), t)
  end
  local g = assert(G.schema('{"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"additionalProperties":false}'))
  for text, state in pairs({ ["{}"] = "complete", ['{"b":2,"a":1}'] = "complete", ['{"a":1,'] = "partial" }) do lu.assertEquals(g:match(text), state, text) end
  lu.assertNil((g:match('{"a":1,"b":2,')))
end

function TestPrefixes:test_bad_grammars_are_refused_with_their_place()
  for _, text in ipairs({ "root ::= x", 'root ::= "a', "root ::= root \"a\"", "a ::= \"x\"" }) do
    local g, message = G.gbnf(text)
    lu.assertNil(g, text)
    lu.assertTrue(#message > 5)
  end
  for _, text in ipairs({ "*a", "a{3,1}", "[z-a]", "(", "\\", "(?<=x)a" }) do
    local g, message = G.regex(text)
    lu.assertNil(g, text)
    lu.assertTrue(#message > 5)
  end
  for _, text in ipairs({ "{", "[]", '{"$ref":"#/$defs/A","$defs":{"A":{"$ref":"#/$defs/A"}}}', '{"$ref":"https://example.com/x"}' }) do
    lu.assertNil((G.schema(text)), text)
  end
end

TestGeneration = {}

function TestGeneration:setUp()
  if not self.model then TestGeneration.model = assert(mtx.load(MODELS .. "/SmolLM2-135M-Instruct.Q4_1.gguf", { ctx = 1024 })) end
end

function TestGeneration:test_objects_validate_at_every_seed()
  local g = assert(G.schema([[{"type":"object","properties":{"city":{"type":"string","maxLength":12},"size":{"enum":["small","large"]},
    "people":{"type":"integer","minimum":10,"maximum":999},"tags":{"type":"array","items":{"type":"boolean"},"maxItems":3}},
    "required":["city","people"],"additionalProperties":false}]]))
  for seed = 1, 12 do
    local r = assert(self.model:generate({ prompt = "Facts about a town:\n", grammar = g, max_tokens = 120, temperature = 1.5, seed = seed }))
    lu.assertEquals(r.finish_reason, "stop", r.text)
    local v = cjson.decode(r.text)
    lu.assertTrue(type(v.city) == "string" and utf8.len(v.city) <= 12, r.text)
    lu.assertTrue(v.people >= 10 and v.people <= 999 and v.people % 1 == 0, r.text)
    lu.assertTrue(v.size == nil or v.size == "small" or v.size == "large", r.text)
    for k in pairs(v) do lu.assertTrue(({ city = 1, people = 1, size = 1, tags = 1 })[k] ~= nil, r.text) end
  end
end

function TestGeneration:test_choice_and_gbnf()
  local r = assert(self.model:generate({ prompt = "Is water wet?", grammar = assert(G.choice({ "yes", "no" })), temperature = 0, max_tokens = 8 }))
  lu.assertTrue(r.text == "yes" or r.text == "no", r.text)
  r = assert(self.model:generate({ prompt = "A date:", grammar = assert(G.gbnf('root ::= [0-9]{4} "-" [0-9]{2} "-" [0-9]{2}')), temperature = 1, seed = 3, max_tokens = 20 }))
  lu.assertStrMatches(r.text, "%d%d%d%d%-%d%d%-%d%d")
end

-- Free text until the trigger, then the schema.
function TestGeneration:test_trigger()
  local g = assert(G.schema('{"const":{"done":true}}'))
  local r = assert(self.model:generate({ prompt = "Say: the answer is", grammar = g, grammar_triggers = { " is", " the", "." }, temperature = 0, max_tokens = 60 }))
  lu.assertStrMatches(r.text, ".*{%s*\"done\":%s*true}$")
end

-- A grammar and a ban that leave nothing end that request; the next one works.
function TestGeneration:test_nothing_left()
  local bias = {}
  for id = 0, 49151 do bias[id] = -math.huge end
  local r, message, code = self.model:generate({ prompt = "x", logit_bias = bias, max_tokens = 2 })
  lu.assertNil(r)
  lu.assertEquals(code, "numeric", message)
  lu.assertTrue(#assert(self.model:generate({ prompt = "x", max_tokens = 2, temperature = 0 })).ids == 2)
end
