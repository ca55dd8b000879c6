-- SPDX-License-Identifier: MIT
-- The output parser: thoughts, calls and text, whole and cut at every place; deltas
-- only append, and the joined result never depends on the cuts.
local lu = require("luaunit")
local output = require("mtx.parse.output")

local function join(events)
  local r = { text = "", thinking = "", calls = {} }
  for _, e in ipairs(events) do
    if e.kind == "text" then r.text = r.text .. e.text
    elseif e.kind == "thinking" then r.thinking = r.thinking .. e.text
    elseif e.kind == "call" then r.calls[e.index + 1] = { name = e.name, arguments = "" }
    elseif e.kind == "arguments" then r.calls[e.index + 1].arguments = r.calls[e.index + 1].arguments .. e.text
    else r.calls[e.index + 1].ended = true end
  end
  return r
end

local function parse(pieces, options)
  local p, all = output.new(options), {}
  for _, piece in ipairs(pieces) do table.move(p:feed(piece), 1, 99, #all + 1, all) end
  return join(table.move(p:finish(), 1, 99, #all + 1, all))
end

-- Parses whole, byte by byte, and cut once at every place: always the same.
local function check(text, options, want)
  lu.assertEquals(parse({ text }, options), want)
  local bytes = {}
  for c in text:gmatch(utf8.charpattern) do bytes[#bytes + 1] = c end
  lu.assertEquals(parse(bytes, options), want, "by characters")
  for cut = 1, #text - 1 do lu.assertEquals(parse({ text:sub(1, cut), text:sub(cut + 1) }, options), want, "cut at " .. cut) end
end

local ALL = { think = "<think>", calls = true }

TestOutput = {}

function TestOutput:test_text_and_thoughts()
  check("hello < world", ALL, { text = "hello < world", thinking = "", calls = {} })
  check("<think>\nhm\nhm\n</think>\n\nyes", ALL, { text = "yes", thinking = "hm\nhm", calls = {} })
  check("<think>\n\n</think>\n\nyes", ALL, { text = "yes", thinking = "", calls = {} })
  check("hm</think>yes", { think = "<think>", opened = true }, { text = "yes", thinking = "hm", calls = {} })
  check("<think>secret</think>yes", { think = "<think>", drop_thinking = true }, { text = "yes", thinking = "", calls = {} })
  check("<think>no end", ALL, { text = "", thinking = "no end", calls = {} })
  check("say <think> later", ALL, { text = "say <think> later", thinking = "", calls = {} })
  check("a <thin", ALL, { text = "a <thin", thinking = "", calls = {} })
  check("<think>x</think>y", {}, { text = "<think>x</think>y", thinking = "", calls = {} })
  lu.assertTrue(output.opened("<|im_start|>assistant\n<think>\n"))
  lu.assertFalse(output.opened("<think>\n</think>\n"))
end

function TestOutput:test_calls()
  local args = '{"a": "x\\"}</b", "b": [1, {"c": null}], "e": {}}'
  check("<tool_call>\n{\"name\": \"f\", \"arguments\": " .. args .. "}\n</tool_call>", ALL,
    { text = "", thinking = "", calls = { { name = "f", arguments = args, ended = true } } })
  check("ok <tool_call>{\"name\":\"f\",\"parameters\":{}}</tool_call>\n<tool_call>{\"name\":\"g\",\"arguments\":{\"x\":1}}</tool_call>", ALL,
    { text = "ok ", thinking = "", calls = { { name = "f", arguments = "{}", ended = true }, { name = "g", arguments = '{"x":1}', ended = true } } })
  check('<tool_call>{"arguments":{"z":1,"a":2},"name":"f"}</tool_call>', ALL,
    { text = "", thinking = "", calls = { { name = "f", arguments = '{"z":1,"a":2}', ended = true } } })
  check('<think><tool_call>{"name":"f","arguments":{}}</tool_call></think>no', ALL,
    { text = "no", thinking = '<tool_call>{"name":"f","arguments":{}}</tool_call>', calls = {} })
end

function TestOutput:test_what_is_no_call_is_not_lost()
  check("<tool_call>what</tool_call> x", ALL, { text = "<tool_call>what</tool_call>x", thinking = "", calls = {} })
  check('<tool_call>{"name":5}</tool_call>', ALL, { text = '<tool_call>{"name":5}</tool_call>', thinking = "", calls = {} })
  check('<tool_call>{"na', ALL, { text = '<tool_call>{"na', thinking = "", calls = {} })
  check('<tool_call>{"name":"f","arguments":{"a":', ALL, { text = "", thinking = "", calls = { { name = "f", arguments = '{"a":' } } })
  check('<tool_call>{"name":"f","arguments":{}}</tool_call>', { think = "<think>" },
    { text = '<tool_call>{"name":"f","arguments":{}}</tool_call>', thinking = "", calls = {} })
end

function TestOutput:test_untagged_calls()
  local named = { calls = true, names = { f = true } }
  check('{"name": "f", "parameters": {"a": 1}}', named, { text = "", thinking = "", calls = { { name = "f", arguments = '{"a": 1}', ended = true } } })
  check('{"name": "g", "parameters": {"a": 1}}', named, { text = '{"name": "g", "parameters": {"a": 1}}', thinking = "", calls = {} })
  check('{"answer": {"name": "f"}}', named, { text = '{"answer": {"name": "f"}}', thinking = "", calls = {} })
  check('{ "na', named, { text = '{ "na', thinking = "", calls = {} })
  check('see {"name": "f", "arguments": {}}', named, { text = 'see {"name": "f", "arguments": {}}', thinking = "", calls = {} })
end

function TestOutput:test_bare_calls()
  check('{"name":"f","arguments":{"a":1}}', { bare = true, calls = true }, { text = "", thinking = "", calls = { { name = "f", arguments = '{"a":1}' , ended = true } } })
  check('<think>t</think>{"name":"f","arguments":{}}', { bare = true, calls = true, think = "<think>" },
    { text = "", thinking = "t", calls = { { name = "f", arguments = "{}", ended = true } } })
  check('t</think>{"name":"f","arguments":{}}', { bare = true, calls = true, think = "<think>", opened = true },
    { text = "", thinking = "t", calls = { { name = "f", arguments = "{}", ended = true } } })
end
