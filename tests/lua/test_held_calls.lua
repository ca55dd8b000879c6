-- SPDX-License-Identifier: MIT
-- Calls that the model would write wrongly and may not: over HTTP, with the real engine and grammar, and a model that says what it is told.
local lu = require("luaunit")
local chain = require("chain_model")
local client = require("http_client")
local config = require("mtx.config")
local custom_tool = require("mtx.api.custom_tool")
local fixture = require("http_fixture")
local json = require("mtx.json")
local serve = require("mtx.serve")

local DIR = "build/test/held"

-- As gpt-oss's: what a message is stands in its header.
local HARMONY = "{# <|channel|> <|call|> #}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.thinking or '' }}{{ m.content or '' }}<|end|>{% endfor %}"
  .. "{% if add_generation_prompt %}<|start|>assistantSCRIPTS{% endif %}"

local ctx, written

local function write_models()
  written = true
  os.execute("rm -rf " .. DIR .. " && mkdir -p " .. DIR)
  chain.write(DIR .. "/oss.gguf", { template = HARMONY, scripts = {
    unknown = { "<|channel|>commentary to=", "functions.", "nope <|constrain|>", "json<|message|>", '{"x": 1}' },
    wrong = { "<|channel|>analysis<|message|>Hm.<|end|><|start|>assist", "ant to=functions.weather<|channel|>comment", "ary json<|message|>{\"ci", "ty\": \"Bonn\"}" },
    text = { "<|channel|>final<|message|>Yes ", "to=functions.other <b> it is." },
    python = { "<|channel|>analysis to=py", "thon code<|message|>1" },
  } })
  chain.write(DIR .. "/chain.gguf", { scripts = { patch = { "<tool_call>", "\n{\"name\": \"patch\", \"arguments\": {\"input\": \"", "*** Bgin", " it" } } })
end

TestHeldCalls = {}
function TestHeldCalls:setUp()
  if not written then write_models() end
  ctx = assert(serve.new(assert(config.load({ env = function() end, flags = { port = "0", models_dir = DIR, log_level = "error", ctx = "2048" } }))))
  assert(serve.listen(ctx))
end
function TestHeldCalls:tearDown() fixture.stop(ctx) end

local WEATHER = { { type = "function", ["function"] = { name = "weather", description = "d", parameters = { type = "object", properties = { city = { enum = { "Oslo" } } }, required = { "city" } } } } }

-- tool_choice is auto: gpt-oss writes what it likes until it calls, then only what there is.
function TestHeldCalls:test_harmony_calls_known_functions_by_their_schemas()
  local function ask(script, more)
    local body = { model = "oss", messages = { { role = "user", content = "@" .. script } }, tools = WEATHER, temperature = 0, max_tokens = 300 }
    for k, v in pairs(more or {}) do body[k] = v end
    local r = client.request(ctx.port, "POST", "/v1/chat/completions", body)
    lu.assertEquals(r.status, 200, r.body)
    return r.json.choices[1]
  end
  for _, script in ipairs({ "unknown", "wrong" }) do
    local choice = ask(script)
    local call = choice.message.tool_calls[1]
    lu.assertEquals({ choice.finish_reason, call["function"].name, json.decode(call["function"].arguments) }, { "tool_calls", "weather", json.object("city", "Oslo") }, script)
    lu.assertEquals(choice.message.reasoning_content, script == "wrong" and "Hm." or nil)
  end
  local choice = ask("text")
  lu.assertEquals({ choice.finish_reason, choice.message.content }, { "stop", "Yes to=functions.other <b> it is." })
  choice = ask("python", { max_tokens = 40 }) -- a tool that nobody offered
  lu.assertNil(choice.message.tool_calls)
  lu.assertNotStrContains(tostring(choice.message.content) .. tostring(choice.message.reasoning_content), "to=py")
  -- without tools the model is free
  lu.assertNil(ask("unknown", { tools = json.array() }).message.tool_calls)
end

local function custom(name, syntax, definition)
  return { type = "custom", name = name, description = "d", format = { type = "grammar", syntax = syntax, definition = definition } }
end

local function respond(body)
  body.model, body.temperature, body.max_output_tokens = "chain", 0, 300
  return client.request(ctx.port, "POST", "/v1/responses", body)
end

function TestHeldCalls:test_the_input_of_custom_tools_is_held_to_its_grammar()
  local patch = custom("patch", "lark", 'start: "*** Begin" line+ "*** End"\nline: "+" /[ab]/ LF\n%import common.LF')
  for _, c in ipairs({ { custom("sh", "regex", "[a-c]{2}-\\d"), "@x", "^[a-c][a-c]%-%d$" }, { patch, "@x", "^%*%*%* Begin%+[ab]\n.*%*%*%* End$" } }) do
    local r = respond({ input = c[2], tools = { c[1] }, tool_choice = "required", parallel_tool_calls = false })
    lu.assertEquals(r.status, 200, r.body)
    local call = r.json.output[1]
    lu.assertEquals({ call.type, call.name, r.json.status }, { "custom_tool_call", c[1].name, "completed" }, r.body)
    lu.assertNotNil(call.input:find(c[3]), r.body)
  end
  -- left to itself
  local r = respond({ input = "@patch", tools = { patch }, parallel_tool_calls = false })
  lu.assertEquals(r.status, 200, r.body)
  lu.assertStrMatches(r.json.output[1].input, "%*%*%* Begin%+[ab]\n.*")
end

