-- SPDX-License-Identifier: MIT
-- Messages -> prompt text through a model's chat template, with the spans that
-- may hold control tokens (the template's own text; never the users').
local check = require("mtx.api.check")
local json = require("mtx.json")
local template = require("mtx.chat.template")

local render = {}

-- What a template sees of a message. Absent fields stay undefined, as templates test for them.
local function message(m)
  local calls
  if m.tool_calls then
    calls = json.array()
    for i, c in ipairs(m.tool_calls) do calls[i] = json.object("id", c.id, "type", "function", "function", json.object("name", c["function"].name, "arguments", c["function"].arguments)) end
  end
  return json.object("role", m.role, "content", m.content or "", "reasoning_content", m.reasoning_content, "tool_calls", calls,
    "tool_call_id", m.tool_call_id, "name", m.name)
end

local function variables(loaded, messages, req)
  local info, model = loaded.info, loaded.model
  local list = json.array()
  for i, m in ipairs(messages) do list[i] = message(m) end
  local vars = { messages = list, add_generation_prompt = not req.continue, bos_token = info.bos and model:piece(info.bos) or "",
    eos_token = info.eos and model:piece(info.eos) or "" }
  if req.tools and req.tool_choice ~= "none" then vars.tools = json.array(table.move(req.tools, 1, #req.tools, 1, {})) end
  if req.think ~= nil then
    vars.enable_thinking, vars.thinking = req.think ~= false, req.think ~= false
    if type(req.think) == "string" then vars.reasoning_effort = req.think end
  end
  for k, v in pairs(req.template_args or {}) do vars[k] = v end
  return vars
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
  if not at then return nil end
  local out = {}
  for _, s in ipairs(spans) do
    if s[1] <= at then out[#out + 1] = { s[1], math.min(s[2], at) } end
  end
  return text:sub(1, at), out
end

-- A Go template is told by its dots; it has no meaning here.
local function compile(loaded)
  local source = loaded.template
  if source:find("{{%-?%s*%.") or source:find("{{%-?%s*if%s") or source:find("{{%-?%s*range%s") then
    return nil, "this is a Go template, which mtx does not read; write it in Jinja"
  end
  return template.compile(source, { name = loaded.name })
end

-- -> {text, spans, special = true}, or nil, message (the template refused); raises
-- a Fault when the template itself is unusable.
function render.messages(loaded, messages, req)
  if not loaded.template then
    check.fail(400, '"' .. loaded.entry.name .. '" has no chat template; give it one in a Modelfile, or use completions')
  end
  local compiled = loaded.compiled
  if not compiled then
    local message
    compiled, message = compile(loaded)
    if not compiled then check.fail(400, '"' .. loaded.entry.name .. '" has an unusable chat template: ' .. message) end
    loaded.compiled = compiled
  end
  local text, spans = compiled:render(variables(loaded, messages, req), { spans = true })
  if not text then return nil, spans end
  if req.continue then
    local short, some = cut(text, spans, messages[#messages].content)
    if short then text, spans = short, some end
  end
  return { text = text, spans = spans }
end

return render
