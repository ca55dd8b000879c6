-- SPDX-License-Identifier: MIT
-- Messages -> prompt text through a model's chat template, with the spans that
-- may hold control tokens (the template's own text, never the users').
--
--   local r, message, code = render.new({ template =, bos_token =, eos_token =, name =, architecture = })
--   local text, spans = r:render({ messages =, tools =, kwargs =, add_generation_prompt =, continue_final_message = })
--
-- What a template cannot take is folded into what it can: role developer becomes
-- system; system turns move to the front, then into the first user turn. A
-- template's own refusal that remains comes back with code "template_raise".
local json = require("mtx.json")
local shipped = require("mtx.chat.shipped")
local template = require("mtx.chat.template")

local render = {}
local Renderer = {}
Renderer.__index = Renderer

-- A Go template (Ollama's) is told by its dots; it has no meaning here.
local function is_go(source)
  return source:find("{{%-?%s*%.") or source:find("{{%-?%s*if%s") or source:find("{{%-?%s*range%s")
end

-- template: Jinja text, the name of a shipped one ("chatml"), or a function
-- f(messages, tools, kwargs) -> text. Nothing: a shipped one by architecture.
function render.new(opts)
  local source, name = opts.template, opts.name or "chat template"
  if type(source) == "function" then return setmetatable({ call = source }, Renderer) end
  if not source or source == "" then source = shipped.for_architecture(opts.architecture) end
  if not source then
    return nil, name .. " carries no chat template; name one (" .. table.concat(shipped.names(), ", ") .. "), or use it without", "template_error"
  end
  if source:match("^[%w_%-]+$") then
    local text = shipped.text(source)
    if not text then return nil, "no template is called '" .. source .. "' (" .. table.concat(shipped.names(), ", ") .. ")", "template_error" end
    source = text
  end
  if is_go(source) then return nil, name .. ": this is a Go template, which mtx does not read; write it in Jinja", "template_error" end
  local compiled, message, code = template.compile(source, { name = name })
  if not compiled then return nil, message, code end
  return setmetatable({ compiled = compiled, bos_token = opts.bos_token or "", eos_token = opts.eos_token or "", now = opts.now }, Renderer)
end

-- A string, or the joined text of a list of {type = "text", text =} parts.
local function text_of(content)
  if type(content) ~= "table" or content == json.null then return content end
  local parts = {}
  for _, part in ipairs(content) do parts[#parts + 1] = type(part) == "table" and part.text or tostring(part) end
  return table.concat(parts, "\n")
end

-- What a template sees of a message. Absent fields stay undefined, as templates test for them.
local function visible(m)
  local calls
  if m.tool_calls then
    calls = json.array()
    for i, c in ipairs(m.tool_calls) do
      local f = c["function"]
      calls[i] = json.object("id", c.id, "type", "function", "function", json.object("name", f.name, "arguments", f.arguments))
    end
  end
  local role = m.role == "developer" and "system" or m.role
  return json.object("role", role, "content", text_of(m.content) or "", "reasoning_content", m.reasoning_content, "tool_calls", calls,
    "tool_call_id", m.tool_call_id, "name", m.name)
end

-- All system turns as one at the front | nil when that changes nothing.
local function fold_to_front(messages)
  local system, rest = {}, {}
  for i, m in ipairs(messages) do
    if m.role == "system" or m.role == "developer" then system[#system + 1] = text_of(m.content) or "" else rest[#rest + 1] = m end
    if i == #messages and #system == 0 then return nil end
  end
  table.insert(rest, 1, { role = "system", content = table.concat(system, "\n\n") })
  return rest
end

-- The leading system turn put before the first user turn's text | nil.
local function fold_into_user(messages)
  local system = messages[1] and messages[1].role == "system" and messages[1].content
  if not system then return nil end
  local out, folded = {}, false
  for i = 2, #messages do
    local m = messages[i]
    if not folded and m.role == "user" then
      local copy = {}
      for k, v in pairs(m) do copy[k] = v end
      copy.content, folded = system .. "\n\n" .. (text_of(m.content) or ""), true
      out[#out + 1] = copy
    else
      out[#out + 1] = m
    end
  end
  return folded and out or nil
end

-- Cuts the prompt behind the final assistant message, which is to be continued.
local function cut(text, spans, content)
  content = content:match("^%s*(.-)%s*$")
  local at, from = nil, 1
  while content ~= "" do
    local i, j = text:find(content, from, true)
    if not i then break end
    at, from = j, i + 1
  end
  if not at then return text, spans end
  local out = {}
  for _, s in ipairs(spans) do
    if s[1] <= at then out[#out + 1] = { s[1], math.min(s[2], at) } end
  end
  return text:sub(1, at), out
end

local function once(self, request, messages)
  local list = json.array()
  for i, m in ipairs(messages) do list[i] = visible(m) end
  local vars = {
    messages = list, bos_token = self.bos_token, eos_token = self.eos_token,
    add_generation_prompt = request.add_generation_prompt ~= false and not request.continue_final_message,
  }
  if request.tools and #request.tools > 0 then vars.tools = json.array(table.move(request.tools, 1, #request.tools, 1, {})) end
  for k, v in pairs(request.kwargs or {}) do vars[k] = v end
  return self.compiled:render(vars, { spans = true, now = self.now })
end

-- -> text, spans | nil, message, code
function Renderer:render(request)
  local messages = request.messages
  if self.call then
    local text = self.call(messages, request.tools, request.kwargs)
    if type(text) ~= "string" then return nil, "the template function must return a string", "template_error" end
    return text, { { 1, #text } }
  end
  local text, spans, code = once(self, request, messages)
  if not text then
    local front = fold_to_front(messages)
    local merged = front and fold_into_user(front)
    for _, other in pairs({ front, merged }) do
      local t, s = once(self, request, other)
      if t then
        text, spans = t, s
        break
      end
    end
  end
  if not text then return nil, spans, code end
  if request.continue_final_message and #messages > 0 then return cut(text, spans, text_of(messages[#messages].content) or "") end
  return text, spans
end

-- The compiled template's free names, for capabilities.
function Renderer:reads() return self.compiled and self.compiled:reads() or {} end

return render
