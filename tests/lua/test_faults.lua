-- SPDX-License-Identifier: MIT
-- Faults that people report on such servers, played against the real engine over a model
-- that says what it is told (chain_model.lua): tokens, templates, tool calls. A name begins with the fault's number
-- in the list of faults; those of the HTTP layer, templates and grammars have their
-- tests beside their code.
local lu = require("luaunit")
local client = require("http_client")
local faults = require("faults_server")

local post, chat, answer, streamed = faults.post, faults.chat, faults.answer, faults.streamed
local alive = faults.alive
local HOSTILE = 'a\\b "c" / {['

TestFaults = {}
function TestFaults:setUp() faults.start() end
TestFaults.tearDown = faults.stop

function TestFaults:test_t12_cut_characters_are_replaced_once_in_both_modes()
  local whole, finish = answer(chat("@half", { max_tokens = 2 }))
  lu.assertEquals({ whole, finish }, { "caf\u{FFFD}", "length" })
  lu.assertEquals({ streamed(chat("@half", { max_tokens = 2, stream = true })) }, { whole, finish })
end

function TestFaults:test_t13_bytes_that_are_no_text_end_nothing()
  local r = chat("@broken", { logprobs = true })
  lu.assertEquals(answer(r), "odd \u{FFFD}and\u{FFFD}\u{FFFD}")
  lu.assertEquals(r.json.choices[1].logprobs.content[2].bytes, { 0xC3 })
  lu.assertEquals((streamed(chat("@broken", { stream = true, logprobs = true }))), "odd \u{FFFD}and\u{FFFD}\u{FFFD}")
  local biased = chat("@hello", { max_tokens = 8, temperature = 1, logit_bias = { [tostring(faults.ids["\u{C3}"])] = 100 } })
  lu.assertNotNil(utf8.len((answer(biased))))
  alive()
end

function TestFaults:test_t18_a_stop_string_may_name_a_control_token()
  lu.assertEquals({ answer(chat("@halt", { stop = { "<|halt|>" } })) }, { "before", "stop" })
  lu.assertEquals({ streamed(chat("@halt", { stop = { "<|halt|>" }, stream = true })) }, { "before", "stop" })
  lu.assertEquals((answer(chat("@halt"))), "beforeafter")
end

local function turns(...)
  local list = {}
  for i, t in ipairs({ ... }) do list[i] = { role = t[1], content = t[2] } end
  return list
end

function TestFaults:test_t23_t24_a_templates_refusal_is_a_400_with_its_words_and_nothing_is_generated()
  local two = turns({ "user", "a" }, { "user", "@hello" })
  for _, stream in ipairs({ false, true }) do
    local r = post("/v1/chat/completions", { model = "strict", messages = two, stream = stream })
    lu.assertEquals({ r.status, r.json.error.type }, { 400, "invalid_request_error" }, r.body)
    lu.assertStrContains(r.json.error.message, 'Roles must alternate user/assistant <"x">')
    lu.assertNil(r.json.usage)
  end
  lu.assertEquals(post("/api/chat", { model = "strict", messages = two, stream = false }).status, 400)
  lu.assertEquals(post("/v1/messages", { model = "strict", messages = two, max_tokens = 5 }).status, 400)
  lu.assertEquals((answer(post("/v1/chat/completions", { model = "strict", messages = two, merge_turns = true, temperature = 0 }))), "Hello world")
end

function TestFaults:test_t25_system_and_developer_turns_anywhere()
  for _, model in ipairs({ "chain", "strict" }) do
    for _, messages in ipairs({ turns({ "user", "a" }, { "assistant", "b" }, { "system", "S" }, { "user", "@hello" }), turns({ "developer", "D" }, { "user", "@hello" }),
      turns({ "system", "S" }, { "user", "@hello" }) }) do
      lu.assertEquals((answer(post("/v1/chat/completions", { model = model, messages = messages, temperature = 0 }))), "Hello world", model)
    end
  end
end

-- A template that is no Jinja is not replaced in silence: a chat says so, and so does what shows the model.
function TestFaults:test_t26_a_template_of_another_language()
  local r = post("/v1/chat/completions", { model = "go", messages = turns({ "user", "@hello" }) })
  lu.assertEquals(r.status, 400, r.body)
  lu.assertStrContains(r.json.error.message, "Go template")
  lu.assertNotStrContains(r.json.error.message, "\n")
  local shown = post("/api/show", { model = "go" })
  lu.assertEquals(shown.status, 200, shown.body)
  lu.assertStrContains(shown.json.template, "{{- if .System }}")
  lu.assertEquals(post("/v1/completions", { model = "go", prompt = "aaa", max_tokens = 2, temperature = 0 }).json.choices[1].text, "aa")
end

function TestFaults:test_t27_what_the_server_produced_is_accepted_when_it_comes_back()
  local tools = { { type = "function", ["function"] = { name = "g", parameters = { type = "object", properties = { b = { type = "integer" } } } } } }
  for _, model in ipairs({ "full", "full-strict" }) do
    local question = { role = "user", content = "@full" }
    local r = post("/v1/chat/completions", { model = model, messages = { question }, tools = tools, temperature = 0 })
    lu.assertEquals(r.status, 200, r.body)
    local m = r.json.choices[1].message
    lu.assertEquals({ m.reasoning_content, m.content, m.tool_calls[1]["function"].name, m.tool_calls[1]["function"].arguments }, { "hm", "look", "g", '{"b": 2}' }, r.body)
    local again = post("/v1/chat/completions", { model = model, tools = tools, temperature = 0,
      messages = { question, m, { role = "tool", tool_call_id = m.tool_calls[1].id, content = "42" }, { role = "user", content = "@full" } } })
    lu.assertEquals(again.status, 200, again.body)
    lu.assertEquals(again.json.choices[1].message.content, "look")
  end
