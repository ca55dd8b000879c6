-- SPDX-License-Identifier: MIT
-- Sessions of real clients (tests/http/sessions), replayed over the scripted engine:
-- the order of events, the bodies, and what reaches the model's prompt.
local lu = require("luaunit")
local cjson = require("cjson")
local client = require("http_client")
local fake = require("fake_engine")
local fixture = require("http_fixture")
local json = require("mtx.json")
local websocket = require("mtx.http.websocket")

local ctx, port, prompts

-- Replies in order; what the model was shown is kept in prompts.
local function script(...)
  local replies, n = { ... }, 0
  prompts = {}
  fake.reply = function(prompt)
    n = n + 1
    prompts[n] = prompt
    return replies[n] or error("the model is asked more often than the session says")
  end
end

local Session = {}
Session.__index = Session

local function open(name)
  local f = assert(io.open("tests/http/sessions/" .. name .. ".json"))
  local data = assert(json.decode(f:read("a")))
  f:close()
  return setmetatable({ data = data, at = 0 }, Session)
end

-- Sends the session's next request, which must have this name.
function Session:next(name)
  self.at = self.at + 1
  local r = self.data.requests[self.at]
  lu.assertEquals(r.name, name)
  local headers = {}
  for _, list in ipairs({ self.data.headers, r.headers or {} }) do
    for k, v in pairs(list) do headers[k] = v end
  end
  local body = r.body and json.encode(r.body)
  if body and not headers["Content-Type"] then headers["Content-Type"] = "application/json" end
  return client.request(port, r.method, r.path, body, headers)
end

