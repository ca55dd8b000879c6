-- SPDX-License-Identifier: MIT
-- OpenAI's /v1/responses over HTTP against the scripted engine.
local lu = require("luaunit")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local json = require("mtx.json")
local client = require("http_client")

local ctx, port

local function start(flags) ctx = fixture.start(flags) port = ctx.port end
local function stop() fixture.stop(ctx) end
local function post(path, body, headers) return client.request(port, "POST", path, body, headers) end
local user = fixture.user

TestResponses = {}
function TestResponses:setUp() start({ api_key = "a,b" }) end
TestResponses.tearDown = stop

local A, B = { Authorization = "Bearer a" }, { Authorization = "Bearer b" }

function TestResponses:test_whole_and_chain_in_both_modes()
  local seen
  fake.reply = function(prompt) seen = prompt return "blue" end
  local first = post("/v1/responses", { model = "tiny", input = "my colour?", instructions = "be brief" }, A).json
  lu.assertEquals({ first.object, first.status, first.output[1].content[1].text }, { "response", "completed", "blue" })
  lu.assertEquals(first.usage.output_tokens_details.reasoning_tokens, 0)
  for _, streamed in ipairs({ false, true }) do
    local r = post("/v1/responses", { model = "tiny", input = "again", previous_response_id = first.id, stream = streamed }, A)
    lu.assertStrContains(seen, "user\nmy colour?<|im_end|>\n<|im_start|>assistant\nblue<|im_end|>\n<|im_start|>user\nagain")
    lu.assertNotStrContains(seen, "be brief")
    local id = streamed and client.sse(r.body)[1].data.response.id or r.json.id
    post("/v1/responses", { model = "tiny", input = "third", previous_response_id = id }, A)
    lu.assertStrContains(seen, "again<|im_end|>\n<|im_start|>assistant\nblue<|im_end|>\n<|im_start|>user\nthird")
    lu.assertEquals(client.request(port, "GET", "/v1/responses/" .. id, nil, A).json.output[1].content[1].text, "blue")
  end
  lu.assertEquals(post("/v1/responses", { model = "tiny", input = "x", previous_response_id = "resp_no" }, A).status, 404)
end

function TestResponses:test_keys_do_not_see_one_another()
  local id = post("/v1/responses", { model = "tiny", input = "x" }, A).json.id
  lu.assertEquals(client.request(port, "GET", "/v1/responses/" .. id, nil, B).status, 404)
  lu.assertEquals(post("/v1/responses", { model = "tiny", input = "x", previous_response_id = id }, B).status, 404)
  lu.assertEquals(client.request(port, "DELETE", "/v1/responses/" .. id, nil, B).status, 404)
  lu.assertEquals(#client.request(port, "GET", "/v1/responses", nil, B).json.data, 0)
  lu.assertEquals(#client.request(port, "GET", "/v1/responses", nil, A).json.data, 1)
  lu.assertEquals(client.request(port, "DELETE", "/v1/responses/" .. id, nil, A).json.deleted, true)
  lu.assertEquals(client.request(port, "GET", "/v1/responses/" .. id, nil, A).status, 404)
  lu.assertEquals(post("/v1/responses/" .. id .. "/cancel", {}, A).status, 404)
  lu.assertEquals(client.request(port, "GET", "/v1/responses/" .. post("/v1/responses", { model = "tiny", input = "x", store = false }, A).json.id, nil, A).status, 404)
end

function TestResponses:test_stream_events()
  local r = post("/v1/responses", { model = "tiny", stream = true, input = '@think{hm}@call{{"name":"f","arguments":{"a":1}}}',
    tools = { { type = "function", name = "f", parameters = { type = "object" } } } }, A)
  local names, args = {}, ""
  for i, e in ipairs(client.sse(r.body)) do
    lu.assertEquals({ e.data.type, e.data.sequence_number }, { e.event, i - 1 })
    if e.event:find("delta") or e.event:find("item") then lu.assertNotNil(e.data.output_index) end
    if names[#names] ~= e.event then names[#names + 1] = e.event end
    if e.event == "response.function_call_arguments.delta" then args = args .. e.data.delta end
  end
  lu.assertEquals(names, { "response.created", "response.in_progress", "response.output_item.added", "response.reasoning_summary_part.added",
    "response.reasoning_summary_text.delta", "response.reasoning_summary_text.done", "response.reasoning_summary_part.done", "response.output_item.done",
    "response.output_item.added", "response.function_call_arguments.delta", "response.function_call_arguments.done", "response.output_item.done", "response.completed" })
  lu.assertEquals(args, '{"a":1}')
  local ev = client.sse(post("/v1/responses", { model = "tiny", stream = true, input = "@say{a b c}", max_output_tokens = 2 }, A).body)
  lu.assertEquals({ ev[#ev].event, ev[#ev].data.response.incomplete_details.reason, ev[#ev].data.response.output[1].content[1].text },
    { "response.incomplete", "max_output_tokens", "a b " })
  ev = client.sse(post("/v1/responses", { model = "tiny", stream = true, input = "@error" }, A).body)
  lu.assertEquals(ev[#ev].event, "response.failed")
end

function TestResponses:test_input_items_and_bounds()
  local r = post("/v1/responses", { model = "tiny", input = { { role = "user", content = { { type = "input_text", text = "x" } } },
    { type = "function_call", call_id = "c", name = "f", arguments = "{}" }, { type = "function_call_output", call_id = "c", output = "42" } } }, A)
  lu.assertEquals(r.status, 200)
  for _, bad in ipairs({ json.array(), 5, { { type = "magic" } }, { { role = "king", content = "x" } } }) do
    lu.assertEquals(post("/v1/responses", { model = "tiny", input = bad }, A).status, 400)
  end
  ctx.responses.max = 3
  for _ = 1, 10 do post("/v1/responses", { model = "tiny", input = "x" }, A) end
  lu.assertEquals(#client.request(port, "GET", "/v1/responses", nil, A).json.data, 3)
  lu.assertEquals(post("/v1/responses/input_tokens", { model = "tiny", input = "abc" }, A).json.object, "response.input_tokens")
end
