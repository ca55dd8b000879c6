-- SPDX-License-Identifier: MIT
-- Assistant turns with calls as the golden templates write them in a history, cut out of it: what the model itself would have written.
local json = require("mtx.json")
local render = require("mtx.chat.render")

local turns = {}

local GOLDEN = "tests/golden/chat/"

local function read(path)
  local file = assert(io.open(path, "rb"), path .. " is missing")
  local s = file:read("a")
  file:close()
  return s
end

local TOKENS = json.decode(read(GOLDEN .. "tokens.json"))
turns.TOOLS = json.decode([=[[
  {"type":"function","function":{"name":"get_weather","description":"W","parameters":{"type":"object","additionalProperties":false,"properties":
    {"city":{"type":"string","description":"c"},"days":{"type":"integer","description":"d"}},"required":["city"]}}},
  {"type":"function","function":{"name":"now","description":"N","parameters":{"type":"object","properties":{}}}}]]=])

-- What ends a turn, in the families' words.
local ENDS = { "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "</s>", "<|end_of_text|>", "<turn|>", "<|tool_response>", "<|call|>", "<｜end▁of▁sentence｜>", "<|END_OF_TURN_TOKEN|>",
  "<|observation|>", "<seed:eos>", "[e~[", "<SPECIAL_12>", "<|calls|>", "<|message_sep|>", "<end_of_sentence>", "\n</assistant>", "</assistant>", "<|role_end|>",
  "\n<|end|>", "\n\n<sep>", "<|assistant_end|>", "<|tool_calls_end|>", "[RESULT", "<｜hy_eos:opensource｜>", "<|eot|>", "<|end_of_msg|>" }

-- GigaChat 3.0 ends a turn that calls only where the result begins.
local OWN_ENDS = { ["GigaChat3-10B-A1.8B"] = { "function result" }, ["google-gemma-2-2b-it"] = { "<end_of_turn>" }, ["microsoft-Phi-3.5-mini-instruct"] = { "<|end|>" },
  ["vocab-phi-3"] = { "<|end|>" }, ["llama-cpp-rwkv-world"] = { "\n\nUser" } }

-- The names of all golden templates.
function turns.templates()
  local list, names = io.popen("ls " .. GOLDEN .. "templates"), {}
  for file in list:lines() do names[#names + 1] = assert(file:match("^(.*)%.jinja$"), file) end
  list:close()
  return names
end

function turns.call(id, name, arguments)
  return json.object("id", id, "type", "function", "function", json.object("name", name, "arguments", json.decode(arguments)))
end

function turns.conversation(assistant, result)
  local messages = { { role = "user", content = "USERTEXT" } }
  if assistant then
    messages[2] = assistant
    if result then messages[3] = { role = "tool", tool_call_id = assistant.tool_calls[1].id, name = assistant.tool_calls[1]["function"].name, content = "RESULT" } end
  end
  return messages
end

-- A golden template -> its source, a function messages -> text, and what it can take (chat/probe.lua). tools: turns.TOOLS if not given.
function turns.renderer(name, tools)
  local source, t = read(GOLDEN .. "templates/" .. name .. ".jinja"), TOKENS[name] or {}
  local r = assert(render.new({ template = source, bos_token = t.bos_token, eos_token = t.eos_token, now = "2026-03-14 15:09:26" }))
  return source, function(messages)
    local text, message = r:render({ messages = messages, tools = tools or turns.TOOLS, add_generation_prompt = not messages[2], kwargs = { enable_thinking = true } })
    return assert(text, message)
  end, r:capabilities()
end

-- What the model would have written after the prompt, in its template's words, up to the end of its turn; and the prompt as far as the
-- history goes on from it (which may hold no thought where the prompt opens one). nil, the history behind the user's words, where it does not.
function turns.written(name, show, assistant, thoughts)
  local prompt, all = show(turns.conversation()), show(turns.conversation(assistant, true))
  local rest
  for _, without in ipairs({ "", thoughts and thoughts.open or nil, thoughts and thoughts.open .. thoughts.close or nil }) do
    local head = prompt:match("^(.-)%s*$")
    head = without == "" and prompt or head:sub(-#without) == without and head:sub(1, -#without - 1)
    if head and all:sub(1, #head) == head then rest, prompt = all:sub(#head + 1), head break end
  end
  if not rest then return nil, all:match("^.-USERTEXT(.*)$") end
  local stop
  for _, e in ipairs(OWN_ENDS[name] or ENDS) do
    local i = rest:find(e, 1, true)
    if i and (not stop or i < stop) then stop = i end
  end
  return rest:sub(1, (stop or #rest + 1) - 1), prompt
end

return turns
