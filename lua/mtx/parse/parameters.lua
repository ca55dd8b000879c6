-- SPDX-License-Identifier: MIT
-- Parameters that a format writes as plain text -> JSON, as the tool's schema wants them.
local json = require("mtx.json")
local Reader = require("mtx.parse.reader")
local values = require("mtx.parse.values")

local parameters = {}

local KINDS = { integer = "number", number = "number", boolean = "boolean", object = "object", array = "array", null = "null", string = "string" }

-- Schemas looked at for one parameter: branches may refer to each other without end.
local MAX_LOOKED_AT = 100

local function referred(ref, root)
  local name = ref:match("^#/%$defs/([^/]+)$") or ref:match("^#/definitions/([^/]+)$")
  local defs = json.is_object(root) and (root["$defs"] or root.definitions)
  return name and json.is_object(defs) and defs[name] or nil
end

-- What a schema inside the document `root` says itself or refers to: an object, or nil.
function parameters.resolved(schema, root)
  for _ = 1, MAX_LOOKED_AT do
    if not json.is_object(schema) then return nil end
    if type(schema["$ref"]) ~= "string" then return schema end
    schema = referred(schema["$ref"], root)
  end
end

-- The kinds a schema lets a value have: set, or nil when it does not say. left: {n = schemas that may still be looked at}.
local function kinds_of(schema, root, left)
  left.n = left.n - 1
  if not json.is_object(schema) or left.n < 0 then return nil end
  if type(schema["$ref"]) == "string" then return kinds_of(referred(schema["$ref"], root), root, left) end
  local set = {}
  local function add(v)
    local kind = type(v) == "string" and "string" or type(v) == "boolean" and "boolean" or type(v) == "number" and "number" or v == json.null and "null"
      or json.is_object(v) and "object" or json.is_array(v) and "array" or "number"
    set[kind] = true
  end
  local t = schema.type
  if type(t) == "string" then t = { t } end
  if type(t) == "table" and t ~= json.null then
    for _, name in ipairs(t) do
      if type(name) ~= "string" or not KINDS[name:lower()] then return nil end
      set[KINDS[name:lower()]] = true
    end
  elseif type(schema.enum) == "table" and schema.enum ~= json.null then
    for _, v in ipairs(schema.enum) do add(v) end
  elseif schema.const ~= nil then
    add(schema.const)
  else
    local branches = schema.anyOf or schema.oneOf
    if type(branches) ~= "table" or branches == json.null then return nil end
    for _, b in ipairs(branches) do
      local more = kinds_of(b, root, left)
      if not more then return nil end
      for k in pairs(more) do set[k] = true end
    end
  end
  if schema.nullable == true then set.null = true end
  return next(set) and set or nil
end

-- The kinds that a schema inside the document `root` lets a value have: a set, or nil when it does not say.
function parameters.kinds_of(schema, root) return kinds_of(schema, root, { n = MAX_LOOKED_AT }) end

-- A tool's schema -> the kinds of its parameter `key`: a set, or nil.
function parameters.kinds(schema, key)
  local properties = json.is_object(schema) and schema.properties
  return json.is_object(properties) and parameters.kinds_of(properties[key], schema) or nil
end

-- The kind of a JSON text that can stand as an argument (one level down in an object) | nil.
local function kind_of(text)
  local holder = json.decode("[" .. text .. "]")
  if not holder or #holder ~= 1 then return nil end
  local v = holder[1]
  return v == json.null and "null" or json.is_object(v) and "object" or json.is_array(v) and "array" or type(v) == "table" and "number" or type(v)
end

local function as_python(text)
  local r, parts = Reader.new(), {}
  r:add(text .. " ") -- a number ends at what follows it
  r.ended = true
  if not values.python(r, function(s) parts[#parts + 1] = s end) then return nil end
  r:space()
  return r:peek() == "" and table.concat(parts) or nil
end

-- A whole parameter's text -> JSON text: what the schema's kinds ask for; without them JSON
-- where it is JSON of another kind than a string.
function parameters.plain(text, kinds)
  local trimmed = text:match("^%s*(.-)%s*$")
  local kind = kind_of(trimmed)
  if kind and kind ~= "string" and (not kinds or kinds[kind]) then return trimmed end
  if kinds then
    local python = as_python(trimmed)
    kind = python and kind_of(python)
    if kind and kind ~= "string" and kinds[kind] then return python end
  end
  return '"' .. values.escape(text) .. '"'
end

return parameters
