-- SPDX-License-Identifier: MIT
-- `mtx template`: what a chat template makes of messages, byte for byte.
local args = require("mtx.cli.args")
local named = require("mtx.cli.named")
local infile = require("mtx.infile")
local json = require("mtx.json")
local template = require("mtx.chat.template")

local command = { name = "template", summary = "render a chat template: the prompt a model gets" }

local options = {
  { name = "messages", kind = "string", value = "FILE", help = "JSON list of messages" },
  { name = "tools", kind = "string", value = "FILE", help = "JSON list of tools" },
  { name = "kwargs", kind = "string", value = "FILE", help = "JSON object of further variables" },
  { name = "tokens", kind = "flag", help = "print token ids and pieces, control tokens marked (MODEL only)" },
  { name = "batch", kind = "string", value = "FILE", help = "JSON lines of cases, one result line each" },
  named.option,
}

command.help = [==[
usage: mtx template MODEL|FILE.jinja --messages FILE.json [--tools FILE] [--kwargs FILE]
       mtx template --batch CASES.jsonl

Prints the prompt, its exact bytes and no newline. With a model its own template and
tokens are used, with a file exactly the variables given. When the template itself
refuses, its message goes to stderr and the exit code is 1. A batch line
  {"template_file":"","messages":[],"tools":null,"kwargs":{}}
gives a line {"text":""} or {"error":""}. MTX_NOW="2026-03-14 15:09:26" sets the clock
that strftime_now sees.

]==] .. args.help(options)

local function decode_file(path)
  local text, message = args.read(path)
  if not text then return nil, message end
  local value
  value, message = json.decode(text)
  if value == nil and message then return nil, path .. ": " .. message end
  return value
end

local function now() return os.getenv("MTX_NOW") end

-- null stands for "not given", as chat programs leave out what they have not.
local function variables(case)
  local vars = { messages = case.messages, tools = case.tools }
  for k, v in pairs(type(case.kwargs) == "table" and case.kwargs or {}) do vars[k] = v end
  for k, v in pairs(vars) do
    if v == json.null then vars[k] = nil end
  end
  return vars
end

local cache = {}

local function compiled(path)
  if cache[path] then return cache[path] end
  local source, message = args.read(path)
  if not source then return nil, message end
  local tpl
  tpl, message = template.compile(source, { name = path })
  if not tpl then return nil, message end
  cache[path] = tpl
  return tpl
end

local function batch(path)
  local file, message = infile.open(path)
  if not file then return args.failure(message) end
  for line in file:lines() do
    local case, text = json.decode(line), nil
    message = "the line is no JSON object with a template_file"
    if type(case) == "table" and type(case.template_file) == "string" then
      local tpl
      tpl, message = compiled(case.template_file)
      if tpl then text, message = tpl:render(variables(case), { now = now() }) end
    end
    print(json.encode(text and json.object("text", text) or json.object("error", tostring(message))))
  end
  file:close()
  return 0
end

local KINDS = { messages = "list", tools = "list", kwargs = "object" }

local function case_of(values)
  local case, message = { kwargs = json.object() }, nil
  if not values.messages then return nil, "--messages is needed" end
  for _, name in ipairs({ "messages", "tools", "kwargs" }) do
    if values[name] then
      case[name], message = decode_file(values[name])
      if message then return nil, message end
      local v = case[name]
      if not (type(v) == "table" and json.is_array(v) == (KINDS[name] == "list") or v == json.null and name ~= "messages") then
        return nil, ("%s: --%s needs a JSON %s"):format(values[name], name, KINDS[name])
      end
    end
  end
  return case
end

local function print_tokens(tok, text, spans)
  local ids, message = tok:encode(text, { add_special = true, bos_once = true, parse_special = true, spans = spans })
  if not ids then return args.failure(message) end
  for _, id in ipairs(ids) do
    print(("%7d %s %s"):format(id, tok:attr(id).control and "*" or " ", json.quote(tok:piece(id) or "")))
  end
  return 0
end

local function with_model(name, case, values)
  local path = named.find(name, values.models_dir)
  local g, message = require("mtx.model.source").open(path, { vocab_only = true })
  if not g then return args.failure(message) end
  local tok
  tok, message = require("mtx.tok").open(path)
  if not tok then return args.failure(message) end
  local special = tok:special()
  local function text_of(id) return id and tok:piece(id) or "" end
  local r
  r, message = require("mtx.chat.render").new({ template = g:metadata("tokenizer.chat_template"), architecture = g:metadata("general.architecture"),
    name = path, bos_token = text_of(special.bos), eos_token = text_of(special.eos), now = now() })
  if not r then return args.failure(message) end
  local vars = variables(case)
  local add = vars.add_generation_prompt
  local kwargs = {}
  for k, v in pairs(vars) do
    if k ~= "messages" and k ~= "tools" then kwargs[k] = v end
  end
  local text, spans = r:render({ messages = vars.messages, tools = vars.tools, kwargs = kwargs, add_generation_prompt = add ~= false })
  if not text then return args.failure(spans) end
  if values.tokens then return print_tokens(tok, text, spans) end
  io.stdout:write(text)
  return 0
end

function command.run(list)
  local values, code = args.start(command, options, list, 1)
  if not values then return code end
  if values.batch then return batch(values.batch) end
  local path = values.rest[1]
  if not path then return args.misuse(command, "which template? Give a model or a .jinja file") end
  local case, message = case_of(values)
  if not case then return (values.messages and args.failure or function(m) return args.misuse(command, m) end)(message) end
  if path:match("%.gguf$") or require("mtx.model.source").is_folder(path) then return with_model(path, case, values) end
  if values.tokens then return args.misuse(command, "--tokens needs a model") end
  local tpl, text
  tpl, message = compiled(path)
  if not tpl then return args.failure(message) end
  text, message = tpl:render(variables(case), { now = now() })
  if not text then
    io.stderr:write(message, "\n")
    return 1
  end
  io.stdout:write(text)
  return 0
end

return command
