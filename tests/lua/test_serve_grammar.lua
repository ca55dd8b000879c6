-- SPDX-License-Identifier: MIT
-- Formats and tool choices of requests -> grammars: what they let through.
local lu = require("luaunit")
local check = require("mtx.api.check")
local grammar = require("mtx.serve.models.grammar")
local json = require("mtx.json")
local parse = require("mtx.parse")

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
  lu.assertNil((of({ tools = { CITY } }, { tools = true })))
  lu.assertNil((of({ tools = { CITY }, tool_choice = "auto" }, { tools = true })))
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

local function in_template(template, req, can)
  req.task = "chat"
  return grammar.of({ can = can or {}, template = template }, req)
end

-- Forced calls come in the form that the template teaches; every format that has one.
function TestGrammar:test_forced_calls_in_the_formats_own_form()
  for template, texts in pairs({
    ["<tool_call>"] = { '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>', "\n" },
    ["<function= <parameter="] = { "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>", "\n" },
    ["<arg_key> <tool_call>"] = { "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>", "" },
    ["[TOOL_CALLS]"] = { '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome"}}]' },
    ["[TOOL_CALLS][ARGS]"] = { '[TOOL_CALLS]weather[ARGS]{"city": "Rome"}', "" },
    ["<|tool_call> <tool_call|>"] = { '<|tool_call>call:weather{city:<|"|>Rome<|"|>}<tool_call|>', "" },
    ["｜DSML｜"] = { '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="weather">\n<｜DSML｜parameter name="city" string="true">Rome</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>' },
    ["<|channel|> <|message|> <|call|>"] = { '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Rome"}' },
    ["<|python_tag|>"] = { '{"name": "weather", "parameters": {"city": "Rome"}}' },
    ["<function="] = { '<function=weather>{"city": "Rome"}</function>', "" },
    ["tool_call_start"] = { '<|tool_call_start|>[weather(city="Rome")]<|tool_call_end|>' },
  }) do
    local req = { tools = { CITY, DEFS }, tool_choice = "required", parallel_tool_calls = true }
    local g, text = in_template(template, req), texts[1]
    lu.assertNil(req.bare_call)
    lu.assertEquals(g:match(text), "complete", text)
    for _, bad in ipairs({ (text:gsub("Rome", "Bonn")), (text:gsub("weather", "other")), "hello", "", text .. "x" }) do lu.assertNotEquals(g:match(bad), "complete", bad) end
    lu.assertEquals(g:match(text .. (texts[2] or "no") .. text), texts[2] and "complete" or nil)
    g = in_template(template, { tools = { CITY, DEFS }, tool_choice = "required" })
    lu.assertEquals({ g:match(text), g:match(text .. (texts[2] or "") .. text) == "complete" }, { "complete", false })
    g = in_template(template, { tools = { CITY, DEFS }, tool_choice = { name = "paint" } })
    lu.assertNotEquals(g:match(text), "complete")
  end
end

