-- SPDX-License-Identifier: MIT
-- Tools for models whose template knows none: the tools are described in the
-- system turn, calls and results of the history become plain turns. The form is
-- the one that parse/ reads back.
local json = require("mtx.json")

local teach = {}

-- Calls of the history as the model wrote them, where that is known (call_texts.lua).
local OWN_WORDS = { source = true }

local function intro(tools)
  local lines = { "You can call these tools:" }
  for _, t in ipairs(tools) do lines[#lines + 1] = json.encode(t["function"]) end
  lines[#lines + 1] = 'To call one, answer with only <tool_call>{"name": "...", "arguments": {...}}</tool_call>. The result comes in the next turn.'
  return table.concat(lines, "\n")
end

-- messages, tools (may be nil) -> new list of system, user and assistant turns.
function teach.messages(messages, tools)
  local out = {}
  for i, m in ipairs(messages) do
    local last = out[#out]
    if m.role == "system" and i == 1 and tools then
      out[1] = { role = "system", content = m.content .. "\n\n" .. intro(tools) }
    elseif m.role == "tool" then
      local text = "Result" .. (m.name and " of " .. m.name or "") .. ": " .. m.content
      if last and last.role == "user" then last.content = last.content .. "\n" .. text else out[#out + 1] = { role = "user", content = text } end
    elseif m.tool_calls then
      local parts = { m.content ~= "" and m.content or nil }
      for _, c in ipairs(m.tool_calls) do
        parts[#parts + 1] = "<tool_call>" .. json.encode(json.object("name", c["function"].name, "arguments", c["function"].arguments), OWN_WORDS) .. "</tool_call>"
      end
      out[#out + 1] = { role = "assistant", content = table.concat(parts, "\n") }
    elseif m.role == "user" and last and last.role == "user" and last.joined then
      last.content = last.content .. "\n" .. m.content
    else
      out[#out + 1] = { role = m.role, content = m.content, images = m.images, reasoning_content = m.reasoning_content }
    end
    if m.role == "tool" then out[#out].joined = true end
  end
  if tools and (not messages[1] or messages[1].role ~= "system") then table.insert(out, 1, { role = "system", content = intro(tools) }) end
  return out
end

-- Whether the request needs it.
function teach.wanted(loaded, req)
  if loaded.can.tools then return false end
  if req.tools and req.tool_choice ~= "none" then return true end
  for _, m in ipairs(req.messages) do
    if m.role == "tool" or m.tool_calls then return true end
  end
  return false
end

return teach
