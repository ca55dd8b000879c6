-- SPDX-License-Identifier: MIT
-- OpenAI's /v1/responses: body -> neutral request (api.md, 2.5). The replies are
-- in responses_reply.lua.
local check = require("mtx.api.check")
local custom_tool = require("mtx.api.custom_tool")
local json = require("mtx.json")
local messages = require("mtx.api.messages")
local openai = require("mtx.api.openai")
local request = require("mtx.api.request")

local responses = {}

local get, fail = check.get, check.fail
local ROLES = { user = "user", assistant = "assistant", system = "system", developer = "system" }
local part = openai.part("input_image")

-- One input item -> neutral message(s) appended to out. A call joins the
-- assistant message before it, so that one turn stays one message.
local function item(it, where, out)
  local kind = get(it, "type") or (get(it, "role") and "message")
  local last = out[#out]
  if kind == "message" then
    local role = ROLES[check.string(it, "role", where .. ".role") or ""]
    if not role then fail(400, where .. ".role must be user, assistant, system or developer") end
    local text, images = messages.content(get(it, "content"), where .. ".content", part)
    out[#out + 1] = { role = role, content = text or "", images = images }
    if role == "assistant" and last and last.role == "assistant" and last.only_reasoning then
      out[#out].reasoning_content = last.reasoning_content
      table.remove(out, #out - 1)
    end
  elseif kind == "function_call" then
    local call = messages.call(get(it, "name"), get(it, "arguments"), check.string(it, "call_id", where .. ".call_id"), where)
    if not last or last.role ~= "assistant" then
      last = { role = "assistant", content = "" }
      out[#out + 1] = last
    end
    last.only_reasoning = nil
    last.tool_calls = last.tool_calls or {}
    table.insert(last.tool_calls, call)
  elseif kind == "custom_tool_call" then
    return item({ type = "function_call", name = get(it, "name"), call_id = get(it, "call_id"),
      arguments = custom_tool.arguments(it, where) }, where, out)
  elseif kind == "function_call_output" or kind == "custom_tool_call_output" then
    local id = check.string(it, "call_id", where .. ".call_id")
    if not id then fail(400, where .. ".call_id is required") end
    local text, images = messages.content(get(it, "output"), where .. ".output", part)
    out[#out + 1] = { role = "tool", content = text or "", images = images, tool_call_id = id }
  elseif kind == "reasoning" then
    local texts = {}
    for _, s in ipairs(check.array(it, "summary", where .. ".summary") or {}) do texts[#texts + 1] = type(s) == "table" and s.text or nil end
    out[#out + 1] = { role = "assistant", content = "", reasoning_content = table.concat(texts), only_reasoning = true }
  else
    fail(400, where .. ".type " .. tostring(kind):sub(1, 40) .. " is not supported")
  end
end

-- input (string or items) -> neutral messages.
function responses.input(input)
  if type(input) == "string" then return { { role = "user", content = input } } end
  if not check.is_array(input) or #input == 0 then fail(400, "input must be a string or a non-empty array", { param = "input" }) end
  if #input > request.MAX.messages then fail(400, "input has too many items", { param = "input" }) end
  local out = {}
  for i, it in ipairs(input) do
    local where = "input[" .. (i - 1) .. "]"
    if type(it) ~= "table" then fail(400, where .. " must be an object") end
    item(it, where, out)
  end
  return out
end

-- Tools that OpenAI's own servers run. Clients offer them on every request; a model
-- here cannot call them, so they are left out of its prompt (and stay in the echo).
local HOSTED = { web_search = true, web_search_preview = true, file_search = true, code_interpreter = true, image_generation = true, computer_use_preview = true,
  mcp = true }

local function hosted(kind) return type(kind) == "string" and (HOSTED[kind] or HOSTED[kind:gsub("_%d[%d_]*$", "")]) end

-- Function tools are flat here.
local function tools(body, r)
  local list = check.array(body, "tools", nil, request.MAX.tools)
  if not list or #list == 0 then return nil end
  local out = {}
  for i, t in ipairs(list) do
    local where = "tools[" .. (i - 1) .. "]"
    if type(t) ~= "table" then fail(400, where .. " must be an object") end
    if t.type == "function" then
      local f = json.object("name", get(t, "name"), "description", get(t, "description"), "parameters", get(t, "parameters"))
      messages.tool(f, where)
      out[#out + 1] = json.object("type", "function", "function", f)
    elseif t.type == "custom" then
      out[#out + 1] = custom_tool.read(t, where, r)
    elseif not hosted(t.type) then
      fail(400, where .. ": tools of type " .. tostring(t.type):sub(1, 40) .. " are not supported")
    end
  end
  return #out > 0 and out or nil
end

local function text_format(body)
  local text = check.object(body, "text")
  local f = text and check.object(text, "format", "text.format")
  if not f then return nil end
  local kind = check.one_of(f, "type", { "text", "json_object", "json_schema" }, "text.format.type")
  if kind == "json_object" then return { kind = "json" } end
  if kind == "json_schema" then
    local s = check.object(f, "schema", "text.format.schema")
    if not s then fail(400, "text.format.schema is required") end
    return { kind = "schema", schema = s, strict = check.boolean(f, "strict", "text.format.strict") }
  end
end

-- body -> request; request.previous is the id to chain from, request.echo_fields
-- what the reply repeats. Earlier turns are put in front by the caller.
function responses.decode(body)
  local r = openai.common(body, { dialect = "openai", task = "chat" })
  r.n = 1
  local input = get(body, "input")
  if input == nil then fail(400, "input is required", { param = "input" }) end
  r.messages = responses.input(input)
  r.input = input
  r.instructions = check.string(body, "instructions")
  r.tools = tools(body, r)
  r.tool_choice = messages.tool_choice(get(body, "tool_choice"), r.tools)
  r.parallel_tool_calls = check.boolean(body, "parallel_tool_calls")
  r.format = text_format(body)
  r.max_tokens = check.integer(body, "max_output_tokens", 1)
  r.truncate = check.one_of(body, "truncation", { "disabled", "auto" }) == "auto" -- the oldest turns go first
  local reasoning = check.object(body, "reasoning")
  if reasoning then
    local effort = check.one_of(reasoning, "effort", { "none", "minimal", "low", "medium", "high", "xhigh", "max" }, "reasoning.effort")
    if effort then r.think = effort ~= "none" and (effort == "minimal" and "low" or effort == "xhigh" and "max" or effort) end
  end
  r.store = check.boolean(body, "store")
  if r.store == nil then r.store = true end
  r.previous = check.string(body, "previous_response_id")
  if get(body, "conversation") ~= nil then fail(400, "conversation is not supported; chain with previous_response_id", { param = "conversation" }) end
  if check.boolean(body, "background") then fail(400, "background is not supported; use stream", { param = "background" }) end
  r.metadata = check.object(body, "metadata")
  r.merge_turns = check.boolean(body, "merge_turns")
  local null = json.null
  r.echo_fields = { instructions = r.instructions or null, tools = get(body, "tools") or json.array(), tool_choice = get(body, "tool_choice") or "auto",
    parallel_tool_calls = r.parallel_tool_calls ~= false, text = get(body, "text") or { format = { type = "text" } },
    temperature = get(body, "temperature") or 1, top_p = get(body, "top_p") or 1, truncation = get(body, "truncation") or "disabled",
    reasoning = get(body, "reasoning") or { effort = null, summary = null }, store = r.store, metadata = r.metadata or {},
    max_output_tokens = r.max_tokens or null, previous_response_id = r.previous or null, user = null }
  return r
end

return responses
