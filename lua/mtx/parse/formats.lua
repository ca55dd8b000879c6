-- SPDX-License-Identifier: MIT
-- The tool-call formats of model families: how a template shows that it uses one,
-- the marks around calls, and calls(body) -> list of {name, arguments = JSON text} | nil.
-- `inner`: further marks that are control tokens in the vocabularies. `close` nil: the calls run to the end of the answer. Facts: the families' own chat
-- templates (tests/golden/chat).
local json = require("mtx.json")

local function has(template, ...)
  for _, mark in ipairs({ ... }) do
    if not template:find(mark, 1, true) then return false end
  end
  return true
end

local function arguments_text(value)
  if value == nil or value == json.null then return "{}" end
  if type(value) == "string" then return json.is_object(json.decode(value)) and value or nil end
  return json.is_object(value) and json.encode(value) or nil
end

-- {"name": ..., "arguments"|"parameters": ...} under its family's names.
local function json_call(v)
  if not json.is_object(v) then return nil end
  local name = v.name or v.tool_name
  if type(name) ~= "string" or name == "" then return nil end
  local args = v.arguments
  if args == nil then args = v.parameters end
  local text = arguments_text(args)
  return text and { name = name, arguments = text }
end

-- One JSON call, or a list of them.
local function json_calls(body)
  local v = json.decode((body:gsub("^%s+", ""):gsub("%s+$", "")))
  if json.is_object(v) then v = { v } end
  if type(v) ~= "table" then return nil end
  local calls = {}
  for i, item in ipairs(v) do
    calls[i] = json_call(item)
    if not calls[i] then return nil end
  end
  return calls
end

-- A parameter written as plain text: JSON where it is JSON of another kind than a string.
local function plain_value(text)
  local v = json.decode(text)
  if v == nil or type(v) == "string" then return text end
  return v
end

-- name="..." pieces: <parameter=key>value</parameter> and its like.
local function parameters(body, pattern)
  local args = json.object()
  for key, value in body:gmatch(pattern) do
    args[key] = plain_value((value:gsub("^\n", ""):gsub("\n$", "")))
  end
  return args
end

