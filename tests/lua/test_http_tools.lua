-- SPDX-License-Identifier: MIT
-- Tool calls of several families through the four dialects, streamed and whole, over the scripted engine.
local lu = require("luaunit")
local cjson = require("cjson")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local client = require("http_client")

local PARAMETERS = { type = "object", properties = { city = { type = "string" }, n = { type = "integer" } } }
local FUNCTION = { name = "get", parameters = PARAMETERS }
local OPENAI_TOOLS = { { type = "function", ["function"] = FUNCTION } }
local ANTHROPIC_TOOLS = { { name = "get", input_schema = PARAMETERS } }
local RESPONSES_TOOLS = { { type = "function", name = "get", parameters = PARAMETERS } }

-- marks for the template, the answer, the text before the call, its arguments
local CASES = {
  { "<tool_call>", 'I look.\n<tool_call>\n{"name": "get", "arguments": {"city": "Os \\"l\\" o", "n": 3}}\n</tool_call>', "I look.", '{"city": "Os \\"l\\" o", "n": 3}' },
  { "<function= <parameter=", "<tool_call>\n<function=get>\n<parameter=city>\n12 34\n</parameter>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>", "", '{"city":"12 34","n":3}' },
  { "[TOOL_CALLS]", 'I look.[TOOL_CALLS]get[ARGS]{"city": "Os lo", "n": 3}', "I look.", '{"city": "Os lo", "n": 3}' },
  { "<|tool_call> <tool_call|>", '<|tool_call>call:get{city:<|"|>Os lo<|"|>,n:3}<tool_call|>', "", '{"city":"Os lo","n":3}' },
  { "<|channel|> <|message|> <|call|>", '<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get <|constrain|>json<|message|>{"city": "Os lo", "n": 3}',
    "I look.", '{"city": "Os lo", "n": 3}' },
}

local ctx
local template = fake.TEMPLATE

local function start(marks, answer)
  fake.TEMPLATE = template .. "{# " .. marks .. " #}"
  ctx = fixture.start({})
  fake.reply = function() return answer end
end

local function post(path, body)
  body.model = "tiny"
  local r = client.request(ctx.port, "POST", path, body, nil, 60000) -- a loaded machine
  lu.assertEquals(r.status, 200, r.body)
  return r
end

TestTools = {}
function TestTools:tearDown()
  fake.TEMPLATE = template
  fixture.stop(ctx)
end

local function user(text) return { { role = "user", content = text or "x" } } end