end

local function tool(name, properties, required)
  return { type = "function", ["function"] = { name = name, description = "d", parameters = { type = "object", properties = properties, required = required } } }
end
local function calls_of(r)
  lu.assertEquals(r.status, 200, r.body)
  return r.json.choices[1].message.tool_calls
end

function TestFaults:test_t29_every_delta_appends_whatever_the_argument_holds()
  local tools = { tool("f", { a = { type = "string", enum = { HOSTILE } } }, { "a" }) }
  -- one call: where calls may follow one another this model would go on until its limit
  local whole = chat("x", { tools = tools, tool_choice = "required", parallel_tool_calls = false })
  local call = calls_of(whole)[1]
  lu.assertEquals(require("cjson").decode(call["function"].arguments), { a = HOSTILE })
  local parts, finish = {}, nil
  for _, e in ipairs(client.sse(chat("x", { tools = tools, tool_choice = "required", parallel_tool_calls = false, stream = true }).body)) do
    local c = e.data ~= "[DONE]" and e.data.choices[1]
    for _, t in ipairs(c and c.delta.tool_calls or {}) do parts[#parts + 1] = t["function"].arguments or "" end
    if c and type(c.finish_reason) == "string" then finish = c.finish_reason end
  end
  lu.assertEquals(table.concat(parts), call["function"].arguments)
  lu.assertEquals(finish, "tool_calls")
end

function TestFaults:test_t31_arguments_that_are_no_object_are_a_400()
  for _, arguments in ipairs({ "[1]", '"x"', "{bad" }) do
    local r = post("/v1/chat/completions", { model = "chain", messages = { { role = "user", content = "x" },
      { role = "assistant", tool_calls = { { id = "c1", type = "function", ["function"] = { name = "f", arguments = arguments } } } },
      { role = "tool", tool_call_id = "c1", content = "r" } } })
    lu.assertEquals(r.status, 400, arguments)
    lu.assertStrMatches(r.json.error.message, ".*messages%[1%]%.tool_calls%[0%].*")
    if arguments ~= "[1]" then lu.assertNotStrContains(r.json.error.message, arguments) end
  end
end

function TestFaults:test_t32_a_cut_call_is_not_lost_and_the_next_request_works()
  local r = chat("x", { tools = { tool("f", { a = { type = "integer" } }, { "a" }) }, tool_choice = "required", max_tokens = 3 })
  lu.assertEquals(r.status, 200)
  lu.assertEquals(r.json.choices[1].finish_reason, "length")
  local m = r.json.choices[1].message
  lu.assertTrue((type(m.content) == "string" and #m.content > 0) or #m.tool_calls > 0, r.body)
  alive()
end

function TestFaults:test_t33_a_call_ends_with_tool_calls_and_length_wins()
  local tools = { tool("f", { a = { type = "integer" } }), tool("g", { b = { type = "integer" } }) }
  lu.assertEquals({ streamed(chat("@call", { tools = tools, stream = true })) }, { "", "tool_calls" })
  local r = chat("@call", { tools = tools })
  lu.assertEquals(calls_of(r)[1]["function"].name, "g")
  lu.assertEquals(r.json.choices[1].finish_reason, "tool_calls")
  lu.assertEquals(select(2, streamed(chat("@call", { tools = tools, stream = true, max_tokens = 4 }))), "length")
end

function TestFaults:test_t34_type_lists_and_empty_property_lists()
  local tools = { tool("f", { a = { type = { "string", "null" } } }), tool("g", {}) }
  tools[2]["function"].parameters.properties = require("mtx.json").array() -- as PHP clients write an object without entries
  for _, path in ipairs({ "/v1/chat/completions", "/api/chat" }) do
    local r = post(path, { model = "chain", messages = { { role = "user", content = "@hello" } }, tools = tools, stream = false, temperature = 0, options = { temperature = 0 } })
    lu.assertEquals(r.status, 200, r.body)
  end
  local r = chat("x", { tools = { tool("f", { a = { type = { "string", "null" }, enum = { require("cjson").null } } }, { "a" }) }, tool_choice = "required" })
  lu.assertEquals(require("mtx.json").decode(calls_of(r)[1]["function"].arguments).a, require("mtx.json").null)
end

function TestFaults:test_t35_content_as_parts()
  local function send(parts)
    return post("/api/chat", { model = "chain", stream = false, messages = { { role = "user", content = "x" },
      { role = "assistant", content = "", tool_calls = { { ["function"] = { name = "f", arguments = { a = 1 } } } } },
      { role = "tool", tool_name = "f", content = parts }, { role = "user", content = "@hello" } }, options = { temperature = 0 } })
  end
  lu.assertEquals(send({ { type = "text", text = "42" } }).json.message.content, "Hello world")
  local r = send({ { type = "text", text = "42" }, { type = "hologram" } })
  lu.assertEquals(r.status, 400)
  lu.assertStrContains(r.json.error, "1")
end

function TestFaults:test_t36_thoughts_are_split_with_and_without_tools()
  for _, tools in ipairs({ false, { tool("f", { a = { type = "integer" } }) } }) do
    local r = chat("@thought", { tools = tools or nil })
    lu.assertEquals(r.status, 200, r.body)
    local m = r.json.choices[1].message
    lu.assertEquals({ m.reasoning_content, m.content }, { "I think", "the answer" }, r.body)
  end
end