function TestGrammar:test_parameters_written_as_text()
  local t = tool("f", '{"type":"object","properties":{"s":{"type":"string"},"n":{"type":"integer"},"o":{"$ref":"#/$defs/O"},"any":{}},"required":["n"],"$defs":{"O":{"type":"object","properties":{"k":{"const":1}},"required":["k"],"additionalProperties":false}}}')
  local g = in_template("<function= <parameter=", { tools = { t }, tool_choice = "required" })
  local function call(...)
    local out = { "<tool_call>\n<function=f>\n" }
    for i = 1, select("#", ...), 2 do out[#out + 1] = "<parameter=" .. select(i, ...) .. ">\n" .. select(i + 1, ...) .. "\n</parameter>\n" end
    return table.concat(out) .. "</function>\n</tool_call>"
  end
  for _, good in ipairs({ call("n", "3"), call("s", "a <b> </param> <</function>\nx", "n", "-3"), call("n", "3", "o", '{"k": 1}'), call("n", "1", "any", "{x <"), call("s", "", "n", "0") }) do
    lu.assertEquals(g:match(good), "complete", good)
  end
  for _, bad in ipairs({ call(), call("n", "x"), call("n", "3", "o", '{"k": 2}'), call("n", "3", "s", "order"), call("s", "a</parameter>b", "n", "1"), call("n", "3", "z", "1") }) do
    lu.assertNotEquals(g:match(bad), "complete", bad)
  end
  g = in_template("<|tool_call> <tool_call|>", { tools = { tool("f", '{"type":"object","properties":{"o":{"type":"object","properties":{"l":{"type":"array","items":{"type":"string"}},"x":{}}},"b":{"type":"boolean"}}}') }, tool_choice = "required" })
  for _, good in ipairs({ "{}", "{b:true}", '{o:{l:[<|"|>a<<|"|>,<|"|><|"|>]},b:false}', '{o:{x:{k:[1,{y:<|"|>z<|"|>}]}}}', "{o:{}}" }) do
    lu.assertEquals(g:match("<|tool_call>call:f" .. good .. "<tool_call|>"), "complete", good)
  end
  for _, bad in ipairs({ "{b:1}", '{o:{l:[1]}}', "{,b:true}", "{b:true,}", '{b:true,o:{}}' }) do
    lu.assertNotEquals(g:match("<|tool_call>call:f" .. bad .. "<tool_call|>"), "complete", bad)
  end
end

-- Marks that are control tokens of the vocabulary are named as tokens.
function TestGrammar:test_control_tokens()
  local tok = { find = function(_, m) return m == "[TOOL_CALLS]" and 5 or m == "[ARGS]" and 9 or nil end, attr = function(_, id) return { control = id == 5 } end }
  local text, schemas = require("mtx.parse.call_grammar").of({ format = parse.by_name("mistral"), template = "[TOOL_CALLS][ARGS]", tools = { CITY },
    control = parse.control_marks(parse.by_name("mistral"), nil, tok) })
  lu.assertStrContains(text, '<[5]> "weather" "[ARGS]" ')
  lu.assertNotNil(require("mtx.core").grammar.gbnf(text, schemas))
end

-- Left to itself a model writes text until it opens a call; the call is then held to its form.
function TestGrammar:test_auto_is_held_from_the_mark_on()
  local g, triggers, opening, optional = in_template("<tool_call>", { tools = { CITY } })
  lu.assertEquals({ triggers, opening, optional }, { { "<tool_call>" }, nil, true })
  lu.assertEquals(g:match('\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'), "complete")
  lu.assertNil((g:match('\n{"name": "weather", "arguments": {"city": "Bonn"')))
  -- behind a thought
  g, triggers, opening, optional = in_template("<tool_call><think>", { tools = { CITY } }, { thinking = true })
  lu.assertEquals({ triggers, opening, optional }, { { "</think>" }, "<think>", true })
  for _, good in ipairs({ "", "hello <b> <tool_", 'x <tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>' }) do lu.assertEquals(g:match(good), "complete", good) end
  for _, bad in ipairs({ "x <tool_call>hello", '<<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn"', '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>x' }) do lu.assertNil((g:match(bad)), bad) end
  lu.assertEquals(select(2, in_template("<tool_call><think>", { tools = { CITY }, think = false }, { thinking = true })), { "<tool_call>" })
  lu.assertNil((in_template("<tool_call>", { tools = { CITY }, tool_choice = "none" })))
  -- a tool that no grammar can hold is called freely
  lu.assertNil((in_template("<tool_call>", { tools = { tool("x", '{"type":"object","properties":{"a":{"$ref":"https://x/y"}}}') } })))
end

-- Formats whose texts have frames are held from the beginning: texts are free, a call's name and arguments are not.
function TestGrammar:test_auto_is_held_where_texts_have_frames()
  local rome = { json = '{"city": "Rome"}', xtml = '<|open|>argument key="city" type="string"<|sep|>Rome<|close|>argument<|sep|>',
    atem = '<atem:function_calls>\n<atem:invoke name="weather">\n<atem:parameter name="city">Rome</atem:parameter>\n</atem:invoke>\n</atem:function_calls>' }
  for template, c in pairs({
    ["<|channel|> <|message|> <|call|>"] = { texts = { "<|channel|>final<|message|>Yes to=functions.other.", "<|channel|>analysis<|message|>a <b<|end|><|start|>assistant<|channel|>commentary<|message|>so" },
      calls = { "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>" .. rome.json, " to=functions.weather<|channel|>commentary json<|message|>" .. rome.json,
        "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>" .. rome.json },
      never = { "hello", "<|channel|>commentary to=python<|message|>", "<|channel|>final<|message|>x<|channel|>", "<|channel|>analysis to=functions.weather<|message|>" } },
    ["<atem:function_calls>"] = { texts = { " to=user<|message|>Yes.", " to=self<|message|>to=other<|eom|><|start|>assistant to=user<|message|>a" },
      calls = { " to=weather<|message|>" .. rome.atem, " to=user<|message|>I look.<|eom|><|start|>assistant to=weather<|message|>" .. rome.atem }, never = { "hello", " to=python<|message|>" } },
    ["<|open|> <|close|> <|sep|>"] = { texts = { "Yes.", "<|open|>response<|sep|>Yes.<|close|>response<|sep|><|close|>message<|sep|>" },
      calls = { '<|open|>response<|sep|>I look.<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool="weather" index="1"<|sep|>' .. rome.xtml .. "<|close|>call<|sep|><|close|>tools<|sep|>" },
      never = { "a<|open|>tools", "<|open|>call" } },
    ["<|tool_call:begin|> <|tool_call:args|>"] = { texts = { "<|content|>Yes.", "<|think|>Hm<|end|><|begin|>assistant<|content|>Yes." },
      calls = { "<|think|>Hm<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>abcdefghi<|tool_call:name|>weather<|tool_call:args|>" .. rome.json .. "<|tool_call:end|>" }, never = { "<|content|>a<|tool_calls|>" } },
  }) do
    local g, triggers = in_template(template, { tools = { CITY, DEFS } })
    lu.assertNil(triggers)
    for _, text in ipairs(c.texts) do lu.assertEquals(g:match(text), "complete", text) end
    for _, text in ipairs(c.calls) do
      lu.assertEquals(g:match(text), "complete", text)
      for _, bad in ipairs({ (text:gsub("Rome", "Bonn")), (text:gsub("weather", "other")), (text:gsub("city", "town")) }) do lu.assertNil((g:match(bad)), bad) end
    end
    for _, bad in ipairs(c.never) do lu.assertNil((g:match(bad)), bad) end
    -- behind a thought, whose end is the trigger
    local pair = parse.thoughts(template)
    local _, after, opening, optional = in_template(template, { tools = { CITY } }, { thinking = true })
    lu.assertEquals({ after, opening, optional }, { { pair.close }, pair.open, true })
  end
end

-- A template without tools: the model was told of <tool_call> (serve/generate/teach.lua) and is held to it.
function TestGrammar:test_auto_is_held_where_the_format_was_taught()
  local g, triggers, opening, optional = in_template("{{ messages }}", { tools = { CITY, DEFS } })
  lu.assertEquals({ triggers, opening, optional }, { { "<tool_call>" }, nil, true })
  for _, good in ipairs({ '{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>', '\n{"name": "paint", "arguments": {"c": "red"}}\n</tool_call>\n<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>' }) do
    lu.assertEquals(g:match(good), "complete", good)
  end
  for _, bad in ipairs({ '{"name": "other"', '{"name": "weather", "arguments": {"city": "Bonn"', "hello", '{"name": "paint", "arguments": {"c": "red"}}</tool_call>x' }) do lu.assertNil((g:match(bad)), bad) end
  -- one that shows tools in a way that is not known leaves the model free
  lu.assertNil((in_template("{{ tools }}", { tools = { CITY } }, { tools = true })))
end

function TestGrammar:test_auto_is_free_where_the_template_names_more_tools()
  lu.assertNil((in_template("<|channel|> <|message|> <|call|>", { tools = { CITY }, template_args = { builtin_tools = { "python" } } })))
end

-- A mark that is a control token: every other token may come before it, also those that frame a text.
function TestGrammar:test_text_before_a_control_token()
  local text = require("mtx.parse.call_grammar").of({ format = parse.by_name("cohere"), template = "", tools = { CITY }, mark = "<|START_ACTION|>", after_text = true, control = { ["<|START_ACTION|>"] = 7 } })
  lu.assertStrContains(text, "root ::= ((!<[7]>)* (<[7]> ")
end

-- MiniMax M3 writes objects and lists as elements, MiniCPM strings with XML's signs in CDATA sections.
function TestGrammar:test_elements_and_cdata()
  local t = tool("f", '{"type":"object","properties":{"s":{"type":"string"},"l":{"type":"array","items":{"$ref":"#/$defs/O"}},"o":{"type":"object"},"n":{"type":"integer"}},"required":["n"],"$defs":{"O":{"type":"object","properties":{"k":{"const":1}},"required":["k"]}}}')
  local g = in_template("]<]minimax[>[<tool_call>", { tools = { t }, tool_choice = "required" })
  local function m3(text) return (("@<tool_call>\n@<invoke name=\"f\">" .. text .. "@</invoke>\n@</tool_call>"):gsub("@", "]<]minimax[>[")) end
  for _, good in ipairs({ "@<n>3@</n>", "@<s>a <b> ]<]m@</s>@<n>3@</n>", "@<l>@<item>@<k>1@</k>@</item>@<item>@<k>1@</k>@</item>@</l>@<n>1@</n>", "@<l>@</l>@<o>{\"a\": 1}@</o>@<n>1@</n>" }) do lu.assertEquals(g:match(m3(good)), "complete", good) end
  for _, bad in ipairs({ "", "@<n>x@</n>", "@<l>@<item>@<k>2@</k>@</item>@</l>@<n>1@</n>", "@<l>@<item>1@</item>@</l>@<n>1@</n>", "@<n>3@</s>", "@<z>1@</z>@<n>1@</n>" }) do lu.assertNotEquals(g:match(m3(bad)), "complete", bad) end
  g = in_template('<function name=" <param name="', { tools = { t }, tool_choice = "required" })
  local function cpm(text) return '<function name="f"><param name="s">' .. text .. '</param><param name="n">1</param></function>' end
  for _, good in ipairs({ "a", "", "<![CDATA[a <b> & ]] ]>]]>" }) do lu.assertEquals(g:match(cpm(good)), "complete", good) end
  for _, bad in ipairs({ "a<b", "<![CDATA[x", "<![CDATA[x]]>y" }) do lu.assertNotEquals(g:match(cpm(bad)), "complete", bad) end
end

-- A format for the answer beside tools: either.
function TestGrammar:test_answer_or_call()
  local g = in_template("[TOOL_CALLS][ARGS]", { tools = { CITY }, format = { kind = "json" } })
  lu.assertEquals({ g:match('{"x":1}'), (g:match('[TOOL_CALLS]weather[ARGS]{"city": "Oslo"}')) }, { "complete", "complete" })
  g = in_template("<|channel|> <|message|> <|call|>", { format = { kind = "json" } })
  lu.assertEquals({ g:match('<|channel|>final<|message|>{"x":1}'), (g:match('<|start|>assistant<|channel|>final<|message|>{"x":1}')), g:match('{"x":1}') == "complete" }, { "complete", "complete", false })
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
