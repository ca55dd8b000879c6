-- SPDX-License-Identifier: MIT
-- Messages -> prompt text through a model's chat template, with the spans that
-- may hold control tokens (the template's own text, never the users').
--
--   local r, message, code = render.new({ template =, bos_token =, eos_token =, name =, architecture = })
--   local text, spans, notes = r:render({ messages =, tools =, kwargs =, add_generation_prompt =,
--                                         continue_final_message =, merge_turns = })
--
-- What a template cannot take is folded into what it can (probe.lua finds out,
-- shape.lua does it): role developer becomes system; system turns it would drop or
-- refuse move to the front or into the first user turn; tool turns it does not know
-- become text; arguments of calls get the form it prints right; content parts are
-- joined. notes lists what was folded. With merge_turns neighbouring turns of one
-- role become one. A refusal that remains is nil, message, "template_raise", with
-- the template's own message; a prompt is never half built.
local clock = require("mtx.chat.jinja.clock")
local function_template = require("mtx.chat.function_template")
local json = require("mtx.json")
local probe = require("mtx.chat.probe")
local shape = require("mtx.chat.shape")
local shipped = require("mtx.chat.shipped")
local template = require("mtx.chat.template")

local render = {}
local Renderer = {}
Renderer.__index = Renderer

-- Names that a request's kwargs must not take over: they are the conversation
-- itself, or text that may become control tokens.
local RESERVED = { messages = true, tools = true, bos_token = true, eos_token = true, pad_token = true, unk_token = true, sep_token = true, cls_token = true, mask_token = true }