-- The same tools in chat completions, where they and their calls have an object of their own.
local function chat(body)
  body.model, body.temperature = "chain", 0
  return client.request(ctx.port, "POST", "/v1/chat/completions", body)
end

local function in_chat(tool)
  local format = tool.format and { type = "grammar", grammar = { syntax = tool.format.syntax, definition = tool.format.definition } }
  return { type = "custom", custom = { name = tool.name, description = tool.description, format = format } }
end

function TestHeldCalls:test_custom_tools_in_chat_completions()
  local patch = in_chat(custom("patch", "lark", 'start: "*** Begin" line+ "*** End"\nline: "+" /[ab"]/ LF\n%import common.LF'))
  local sh = in_chat(custom("sh", "regex", "[a-c]{2}-\\d"))
  local function ask(more)
    local body = { messages = { { role = "user", content = "@x" } }, tools = { patch, sh, WEATHER[1] }, tool_choice = "required", parallel_tool_calls = false, max_tokens = 300 }
    for k, v in pairs(more) do body[k] = v end
    return chat(body)
  end
  for _, c in ipairs({ { "sh", "^[a-c][a-c]%-%d$" }, { "patch", '^%*%*%* Begin%+[ab"]\n.*%*%*%* End$' } }) do
    local named = { tool_choice = { type = "custom", custom = { name = c[1] } } }
    local r = ask(named)
    lu.assertEquals(r.status, 200, r.body)
    local choice = r.json.choices[1]
    local call = choice.message.tool_calls[1]
    lu.assertEquals({ choice.finish_reason, call.type, call.custom.name, call["function"] }, { "tool_calls", "custom", c[1], nil }, r.body)
    lu.assertStrMatches(call.custom.input, c[2])
    -- streamed: the same call, its text in deltas that only append
    named.stream = true
    local first, text = nil, ""
    for _, ev in ipairs(client.sse(ask(named).body)) do
      local delta = type(ev.data) == "table" and ev.data.choices[1] and ev.data.choices[1].delta.tool_calls
      if delta then
        first = first or delta[1]
        text = text .. (delta[1].custom.input or "")
      end
    end
    lu.assertEquals({ first.type, first.custom.name, first.index, text }, { "custom", c[1], 0, call.custom.input })
    -- and back: what the server said is taken, and shows to the model
    local back = chat({ messages = { { role = "user", content = "@x" }, { role = "assistant", content = json.null, tool_calls = { call } },
      { role = "tool", tool_call_id = call.id, content = "done" } }, tools = { patch, sh }, max_tokens = 4 })
    lu.assertEquals(back.status, 200, back.body)
  end
  -- a function beside them stays one; a call that is cut keeps its text
  local named = ask({ tool_choice = { type = "function", ["function"] = { name = "weather" } } }).json.choices[1].message.tool_calls[1]
  lu.assertEquals({ named.type, named["function"].name }, { "function", "weather" })
  local cut = ask({ tool_choice = { type = "custom", custom = { name = "patch" } }, max_tokens = 30 })
  lu.assertEquals({ cut.status, cut.json.choices[1].finish_reason }, { 200, "length" })
  for path, tool in pairs({ ["tools[0].custom"] = { type = "custom" }, ["tools[0].custom.name"] = { type = "custom", custom = json.object() },
    ["tools[0].custom.format.grammar"] = { type = "custom", custom = { name = "t", format = { type = "grammar", syntax = "regex", definition = "a" } } },
    ["tools[0].custom.format.grammar.definition"] = in_chat(custom("t", "lark", "start: x")), ["tools[0].type"] = { type = "web_search" } }) do
    local r = chat({ messages = { { role = "user", content = "x" } }, tools = { tool } })
    lu.assertEquals(r.status, 400, r.body)
    lu.assertStrContains(r.json.error.message, path)
  end
end

function TestHeldCalls:test_the_text_of_a_custom_call()
  for arguments, want in pairs({ ['{"input":"a\\n\\"b\\\\"}'] = 'a\n"b\\', ['{"input": "*** Be'] = "*** Be", ['{"input":"a\\'] = "a", ['{"input":"a\\u00'] = "a", ['{"input":"a\\\\u00'] = "a\\u00",
    ['{"inp'] = '{"inp', [''] = "", ['{"input":7}'] = '{"input":7}' }) do
    lu.assertEquals(custom_tool.input(arguments), want, arguments)
  end
end

function TestHeldCalls:test_a_grammar_that_cannot_be_held_is_a_400_that_names_it()
  for _, c in ipairs({ { "lark", "start: x", "line 1: x is not defined" }, { "regex", "(?=a)", "" }, { "regex", "(", "" }, { "lark", "start: start \"a\" | \"b\"", "" } }) do
    local r = respond({ input = "x", tools = { custom("ok", "regex", "a"), custom("t", c[1], c[2]) } })
    lu.assertEquals(r.status, 400, r.body)
    lu.assertStrContains(r.json.error.message, "tools[1].format.definition")
    lu.assertStrContains(r.json.error.message, c[3])
  end
  for _, format in ipairs({ { type = "grammar" }, { type = "grammar", syntax = "ebnf", definition = "a" }, { type = "grammar", syntax = "lark" }, { type = "xml" } }) do
    lu.assertEquals(respond({ input = "x", tools = { { type = "custom", name = "t", format = format } } }).status, 400)
  end
  lu.assertEquals(respond({ input = "x", tools = { { type = "custom", name = "t", format = { type = "text" } } }, max_output_tokens = 1 }).status, 200)
end
