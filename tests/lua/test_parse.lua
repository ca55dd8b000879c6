-- SPDX-License-Identifier: MIT
-- Tool-call formats: each family's output, cut at every point and byte by byte,
-- gives the same calls; malformed calls come back as text; the golden templates
-- tell their format.
local lu = require("luaunit")
local parse = require("mtx.parse")

local CASES = {
  mistral = {
    '[TOOL_CALLS][{"name": "get", "arguments": {"city": "Oslo"}}, {"name": "add", "arguments": {"a": 1}}]',
    { { "get", '{"city":"Oslo"}' }, { "add", '{"a":1}' } }, "" },
  mistral_v11 = { 'Sure.[TOOL_CALLS]get[ARGS]{"city": "Oslo"}[TOOL_CALLS]add[ARGS]{"a": 1}', { { "get", '{"city":"Oslo"}' }, { "add", '{"a":1}' } }, "Sure." },
  deepseek = {
    "Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get\n```json\n{\"city\": \"Oslo\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    { { "get", '{"city":"Oslo"}' } }, "Let me see." },
  deepseek_v31 = { '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>{"city": "Oslo"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>', { { "get", '{"city":"Oslo"}' } }, "" },
  kimi = {
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>{"city": "Oslo"}<|tool_call_end|><|tool_calls_section_end|>',
    { { "get", '{"city":"Oslo"}' } }, "" },
  glm = { "<tool_call>get\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n</tool_call>", { { "get", '{"city":"Oslo","n":3}' } }, "" },
  qwen_xml = {
    "I will.\n<tool_call>\n<function=get>\n<parameter=city>\nOslo <b>\n</parameter>\n<parameter=n>\n[1, 2]\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
    { { "get", '{"city":"Oslo <b>","n":[1,2]}' }, { "now", "{}" } }, "I will.\n" },
  functionary = { '<function=get>{"city": "Oslo"}</function>', { { "get", '{"city":"Oslo"}' } }, "" },
  minimax = { '<minimax:tool_call>\n<invoke name="get">\n<parameter name="city">Oslo</parameter>\n</invoke>\n</minimax:tool_call>', { { "get", '{"city":"Oslo"}' } }, "" },
  cohere = { '<|START_ACTION|>[\n  {"tool_call_id": "0", "tool_name": "get", "parameters": {"city": "Oslo"}}\n]<|END_ACTION|>', { { "get", '{"city":"Oslo"}' } }, "" },
  command_r = { 'Action: ```json\n[{"tool_name": "get", "parameters": {"city": "Oslo"}}]\n```', { { "get", '{"city":"Oslo"}' } }, "" },
  lfm2 = { "<|tool_call_start|>[get(city=\"Oslo\", n=2, deep=True), now()]<|tool_call_end|>Done.", { { "get", '{"city":"Oslo","n":2,"deep":true}' }, { "now", "{}" } }, "Done." },
  granite = { '<|tool_call|>[{"name": "get", "arguments": {"city": "Oslo"}}]', { { "get", '{"city":"Oslo"}' } }, "" },
  firefunction = { ' functools[{"name": "get", "arguments": {"city": "Oslo"}}]', { { "get", '{"city":"Oslo"}' } }, " " },
  llama3 = { '<|python_tag|>{"name": "get", "parameters": {"city": "Oslo"}}', { { "get", '{"city":"Oslo"}' } }, "" },
}

local function format_of(name) return assert(parse.by_name(name) or parse.by_name((name:gsub("_v%d+$", ""))), name) end

-- Feeds the pieces; joins what came.
local function run(format, pieces)
  local p, text, calls = parse.new(format), {}, {}
  local function take(events)
    for _, e in ipairs(events) do
      if e.kind == "text" then text[#text + 1] = e.text
      elseif e.kind == "call" then calls[e.index + 1] = { e.name, "" }
      elseif e.kind == "arguments" then calls[e.index + 1][2] = calls[e.index + 1][2] .. e.text end
    end
  end
  for _, piece in ipairs(pieces) do take(p:feed(piece)) end
  take(p:finish())
  return calls, table.concat(text)
end

TestParse = {}

for name, case in pairs(CASES) do
  TestParse["test_" .. name .. "_at_every_cut"] = function()
    local whole, format = case[1], format_of(name)
    for cut = 0, #whole do
      local calls, text = run(format, { whole:sub(1, cut), whole:sub(cut + 1) })
      lu.assertEquals(calls, case[2], "cut at " .. cut)
      lu.assertEquals(text, case[3], "cut at " .. cut)
    end
    local bytes = {}
    for i = 1, #whole do bytes[i] = whole:sub(i, i) end
    lu.assertEquals({ run(format, bytes) }, { case[2], case[3] })
  end

  TestParse["test_" .. name .. "_cut_short_or_broken_is_text"] = function()
    local format, whole = format_of(name), case[1]
    for stop = 1, #whole - 1 do
      local calls, text = run(format, { whole:sub(1, stop) })
      lu.assertTrue(#calls <= #case[2])
      if #calls == 0 then lu.assertEquals(text, whole:sub(1, stop)) end
    end
    local broken = whole:gsub("[Gg]et", "{{"):gsub("now", "{{"):gsub("add", "{{")
    lu.assertIsString(select(2, run(format, { broken })))
  end
end

function TestParse:test_plain_text_passes()
  for _, text in ipairs({ "", "Hello.", "a < b and [x]", "<tool", "Action: think", "\n\n" }) do
    for name in pairs(CASES) do lu.assertEquals({ run(format_of(name), { text }) }, { {}, text }, name) end
  end
end

-- Thoughts are split off first, and a call written inside one is none.
function TestParse:test_chain_with_thoughts()
  local output = require("mtx.parse.output")
  local p = parse.chain(output.new({ think = "<think></think>", names = {}, calls = false }), parse.new(parse.by_name("mistral")))
  local kinds = {}
  local function take(events)
    for _, e in ipairs(events) do kinds[#kinds + 1] = e.kind end
  end
  take(p:feed('<think>maybe [TOOL_CALLS][{"name": "no"}]</think>[TOOL_CALLS][{"name": "yes", "argum'))
  take(p:feed('ents": {}}]'))
  take(p:finish())
  lu.assertEquals(kinds, { "thinking", "call", "arguments", "call_end" })
end

function TestParse:test_templates_tell_their_format()
  local want = {
    ["Mistral-Small-3.2-24B-Instruct-2506"] = "mistral", ["deepseek-ai-DeepSeek-V3.1"] = "deepseek", ["Kimi-K2-Instruct"] = "kimi", ["GLM-4.6"] = "glm",
    ["Qwen3-Coder"] = "qwen_xml", ["Qwen3.5-4B"] = "qwen_xml", ["MiniMax-M2"] = "minimax", ["meta-llama-Llama-3.1-8B-Instruct"] = "llama3",
    ["CohereForAI-c4ai-command-r7b-12-2024-tool_use"] = "cohere", ["CohereForAI-c4ai-command-r-plus-tool_use"] = "command_r", ["LFM2.5-8B-A1B"] = "lfm2",
    ["ibm-granite-granite-3.3-2B-Instruct"] = "granite",
  }
  for name, format in pairs(want) do
    local file = assert(io.open("tests/golden/chat/templates/" .. name .. ".jinja", "rb"), name .. " is missing")
    local f = parse.detect(file:read("a"))
    file:close()
    lu.assertEquals(f and f.name, format, name)
  end
end
