-- SPDX-License-Identifier: MIT
-- Outputs of every family -> thoughts, text, calls: whole, byte by byte and cut at every place;
-- parts only append and the joined result never depends on the cuts.
local lu = require("luaunit")
local check = require("parse_check")
local json = require("mtx.json")
local parse = require("mtx.parse")

local TOOLS = json.decode([=[[
  {"type":"function","function":{"name":"get","parameters":{"type":"object","properties":{"city":{"type":"string"},"n":{"type":"integer"},"deep":{"type":"boolean"},
    "list":{"type":"array"},"any":{},"maybe":{"type":["string","null"]},"pick":{"enum":["1","2"]},"ref":{"$ref":"#/$defs/S"}},"$defs":{"S":{"type":"string"}}}}},
  {"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"number"}}}}},
  {"type":"function","function":{"name":"now","parameters":{"type":"object","properties":{}}}}]]=])

local run, bytes_of = check.run, check.bytes

-- The same result whole, byte by byte, and cut at every place; it is given back.
local function everywhere(options, text)
  local want = run(options, { text })
  lu.assertEquals(run(options, bytes_of(text)), want, "byte by byte: " .. text)
  for cut = 1, #text - 1 do lu.assertEquals(run(options, { text:sub(1, cut), text:sub(cut + 1) }), want, "cut at " .. cut .. ": " .. text) end
  return want
end

local function fmt(name, more)
  local o = { format = assert(name == "generic" and require("mtx.parse.formats").generic or parse.by_name(name), name), tools = TOOLS }
  for k, v in pairs(more or {}) do o[k] = v end
  return o
end

-- name of the format, output, text, thinking, calls.
local OSLO, TWO = { "get", '{"city": "Oslo"}' }, { "get", '{"city":"Oslo"}' }
local CASES = {
  { "hermes", 'ok\n<tool_call>\n{"name": "get", "arguments": {"city": "Os\\"}</lo", "list": [1, {"c": null}], "any": {}}}\n</tool_call>', "ok", "",
    { { "get", '{"city": "Os\\"}</lo", "list": [1, {"c": null}], "any": {}}' } } },
  { "hermes", '<tool_call>{"name":"get","parameters":{}}</tool_call>\n<tool_call>{"arguments":{"a":-1.5e3},"name":"add"}</tool_call>', "", "",
    { { "get", "{}" }, { "add", '{"a":-1.5e3}' } } },
  { "hermes", '<tool_call>{"type":"function","function":{"name":"get","arguments":"{\\"city\\": \\"Oslo\\"}"},"id":"x"}</tool_call>', "", "", { OSLO } },
  { "hermes", '<tool_call>{"name":"now"}</tool_call> Done. ', "Done. ", "", { { "now", "{}" } } },
  { "hermes", '<tool_call>{"name":"get","arguments":{"city":"a\nb\tc"}}</tool_call>', "", "", { { "get", '{"city":"a\\nb\\tc"}' } } },
  { "hermes", '<tool_call>[{"name":"now","arguments":null},{"name":"other","arguments":{}}]', "", "", { { "now", "{}" }, { "other", "{}" } } },
  { "generic", ' {"name": "get", "parameters": {"city": "Oslo"}}', "", "", { OSLO } },
  { "generic", '[{"name": "get", "parameters": {"city": "Oslo"}}, {"name": "now"}]', "", "", { OSLO, { "now", "{}" } } },
  { "mistral", '[TOOL_CALLS][{"name": "get", "arguments": {"city": "Oslo"}, "id": "abcdefghi"}, {"name": "add", "arguments": {"a": 1}}]', "", "", { OSLO, { "add", '{"a": 1}' } } },
  { "mistral", 'Sure.[TOOL_CALLS]get[ARGS]{"city": "Oslo"}[TOOL_CALLS]add[CALL_ID]abcdefghi[ARGS]{"a": 1}', "Sure.", "", { OSLO, { "add", '{"a": 1}' } } },
  { "mistral", '[TOOL_CALLS]get{"city": "Oslo"}', "", "", { OSLO } },
  { "deepseek", "Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get\n```json\n{\"city\": \"Oslo\"}\n```<｜tool▁call▁end｜>\n"
    .. "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "Let me see.", "", { OSLO, { "now", "{}" } } },
  { "deepseek", '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>{"city": "Oslo"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "", "", { OSLO, { "now", "{}" } } },
  { "dsml", 'TEXT\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="get">\n<｜DSML｜parameter name="city" string="true">12</｜DSML｜parameter>\n'
    .. '<｜DSML｜parameter name="n" string="false">3</｜DSML｜parameter>\n<｜DSML｜parameter name="list" string="false">{"a": [1, "x"]}</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
    .. '<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>', "TEXT", "", { { "get", '{"city":"12","n":3,"list":{"a": [1, "x"]}}' }, { "now", "{}" } } },
  { "dsml", '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="now">\n\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>', "", "", { { "now", "{}" } } },
  { "kimi", '<|tool_calls_section_begin|><|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>{"city": "Oslo"}<|tool_call_end|>'
    .. "<|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>", "", "", { OSLO, { "now", "{}" } } },
  { "solar", '<|tool_calls|><|tool_call:begin|>abc<|tool_call:name|>get<|tool_call:args|>{"city": "Oslo"}<|tool_call:end|><|tool_call:begin|>abd<|tool_call:name|>now<|tool_call:args|>{}<|tool_call:end|>',
    "", "", { OSLO, { "now", "{}" } } },
  { "glm", "<tool_call>get\n<arg_key>city</arg_key>\n<arg_value>1 <b></arg_value>\n<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>", "", "",
    { { "get", '{"city":"1 <b>","n":3}' }, { "now", "{}" } } },
  { "glm", "x<tool_call>get<arg_key>maybe</arg_key><arg_value>null</arg_value><arg_key>pick</arg_key><arg_value>1</arg_value></tool_call>", "x", "",
    { { "get", '{"maybe":null,"pick":"1"}' } } },
  { "hunyuan", "<tool_calls:opensource>\n<tool_call:opensource>get<tool_sep:opensource>\n<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Oslo</arg_value:opensource>\n"
    .. "</tool_call:opensource>\n<tool_call:opensource>now<tool_sep:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>", "", "", { TWO, { "now", "{}" } } },
  { "qwen_xml", "I will.\n\n<tool_call>\n<function=get>\n<parameter=city>\nOslo <b>\n\"x\"\n</parameter>\n<parameter=list>\n[1, 2]\n</parameter>\n<parameter=ref>\n12\n</parameter>\n"
    .. "<parameter=deep>\nTrue\n</parameter>\n<parameter=any>\n{'a': [1, 'x']}\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>", "I will.", "",
    { { "get", '{"city":"Oslo <b>\\n\\"x\\"","list":[1, 2],"ref":"12","deep":true,"any":"{\'a\': [1, \'x\']}"}' }, { "now", "{}" } } },
  { "qwen_xml", "<function=add>\n<parameter=a>\n1.50\n</parameter>\n</function>\n</tool_call>", "", "", { { "add", '{"a":1.50}' } } },
  { "qwen_xml", '<tool_call>\n{"name": "get", "arguments": {"city": "Oslo"}}\n</tool_call>', "", "", { OSLO } },
  { "seed", "<seed:tool_call>\n<function=get>\n<parameter=city>\n Oslo</parameter>\n<parameter=list>['a', 1, None]</parameter>\n</function>\n</seed:tool_call>", "", "",
    { { "get", '{"city":"\\n Oslo","list":["a",1,null]}' } } },
  { "functionary", 'TEXT<function=get>{"city": "Oslo"}</function><function=now>{}</function>', "TEXT", "", { OSLO, { "now", "{}" } } },
  { "functionary32", 'all\nTEXT >>> x>>>get\n{"city": "Oslo"}>>>now\n{}', "TEXT >>> x", "", { OSLO, { "now", "{}" } } },
  { "functionary32", 'get\n{"city": "Oslo"}', "", "", { OSLO } },
  { "minimax", '<minimax:tool_call>\n<invoke name="get">\n<parameter name="city">Oslo</parameter>\n<parameter name="n">3</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>', "", "",
    { { "get", '{"city":"Oslo","n":3}' }, { "now", "{}" } } },
  { "minicpm", '<function name="get"><param name="city">Oslo</param><param name="list">[\'a\']</param></function>\n<function name="now"></function>', "", "",
    { { "get", '{"city":"Oslo","list":["a"]}' }, { "now", "{}" } } },
  { "cohere", '<|START_ACTION|>[\n  {"tool_call_id": "0", "tool_name": "get", "parameters": {"city": "Oslo"}},\n  {"tool_call_id": "1", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>', "", "",
    { OSLO, { "now", "{}" } } },
  { "command_r", 'Action: ```json\n[\n    {\n        "tool_name": "get",\n        "parameters": {"city": "Oslo"}\n    }\n]\n```', "", "", { OSLO } },
  { "lfm2", "<|tool_call_start|>[get(city='O\\'s\\u006co', n=2, deep=True, list=[1, \"x\", (2,), {'k': None}]), now()]<|tool_call_end|>Done.", "Done.", "",
    { { "get", '{"city":"O\'slo","n":2,"deep":true,"list":[1,"x",[2],{"k":null}]}' }, { "now", "{}" } } },
  { "lfm2", '<|tool_call_start|>[{"name": "get", "arguments": {"city": "Oslo"}}]<|tool_call_end|>', "", "", { OSLO } },
  { "gemma4", 'x<|tool_call>call:get{city:<|"|>Os"lo\n<|"|>,n:3,list:[1,<|"|>x<|"|>,{<|"|>k<|"|>:null}],deep:true}<tool_call|><|tool_call>call:now{}<tool_call|>', "x", "",
    { { "get", '{"city":"Os\\"lo\\n","n":3,"list":[1,"x",{"k":null}],"deep":true}' }, { "now", "{}" } } },
  { "apertus", '<|tools_prefix|>[{"get": {"city": "Oslo"}}, {"now": {}}]<|tools_suffix|>', "", "", { OSLO, { "now", "{}" } } },
  { "granite", '<|tool_call|>[{"name": "get", "arguments": {"city": "Oslo"}}]<|/tool_call|>', "", "", { OSLO } },
  { "firefunction", 'TEXT functools[{"name": "get", "arguments": {"city": "Oslo"}}]', "TEXT", "", { OSLO } },
  { "nemotron", '<TOOLCALL>[{"name": "get", "arguments": {"city": "Oslo"}}, {"name": "now", "arguments": {}}]</TOOLCALL>', "", "", { OSLO, { "now", "{}" } } },
  { "tool_calls", '<tool_calls>[{"name": "get", "arguments": {"city": "Oslo"}, "id": "x"}]</tool_calls>', "", "", { OSLO } },
  { "tool_calls", '\n<tool_calls>\n{"name": "get", "arguments": {"city": "Oslo"}}\n{"name": "now", "arguments": {}}\n</tool_calls>', "", "", { OSLO, { "now", "{}" } } },
  { "gigachat", 'TEXT<|function_call|>{"name": "get", "arguments": {"city": "Oslo"}}', "TEXT", "", { OSLO } },
  { "llama3", '<|python_tag|>{"name": "get", "parameters": {"city": "Oslo"}}; {"name": "now", "parameters": {}}', "", "", { OSLO, { "now", "{}" } } },
  { "llama3", '{"type": "function", "name": "get", "parameters": {"city": "Oslo"}}', "", "", { OSLO } },
  { "llama3", '<|python_tag|>brave_search.call(query="a b")', "", "", { { "brave_search", '{"query":"a b"}' } } },
  { "harmony", '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get '
    .. '<|constrain|>json<|message|>{"city": "Oslo"}', "I look.", "Hm.", { OSLO } },
  { "harmony", '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}<|call|>', "", "Hm.", { { "now", "{}" } } },
  { "harmony", "<|channel|>analysis<|message|>a <b<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant<|channel|>final<|message|>Yes.\n", "Yes.\n", "a <b\nb", {} },
  { "atem", ' to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>I look.<|eom|><|start|>assistant to=get<|message|><atem:function_calls>\n<atem:invoke name="get">\n'
    .. '<atem:parameter name="city">Os"lo\n</atem:parameter>\n<atem:parameter name="n">3</atem:parameter>\n<atem:parameter name="list">[1, "x"]</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|>'
    .. '<|start|>assistant to=now<|message|><atem:function_calls>\n<atem:invoke name="now">\n</atem:invoke>\n</atem:function_calls>', "I look.", "Hm.",
    { { "get", '{"city":"Os\\"lo\\n","n":3,"list":[1, "x"]}' }, { "now", "{}" } } },
  { "atem", ' to=self<|message|>a <atem:invoke name="now"><|eom|><|start|>assistant<|message|>Yes.', "Yes.", 'a <atem:invoke name="now">', {} },
  { "xtml", '<|open|>think<|sep|>Hm.<|close|>think<|sep|><|open|>response<|sep|>I look.<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool="get" index="1"<|sep|>'
    .. '<|open|>argument key="city" type="string"<|sep|>12<|close|>argument<|sep|><|open|>argument key="a&amp;&quot;b" type="object"<|sep|>{"k": [1, "x"]}<|close|>argument<|sep|><|close|>call<|sep|>'
    .. '<|open|>call tool="now" index="2"<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>', "I look.", "Hm.",
    { { "get", '{"city":"12","a&\\"b":{"k": [1, "x"]}}' }, { "now", "{}" } } },
  { "xtml", 'On it.<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool="get" index="1"<|sep|><|open|>json type="object"<|sep|>{"city": "Oslo"}<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>',
    "On it.", "", { OSLO } },
  { "minimax3", 'x]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="get">]<]minimax[>[<city>1 <b> ]<]m\n]<]minimax[>[</city>]<]minimax[>[<n>3]<]minimax[>[</n>]<]minimax[>[<list>]<]minimax[>[<item>a]<]minimax[>[</item>'
    .. ']<]minimax[>[<item>2]<]minimax[>[</item>]<]minimax[>[</list>]<]minimax[>[<any>]<]minimax[>[<k>]<]minimax[>[<item>true]<]minimax[>[</item>]<]minimax[>[</k>]<]minimax[>[</any>'
    .. ']<]minimax[>[</invoke>\n]<]minimax[>[<invoke name="now">]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>', "x", "",
    { { "get", '{"city":"1 <b> ]<]m\\n","n":3,"list":["a",2],"any":{"k":[true]}}' }, { "now", "{}" } } },
  { "solar", '<|think|>Hm.<|end|><|begin|>assistant<|content|>I look.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>abc<|tool_call:name|>get<|tool_call:args|>{"city": "Oslo"}<|tool_call:end|>',
    "I look.", "Hm.", { OSLO } },
  { "cohere", '<|START_RESPONSE|>Yes.<|END_RESPONSE|>', "Yes.", "", {} },
  { "minicpm", '<function name="get"><param name="city"><![CDATA[a </param> & b]]></param><param name="any"><![CDATA[{"k": "<"}]]></param></function>', "", "", { { "get", '{"city":"a </param> & b","any":{"k": "<"}}' } } },
  { "gigachat3", 'TEXT<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "get", "arguments": {"city": "Oslo"}}<|message_sep|>\n\n', "TEXT", "", { OSLO } },
}

TestParse = {}

for i, case in ipairs(CASES) do
  local name = case[1] .. "_" .. i
  TestParse["test_" .. name .. "_at_every_cut"] = function()
    local got = everywhere(fmt(case[1]), case[2])
    lu.assertEquals(got, { text = case[3], thinking = case[4], calls = case[5] })
    for _, c in ipairs(got.calls) do lu.assertTrue(json.is_object(json.decode(c[2])), c[2]) end
  end

  -- Cut off anywhere: calls that ended stay; the rest is text, byte for byte.
  TestParse["test_" .. name .. "_cut_off"] = function()
    local whole, options = case[2], fmt(case[1], { think = false })
    for stop = 1, #whole - 1 do
      local text, n = whole:sub(1, stop), 0
      for k, c in ipairs(check.invariants(options, text, bytes_of(text)).calls) do
        if not c[3] then n = n + 1 lu.assertEquals(c, case[5][k]) end
      end
      lu.assertTrue(n <= #case[5])
    end
  end
end

-- A byte changed or lost in the middle.
function TestParse:test_broken_outputs()
  for i, case in ipairs(CASES) do
    for at = 1 + i % 3, #case[2], 3 do
      for _, with in ipairs({ "", "{", '"' }) do
        local text = case[2]:sub(1, at - 1) .. with .. case[2]:sub(at + 1)
        check.invariants(fmt(case[1], { think = false }), text, bytes_of(text))
      end
    end
  end
end

function TestParse:test_plain_text_passes()
  for _, text in ipairs({ "", "Hello.", "a < b and [x]", "<tool", "Action: think", "\n\n", '{"a": 1}', "[1, 2]", '{"name": "Bob"}', " x ", "{", "functool" }) do
    for _, case in ipairs(CASES) do lu.assertEquals(everywhere(fmt(case[1]), text), { text = text, thinking = "", calls = {} }, case[1]) end
  end
end

-- Arguments go out while the model writes them.
function TestParse:test_arguments_stream()
  for _, c in ipairs({ { "hermes", '<tool_call>{"name":"get","arguments":{"city":"', "long text", '"}}</tool_call>' }, { "mistral", '[TOOL_CALLS]get[ARGS]{"city": "', "long text", '"}' },
    { "qwen_xml", "<tool_call>\n<function=get>\n<parameter=city>\n", "long text", "\n</parameter>\n</function>\n</tool_call>" }, { "glm", "<tool_call>get\n<arg_key>city</arg_key>\n<arg_value>", "long text", "</arg_value>\n</tool_call>" },
    { "gemma4", '<|tool_call>call:get{city:<|"|>', "long text", '<|"|>}<tool_call|>' }, { "lfm2", "<|tool_call_start|>[get(city='", "long text", "')]<|tool_call_end|>" },
    { "harmony", '<|channel|>commentary to=functions.get<|message|>{"city":"', "long text", '"}' }, { "kimi", '<|tool_calls_section_begin|><|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>{"city":"', "long text", '"}' },
    { "dsml", '<｜DSML｜tool_calls><｜DSML｜invoke name="get"><｜DSML｜parameter name="city" string="true">', "long text", "</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>" } }) do
    local p = parse.new(fmt(c[1]))
    p:feed(c[2])
    lu.assertEquals(p:feed(c[3]), { { kind = "arguments", index = 0, text = c[3] } }, c[1])
    p:feed(c[4])
    p:finish()
  end
end

-- A long call read in small pieces takes time in proportion to its length.
function TestParse:test_long_calls_are_linear()
  local function count(n)
    local p, steps = parse.new(fmt("hermes")), 0
    debug.sethook(p.co, function() steps = steps + 1 end, "", 100)
    p:feed('<tool_call>{"name":"get","arguments":{"city":"')
    for _ = 1, n do p:feed("abcd") end
    p:feed('"}}</tool_call>')
    p:finish()
    return steps
  end
  lu.assertTrue(count(4000) < 5 * count(1000))
end

function TestParse:test_malformed_and_cut()
  local h = fmt("hermes")
  local function check(text, want) lu.assertEquals(everywhere(h, text), { text = want.text or "", thinking = "", calls = want.calls or {} }) end
  check("<tool_call>what</tool_call> x", { text = "<tool_call>what</tool_call> x" })
  check('<tool_call>{"name":5}</tool_call>', { text = '<tool_call>{"name":5}</tool_call>' })
  check('<tool_call>{"na', { text = '<tool_call>{"na' })
  check("<tool_call>[]</tool_call>", { text = "<tool_call>[]</tool_call>" })
  check('a\n<tool_call>{"name":"get","arguments":{"city":', { text = "a", calls = { { "get", '{"city":', '\n<tool_call>{"name":"get","arguments":{"city":' } } })
  check('<tool_call>{"name":"get","arguments":{"n":tru}} y', { text = "tru}} y", calls = { { "get", '{"n":', '<tool_call>{"name":"get","arguments":{"n":' } } })
  check('<tool_call>{"name":"now","arguments":{}}}</tool_call>', { text = "}</tool_call>", calls = { { "now", "{}" } } })
  check('<tool_call>{"name":"now","arguments":{}', { calls = { { "now", "{}" } } })
  check(("[" ):rep(5000), { text = ("["):rep(5000) })
  lu.assertEquals(run(h, { '<tool_call>{"name":"get","arguments":' .. ('{"a":'):rep(100000) }).calls[1][1], "get")
  lu.assertEquals(everywhere({ format = parse.by_name("hermes"), tools = nil }, '<tool_call>{"name":"now","arguments":{}}</tool_call>').text, '<tool_call>{"name":"now","arguments":{}}</tool_call>')
end

function TestParse:test_untagged_calls()
  local g = fmt("generic")
  for _, text in ipairs({ '{"name": "other", "parameters": {"a": 1}}', '{"answer": {"name": "get"}}', '{ "na', 'see {"name": "get", "arguments": {}}', '{"name": "get", "x": 1}' }) do
    lu.assertEquals(everywhere(g, text), { text = text, thinking = "", calls = {} })
  end
  local bare = fmt("generic", { bare = true, template = "<think>" })
  lu.assertEquals(everywhere(bare, '{"name":"get","arguments":{"city":"Oslo"}}').calls, { TWO })
  lu.assertEquals(everywhere(bare, '<think>t</think>{"name":"get","arguments":{"city":"Oslo"}}'), { text = "", thinking = "t", calls = { TWO } })
  bare.opened = true
  lu.assertEquals(everywhere(bare, 't</think>{"name":"get","arguments":{"city":"Oslo"}}'), { text = "", thinking = "t", calls = { TWO } })
end

function TestParse:test_thoughts()
  local function check(text, options, want)
    lu.assertEquals(everywhere(options, text), { text = want[1], thinking = want[2] or "", calls = want[3] or {} })
  end
  local all = { template = "<think> <tool_call>", tools = TOOLS }
  check("hello < world", all, { "hello < world" })
  check("<think>\nhm\nhm\n</think>\n\nyes", all, { "yes", "hm\nhm" })
  check("\n<think>\n\n</think>\n\nyes", all, { "yes" })
  check("hm</think>yes", { template = "<think>", opened = true }, { "yes", "hm" })
  check("<think>\nhm</think>yes", { template = "<think>", opened = true }, { "yes", "hm" })
  check("<think>secret</think>yes", { template = "<think>", think = "drop" }, { "yes" })
  check("<think>x</think>y", { template = "<think>", think = false }, { "<think>x</think>y" })
  check("<think>no end", all, { "", "no end" })
  check("say <think> later", all, { "say <think> later" })
  check("a <thin", all, { "a <thin" })
  check("<think>x</think>y", { template = "" }, { "<think>x</think>y" })
  -- a call written inside a thought is none, one after it is
  check('<think><tool_call>{"name":"now","arguments":{}}</tool_call></think>no', all, { "no", '<tool_call>{"name":"now","arguments":{}}</tool_call>' })
  check('<think>maybe [TOOL_CALLS][{"name": "no"}]</think>[TOOL_CALLS][{"name": "yes", "arguments": {}}]', { template = "<think>[TOOL_CALLS]", tools = TOOLS },
    { "", 'maybe [TOOL_CALLS][{"name": "no"}]', { { "yes", "{}" } } })
  check("</think>yes", all, { "yes" }) -- MiniMax M3 writes the mark alone when it does not think
  check("\n</think>\n\nyes </think>", all, { "yes </think>" })
  check("[THINK]a[/THINK]b", { template = "[THINK][TOOL_CALLS]" }, { "b", "a" })
  check("<|START_THINKING|>a<|END_THINKING|>b", { template = "<|START_THINKING|>" }, { "b", "a" })
  check("a\n[BEGIN FINAL RESPONSE]\nb", { template = "Here are my reasoning steps:\n[BEGIN FINAL RESPONSE]", opened = true }, { "b", "a" })
  -- Gemma 4 thinks between calls too
  check('<|channel>thought\nhm\n<channel|><|tool_call>call:now{}<tool_call|><|channel>thought\nmore\n<channel|>yes', fmt("gemma4", { template = "<|channel>thought" }),
    { "yes", "hm\nmore", { { "now", "{}" } } })
  check("<|channel>thought\n<channel|>yes", fmt("gemma4", { template = "<|channel>thought" }), { "yes" })
  lu.assertTrue(parse.opened("<think>", "<|im_start|>assistant\n<think>\n"))
  lu.assertFalse(parse.opened("<think>", "<think>\n</think>\n"))
  lu.assertFalse(parse.opened("x", "<think>"))
end

-- Branches that refer to each other many times over end all the same.
function TestParse:test_schemas_that_go_round()
  local refs = ('{"$ref":"#/$defs/A"},'):rep(50) .. '{"type":"string"}'
  local tools = json.decode('[{"type":"function","function":{"name":"get","parameters":{"type":"object","properties":{"city":{"$ref":"#/$defs/A"}},"$defs":{"A":{"anyOf":[' .. refs .. ']}}}}}]')
  lu.assertEquals(run({ format = parse.by_name("glm"), tools = tools }, { "<tool_call>get<arg_key>city</arg_key><arg_value>12</arg_value></tool_call>" }).calls, { { "get", '{"city":12}' } })
end

function TestParse:test_harmony()
  local function check(text, options, want)
    lu.assertEquals(everywhere(options, text), { text = want[1], thinking = want[2] or "", calls = want[3] or {} })
  end
  local h = fmt("harmony")
  check("plain text", h, { "plain text" })
  check("<|channel|>final<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b", h, { "a\n\nb" })
  check("<|channel|>analysis<|message|>secret<|end|><|start|>assistant<|channel|>final<|message|>b", fmt("harmony", { think = "drop" }), { "b" })
  check("<|channel|>analysis<|message|>a", h, { "", "a" })
  check("<|channel|>anal", h, { "<|channel|>anal" })
  check("x<|start|>assistant<|channel|>final<|message|>b", h, { "xb" })
  check("<|channel|>commentary to=functions.get<|message|>what?", h, { "<|channel|>commentary to=functions.get<|message|>what?" })
  check('<|channel|>commentary to=functions.get<|message|>{"city":"O', h,
    { "", "", { { "get", '{"city":"O', '<|channel|>commentary to=functions.get<|message|>{"city":"O' } } })
  check("<|channel|>commentary to=functions.now<|message|>{}", { format = h.format }, { "<|channel|>commentary to=functions.now<|message|>{}" })
end

-- What has begun as a call and is none, in the formats whose texts have frames.
function TestParse:test_frames()
  local function check(name, text, want, more)
    lu.assertEquals(everywhere(fmt(name, more), text), { text = want[1], thinking = want[2] or "", calls = want[3] or {} })
  end
  local tool = '<|open|>tools<|sep|><|open|>call tool="now" index="1"<|sep|>'
  check("xtml", "a<|close|>response<|sep|>" .. tool, { "a", "", { { "now", "", tool } } })
  check("xtml", "a<|close|>response<|sep|><|open|>tools<|sep|>b", { "a<|open|>tools<|sep|>b" })
  check("xtml", tool .. '<|open|>json type="object"<|sep|>[1]', { "[1]", "", { { "now", "", tool .. '<|open|>json type="object"<|sep|>' } } })
  check("xtml", tool .. '<|open|>argument key="n" type="number"<|sep|>x y<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>', { "", "", { { "now", '{"n":"x y"}' } } })
  check("atem", " to=now<|message|>what?", { " to=now<|message|>what?" })
  check("atem", "hello", { "hello" })
  check("gigachat3", "a function call{", { "a function call{" })
  check("gigachat3", "a<|message_sep|>\n\nfunction call<|role_sep|>\n{]", { "afunction call<|role_sep|>\n{]" })
  check("minimax3", ("@<tool_call>@<invoke name=\"get\">@<deep>x@<b>y@</b>@</deep>"):gsub("@", "]<]minimax[>["),
    { "<b>y]<]minimax[>[</b>]<]minimax[>[</deep>", "", { { "get", '{"deep":', (("@<tool_call>@<invoke name=\"get\">@<deep>x@"):gsub("@", "]<]minimax[>[")) } } })
  local deep = ("]<]minimax[>[<a>"):rep(100000)
  lu.assertEquals(run(fmt("minimax3"), { ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="get">' .. deep }).calls[1][1], "get")
end

function TestParse:test_control_tokens()
  local ids = { ["[TOOL_CALLS]"] = 5, ["[ARGS]"] = 6, ["[THINK]"] = 7, ["[/THINK]"] = 8 }
  local p = parse.new({ template = "[TOOL_CALLS] [THINK]", tools = TOOLS })
  local shown = p:control_tokens({ find = function(_, mark) return ids[mark] end, attr = function(_, id) return { control = id ~= 6 } end })
  table.sort(shown)
  lu.assertEquals(shown, { 5, 7, 8 })
end

function TestParse:test_templates_tell_their_format()
  local want = {
    ["Qwen-Qwen2.5-7B-Instruct"] = "hermes", ["Qwen-Qwen3-0.6B"] = "hermes", ["NousResearch-Hermes-3-Llama-3.1-8B-tool_use"] = "hermes", ["ibm-granite-granite-4.0"] = "hermes",
    ["Mistral-Small-3.2-24B-Instruct-2506"] = "mistral", ["mistralai-Mistral-Nemo-Instruct-2407"] = "mistral", ["deepseek-ai-DeepSeek-V3.1"] = "deepseek",
    ["deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"] = "deepseek", ["deepseek-ai-DeepSeek-V3.2"] = "dsml", ["deepseek-ai-DeepSeek-V4"] = "dsml", ["Kimi-K2-Instruct"] = "kimi",
    ["GLM-4.6"] = "glm", ["GLM-4.7-Flash"] = "glm", ["Qwen3-Coder"] = "qwen_xml", ["Qwen3.5-4B"] = "qwen_xml", ["NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"] = "qwen_xml",
    ["ByteDance-Seed-OSS"] = "seed", ["MiniMax-M2"] = "minimax", ["MiniMax-M1"] = "tool_calls", ["meta-llama-Llama-3.1-8B-Instruct"] = "llama3",
    ["meta-llama-Llama-3.2-3B-Instruct"] = "llama3", ["CohereForAI-c4ai-command-r7b-12-2024-tool_use"] = "cohere", ["CohereForAI-c4ai-command-r-plus-tool_use"] = "command_r",
    ["LFM2.5-8B-A1B"] = "lfm2", ["LFM2-8B-A1B"] = "lfm2", ["ibm-granite-granite-3.3-2B-Instruct"] = "granite", ["openai-gpt-oss-120b"] = "harmony", ["google-gemma-4-31B-it"] = "gemma4",
    ["vocab-gemma-4"] = "gemma4", ["meetkai-functionary-medium-v3.1"] = "functionary", ["meetkai-functionary-medium-v3.2"] = "functionary32",
    ["fireworks-ai-llama-3-firefunction-v2"] = "firefunction", ["NVIDIA-Nemotron-Nano-v2"] = "nemotron", ["unsloth-Apriel-1.5"] = "tool_calls", ["upstage-Solar-Open-100B"] = "solar",
    ["Apertus-8B-Instruct"] = "apertus", ["GigaChat3.1-10B-A1.8B"] = "gigachat", ["openbmb-MiniCPM5-1B"] = "minicpm", ["real-SmolLM2-135M-Instruct"] = "generic",
    ["Kimi-K3"] = "xtml", ["MiniMax-M3"] = "minimax3", ["muse-glimmer"] = "atem", ["GigaChat3-10B-A1.8B"] = "gigachat3",
  }
  for name, format in pairs(want) do
    local file = assert(io.open("tests/golden/chat/templates/" .. name .. ".jinja", "rb"), name .. " is missing")
    lu.assertEquals(parse.detect(file:read("a")).name, format, name)
    file:close()
  end
end
