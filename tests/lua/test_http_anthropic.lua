-- SPDX-License-Identifier: MIT
-- Anthropic's messages over HTTP against the scripted engine.
local lu = require("luaunit")
local cjson = require("cjson")
local fixture = require("http_fixture")
local client = require("http_client")

local ctx, port

local function start(flags) ctx = fixture.start(flags) port = ctx.port end
local function stop() fixture.stop(ctx) end
local function post(path, body, headers) return client.request(port, "POST", path, body, headers) end
local user = fixture.user

TestAnthropic = {}
function TestAnthropic:setUp() start() end
TestAnthropic.tearDown = stop

function TestAnthropic:test_whole()
  local r = post("/v1/messages", { model = "tiny", max_tokens = 100, system = "S", messages = user("@say{Hello}") })
  lu.assertEquals(r.status, 200)
  lu.assertEquals({ r.json.type, r.json.role, r.json.content, r.json.stop_reason, r.json.stop_sequence },
    { "message", "assistant", { { type = "text", text = "Hello" } }, "end_turn", cjson.null })
  lu.assertEquals(r.json.usage.output_tokens, 1)
  lu.assertEquals(r.json.usage.input_tokens, post("/v1/messages/count_tokens", { model = "tiny", system = "S", messages = user("@say{Hello}") }).json.input_tokens)
  r = post("/v1/messages", { model = "tiny", max_tokens = 100, messages = user("@say{a STOP b}"), stop_sequences = { "STOP" } })
  lu.assertEquals({ r.json.stop_reason, r.json.stop_sequence }, { "stop_sequence", "STOP" })
  r = post("/v1/messages", { model = "tiny", max_tokens = 2, messages = user("@say{a b c}") })
  lu.assertEquals(r.json.stop_reason, "max_tokens")
end

-- Each dialect names the place as its own requests have it.
function TestAnthropic:test_a_tool_without_name_is_found_where_it_lies()
  for path, c in pairs({
    ["/v1/messages"] = { { description = "d" }, "tools.0.name is required" },
    ["/v1/chat/completions"] = { { type = "function", ["function"] = { description = "d" } }, "tools[0].function.name is required" },
    ["/v1/responses"] = { { type = "function", description = "d" }, "tools[0].name is required" },
  }) do
    local r = post(path, { model = "tiny", max_tokens = 1, messages = user("x"), input = "x", tools = { c[1] } })
    lu.assertEquals({ r.status, r.json.error.message }, { 400, c[2] }, path)
  end
  local r = post("/v1/messages", { model = "tiny", max_tokens = 1, messages = user("x"), tools = { { name = "f", input_schema = "x" } } })
  lu.assertEquals(r.json.error.message, "tools.0.input_schema must be an object")
end

-- Blocks rise by one, never overlap, and add up to the whole reply.
function TestAnthropic:test_stream_blocks()
  local body = { model = "tiny", max_tokens = 100, stream = true, thinking = { type = "enabled", budget_tokens = 1024 },
    tools = { { name = "f", input_schema = { type = "object" } } },
    messages = user('@think{hm}@call{{"name":"f","arguments":{"b":1,"a":2}}}') }
  local ev = client.sse(post("/v1/messages", body).body)
  lu.assertEquals({ ev[1].event, ev[#ev].event, ev[#ev - 1].event }, { "message_start", "message_stop", "message_delta" })
  local open, at, kinds, args = nil, -1, {}, ""
  for _, e in ipairs(ev) do
    lu.assertEquals(e.event, e.data.type)
    if e.event == "content_block_start" then
      lu.assertNil(open)
      at = at + 1
      lu.assertEquals(e.data.index, at)
      open = e.data.content_block.type
      kinds[#kinds + 1] = open
    elseif e.event == "content_block_delta" then
      lu.assertEquals(e.data.index, at)
      if e.data.delta.type == "input_json_delta" then args = args .. e.data.delta.partial_json end
    elseif e.event == "content_block_stop" then
      open = nil
    end
  end
  lu.assertNil(open)
  lu.assertEquals({ kinds, args, ev[#ev - 1].data.delta.stop_reason }, { { "thinking", "tool_use" }, '{"b":1,"a":2}', "tool_use" })
end

function TestAnthropic:test_tool_loop_history()
  local r = post("/v1/messages", { model = "tiny", max_tokens = 50, tools = { { name = "f", input_schema = { type = "object" } } }, messages = {
    { role = "user", content = "x" },
    { role = "assistant", content = { { type = "thinking", thinking = "t", signature = "mtx" }, { type = "tool_use", id = "toolu_1", name = "f", input = { a = 1 } } } },
    { role = "user", content = { { type = "tool_result", tool_use_id = "toolu_1", content = { { type = "text", text = "42" } } }, { type = "text", text = "@say{done}" } } } } })
  lu.assertEquals({ r.status, r.json.content[1].text }, { 200, "done" })
end

function TestAnthropic:test_errors()
  local cases = { { {}, 400 }, { { model = "nope", max_tokens = 1, messages = user("x") }, 404 }, { { model = "tiny", max_tokens = 0, messages = user("x") }, 400 },
    { { model = "tiny", max_tokens = 1, messages = { { role = "king", content = "x" } } }, 400 },
    { { model = "tiny", max_tokens = 1, messages = { { role = "user", content = { { type = "image", source = { type = "url", url = "http://x" } } } } } }, 400 },
    { { model = "tiny", max_tokens = 1, messages = user("x"), tools = { { type = "web_search_20250305", name = "web_search" } } }, 400 } }
  for _, c in ipairs(cases) do
    local r = post("/v1/messages", c[1])
    lu.assertEquals({ r.status, r.json.type }, { c[2], "error" })
    lu.assertStrMatches(r.json.request_id, "req_.*")
  end
  local r = post("/v1/messages", { model = "tiny", max_tokens = 10, messages = user("@error"), stream = true })
  local ev = client.sse(r.body)
  lu.assertEquals({ ev[#ev].event, ev[#ev].data.error.type }, { "error", "api_error" })
end
