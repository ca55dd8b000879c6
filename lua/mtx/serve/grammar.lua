-- SPDX-License-Identifier: MIT
-- What a request's answer must look like -> a compiled grammar and, for models
-- that think first, the text after which it holds. Formats, tool_choice and GBNF
-- all come together here; nothing is asked for and then silently not enforced.
local check = require("mtx.api.check")
local core = require("mtx.core")
local json = require("mtx.json")
local parse = require("mtx.parse")

local grammar = {}

-- Compiled grammars kept per model.
local KEEP = 64

-- A schema for one call of this tool. Its definitions move to the root, where
-- "#/$defs/..." looks for them.
local function call_schema(tool, root)
  local f = tool["function"]
  local params = f.parameters
  if not json.is_object(params) then params = json.object("type", "object") end
  local copy = json.object()
  for k, v in pairs(params) do
    if (k == "$defs" or k == "definitions") and json.is_object(v) then
      root[k] = root[k] or json.object()
      for name, def in pairs(v) do root[k][name] = def end
    else
      copy[k] = v
    end
  end
  if copy.type == nil then copy.type = "object" end
  -- Weak models fill free objects with inventions: what the tool does not name is not sent.
  if copy.additionalProperties == nil and json.is_object(copy.properties) then copy.additionalProperties = false end
  return json.object("type", "object", "properties", json.object("name", json.object("const", f.name), "arguments", copy),
    "required", json.array({ "name", "arguments" }), "additionalProperties", false)
end

local function any_object() return json.object("type", "object") end

-- The JSON Schema a request asks for, or nil: {schema = table, bare = only a call may come}.
local function schema_of(req)
  local choice = req.tools and req.tool_choice
  local forced = choice == "required" or type(choice) == "table"
  local format = req.format
  local own = format and (format.kind == "schema" and format.schema or format.kind == "json" and any_object())
  if not forced and not own then return nil end
  if not forced and (not req.tools or choice == "none") then return own end
  local root = json.object("anyOf", json.array())
  if own and not forced then root.anyOf[1] = own end
  for _, tool in ipairs(req.tools) do
    if type(choice) ~= "table" or tool["function"].name == choice.name then root.anyOf[#root.anyOf + 1] = call_schema(tool, root) end
  end
  return root, forced
end

-- kind: gbnf, schema or strict (a schema that is refused when a part of it cannot be enforced)
local function compile(kind, text)
  local g, message
  if kind == "gbnf" then g, message = core.grammar.gbnf(text) else g, message = core.grammar.schema(text, { strict = kind == "strict" }) end
  if not g then check.fail(400, "the " .. (kind == "gbnf" and "grammar" or "schema") .. " cannot be used: " .. tostring(message)) end
  return g
end

-- loaded model, request -> grammar, triggers (list or nil), opening (text or nil: only after it a
-- trigger is waited for), or nil when the answer is free. Sets req.bare_call when the whole answer is one tool call.
-- warn(text), if given, hears of every keyword of a new schema that is not enforced.
function grammar.of(loaded, req, warn)
  local kind, text, forced = nil, nil, nil
  if req.format and req.format.kind == "gbnf" then
    kind, text = "gbnf", req.format.text
  else
    local schema
    schema, forced = schema_of(req)
    if not schema then return nil end
    -- beside tools the schema is one of several forms an answer may take
    kind, text = req.format and req.format.strict and schema == req.format.schema and "strict" or "schema", json.encode(schema)
    if not text then check.fail(400, "the schema cannot be used") end
  end
  local cache = loaded.grammars
  if not cache or cache.n >= KEEP then
    cache = { n = 0, by_text = {} }
    loaded.grammars = cache
  end
  local g = cache.by_text[kind .. text]
  if not g then
    g = compile(kind, text)
    for _, line in ipairs(warn and g:warnings() or {}) do warn(line) end
    cache.by_text[kind .. text], cache.n = g, cache.n + 1
  end
  req.bare_call = forced or nil
  local pair = req.task == "chat" and loaded.can.thinking and req.think ~= false and parse.thoughts(loaded.template)
  if not pair then return g end
  return g, { pair.close }, not parse.opened(loaded.template, req.rendered or "") and pair.open or nil
end

return grammar