-- {text, calls = {{id, name, arguments, n_deltas}}, finish} of a streamed chat completion.
local function openai_stream(body)
  body.stream = true
  local out = { text = "", calls = {} }
  for _, e in ipairs(client.sse(post("/v1/chat/completions", body).body)) do
    local c = type(e.data) == "table" and e.data.choices[1]
    if c then
      if c.finish_reason ~= cjson.null then out.finish = c.finish_reason end
      out.text = out.text .. (c.delta.content or "")
      for _, t in ipairs(c.delta.tool_calls or {}) do
        local call = out.calls[t.index + 1]
        if not call then
          lu.assertEquals({ t.type, #out.calls }, { "function", t.index })
          call = { id = t.id, name = t["function"].name, arguments = "", n = 0 }
          out.calls[t.index + 1] = call
        end
        call.arguments, call.n = call.arguments .. t["function"].arguments, call.n + (t["function"].arguments ~= "" and 1 or 0)
      end
    end
  end
  return out
end

for i, case in ipairs(CASES) do
  TestTools["test_openai_" .. i] = function()
    start(case[1], case[2])
    local s = openai_stream({ messages = user(), tools = OPENAI_TOOLS })
    lu.assertEquals({ s.text, #s.calls, s.calls[1].name, s.calls[1].arguments, s.finish }, { case[3], 1, "get", case[4], "tool_calls" })
    lu.assertTrue(s.calls[1].n > 1, "the arguments came in one piece")
    lu.assertStrMatches(s.calls[1].id, "call_%w+")
    local c = post("/v1/chat/completions", { messages = user(), tools = OPENAI_TOOLS }).json.choices[1]
    lu.assertEquals(c.message.tool_calls[1]["function"], { name = "get", arguments = case[4] })
    lu.assertEquals({ c.finish_reason, c.message.content }, { "tool_calls", case[3] == "" and cjson.null or case[3] })
    lu.assertNotEquals(c.message.tool_calls[1].id, s.calls[1].id)
  end

  TestTools["test_anthropic_" .. i] = function()
    start(case[1], case[2])
    local args, name, text, open, reason, n = "", nil, "", nil, nil, 0
    for _, e in ipairs(client.sse(post("/v1/messages", { max_tokens = 500, stream = true, messages = user(), tools = ANTHROPIC_TOOLS }).body)) do
      local d = e.data
      if d.type == "content_block_start" then
        lu.assertNil(open)
        open, name = d.index, d.content_block.name or name
      elseif d.type == "content_block_stop" then
        lu.assertEquals(d.index, open)
        open = nil
      elseif d.type == "content_block_delta" then
        lu.assertEquals(d.index, open)
        text = text .. (d.delta.text or "")
        if d.delta.type == "input_json_delta" then args, n = args .. d.delta.partial_json, n + 1 end
      elseif d.type == "message_delta" then
        reason = d.delta.stop_reason
      end
    end
    lu.assertEquals({ text, name, args, reason }, { case[3], "get", case[4], "tool_use" })
    lu.assertTrue(n > 1)
    local r = post("/v1/messages", { max_tokens = 500, messages = user(), tools = ANTHROPIC_TOOLS })
    local block = r.json.content[#r.json.content]
    lu.assertEquals({ block.type, block.name, block.input }, { "tool_use", "get", cjson.decode(case[4]) })
    lu.assertStrContains(r.body, '"input":' .. case[4])
  end

  TestTools["test_responses_" .. i] = function()
    start(case[1], case[2])
    local args, done, n = "", nil, 0
    for _, e in ipairs(client.sse(post("/v1/responses", { stream = true, input = "x", tools = RESPONSES_TOOLS }).body)) do
      if e.event == "response.function_call_arguments.delta" then args, n = args .. e.data.delta, n + 1 end
      if e.event == "response.function_call_arguments.done" then done = e.data.arguments end
    end
    lu.assertEquals({ args, done }, { case[4], case[4] })
    lu.assertTrue(n > 1)
    local out = post("/v1/responses", { input = "x", tools = RESPONSES_TOOLS }).json.output
    lu.assertEquals({ out[#out].type, out[#out].name, out[#out].arguments, out[#out].status }, { "function_call", "get", case[4], "completed" })
  end

  TestTools["test_ollama_" .. i] = function()
    start(case[1], case[2])
    local text, calls = "", {}
    for _, l in ipairs(client.ndjson(post("/api/chat", { messages = user(), tools = OPENAI_TOOLS }).body)) do
      text = text .. l.message.content
      for _, c in ipairs(l.message.tool_calls or {}) do calls[#calls + 1] = c end
    end
    lu.assertEquals({ text, #calls, calls[1]["function"].name, calls[1]["function"].arguments }, { case[3], 1, "get", cjson.decode(case[4]) })
    local m = post("/api/chat", { stream = false, messages = user(), tools = OPENAI_TOOLS }).json.message
    lu.assertEquals({ m.content, m.tool_calls[1]["function"].arguments }, { case[3], cjson.decode(case[4]) })
  end

  -- Cut by the limit: length, the raw text where nothing has gone out before, never half a call as a whole one.
  TestTools["test_cut_" .. i] = function()
    start(case[1], case[2])
    for limit = 1, 30 do
      local c = post("/v1/chat/completions", { messages = user(), tools = OPENAI_TOOLS, max_tokens = limit }).json.choices[1]
      for _, t in ipairs(c.message.tool_calls or {}) do lu.assertEquals(t["function"].arguments, case[4]) end
      if c.finish_reason == "length" and not c.message.tool_calls and i ~= 5 then
        lu.assertEquals(case[2]:sub(1, #c.message.content), c.message.content)
      end
      local s = openai_stream({ messages = user(), tools = OPENAI_TOOLS, max_tokens = limit })
      lu.assertEquals(s.finish, c.finish_reason)
      for _, t in ipairs(s.calls) do lu.assertEquals(case[4]:sub(1, #t.arguments), t.arguments) end
      local lines = client.ndjson(post("/api/chat", { messages = user(), tools = OPENAI_TOOLS, options = { num_predict = limit } }).body)
      local text, n = "", 0
      for _, l in ipairs(lines) do text, n = text .. l.message.content, n + #(l.message.tool_calls or {}) end
      lu.assertEquals(text, c.message.content == cjson.null and "" or c.message.content)
      lu.assertEquals(n, #(c.message.tool_calls or {}))
      if n == 0 then lu.assertEquals(#client.sse(post("/v1/messages", { max_tokens = limit, stream = true, messages = user(), tools = ANTHROPIC_TOOLS }).body) > 2, true) end
    end
  end
end

local TWO = '<tool_call>{"name":"get","arguments":{"n":1}}</tool_call>\n<tool_call>{"name":"get","arguments":{"n":2}}</tool_call>'

function TestTools:test_parallel_calls_and_one_only()
  start("<tool_call>", TWO)
  local s = openai_stream({ messages = user(), tools = OPENAI_TOOLS })
  lu.assertEquals({ #s.calls, s.calls[2].arguments, s.finish }, { 2, '{"n":2}', "tool_calls" })
  lu.assertNotEquals(s.calls[1].id, s.calls[2].id)
  s = openai_stream({ messages = user(), tools = OPENAI_TOOLS, parallel_tool_calls = false })
  lu.assertEquals({ #s.calls, s.calls[1].arguments, s.finish }, { 1, '{"n":1}', "tool_calls" })
  local c = post("/v1/chat/completions", { messages = user(), tools = OPENAI_TOOLS, parallel_tool_calls = false }).json.choices[1]
  lu.assertEquals({ #c.message.tool_calls, c.finish_reason }, { 1, "tool_calls" })
end

function TestTools:test_tool_choice_none_gives_text()
  start("<tool_call>", TWO)
  local c = post("/v1/chat/completions", { messages = user(), tools = OPENAI_TOOLS, tool_choice = "none" }).json.choices[1]
  lu.assertEquals({ c.message.content, c.message.tool_calls, c.finish_reason }, { TWO, nil, "stop" })
end

-- T36: the thought is split with and without tools; a call inside it is none.
function TestTools:test_reasoning_beside_tools()
  start("<tool_call>", '<think>\n<tool_call>{"name":"get","arguments":{}}</tool_call>\n</think>\n\nhi')
  for _, tools in ipairs({ OPENAI_TOOLS, false }) do
    local c = post("/v1/chat/completions", { messages = user(), tools = tools or nil }).json.choices[1]
    lu.assertEquals({ c.message.content, c.message.reasoning_content, c.message.tool_calls }, { "hi", '<tool_call>{"name":"get","arguments":{}}</tool_call>', nil })
  end
end

-- The thought is ended at its budget, behind the message; what the model says then is the answer.
function TestTools:test_thinking_budget()
  start("<tool_call>", "")
  fake.reply = function(prompt)
    local after = prompt:match("<|im_start|>assistant\n.*Enough%.\n</think>\n\n(.*)$")
    if after then return after == "" and "the answer" or "!" end
    return { text = "<think>\n" .. ("hm "):rep(500), delay_ms = 2 }
  end
  local body = { messages = user(), thinking_budget_tokens = 20, reasoning_budget_message = "Enough." }
  local c = post("/v1/chat/completions", body).json
  local m = c.choices[1].message
  lu.assertEquals({ m.content, c.choices[1].finish_reason }, { "the answer", "stop" })
  local _, n = m.reasoning_content:gsub("hm", "")
  lu.assertTrue(n >= 15 and n < 100, n)
  lu.assertStrMatches(m.reasoning_content, "^hm .*\nEnough%.$")
  -- a thought within the budget is left alone; -1 is no limit, 0 asks for none
  fake.reply = function() return "<think>\nhm hm\n</think>\n\nyes" end
  for _, budget in ipairs({ 100, -1, 0 }) do
    local r = post("/v1/chat/completions", { messages = user(), thinking_budget_tokens = budget }).json.choices[1].message
    lu.assertEquals({ r.content, r.reasoning_content }, { "yes", budget ~= 0 and "hm hm" or nil })
  end
  fake.reply = function(prompt)
    return prompt:find("</think>", 1, true) and "ok" or { text = "<think>\n" .. ("hm "):rep(500), delay_ms = 2 }
  end
  local r = post("/v1/messages", { max_tokens = 500, messages = user(), thinking = { type = "enabled", budget_tokens = 10 } }).json
  lu.assertEquals({ r.content[1].type, r.content[2].text }, { "thinking", "ok" })
end

-- A call sent back gets the model's own spelling in the next prompt; one that was changed, or is another's, does not.
function TestTools:test_calls_come_back_as_the_model_wrote_them()
  local own = '{"city":"\\u004fslo",  "n":3.0}'
  fake.TEMPLATE = "{{ tools | tojson if tools }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n{# tools #}"
  ctx = fixture.start({}, function(deps) deps.render = nil end)
  fake.reply = function() return '<tool_call>\n{"name": "get", "arguments": ' .. own .. "}\n</tool_call>" end
  local function prompt_after(message)
    post("/v1/chat/completions", { messages = { user()[1], message, { role = "tool", tool_call_id = message.tool_calls[1].id, content = "r" } }, tools = OPENAI_TOOLS })
    local list = fake.engines[#fake.engines].submitted
    local out = {}
    for i, id in ipairs(list[#list].tokens) do out[i] = id < 0x110000 and utf8.char(id) or "" end
    return table.concat(out)
  end
  local m = post("/v1/chat/completions", { messages = user(), tools = OPENAI_TOOLS }).json.choices[1].message
  m.content = ""
  lu.assertEquals(m.tool_calls[1]["function"].arguments, own)
  lu.assertStrContains(prompt_after(m), '<tool_call>\n{"name": "get", "arguments": ' .. own .. "}\n</tool_call>")
  m.tool_calls[1]["function"].arguments = '{"city":"Oslo","n":3.0}' -- a client that reads and writes it
  lu.assertStrContains(prompt_after(m), own)
  m.tool_calls[1]["function"].arguments = '{"city":"Oslo","n":4}'
  lu.assertStrContains(prompt_after(m), '"arguments": {"city": "Oslo", "n": 4}')
  m.tool_calls[1]["function"].arguments, m.tool_calls[1].id = own, "call_other"
  lu.assertStrContains(prompt_after(m), '"arguments": {"city": "Oslo", "n": 3.0}')
end
