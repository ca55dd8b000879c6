-- SPDX-License-Identifier: MIT
-- Changes to a list of messages that make it fit what a template can take.
--
-- Pure functions: lists in, new lists out, nothing of the caller's is changed.
-- A message is {role, content (string | list of parts | nil), reasoning_content,
-- tool_calls, tool_call_id, name}; tool_calls[i]["function"].arguments may be an
-- object or its JSON text.
local json = require("mtx.json")

local shape = {}

local PYTHON = { item_separator = ", ", key_separator = ": ", source = true }

local function absent(v) return v == nil or v == json.null end

--- The text of a content: a string, the joined text parts, "" for none. A part
--- that is no text: nil, message (where: "messages[2]", for the message).
function shape.text(content, where)
  if absent(content) then return "" end
  if type(content) ~= "table" then return tostring(content) end
  local parts = {}
  for i, part in ipairs(content) do
    local text = type(part) == "string" and part or type(part) == "table" and type(part.text) == "string" and part.text
    if not text then
      return nil, ("%s.content[%d]: this model's template takes text only, not a part of type '%s'"):format(where, i - 1, type(part) == "table" and tostring(part.type) or type(part))
    end
    parts[i] = text
  end
  return table.concat(parts, "\n")
end

local function arguments_as(arguments, form)
  if form == "string" and type(arguments) == "table" then return (json.encode(arguments, PYTHON)) end
  if form == "object" and type(arguments) == "string" then
    if arguments == "" then return json.object() end
    local value = json.decode(arguments)
    if json.is_object(value) then return value end
  end
  return arguments
end

--- What a template sees of a message. take: {parts = a list of parts is wanted,
--- arguments = "object" | "string", thought_field and thought_alone as in probe.lua}. nil, message if the content cannot be shown.
function shape.visible(m, index, take)
  local content, message
  if take.parts then
    content = type(m.content) == "table" and m.content ~= json.null and m.content or json.array{ json.object("type", "text", "text", shape.text(m.content, "")) }
  else
    content, message = shape.text(m.content, ("messages[%d]"):format(index - 1))
    if not content then return nil, message end
  end
  local calls
  if not absent(m.tool_calls) and #m.tool_calls > 0 then
    calls = json.array()
    for i, c in ipairs(m.tool_calls) do
      local f = c["function"]
      calls[i] = json.object("id", c.id, "type", "function", "function", json.object("name", f.name, "arguments", arguments_as(f.arguments, take.arguments)))
    end
  end
  local reasoning = not absent(m.reasoning_content) and m.reasoning_content or nil
  if reasoning and calls and take.thought_alone and type(content) == "string" and content ~= "" then
    reasoning, content = reasoning .. "\n" .. content, ""
  end
  return json.object("role", m.role, "content", content, take.thought_field or "reasoning_content", reasoning, "tool_calls", calls, "tool_call_id", m.tool_call_id, "name", m.name)
end

local function copy(m)
  local out = {}
  for k, v in pairs(m) do out[k] = v end
  return out
end

--- Role developer becomes system.
function shape.roles(messages)
  local out = {}
  for i, m in ipairs(messages) do
    out[i] = m
    if m.role == "developer" then
      out[i] = copy(m)
      out[i].role = "system"
    end
  end
  return out
end

--- True if a system turn stands anywhere but first.
function shape.has_late_system(messages)
  for i = 2, #messages do if messages[i].role == "system" then return true end end
  return false
end

local function joined(a, b) return (a ~= "" and b ~= "") and a .. "\n\n" .. b or a .. b end

--- All system turns as one at the front.
function shape.system_to_front(messages)
  local system, rest = nil, {}
  for _, m in ipairs(messages) do
    if m.role == "system" then system = joined(system or "", shape.text(m.content, "") or "") else rest[#rest + 1] = m end
  end
  if system then table.insert(rest, 1, { role = "system", content = system }) end
  return rest
end

--- The leading system turn put before the text of the first user turn; without a
--- user turn it becomes one.
function shape.system_to_user(messages)
  local first = messages[1]
  if not first or first.role ~= "system" then return messages end
  local out, folded, system = {}, false, shape.text(first.content, "") or ""
  for i = 2, #messages do
    local m = messages[i]
    if not folded and m.role == "user" then
      m, folded = copy(m), true
      if type(m.content) == "table" and m.content ~= json.null then
        m.content = table.move(m.content, 1, #m.content, 2, json.array{ json.object("type", "text", "text", system) })
      else
        m.content = joined(system, shape.text(m.content, ""))
      end
    end
    out[#out + 1] = m
  end
  if not folded then table.insert(out, 1, { role = "user", content = system }) end
  return out
end

--- Neighbouring turns of one role (user or assistant without calls) become one.
function shape.merge(messages)
  local out = {}
  for _, m in ipairs(messages) do
    local last = out[#out]
    if last and last.role == m.role and (m.role == "user" or m.role == "assistant") and absent(last.tool_calls) and absent(m.tool_calls) then
      local merged = copy(last)
      merged.content = joined(shape.text(last.content, "") or "", shape.text(m.content, "") or "")
      if not absent(m.reasoning_content) then merged.reasoning_content = joined(absent(last.reasoning_content) and "" or last.reasoning_content, m.reasoning_content) end
      out[#out] = merged
    else
      out[#out + 1] = m
    end
  end
  return out
end

--- For templates that do not show calls: these become text of the assistant. Unless
--- keep_results, results become user turns. So nothing of the history is lost.
function shape.tools_to_text(messages, keep_results)
  local out = {}
  for i, m in ipairs(messages) do
    if m.role == "tool" and not keep_results then
      m = { role = "user", content = joined("Result" .. (m.name and " of " .. m.name or "") .. ":", shape.text(m.content, "") or "") }
    elseif not absent(m.tool_calls) and #m.tool_calls > 0 then
      local text = shape.text(m.content, "") or ""
      for _, c in ipairs(m.tool_calls) do
        text = joined(text, (json.encode(json.object("name", c["function"].name, "arguments", arguments_as(c["function"].arguments, "object")), PYTHON)))
      end
      m = copy(m)
      m.content, m.tool_calls = text, nil
    end
    out[i] = m
  end
  return keep_results and out or shape.merge(out)
end

--- An assistant turn with text and calls becomes two turns.
function shape.split_calls(messages)
  local out = {}
  for _, m in ipairs(messages) do
    if not absent(m.tool_calls) and #m.tool_calls > 0 and shape.text(m.content, "") ~= "" then
      out[#out + 1] = { role = m.role, content = m.content, reasoning_content = m.reasoning_content }
      m = copy(m)
      m.content, m.reasoning_content = nil, nil
    end
    out[#out + 1] = m
  end
  return out
end

return shape
