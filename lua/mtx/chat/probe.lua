-- SPDX-License-Identifier: MIT
-- What a template can take, found by rendering small conversations through it.
--
-- Words in the source mislead (a template may name `tools` only to refuse them);
-- what a render shows does not. probe(renders) calls renders(messages, tools,
-- kwargs) -> text or nil, and gives the set
--   system        a leading system turn shows      system_late  one later in the chat shows
--   tools         tool definitions show            tool_role    results of calls show
--   tool_calls    an assistant's calls show        calls_beside_text  they do next to a text
--   arguments     "object" or "string": the form of a call's arguments that comes out as JSON
--   parts         content must be a list of parts  thinking     the name of the switch (enable_thinking or
--                 thinking) that changes the prompt
--   reasoning     the template knows thoughts: it has a switch or an effort for them, prints or cuts those
--                 of earlier turns, or opens them for the model
--   thought_field the message field whose thoughts show before a call (reasoning_content, thinking, reasoning)
--   thought_alone a turn with calls cannot have both a thought and a text
local json = require("mtx.json")

local WORD = "Zqprobe7"

local function turn(role, content, more)
  local m = json.object("role", role, "content", content)
  for k, v in pairs(more or {}) do m[k] = v end
  return m
end

local function shows(text, word) return text ~= nil and text:find(word, 1, true) ~= nil end

local TOOLS = json.array{ json.object("type", "function", "function", json.object("name", WORD, "description", "d",
  "parameters", json.object("type", "object", "properties", json.object("Zqkey", json.object("type", "string", "description", "k")), "required", json.array{ "Zqkey" }))) }

local function call_history(arguments, text, beside)
  local call = json.object("id", "abcdefghi", "type", "function", "function", json.object("name", "f", "arguments", arguments))
  local calls = json.array{ call }
  return json.array{ turn("user", text("x")), turn("assistant", text(beside or ""), { tool_calls = calls }), turn("tool", text(WORD), { tool_call_id = "abcdefghi", name = "f" }) }
end

-- Whether anything about thoughts shows in the prompts.
local function knows_thoughts(renders, text, arguments)
  local question = json.array{ turn("user", text("x")) }
  local prompt = renders(question)
  if prompt and prompt:find("<think>%s*$") then return true end
  local low, high = renders(question, nil, { reasoning_effort = "low" }), renders(question, nil, { reasoning_effort = "high" })
  if low and high and low ~= high then return true end
  -- Some templates print the thoughts of the last turn only, some only those before a call.
  local thought = { reasoning_content = WORD, reasoning = WORD, thinking = WORD }
  if shows(renders(json.array{ turn("user", text("x")), turn("assistant", text("y"), thought) }), WORD) then return true end
  local calls = json.array{ json.object("id", "abcdefghi", "type", "function", "function", json.object("name", "f", "arguments", arguments)) }
  local before_call = turn("assistant", text(""), { tool_calls = calls, reasoning_content = WORD, reasoning = WORD, thinking = WORD })
  local result = turn("tool", text("r"), { tool_call_id = "abcdefghi", name = "f" })
  if shows(renders(json.array{ turn("user", text("x")), before_call, result }), WORD) then return true end
  local earlier = renders(json.array{ turn("user", text("x")), turn("assistant", text("<think>\n" .. WORD .. "\n</think>\n\ny")), turn("user", text("z")) })
  return earlier ~= nil and not shows(earlier, WORD)
end

-- thought_field and thought_alone.
local function thoughts_of_calls(can, renders, text, arguments)
  local function history(field, content)
    local calls = json.array{ json.object("id", "abcdefghi", "type", "function", "function", json.object("name", "f", "arguments", arguments)) }
    return json.array{ turn("user", text("x")), turn("assistant", text(content), { tool_calls = calls, [field] = WORD }), turn("tool", text("r"), { tool_call_id = "abcdefghi", name = "f" }) }
  end
  for _, field in ipairs{ "reasoning_content", "thinking", "reasoning" } do
    if shows(renders(history(field, "")), WORD) then
      can.thought_field, can.thought_alone = field, renders(history(field, "y")) == nil
      return
    end
  end
end

return function(renders)
  local can = {}
  local function plain(s) return s end
  local function as_parts(s) return json.array{ json.object("type", "text", "text", s) } end
  local text = plain
  if not shows(renders(json.array{ turn("user", WORD) }), WORD) and shows(renders(json.array{ turn("user", as_parts(WORD)) }), WORD) then
    can.parts, text = true, as_parts
  end
  can.system = shows(renders(json.array{ turn("system", text(WORD)), turn("user", text("x")) }), WORD)
  can.system_late = shows(renders(json.array{ turn("user", text("x")), turn("assistant", text("y")), turn("system", text(WORD)), turn("user", text("z")) }), WORD)
  can.tools = shows(renders(json.array{ turn("user", text("x")) }, TOOLS), WORD)
  local object = renders(call_history(json.object("Zqarg", "v"), text))
  local str = renders(call_history('{"Zqarg": "v"}', text))
  -- An object that prints with Python's quotes, or not at all, was meant to be text.
  local object_shows = shows(object, "Zqarg") and not shows(object, "'Zqarg'")
  can.arguments = (not object_shows and shows(str, '"Zqarg"')) and "string" or "object"
  local history = can.arguments == "string" and str or object
  can.calls_beside_text = shows(renders(call_history(can.arguments == "string" and '{"Zqarg": "v"}' or json.object("Zqarg", "v"), text, "y")), "Zqarg")
  can.tool_calls, can.tool_role = shows(history, "Zqarg"), shows(history, WORD)
  for _, name in ipairs{ "enable_thinking", "thinking" } do
    local history = json.array{ turn("user", text("x")) }
    if renders(history, nil, { [name] = true }) ~= renders(history, nil, { [name] = false }) then can.thinking = name end
  end
  local arguments = can.arguments == "string" and '{"Zqarg": "v"}' or json.object("Zqarg", "v")
  can.reasoning = can.thinking ~= nil or knows_thoughts(renders, text, arguments)
  if can.reasoning then thoughts_of_calls(can, renders, text, arguments) end
  return can
end
