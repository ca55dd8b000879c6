-- SPDX-License-Identifier: MIT
-- What a request's answer must look like -> a compiled grammar and, for models
-- that think first, the text after which it holds. Formats, tool_choice and GBNF
-- all come together here; nothing is asked for and then silently not enforced.
local call_grammar = require("mtx.parse.call_grammar")
local check = require("mtx.api.check")
local core = require("mtx.core")
local json = require("mtx.json")
local parse = require("mtx.parse")
local sorted_keys = require("mtx.sorted_keys")

local grammar = {}

-- Compiled grammars kept per model.
local KEEP = 64

-- A schema for one call of this tool as bare JSON. Its definitions move to the root, where
-- "#/$defs/..." looks for them.
local function call_schema(tool, root)
  local f = tool["function"]
  local copy = call_grammar.closed(f.parameters)
  for _, k in ipairs({ "$defs", "definitions" }) do
    if json.is_object(copy[k]) then
      root[k] = root[k] or json.object()
      for name, def in pairs(copy[k]) do root[k][name] = def end
      copy[k] = nil
    end
  end
  return json.object("type", "object", "properties", json.object("name", json.object("const", f.name), "arguments", copy),
    "required", json.array({ "name", "arguments" }), "additionalProperties", false)
end

-- What the request asks for: {answer = JSON Schema of the text | nil, tools = those that may be called | nil,
-- forced = only calls may come}; nil when it asks for nothing.
local function asked(req)
  local choice = req.tools and req.tool_choice
  local forced = choice == "required" or type(choice) == "table"
  local format = req.format
  local answer = format and (format.kind == "schema" and format.schema or format.kind == "json" and json.object("type", "object")) or nil
  local tools
  if req.tools and choice ~= "none" then
    tools = {}
    for _, tool in ipairs(req.tools) do
      if type(choice) ~= "table" or tool["function"].name == choice.name then tools[#tools + 1] = tool end
    end
  end
  if not answer and not tools then return nil end
  return { answer = not forced and answer or nil, tools = tools, forced = forced }
end

-- Calls as bare JSON objects, for templates that teach no format.
local function bare_schema(want)
  if not want.tools then return want.answer end
  local root = json.object("anyOf", json.array())
  root.anyOf[1] = want.answer
  for _, tool in ipairs(want.tools) do root.anyOf[#root.anyOf + 1] = call_schema(tool, root) end
  return root
end

local function control_marks(loaded, format)
  return parse.control_marks(format, parse.thoughts(loaded.template), loaded.model and loaded.model.tok)
end

-- kind: gbnf (schemas: its rules that are schemas), schema or strict (a schema that is refused when a part of it cannot be
-- enforced). warn(text), if given, hears of every keyword of a new schema that is not enforced, and of `unheld`. -> grammar | nil, message
local function compile(loaded, warn, kind, text, schemas, unheld)
  local cache = loaded.grammars
  if not cache or cache.n >= KEEP then
    cache = { n = 0, by_text = {} }
    loaded.grammars = cache
  end
  local key = { kind, text }
  for _, name in ipairs(schemas and sorted_keys(schemas) or {}) do
    local rule = schemas[name]
    key[#key + 1] = name .. (type(rule) == "table" and json.encode(rule) or rule)
  end
  key = table.concat(key, "\0")
  local g, message = cache.by_text[key], nil
  if g then return g end
  if kind == "gbnf" then g, message = core.grammar.gbnf(text, schemas) else g, message = core.grammar.schema(text, { strict = kind == "strict" }) end
  if not g then return nil, "the " .. (kind == "gbnf" and not schemas and "grammar" or "schema") .. " cannot be used: " .. tostring(message) end
  for _, list in ipairs(warn and { g:warnings(), unheld } or {}) do
    for _, line in ipairs(list) do warn(line) end
  end
  cache.by_text[key], cache.n = g, cache.n + 1
  return g
end

-- The grammar of want in the format's own form, or as bare JSON when it has none. -> grammar | nil, message
local function constrained(loaded, req, want, format, warn)
  local strict = want.answer and not want.tools and req.format.strict -- beside tools the schema is one of several forms an answer may take
  -- A weak model that must call would call without end: several calls only when the request says so.
  local parallel = not want.forced or (req.parallel_tool_calls == true and req.tool_choice == "required")
  local options = { format = format, template = loaded.template, tools = want.tools, answer = want.answer,
    parallel = parallel and req.parallel_tool_calls, control = control_marks(loaded, format), custom = req.input_grammars }
  local text, schemas, unheld = call_grammar.of(options)
  if not text and options.custom then -- a schema cannot hold these
    options.form, req.bare_call = "bare", want.forced or nil
    text, schemas, unheld = call_grammar.of(options)
  end
  if text and not strict then return compile(loaded, warn, "gbnf", text, schemas, unheld) end
  local schema = json.encode(bare_schema(want))
  if not schema then return nil, "the schema cannot be used" end
  req.bare_call = want.forced or nil
  local g, message = compile(loaded, warn, strict and "strict" or "schema", schema)
  if g and text then return compile(loaded, warn, "gbnf", text, schemas, unheld) end
  return g, message
end

-- What ends the thought an answer may begin with, and what opens it (nil: the prompt has) | nil.
local function thought_marks(loaded, req)
  local pair = req.task == "chat" and loaded.can.thinking and req.think ~= false and parse.thoughts(loaded.template)
  if not pair then return nil end
  return { pair.close }, not parse.opened(loaded.template, req.rendered or "") and pair.open or nil
end

-- Free text until the format's mark opens a call, which is then held to its form. The mark is the
-- trigger; where a thought comes first, which may hold it as text, the text behind the thought is
-- in the grammar too. Formats whose texts have frames are held from the beginning. A tool whose schema cannot be
-- held is called freely, and so are all where a template shows tools but no format that is known. -> as grammar.of | nil
local function lazy(loaded, req, want, format, warn)
  if req.task ~= "chat" or (req.template_args or {}).builtin_tools then return nil end -- gpt-oss was told of tools that the request does not list
  local triggers, opening = thought_marks(loaded, req)
  local function held(more)
    local options = { format = format, template = loaded.template, tools = want.tools, parallel = req.parallel_tool_calls, control = control_marks(loaded, format),
      custom = req.input_grammars, form = format.name == "generic" and not loaded.can.tools and "taught" or nil }
    for k, v in pairs(more) do options[k] = v end
    local text, schemas, unheld = call_grammar.of(options)
    return text and compile(loaded, warn, "gbnf", text, schemas, unheld)
  end
  local g = held({ turn = true })
  if g then return g, triggers, opening, triggers ~= nil end
  for _, mark in ipairs(format.open) do
    g = held({ mark = mark, after_text = triggers ~= nil })
    if g then return g, triggers or { mark }, opening, true end
  end
end

-- loaded model, request -> grammar, triggers (list or nil: free text until one of them), opening (text or nil: the free text
-- is entered only by it), optional (the answer may end in the free text); nil when the answer is free. Sets
-- req.bare_call when the whole answer is one bare JSON call.
-- warn(text), if given, hears of every keyword of a new schema that is not enforced.
function grammar.of(loaded, req, warn)
  local g, message
  if req.format and req.format.kind == "gbnf" then
    g, message = compile(loaded, warn, "gbnf", req.format.text)
  else
    local want, format = asked(req), parse.detect(not req.raw and loaded.template or nil)
    if not want then return nil end
    if not want.answer and not want.forced then return lazy(loaded, req, want, format, warn) end
    g, message = constrained(loaded, req, want, format, warn)
  end
  if not g then check.fail(400, message) end
  return g, thought_marks(loaded, req)
end

return grammar
