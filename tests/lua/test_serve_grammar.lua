-- SPDX-License-Identifier: MIT
-- Formats and tool choices of requests -> grammars: what they let through.
local lu = require("luaunit")
local check = require("mtx.api.check")
local grammar = require("mtx.serve.grammar")
local json = require("mtx.json")

local function tool(name, parameters)
  return json.decode('{"type":"function","function":{"name":"' .. name .. '","parameters":' .. parameters .. "}}")
end

local CITY = tool("weather", '{"type":"object","properties":{"city":{"enum":["Oslo","Rome"]}},"required":["city"]}')
local DEFS = tool("paint", '{"type":"object","properties":{"c":{"$ref":"#/$defs/C"}},"required":["c"],"$defs":{"C":{"enum":["red"]}}}')

local function of(req, can)
  req.task = "chat"
  return grammar.of({ can = can or {}, template = "<think>" }, req)
end

TestGrammar = {}

function TestGrammar:test_free()
  lu.assertNil((of({})))
  lu.assertNil((of({ tools = { CITY } })))
  lu.assertNil((of({ tools = { CITY }, tool_choice = "auto" })))
end

function TestGrammar:test_formats()
  local g = of({ format = { kind = "json" } })
  lu.assertEquals(g:match('{"a": [1, 2]}'), "complete")
  lu.assertNil((g:match("[1]")))
  g = of({ format = { kind = "schema", schema = json.decode('{"const": "a\\\\b \\"c\\" / {["}') } })
  lu.assertEquals(g:match('"a\\\\b \\"c\\" / {["'), "complete")
  g = of({ format = { kind = "gbnf", text = 'root ::= "yes" | "no"' } })
  lu.assertEquals({ g:match("no"), (g:match("maybe")) }, { "complete" })
  -- keys in the order written
  g = of({ format = { kind = "schema", schema = json.decode('{"type":"object","properties":{"z":{"const":1},"a":{"const":2}},"required":["z","a"]}') } })
  lu.assertEquals(g:match('{"z":1,"a":2}'), "complete")
  lu.assertNil((g:match('{"a":2,"z":1}')))
end

function TestGrammar:test_tool_choice()
  local req = { tools = { CITY, DEFS }, tool_choice = "required" }
  local g = of(req)
  lu.assertTrue(req.bare_call)
  lu.assertEquals(g:match('{"name":"weather","arguments":{"city":"Rome"}}'), "complete")
  lu.assertEquals(g:match('{"name":"paint","arguments":{"c":"red"}}'), "complete")
  for _, bad in ipairs({ '{"name":"weather","arguments":{"city":"Bonn"}}', '{"name":"other","arguments":{}}', "hello", '{"name":"paint","arguments":{"c":"red","d":1}}' }) do
    lu.assertNil((g:match(bad)), bad)
  end
  g = of({ tools = { CITY, DEFS }, tool_choice = { name = "paint" } })
  lu.assertNil((g:match('{"name":"weather","arguments":{"city":"Rome"}}')))
  req = { tools = { CITY }, format = { kind = "json" } }
  g = of(req)
  lu.assertNil(req.bare_call)
  lu.assertEquals(g:match('{"x":1}'), "complete")
  lu.assertNil((of({ tools = { CITY }, tool_choice = "none" })))
end

function TestGrammar:test_thinking_models_think_first()
  local _, triggers, opening = of({ format = { kind = "json" } }, { thinking = true })
  lu.assertEquals({ triggers, opening }, { { "</think>" }, "<think>" })
  _, triggers, opening = of({ format = { kind = "json" }, rendered = "assistant\n<think>\n" }, { thinking = true })
  lu.assertEquals({ triggers, opening }, { { "</think>" } })
  _, triggers = of({ format = { kind = "json" }, think = false }, { thinking = true })
  lu.assertNil(triggers)
end

-- T93: what is not enforced is named in a warning, or refused when the request is strict.
function TestGrammar:test_unenforced_keywords()
  local schema = json.decode('{"type":"array","items":{"type":"integer"},"uniqueItems":true}')
  local loaded, heard = { can = {}, template = "" }, {}
  local function ask(strict)
    return grammar.of(loaded, { task = "chat", format = { kind = "schema", schema = schema, strict = strict } }, function(line) heard[#heard + 1] = line end)
  end
  lu.assertEquals(ask():match("[1, 1]"), "complete")
  lu.assertEquals(#heard, 1)
  lu.assertStrContains(heard[1], "uniqueItems")
  ask(false)  -- known by now
  lu.assertEquals(#heard, 1)
  local g, fault = check.try(ask, true)
  lu.assertNil(g)
  lu.assertEquals(fault.status, 400)
  lu.assertStrContains(fault.message, "uniqueItems cannot be enforced")
  -- strict as every schema of pydantic's is: nothing to refuse
  g = grammar.of({ can = {}, template = "" }, { task = "chat", format = { kind = "schema", strict = true,
    schema = json.decode('{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}') } })
  lu.assertEquals(g:match('{"a": "x"}'), "complete")
end

function TestGrammar:test_unusable_ones_are_400()
  for _, format in ipairs({ { kind = "gbnf", text = "root ::= (" }, { kind = "schema", schema = json.decode('{"$ref":"https://x/y"}') },
    { kind = "schema", schema = json.decode('{"type":"object","properties":{"a":{"pattern":"("}}}') } }) do
    local g, fault = check.try(of, { format = format })
    lu.assertNil(g)
    lu.assertEquals(fault.status, 400)
  end
end
