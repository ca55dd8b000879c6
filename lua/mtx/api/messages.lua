-- SPDX-License-Identifier: MIT
-- Messages and tools shared by the dialects: checks, folding into the neutral
-- form of request.lua, base64 images. What the server itself emits must be
-- accepted when it is sent back.
local check = require("mtx.api.check")
local json = require("mtx.json")
local request = require("mtx.api.request")

local messages = {}

local B64 = {}
for i, c in ipairs({ ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"):byte(1, -1) }) do B64[c] = i - 1 end
B64[45], B64[95] = 62, 63 -- the URL-safe letters

-- Base64 text (line breaks allowed) -> bytes, or nil.
function messages.from_base64(s)
  s = s:gsub("[\r\n \t]", ""):gsub("=+$", "")
  if s == "" or s:find("[^%w%+/%-_]") or #s % 4 == 1 then return nil end
  local out, n = {}, 0
  for i = 1, #s, 4 do
    local a, b, c, d = s:byte(i, i + 3)
    local v = B64[a] << 18 | B64[b] << 12 | (c and B64[c] or 0) << 6 | (d and B64[d] or 0)
    local part = string.char(v >> 16, v >> 8 & 255, v & 255)
    n = n + 1
    out[n] = d and part or part:sub(1, c and 2 or 1)
  end
  return table.concat(out)
end

-- An image given as base64 or data URI -> bytes; `where` names it in errors.
function messages.image(text, where)
  if type(text) ~= "string" then check.fail(400, where .. " must be a base64 string") end
  local media, data = text:match("^data:([%w/%.%+%-]*);base64,(.*)$")
  if text:find("^data:") and not data then check.fail(400, where .. " must be a base64 data URI") end
  if text:find("^https?://") or text:find("^file:") then check.fail(400, where .. ": images are not fetched; send the data as base64") end
  if media and media ~= "" and not media:find("^image/") then check.fail(400, where .. ": unsupported media type " .. media:sub(1, 40)) end
  local bytes = messages.from_base64(data or text)
  if not bytes or #bytes < 8 then check.fail(400, where .. " is not valid base64 image data") end
  return bytes
end

-- content: string, null, or a list of parts -> text, images. `part(p, where)` may
-- translate a part of the dialect's own kind: gives text or nil, image bytes.
function messages.content(content, where, part)
  if content == nil or content == json.null then return nil end
  if type(content) == "string" then return content end
  if not check.is_array(content) then check.fail(400, where .. " must be a string or an array of parts") end
  local texts, images = {}, nil
  for i, p in ipairs(content) do
    local at = where .. "[" .. (i - 1) .. "]"
    if type(p) == "string" then
      texts[#texts + 1] = p
    elseif type(p) ~= "table" then
      check.fail(400, at .. " must be an object")
    elseif p.type == "text" or p.type == "input_text" or p.type == "output_text" then
      texts[#texts + 1] = check.string(p, "text", at .. ".text") or ""
    else
      local text, image = part(p, at)
      if text then texts[#texts + 1] = text end
      if image then
        images = images or {}
        images[#images + 1] = image
      end
    end
  end
  return table.concat(texts), images
end

-- One tool call of the history -> neutral. arguments: object, or JSON text of one.
function messages.call(name, arguments, id, where)
  if type(name) ~= "string" or name == "" then check.fail(400, where .. ".function.name must be a string") end
  if arguments == nil or arguments == json.null or arguments == "" then arguments = json.object() end
  if type(arguments) == "string" then
    local value = json.decode(arguments)
    if not json.is_object(value) then check.fail(400, where .. ": arguments must be the JSON text of an object") end
    arguments = value
  end
  if not check.is_object(arguments) then check.fail(400, where .. ": arguments must be an object") end
  return { id = type(id) == "string" and id or nil, type = "function", ["function"] = { name = name, arguments = arguments } }
end

-- Tools of OpenAI's and Ollama's form. PHP clients send [] for an empty object. custom(tool, where), where there is
-- one, makes a function of a tool of type custom.
function messages.tools(t, custom)
  local list = check.array(t, "tools", nil, request.MAX.tools)
  if not list or #list == 0 then return nil end
  local out = {}
  for i, tool in ipairs(list) do
    local where = "tools[" .. (i - 1) .. "]"
    if type(tool) ~= "table" then check.fail(400, where .. " must be an object") end
    if custom and tool.type == "custom" then
      if type(tool.custom) ~= "table" then check.fail(400, where .. ".custom must be an object") end
      out[i] = custom(tool.custom, where .. ".custom")
      goto next
    end
    local f = tool["function"]
    if tool.type ~= nil and tool.type ~= "function" then check.fail(400, where .. ".type must be function" .. (custom and " or custom" or "")) end
    if type(f) ~= "table" then check.fail(400, where .. ".function must be an object") end
    messages.tool(f, where .. ".function")
    out[i] = tool
    ::next::
  end
  return out
end

-- Checks one function description in place. where: its place in the request; parameters: what the dialect calls them there.
function messages.tool(f, where, parameters)
  parameters = parameters or "parameters"
  local name = check.string(f, "name", where .. ".name")
  if not name or name == "" then check.fail(400, where .. ".name is required") end
  if #name > 256 then check.fail(400, where .. ".name is longer than 256 bytes") end
  check.string(f, "description", where .. ".description")
  local params = check.get(f, "parameters")
  if params == nil then return end
  if type(params) ~= "table" then check.fail(400, where .. "." .. parameters .. " must be an object") end
  if json.is_array(params) and #params == 0 then f.parameters = json.object("type", "object", "properties", json.object()) end
  local props = f.parameters.properties
  if json.is_array(props) then
    if #props > 0 then check.fail(400, where .. "." .. parameters .. ".properties must be an object") end
    f.parameters.properties = json.object()
  end
end

-- "auto" | "none" | "required" | {name}; checks that the named tool exists.
function messages.tool_choice(choice, tools)
  if choice == nil or choice == json.null then return nil end
  if choice == "auto" or choice == "none" or choice == "required" then
    if choice == "required" and not tools then check.fail(400, "tool_choice required needs tools") end
    return choice
  end
  local f = type(choice) == "table" and (choice["function"] or choice.custom or choice)
  local name = type(f) == "table" and f.name
  if type(name) ~= "string" then check.fail(400, "tool_choice must be auto, none, required or name a function") end
  for _, tool in ipairs(tools or {}) do
    if tool["function"].name == name then return { name = name } end
  end
  check.fail(400, "tool_choice names a function that is not in tools")
end

return messages
