-- SPDX-License-Identifier: MIT
-- Lark grammars of custom tools: what they let through is what Lark itself takes (tests/golden/lark), as plain
-- text, inside JSON and up to a closing tag; and what is no grammar is told with its line.
local lu = require("luaunit")
local call_grammar = require("mtx.parse.call_grammar")
local core = require("mtx.core")
local json = require("mtx.json")
local parse = require("mtx.parse")

local TOOLS = json.decode('[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}}}]')

local function grammar_of(format, definition)
  local text, schemas = call_grammar.of({ format = parse.by_name(format), template = "", tools = TOOLS, custom = { f = definition } })
  return assert(core.grammar.gbnf(text, schemas))
end

-- A call of f with this input as the format writes it, and whether it can.
local WRITTEN = {
  hermes = function(text) return '<tool_call>\n{"name": "f", "arguments": ' .. json.encode(json.object("input", text)) .. "}\n</tool_call>" end,
  qwen_xml = function(text) return "<tool_call>\n<function=f>\n<parameter=input>\n" .. text .. "\n</parameter>\n</function>\n</tool_call>" end,
  gemma4 = function(text) return '<|tool_call>call:f{input:<|"|>' .. text .. '<|"|>}<tool_call|>' end,
  lfm2 = function(text) return "<|tool_call_start|>[f(input=" .. json.encode(text) .. ")]<|tool_call_end|>" end,
  xtml = function(text) return '<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="input" type="string"<|sep|>' .. text
    .. "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>" end,
  minicpm = function(text) return '<function name="f"><param name="input"><![CDATA[' .. text .. "]]></param></function>" end,
}

TestLark = {}

function TestLark:test_golden_cases_in_every_kind_of_form()
  local n, made = 0, {}
  for line in io.lines("tests/golden/lark/cases.jsonl") do
    local case = assert(json.decode(line))
    n = n + 1
    for format, written in pairs(WRITTEN) do
      local key = format .. case.grammar
      made[key] = made[key] or grammar_of(format, case.grammar)
      local call = written(case.text)
      lu.assertEquals(made[key]:match(call) == "complete", case.good, ("%s, %s: %q"):format(case.name, format, case.text))
      if case.good then -- and the parser gives the text back
        local p, parts = parse.new({ format = parse.by_name(format), tools = TOOLS }), {}
        local events = p:feed(call)
        table.move(p:finish(), 1, 99, #events + 1, events)
        for _, e in ipairs(events) do if e.kind == "arguments" then parts[#parts + 1] = e.text end end
        lu.assertEquals(json.decode(table.concat(parts)).input, case.text, format)
      end
    end
  end
  lu.assertEquals(n, 57)
end

-- What ends the parameter cannot stand in a terminal.
function TestLark:test_no_way_out_of_the_parameter()
  local g = grammar_of("qwen_xml", "start: /.+/s")
  lu.assertEquals(g:match(WRITTEN.qwen_xml("a <b> </param> x")), "complete")
  lu.assertNil((g:match(WRITTEN.qwen_xml("a</parameter>b"))))
end

function TestLark:test_what_is_no_grammar_is_told()
  for definition, want in pairs({
    [""] = "line 1: there is no rule named start", ["start: x"] = "line 1: x is not defined", ["start: \"a\nb: \"c\""] = "line 1: a string has no end",
    ["start: /a"] = "line 1: a regex has no end", ["start: \"a\"\n\nb \"c\""] = "line 3: expected : after the name b", ["start: (\"a\""] = "a group has no end",
    ["start: \"a\"\nstart: \"b\""] = "line 2: start is defined twice", ["%import python.NAME\nstart: NAME"] = "line 1: only terminals of `common` can be imported",
    ["%import common.NOPE\nstart: \"a\""] = "`common` has no terminal NOPE", ["start: x{\"a\"}\nx{y}: y"] = "line 1: templates are not supported",
    ["%declare X\nstart: X"] = "only %import and %ignore are supported", ["start: /a/i"] = "the regex flag i is not supported", ["start: \"a\"~3..2"] = "a repetition must be at most",
    ["start: \"a\"~99999"] = "a repetition must be at most", ["start: \"ab\"..\"c\""] = "a range goes from one character to another", ["start: start \"a\" | \"b\""] = "recur",
    ["start: /(?=a)b/"] = "", [("start: " .. ("("):rep(5000))] = "groups are nested too deeply", [("start: \"a\"\n"):rep(30000)] = "more than", ["start: \"\\q\""] = "a string has the escape",
  }) do
    local message = call_grammar.fault_of_custom(definition)
    lu.assertEquals(type(message), "string", definition:sub(1, 60))
    lu.assertStrContains(message, want)
  end
  lu.assertFalse(call_grammar.fault_of_custom("start: \"a\""))
end