function Session:over() lu.assertEquals(self.at, #self.data.requests, "every request of the session is sent") end

-- The event names of an SSE answer, neighbours of one name joined.
local function order(events)
  local out = {}
  for _, e in ipairs(events) do
    local name = e.event or e.data == "[DONE]" and "[DONE]" or e.data.type
    if out[#out] ~= name then out[#out + 1] = name end
  end
  return out
end

TestSessions = {}
function TestSessions:setUp()
  ctx = fixture.start()
  port = ctx.port
end
function TestSessions:tearDown() fixture.stop(ctx) end

function TestSessions:test_codex()
  local s = open("codex")
  script('<think>\nI look\n</think>\n\n<tool_call>\n{"name":"shell_command","arguments":{"command":"ls"}}\n</tool_call>', "There is a README.",
    '<tool_call>\n{"name":"apply_patch","arguments":{"input":"*** Begin Patch\\n+\\"x\\"\\n*** End Patch"}}\n</tool_call>')
  local r = s:next("first turn")
  lu.assertEquals(r.status, 200)
  lu.assertStrContains(r.headers["content-type"], "text/event-stream")
  local ev = client.sse(r.body)
  lu.assertEquals(order(ev), { "response.created", "response.in_progress",
    "response.output_item.added", "response.reasoning_summary_part.added", "response.reasoning_summary_text.delta", "response.reasoning_summary_text.done",
    "response.reasoning_summary_part.done", "response.output_item.done",
    "response.output_item.added", "response.function_call_arguments.delta", "response.function_call_arguments.done", "response.output_item.done",
    "response.completed" })
  for i, e in ipairs(ev) do lu.assertEquals({ e.event, e.data.sequence_number }, { e.data.type, i - 1 }) end
  local final = ev[#ev].data.response
  local call = final.output[2]
  lu.assertEquals({ call.type, call.name, call.arguments, call.status }, { "function_call", "shell_command", '{"command":"ls"}', "completed" })
  lu.assertStrMatches(call.call_id, "call_%w+")
  local u = final.usage
  lu.assertEquals({ u.total_tokens, u.input_tokens_details.cached_tokens, u.output_tokens_details.reasoning_tokens ~= nil }, { u.input_tokens + u.output_tokens, 0, true })
  lu.assertStrContains(prompts[1], "You are a coding agent")
  lu.assertStrContains(prompts[1], "sandbox: workspace-write")
  lu.assertNotStrContains(prompts[1], "web_search")
  r = s:next("after the tool")
  ev = client.sse(r.body)
  lu.assertEquals(order(ev), { "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
    "response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed" })
  lu.assertEquals(ev[#ev].data.response.output[1].content[1].text, "There is a README.")
  lu.assertStrContains(prompts[2], "README.md")
  lu.assertStrContains(prompts[2], '<tool_call>{"command":"ls"}</tool_call>')
  -- A tool of free text: what the model wrote as JSON comes as the text itself.
  ev = client.sse(s:next("a patch").body)
  lu.assertEquals(order(ev), { "response.created", "response.in_progress", "response.output_item.added", "response.custom_tool_call_input.delta",
    "response.custom_tool_call_input.done", "response.output_item.done", "response.completed" })
  call = ev[#ev].data.response.output[1]
  lu.assertEquals({ call.type, call.name, call.input, call.status }, { "custom_tool_call", "apply_patch", '*** Begin Patch\n+"x"\n*** End Patch', "completed" })
  lu.assertStrContains(prompts[3], "patch is empty")
  s:over()
end

function TestSessions:test_claude_code()
  local s = open("claude_code")
  script("x", '<think>\nI look\n</think>\n\nLet me look.<tool_call>\n{"name":"Bash","arguments":{"command":"ls"}}\n</tool_call>', "A README and nothing else.")
  local r = s:next("quota")
  lu.assertEquals({ r.json.type, r.json.role, r.json.stop_reason, r.json.usage.output_tokens }, { "message", "assistant", "max_tokens", 1 })
  r = s:next("count")
  lu.assertTrue(r.json.input_tokens > 5)
  r = s:next("first turn")
  local ev = client.sse(r.body)
  lu.assertEquals(order(ev), { "message_start",
    "content_block_start", "content_block_delta", "content_block_stop", -- thinking, ends with its signature
    "content_block_start", "content_block_delta", "content_block_stop", -- text
    "content_block_start", "content_block_delta", "content_block_stop", -- tool_use
    "message_delta", "message_stop" })
  lu.assertTrue(ev[1].data.message.usage.input_tokens > 0)
  local kinds, open_block, index, text, args = {}, nil, -1, "", ""
  for _, e in ipairs(ev) do
    local d = e.data
    if d.type == "content_block_start" then
      lu.assertNil(open_block, "blocks do not overlap")
      lu.assertEquals(d.index, index + 1)
      open_block, index, kinds[#kinds + 1] = d.index, d.index, d.content_block.type
      if d.content_block.type == "tool_use" then
        lu.assertEquals(d.content_block.input, {})
        lu.assertStrMatches(d.content_block.id, "toolu_%w+")
      end
    elseif d.type == "content_block_delta" then
      lu.assertEquals(d.index, open_block)
      text, args = text .. (d.delta.text or ""), args .. (d.delta.partial_json or "")
    elseif d.type == "content_block_stop" then
      lu.assertEquals(d.index, open_block)
      open_block = nil
    end
  end
  lu.assertEquals({ kinds, text, args }, { { "thinking", "text", "tool_use" }, "Let me look.", '{"command":"ls"}' })
  lu.assertEquals(ev[#ev - 1].data.delta.stop_reason, "tool_use")
  lu.assertStrContains(prompts[2], "You are Claude Code")
  lu.assertStrContains(prompts[2], "You are an interactive CLI tool.")
  r = s:next("after the tools")
  ev = client.sse(r.body)
  lu.assertEquals(ev[#ev - 1].data.delta.stop_reason, "end_turn")
  local _, n = prompts[3]:gsub("<|im_start|>tool", "")
  lu.assertEquals(n, 2)
  lu.assertStrContains(prompts[3], "Error: no such file")
  s:over()
end

function TestSessions:test_opencode()
  local s = open("opencode")
  script("Bug fix", '<tool_call>\n{"name":"read","arguments":{"filePath":"main.c"}}\n</tool_call>', "Fixed.")
  local function read(r)
    local ev, text, name, args, finish, usage, id = client.sse(r.body), "", nil, "", nil, nil, nil
    lu.assertEquals(ev[#ev].data, "[DONE]")
    for i = 1, #ev - 1 do
      local d = ev[i].data
      id = id or d.id
      lu.assertEquals({ d.id, d.object }, { id, "chat.completion.chunk" })
      local c = d.choices[1]
      if c then
        lu.assertEquals(c.delta.role ~= nil, i == 1, "only the first chunk has the role")
        text = text .. (c.delta.content or "")
        for _, t in ipairs(c.delta.tool_calls or {}) do
          name = name or t["function"].name
          args = args .. (t["function"].arguments or "")
        end
        if type(c.finish_reason) == "string" then finish = c.finish_reason end
      else
        lu.assertEquals(i, #ev - 1, "usage comes last")
        usage = d.usage
      end
    end
    return { text, name or "", args, finish, usage.total_tokens == usage.prompt_tokens + usage.completion_tokens }
  end
  lu.assertEquals(read(s:next("title")), { "Bug fix", "", "", "stop", true })
  lu.assertEquals(read(s:next("first turn")), { "", "read", '{"filePath":"main.c"}', "tool_calls", true })
  lu.assertEquals(read(s:next("after the tool")), { "Fixed.", "", "", "stop", true })
  lu.assertStrContains(prompts[2], "fix the bugin main.c")
  lu.assertStrContains(prompts[3], "int main;")
  s:over()
end

local function ollama_stream(r)
  lu.assertEquals({ r.status, r.headers["content-type"] }, { 200, "application/x-ndjson" })
  local lines, text = client.ndjson(r.body), ""
  for i, l in ipairs(lines) do
    lu.assertEquals({ l.done, type(l.model), type(l.created_at) }, { i == #lines, "string", "string" })
    text = text .. (l.message and l.message.content or l.response or "")
  end
  return text, lines[#lines], lines
end

function TestSessions:test_open_webui()
  local s = open("open_webui")
  script("Hello to you.", "A greeting")
  lu.assertStrMatches(s:next("version").json.version, "%d+%.%d+%.%d+")
  local models = s:next("models").json.models
  lu.assertTrue(#models >= 3)
  for _, m in ipairs(models) do lu.assertEquals({ type(m.name), type(m.digest), type(m.details.family), type(m.size) }, { "string", "string", "string", "number" }) end
  lu.assertEquals(s:next("loaded").json.models, {})
  local text, last = ollama_stream(s:next("chat"))
  lu.assertEquals({ text, last.done_reason, last.message.content, last.eval_count > 0, last.total_duration > 0 }, { "Hello to you.", "stop", "", true, true })
  lu.assertEquals(s:next("title").json.message.content, "A greeting")
  local r = s:next("documents").json
  lu.assertEquals({ #r.embeddings, #r.embeddings[1], r.model }, { 3, 8, "minilm" })
  lu.assertEquals(client.ndjson(s:next("unload").body)[1].done_reason, "unload")
  lu.assertNil(ctx.pool.loaded["tiny:latest"])
  s:over()
end

function TestSessions:test_continue()
  local s = open("continue")
  script('<tool_call>\n{"name":"read_file","arguments":{"filepath":"main.c"}}\n</tool_call>', "It is C.", "in() {}\n\nnext")
  local show = s:next("show").json
  lu.assertEquals({ type(show.template), type(show.parameters), show.details.family, show.model_info["general.architecture"] }, { "string", "string", "fake", "fake" })
  local text, last, lines = ollama_stream(s:next("chat"))
  local call = lines[1].message.tool_calls[1]
  lu.assertEquals({ text, call["function"].name, call["function"].arguments, last.done_reason }, { "", "read_file", { filepath = "main.c" }, "stop" })
  lu.assertEquals((ollama_stream(s:next("after the tool"))), "It is C.")
  lu.assertStrContains(prompts[2], "int main;")
  lu.assertEquals((ollama_stream(s:next("completion"))), "in() {}")
  lu.assertEquals(prompts[3], "int ma", "raw: no template")
  lu.assertEquals(#s:next("index").json.embeddings, 2)
  lu.assertEquals(ctx.pool.loaded["tiny:latest"].keep, 1800)
  s:over()
end

function TestSessions:test_browser()
  local s = open("browser")
  script("Hi page.")
  local r = s:next("preflight")
  lu.assertEquals({ r.status, r.body, r.headers["access-control-allow-origin"] }, { 204, "", "http://localhost:5173" })
  local allowed = r.headers["access-control-allow-headers"]:lower()
  for _, h in ipairs({ "authorization", "content-type", "x-stainless-lang", "x-conversation-id" }) do lu.assertStrContains(allowed, h) end
  lu.assertStrContains(r.headers["access-control-allow-methods"], "POST")
  r = s:next("fetch")
  lu.assertEquals({ r.status, r.headers["access-control-allow-origin"], r.headers.vary }, { 200, "http://localhost:5173", "Origin" })
  local text = ""
  for _, e in ipairs(client.sse(r.body)) do text = text .. (e.data ~= "[DONE]" and e.data.choices[1].delta.content or "") end
  lu.assertEquals(text, "Hi page.")
  r = s:next("error")
  lu.assertEquals({ r.status, r.headers["access-control-allow-origin"] }, { 404, "http://localhost:5173" }, "a page can read errors too")
  s:over()
  -- A page of elsewhere gets no leave, and its request is not run.
  local evil = { Origin = "https://evil.example", ["Access-Control-Request-Method"] = "POST" }
  r = client.request(port, "OPTIONS", "/v1/chat/completions", nil, evil)
  lu.assertEquals({ r.status, r.headers["access-control-allow-origin"] }, { 204 })
  lu.assertEquals(client.request(port, "POST", "/v1/chat/completions", '{"model":"tiny"}', evil).status, 403)
  lu.assertEquals(client.request(port, "GET", "/api/tags", nil, { Origin = "null" }).status, 403)
end

-- A page's WebSocket carries its Origin: ours is let in, another is not.
function TestSessions:test_browser_websocket()
  script("Hi socket.")
  local key = "dGhlIHNhbXBsZSBub25jZQ=="
  local function connect(from)
    local c = client.connect(port)
    c:send("GET /v1/chat/ws HTTP/1.1\r\nHost: 127.0.0.1:" .. port .. "\r\nOrigin: " .. from
      .. "\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Key: " .. key .. "\r\n\r\n")
    return c
  end
  local c = connect("http://localhost:5173")
  lu.assertTrue(c:until_found("101 Switching"))
  lu.assertStrContains(c.data, "Sec-WebSocket-Accept: " .. websocket.accept_key(key))
  lu.assertNotStrContains(c.data:lower(), "sec-websocket-extensions")
  local text = cjson.encode({ model = "tiny", messages = { { role = "user", content = "hi" } } })
  local mask, out = "\1\2\3\4", {}
  for i = 1, #text do out[i] = string.char(text:byte(i) ~ mask:byte((i - 1) % 4 + 1)) end
  c:send(string.char(0x81, 0x80 | #text) .. mask .. table.concat(out))
  lu.assertTrue(c:until_found('"type":"done"'))
  lu.assertStrContains(c.data, '"delta":"socket.')
  c:close()
  local evil = connect("https://evil.example")
  lu.assertTrue(evil:until_found("HTTP/1.1 403"))
  evil:close()
end
