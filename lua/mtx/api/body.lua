-- SPDX-License-Identifier: MIT
-- Request bodies: bytes -> table, or a message for a clear 400. Key order is
-- kept (tool schemas and arguments reach the model's prompt in the order
-- written), {} and [] stay apart, and half surrogates become U+FFFD.
local json = require("mtx.json")

local body = {}

body.null = json.null

local function decode(text, is, what)
  if not text:find("[^ \t\r\n]") then return nil, "missing request body" end
  if not utf8.len(text) then return nil, "the request body is not valid UTF-8" end
  local value, message = json.decode(text)
  if value == nil then return nil, message end
  if not is(value) then return nil, "the request body must be a JSON " .. what end
  return value
end

-- text -> object, or nil, message. `null` is body.null; see mtx/json.lua for the shapes.
function body.decode(text) return decode(text, json.is_object, "object") end

-- The same of an array.
function body.array(text) return decode(text, json.is_array, "array") end

return body