-- A Go template (Ollama's) is told by its dots; it has no meaning here.
local function is_go(source)
  return source:find("{{%-?%s*%.") or source:find("{{%-?%s*if%s") or source:find("{{%-?%s*range%s")
end

--- template: Jinja text, the name of a shipped one ("chatml"), or a function
--- f(messages, tools, kwargs) -> text. Nothing: a shipped one by architecture.
--- now: clock for strftime_now (template.lua). nil, message, code on bad templates.
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
  if type(opts.now) == "string" and not clock.parse(opts.now) then return nil, "the clock must be 'YYYY-MM-DD hh:mm:ss', not '" .. opts.now .. "'", "template_error" end
  return setmetatable({ compiled = compiled, wants = compiled:reads(), bos_token = opts.bos_token or "", eos_token = opts.eos_token or "", now = opts.now }, Renderer)
end

-- One render of messages that are already as the template sees them.
local function once(self, messages, tools, kwargs, add_generation_prompt)
  local vars = { messages = messages, tools = tools, bos_token = self.bos_token, eos_token = self.eos_token, add_generation_prompt = add_generation_prompt }
  -- firefunction's names for the tools and the clock
  if self.wants.functions then vars.functions = json.encode(tools or json.array(), { item_separator = ",", key_separator = ": ", indent = "    " }) end
  if self.wants.datetime then vars.datetime = clock.format("%B %d %Y %H:%M:%S", type(self.now) == "string" and clock.parse(self.now) or self.now or os.date("*t")) end
  for k, v in pairs(kwargs or {}) do vars[k] = v end
  return self.compiled:render(vars, { spans = true, now = self.now })
end

--- What the template can take: the set of probe.lua, found once.
function Renderer:capabilities()
  if not self.can then
    if self.call then
      self.can = { system = true, system_late = true, tools = true, tool_role = true, tool_calls = true, calls_beside_text = true, arguments = "object" }
    else
      self.can = probe(function(messages, tools, kwargs) return (once(self, messages, tools, kwargs, true)) end)
    end
  end
  return self.can
end

-- The messages in the shape this template takes, and what was done to them.
local function fitted(self, request)
  local can, notes, messages = self:capabilities(), {}, shape.roles(request.messages)
  local function note(text) notes[#notes + 1] = text end
  if shape.has_late_system(messages) and not can.system_late then
    messages = shape.system_to_front(messages)
    note("system turns moved to the front")
  end
  if not can.system and messages[1] and messages[1].role == "system" then
    messages = shape.system_to_user(shape.system_to_front(messages))
    note("system text put before the first user turn")
  end
  if not can.tool_role or not can.tool_calls then
    for _, m in ipairs(messages) do
      if (m.role == "tool" and not can.tool_role) or m.tool_calls then
        messages = shape.tools_to_text(messages, can.tool_role)
        note(can.tool_role and "tool calls written as text" or "tool turns written as text")
        break
      end
    end
  end
  if can.tool_calls and not can.calls_beside_text then
    local n = #messages
    messages = shape.split_calls(messages)
    if #messages > n then note("text and calls of a turn written as two turns") end
  end
  if request.merge_turns then
    local n = #messages
    messages = shape.merge(messages)
    if #messages < n then note("neighbouring turns of one role merged") end
  end
  return messages, notes
end

-- A word that stands nowhere in text.
local function unused_word(text)
  local n = 0
  while text:find("Zqcontinue" .. n, 1, true) do n = n + 1 end
  return "Zqcontinue" .. n
end

-- Marks the end of the final message with a word, to cut the prompt there.
local function with_mark(messages)
  local last = messages[#messages]
  if not last then return nil, "there is no message to continue" end
  local text, message = shape.text(last.content, ("messages[%d]"):format(#messages - 1))
  if not text then return nil, message end
  local marked, word = {}, unused_word(text)
  for k, v in pairs(last) do marked[k] = v end
  marked.content = text .. word
  local out = table.move(messages, 1, #messages, 1, {})
  out[#out] = marked
  return out, word
end

local function cut(text, spans, word)
  local at, from = nil, 1
  while true do
    local i = text:find(word, from, true)
    if not i then break end
    at, from = i - 1, i + 1
  end
  if not at then return nil, "the template drops the final message, so it cannot be continued", "template_error" end
  local out = {}
  for _, s in ipairs(spans) do
    if s[1] <= at then out[#out + 1] = { s[1], math.min(s[2], at) } end
  end
  return text:sub(1, at), out
end

local function visible_list(messages, can)
  local list = json.array()
  for i, m in ipairs(messages) do
    local message
    list[i], message = shape.visible(m, i, can)
    if not list[i] then return nil, message end
  end
  return list
end

-- A template that refuses system turns in this very conversation, though the
-- probe's went through, gets them folded before the refusal counts.
local function render_folding(self, messages, request, add, notes)
  local function attempt(candidate)
    local list, message = visible_list(candidate, self.can)
    if not list then return nil, message, "template_error" end
    local tools = request.tools and #request.tools > 0 and json.array(table.move(request.tools, 1, #request.tools, 1, {})) or nil
    return once(self, list, tools, request.kwargs, add)
  end
  local text, spans, code = attempt(messages)
  if text then return text, spans end
  local has_system = false
  for _, m in ipairs(messages) do has_system = has_system or m.role == "system" end
  if has_system and code == "template_raise" then
    local front = shape.system_to_front(messages)
    for _, other in ipairs{ front, shape.system_to_user(front) } do
      local t, s = attempt(other)
      if t then
        notes[#notes + 1] = "system text folded, as the template refused it where it stood"
        return t, s
      end
    end
  end
  return nil, spans, code
end

--- -> text, spans, notes | nil, message, code
function Renderer:render(request)
  for name in pairs(request.kwargs or {}) do
    if RESERVED[name] then return nil, "a template argument must not be called '" .. tostring(name) .. "'", "template_error" end
  end
  local messages, notes = fitted(self, request)
  local word, message
  if request.continue_final_message then
    messages, word = with_mark(messages)
    if not messages then return nil, word, "template_error" end
  end
  local text, spans, code
  local add = request.add_generation_prompt ~= false and not request.continue_final_message
  if self.call then
    text, spans, code = function_template(self.call, messages, request.tools, request.kwargs)
  else
    text, spans, code = render_folding(self, messages, request, add, notes)
  end
  if not text then return nil, spans, code end
  if word then
    text, spans, message = cut(text, spans, word)
    if not text then return nil, spans, message end
  end
  return text, spans, notes
end

--- The names the template reads from outside, as a set.
function Renderer:reads() return self.compiled and self.compiled:reads() or {} end

return render