-- calls() of a format whose calls are a name around parameters; patterns: of (name, inside) and of (key, value).
local function tagged_calls(call, parameter)
  return function(body)
    local calls = {}
    for name, inner in body:gmatch(call) do calls[#calls + 1] = { name = name, arguments = json.encode(parameters(inner, parameter)) } end
    return calls
  end
end

-- {json} after a name: "name" .. gap .. "{...}".
local function named_json(name, text)
  local args = arguments_text(json.decode(text))
  return args and name ~= "" and { name = name, arguments = args } or nil
end

local formats = {}
local function add(f) formats[#formats + 1] = f end

-- Mistral: [TOOL_CALLS] then a JSON list, or (v11 on) name[ARGS]{...} for each call.
add({
  name = "mistral", open = { "[TOOL_CALLS]" }, inner = { "[ARGS]", "[CALL_ID]" },
  detect = function(t) return has(t, "[TOOL_CALLS]") end,
  calls = function(body)
    if not body:find("[ARGS]", 1, true) then return json_calls(body) end
    local calls = {}
    for part in (body .. "[TOOL_CALLS]"):gmatch("(.-)%[TOOL_CALLS%]") do
      local name, args = part:match("^%s*([^%[%s]+)%s*%[ARGS%](.*)$")
      if not name then return nil end
      name = name:gsub("%[CALL_ID%].*", "")
      calls[#calls + 1] = named_json(name, args)
      if not calls[#calls] then return nil end
    end
    return calls
  end,
})

-- DeepSeek R1 (```json fence, "function" before the name) and V3.1 (bare JSON).
add({
  name = "deepseek", open = { "<｜tool▁calls▁begin｜>" }, close = { "<｜tool▁calls▁end｜>" },
  inner = { "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>" },
  detect = function(t) return has(t, "<｜tool▁calls▁begin｜>") end,
  calls = function(body)
    local calls = {}
    for part in body:gmatch("<｜tool▁call▁begin｜>(.-)<｜tool▁call▁end｜>") do
      local head, rest = part:match("^(.-)<｜tool▁sep｜>(.*)$")
      if not head then return nil end
      local name, fenced = rest:match("^%s*([^\n]+)\n```json\n(.-)\n?```%s*$")
      calls[#calls + 1] = name and named_json(name, fenced) or named_json(head, rest)
      if not calls[#calls] then return nil end
    end
    return calls
  end,
})

-- Kimi K2: functions.NAME:INDEX before each call's JSON.
add({
  name = "kimi", open = { "<|tool_calls_section_begin|>" }, close = { "<|tool_calls_section_end|>" },
  inner = { "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>" },
  detect = function(t) return has(t, "<|tool_calls_section_begin|>") end,
  calls = function(body)
    local calls = {}
    for id, args in body:gmatch("<|tool_call_begin|>(.-)<|tool_call_argument_begin|>(.-)<|tool_call_end|>") do
      local name = id:match("^%s*functions%.(.-):%d+%s*$") or id:match("^%s*(.-)%s*$")
      calls[#calls + 1] = named_json(name, args)
      if not calls[#calls] then return nil end
    end
    return calls
  end,
})

-- GLM 4.5 on: name, then <arg_key>, <arg_value> pairs.
add({
  name = "glm", open = { "<tool_call>" }, close = { "</tool_call>" },
  detect = function(t) return has(t, "<arg_key>", "<tool_call>") end,
  calls = function(body)
    local name = body:match("^%s*([^\n<]+)")
    if not name then return nil end
    local args = parameters(body, "<arg_key>(.-)</arg_key>%s*<arg_value>(.-)</arg_value>")
    return { { name = name:match("^(.-)%s*$"), arguments = json.encode(args) } }
  end,
})

-- Qwen3-Coder, Qwen 3.5, Nemotron 3, Seed-OSS: <function=NAME><parameter=KEY>value.
add({
  name = "qwen_xml", open = { "<tool_call>", "<seed:tool_call>" }, close = { "</tool_call>", "</seed:tool_call>" },
  detect = function(t) return has(t, "<function=", "<parameter=") end,
  calls = tagged_calls("<function=([^>\n]+)>(.-)</function>", "<parameter=([^>\n]+)>(.-)</parameter>"),
})

-- Functionary 3.1: <function=NAME>{json}</function>, without a frame.
add({
  name = "functionary", open = { "<function=" }, close = { "</function>" },
  detect = function(t) return has(t, "<function=") end,
  calls = function(body)
    local name, args = body:match("^([^>\n]+)>(.*)$")
    return name and { named_json(name, args) }
  end,
})

-- MiniMax M2: <invoke name="..."><parameter name="...">value.
add({
  name = "minimax", open = { "<minimax:tool_call>" }, close = { "</minimax:tool_call>" },
  detect = function(t) return has(t, "<minimax:tool_call>") or has(t, "minimax:tool_call", "<invoke name=") end,
  calls = tagged_calls('<invoke name="([^"]+)">(.-)</invoke>', '<parameter name="([^"]+)">(.-)</parameter>'),
})

-- Command R7B: a JSON list between action marks; Command R+ writes Action: and a fence.
add({
  name = "cohere", open = { "<|START_ACTION|>" }, close = { "<|END_ACTION|>" },
  detect = function(t) return has(t, "<|START_ACTION|>") end,
  calls = json_calls,
})
add({
  name = "command_r", open = { "Action: ```json\n", "Action:```json\n" }, close = { "```" },
  detect = function(t) return has(t, "Action:", "```json") end,
  calls = json_calls,
})

-- LFM2: a list of calls as Python writes them, [name(key="value", n=1)].
local function python_value(s)
  if s == "True" then return true elseif s == "False" then return false elseif s == "None" then return json.null end
  local quoted = s:match("^'(.*)'$")
  if quoted then return quoted:gsub("\\'", "'") end
  return json.decode(s)
end

add({
  name = "lfm2", open = { "<|tool_call_start|>" }, close = { "<|tool_call_end|>" },
  detect = function(t) return has(t, "<|tool_call_start|>") or has(t, "tool_call_start") end,
  calls = function(body)
    local list = body:match("^%s*%[(.*)%]%s*$")
    if not list then return nil end
    local as_json = json_calls(body)
    if as_json and #as_json > 0 then return as_json end
    local calls = {}
    for name, inner in list:gmatch("([%w_%.%-]+)(%b())") do
      local args, rest = json.object(), inner:sub(2, -2)
      while rest:match("%S") do
        local key, after = rest:match("^[%s,]*([%w_]+)%s*=%s*(.*)$")
        if not key then return nil end
        local value = after:match('^"[^"\\]*"') or after:match("^'[^'\\]*'") or after:match("^%b[]") or after:match("^%b{}") or after:match("^[^,]+")
        local v = value and python_value(value:match("^(.-)%s*$"))
        if v == nil then return nil end
        args[key], rest = v, after:sub(#value + 1)
      end
      calls[#calls + 1] = { name = name, arguments = json.encode(args) }
    end
    return calls
  end,
})

-- Granite 3 and Phi-4: one mark, then a JSON list to the end.
add({
  name = "granite", open = { "<|tool_call|>" }, close = nil, inner = { "<|/tool_call|>" },
  detect = function(t) return has(t, "<|tool_call|>") end,
  calls = function(body) return json_calls((body:gsub("<|/tool_call|>%s*$", ""))) end,
})
add({ name = "firefunction", open = { "functools" }, close = nil, detect = function(t) return has(t, "functools[") end, calls = json_calls })

-- Llama 3.x: JSON after the Python mark (or alone, which output.lua reads).
add({
  name = "llama3", open = { "<|python_tag|>" }, close = nil, bare_json = true,
  detect = function(t) return has(t, "<|python_tag|>") end,
  calls = function(body)
    local calls = {}
    for part in (body .. ";"):gmatch("(.-});") do
      local more = json_calls(part)
      if not more then return nil end
      table.move(more, 1, #more, #calls + 1, calls)
    end
    return calls
  end,
})

return formats
