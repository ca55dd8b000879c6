-- SPDX-License-Identifier: MIT
-- MiniMax M3's calls: arguments written as elements named after them, objects and lists as elements
-- inside, each tag behind one mark. Source: the model's own template.
local calls = require("mtx.parse.calls")
local json = require("mtx.json")
local parameters = require("mtx.parse.parameters")
local tagged = require("mtx.parse.tagged")
local values = require("mtx.parse.values")

local nested = {}

nested.MARK = "]<]minimax[>["
local MARK = nested.MARK
local OPEN, CLOSE = MARK .. "<", MARK .. "</"

local function only(kinds, kind) return kinds and kinds[kind] and next(kinds, next(kinds)) == nil end

-- The schema of an element inside another: schema's own for that key, or its items'.
local function inner(schema, root, key, is_list)
  schema = parameters.resolved(schema, root)
  if not schema then return nil end
  if is_list then return schema.items end
  local own = json.is_object(schema.properties) and schema.properties[key]
  return own or (json.is_object(schema.additionalProperties) and schema.additionalProperties) or nil
end

local value

-- The elements of an object or a list; the first one's opening tag has been read up to its name.
local function elements(p, schema, root, name, depth)
  local r, kinds, n = p.r, parameters.kinds_of(schema, root), 0
  local key = r:before({ ">" }, calls.NAME_BYTES)
  local is_list = key == "item" and not (kinds and kinds.object and not kinds.array)
  p.arguments(is_list and "[" or "{")
  while true do
    if not key or key == "" or (is_list and key ~= "item") then return false end
    if n > 0 then p.arguments(",") end
    if not is_list then p.arguments('"' .. values.escape(key) .. '":') end
    if not value(p, inner(schema, root, key, is_list), root, key, depth + 1) then return false end
    n = n + 1
    r:space()
    if r:try(CLOSE) then break end
    if not r:try(OPEN) then return false end
    key = r:before({ ">" }, calls.NAME_BYTES)
  end
  p.arguments(is_list and "]" or "}")
  return r:try(name .. ">")
end

-- What stands in the element `name`, and its closing tag.
function value(p, schema, root, name, depth)
  local r, kinds = p.r, parameters.kinds_of(schema, root)
  if depth > json.max_depth then return false end
  if only(kinds, "string") then
    p.arguments('"')
    if not r:upto({ CLOSE .. name .. ">" }, function(s) p.arguments(values.escape(s)) end) then return false end
    p.arguments('"')
    return true
  end
  local text = r:before({ MARK })
  if not text then return false end
  local is_blank = not text:find("%S")
  if r:try("</") then
    local empty = is_blank and kinds and not kinds.string and (kinds.array and "[]" or kinds.object and "{}")
    p.arguments(empty or parameters.plain(text, kinds))
    return r:try(name .. ">")
  end
  return is_blank and r:try("<") and elements(p, schema, root, name, depth)
end

-- A call behind <invoke name=".
local function call(p)
  local r = p.r
  local name = calls.valid_name((r:before({ '">' }, calls.NAME_BYTES)))
  if not name then return false end
  p:begin(name)
  local root, first = p.tools[name], true
  while true do
    r:space()
    if r:try(CLOSE) then return r:try("invoke>") and tagged.end_call(p, first) end
    local key = r:try(OPEN) and r:before({ ">" }, calls.NAME_BYTES)
    if not key or key == "" then return false end
    tagged.key(p, first, key)
    if not value(p, inner(root, root, key), root, key, 1) then return false end
    first = false
  end
end

function nested.calls(p) return calls.section(p, OPEN .. 'invoke name="', nil, CLOSE .. "tool_call>", call) end

return nested
