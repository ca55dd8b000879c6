-- SPDX-License-Identifier: MIT
-- A Lua function in place of a chat template: f(messages, tools, kwargs) -> text.
--
-- Only what the function itself writes may become control tokens. To tell it from
-- the users' text, every string of the request (but for roles and ids of the
-- shape) reaches the function between two marks that occur nowhere in it; they are
-- taken out of the result, and what stood between them lies outside all spans. Where
-- a function cut a string so that one mark is lost, the text beside the other stays outside.
local json = require("mtx.json")

local UNMARKED = { role = true, type = true, id = true, tool_call_id = true }

local function strings_of(v, out)
  if type(v) == "string" then
    out[#out + 1] = v
  elseif type(v) == "table" then
    for _, item in pairs(v) do strings_of(item, out) end
  end
  return out
end

local function marked(v, open, close)
  if type(v) == "string" then return v ~= "" and open .. v .. close or v end
  if type(v) ~= "table" or v == json.null then return v end
  local out = json.is_object(v) and json.object() or json.is_array(v) and json.array() or {}
  for k, item in pairs(v) do out[k] = (UNMARKED[k] and type(item) == "string") and item or marked(item, open, close) end
  return out
end

-- Takes the marks out; the bytes outside of them are the spans.
local function split(text, open, close)
  local parts, spans, at, depth, pos = {}, {}, 0, 0, 1
  local function add(piece, closes)
    if piece == "" then return end
    if depth == 0 and not closes then spans[#spans + 1] = { at + 1, at + #piece } end
    parts[#parts + 1] = piece
    at = at + #piece
  end
  while true do
    local i, j = text:find(open, pos, true)
    local k, l = text:find(close, pos, true)
    if not i and not k then break end
    if i and (not k or i < k) then
      add(text:sub(pos, i - 1))
      depth, pos = depth + 1, j + 1
    else
      add(text:sub(pos, k - 1), true)
      depth, pos = math.max(depth - 1, 0), l + 1
    end
  end
  add(text:sub(pos))
  return table.concat(parts), spans
end

--- -> text, spans | nil, message, code
return function(f, messages, tools, kwargs)
  local all, n = table.concat(strings_of({ messages, tools or {} }, {}), "\0"), 0
  while all:find("\2" .. n, 1, true) or all:find("\3" .. n, 1, true) do n = n + 1 end
  local open, close = "\2" .. n .. "\2", "\3" .. n .. "\3"
  local ok, text = pcall(f, marked(messages, open, close), marked(tools, open, close), kwargs)
  if not ok then
    return nil, "the template function failed: " .. tostring(text), "template_error"
  end
  if type(text) ~= "string" then return nil, "the template function must return a string", "template_error" end
  return split(text, open, close)
end
