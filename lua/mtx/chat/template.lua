-- SPDX-License-Identifier: MIT
-- A compiled chat template: Jinja text in, prompt text and spans out.
--
--   local tpl, message, code = template.compile(source, { name = "qwen3" })
--   local text, spans = tpl:render(vars, { now = , limits = , spans = true })
--
-- vars: the names the template sees, as JSON-like values (mtx.json keeps key
-- order; plain Lua tables work, their keys are sorted; nil is undefined, json.null
-- is None). A Lua function may be a value: it is called with plain arguments.
-- spans: a list of {start, stop} (1-based bytes, inclusive) of the output that the
-- template itself wrote; only these may become control tokens. Everything from
-- vars is outside, but for bos_token, eos_token and the like, the words of message
-- roles, and integers (jinja/text.lua says how the marks travel).
-- now: "2026-03-14 15:09:26", or a table as os.date("*t") gives; default: now.
-- limits: { steps =, bytes =, depth = }, see template.limits.
-- Failures: nil, message, code. code "template_raise": the template's own
-- raise_exception, message exactly as it gave it. code "template_error": anything
-- else; the message names the template, line, column and what is wrong.
local parser = require("mtx.chat.jinja.parser")
local compile = require("mtx.chat.jinja.compile")
local globals = require("mtx.chat.jinja.globals")
local reads = require("mtx.chat.jinja.reads")
local clock = require("mtx.chat.jinja.clock")
local text = require("mtx.chat.jinja.text")
local S = require("mtx.chat.jinja.state")

local template = {}
local Template = {}
Template.__index = Template

--- Default limits of one render: loop turns and calls, bytes of text built
--- (intermediate results included), nesting of macro calls.
template.limits = { steps = 5000000, bytes = 256 << 20, depth = 250 }

--- Longest template text accepted, in bytes.
template.max_source_bytes = 4 << 20

-- Strings given under these names count as text of the template.
local TRUSTED = { bos_token = true, eos_token = true, pad_token = true, unk_token = true, sep_token = true, cls_token = true, mask_token = true }

local function place(source, at)
  local before = source:sub(1, at - 1)
  local _, newlines = before:gsub("\n", "")
  local last_line = before:match("[^\n]*$")
  return newlines + 1, (utf8.len(last_line) or #last_line) + 1
end

-- nil, message, code for an error object from the engine (or Lua itself).
local function explain(name, source, e)
  if type(e) == "table" and e.template_message then
    if e.raised then return nil, e.template_message, "template_raise" end
    local line, column = place(source, e.at or 1)
    return nil, ("%s: line %d, column %d: %s"):format(name, line, column, e.template_message), "template_error"
  end
  local line, column = place(source, S.at)
  local message = tostring(e)
  if message:find("stack overflow", 1, true) then message = "recurses too deeply"
  elseif message:find("not enough memory", 1, true) then message = "needs too much memory"
  else message = "the engine failed: " .. message end
  return nil, ("%s: line %d, column %d: %s"):format(name, line, column, message), "template_error"
end

--- Compiles a template. options.name stands in messages.
function template.compile(source, options)
  local name = options and options.name or "chat template"
  if type(source) ~= "string" then error("template.compile: source must be a string", 2) end
  if #source > template.max_source_bytes then
    return nil, ("%s: larger than %d bytes"):format(name, template.max_source_bytes), "template_error"
  end
  local normal = source:gsub("\r\n?", "\n")
  local ok, body, src = pcall(parser.parse, source)
  if not ok then
    S.at = 1
    return explain(name, normal, body)
  end
  local tpl = setmetatable({ name = name, source = src, body = body, programs = {} }, Template)
  local compiled, e = pcall(tpl.program, tpl, false)
  if not compiled then return explain(name, src, e) end
  return tpl
end

--- The closures for renders with or without spans, made when first needed.
function Template:program(spans)
  local program = self.programs[spans]
  if not program then
    local run, free = compile.template(self.body, spans)
    program = { run = run, free = free }
    self.programs[spans] = program
  end
  return program
end

--- The names the template reads from outside, as a set.
function Template:reads()
  local set = reads(self.body)
  for name in pairs(globals) do set[name] = nil end
  return set
end

local function values_of(free, vars, spans)
  local G = {}
  for i = 1, #free do
    local name = free[i]
    local v = vars[name]
    if v == nil then v = globals[name] end
    if spans and TRUSTED[name] and type(v) == "string" then v = text.trusted(v) end
    G[i] = v
  end
  return G
end

local function run(self, vars, options)
  local limits, defaults = options.limits or {}, template.limits
  local spans = options.spans and true or false
  local program = self:program(spans)
  local now = options.now
  if type(now) == "string" then now = clock.parse(now) or error("render: now must be 'YYYY-MM-DD hh:mm:ss'", 0) end
  S.out, S.kept, S.n, S.at, S.spans, S.marks, S.depth = {}, {}, 0, 1, spans, spans, 0
  S.steps, S.bytes, S.max_depth = limits.steps or defaults.steps, limits.bytes or defaults.bytes, limits.depth or defaults.depth
  S.now = now or os.date("*t")
  S.G = values_of(program.free, vars, spans)
  program.run({})
  return text.join(S.out, 1, S.n)
end

--- Renders. Returns text, spans (spans only if asked for), or nil, message, code.
function Template:render(vars, options)
  local saved = {}
  for k, v in pairs(S) do saved[k] = v end
  local ok, result = pcall(run, self, vars, options or {})
  local n, message, code
  if not ok then n, message, code = explain(self.name, self.source, result) end
  for k, v in pairs(saved) do S[k] = v end
  if not ok then return n, message, code end
  if not (options and options.spans) then return result end
  local spans = {}
  if type(result) == "table" then
    for i = 1, #result, 2 do spans[#spans + 1] = { result[i], result[i + 1] } end
  end
  return text.raw(result), spans
end

return template
