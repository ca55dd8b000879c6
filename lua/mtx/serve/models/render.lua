-- SPDX-License-Identifier: MIT
-- Messages of a request -> prompt text and spans, through chat/render.lua.
local check = require("mtx.api.check")
local render = require("mtx.chat.render")
local shipped = require("mtx.chat.shipped")

local serve_render = {}

local function kwargs_of(req)
  local kwargs = {}
  if req.think ~= nil then
    kwargs.enable_thinking, kwargs.thinking = req.think ~= false, req.think ~= false
    if type(req.think) == "string" then kwargs.reasoning_effort = req.think end
  end
  for k, v in pairs(req.template_args or {}) do kwargs[k] = v end
  return kwargs
end

local function compiled(loaded, template)
  local info, model = loaded.info, loaded.model
  local r, message = render.new({ template = template, name = '"' .. loaded.entry.name .. '"', architecture = info.architecture,
    bos_token = info.bos and model:piece(info.bos), eos_token = info.eos and model:piece(info.eos) })
  if not r then check.fail(400, message) end
  return r
end

-- Of the request's own template (Ollama's generate), or the model's.
local function renderer_of(loaded, req)
  if req.template then return compiled(loaded, req.template) end
  loaded.compiled = loaded.compiled or compiled(loaded, loaded.template)
  return loaded.compiled
end

-- -> {text, spans}, or nil, message (the template refused); raises a Fault when
-- the template itself is unusable.
function serve_render.messages(loaded, messages, req)
  local text, spans = renderer_of(loaded, req):render({ messages = messages, tools = req.tool_choice ~= "none" and req.tools or nil, kwargs = kwargs_of(req),
    continue_final_message = req.continue, add_generation_prompt = req.add_generation_prompt, merge_turns = req.merge_turns })
  if not text then return nil, spans end
  return { text = text, spans = spans }
end

-- Turn marks in the vocabulary and the shipped template they belong to.
local MARKS = { { "<|im_start|>", "chatml" }, { "<start_of_turn>", "gemma" }, { "<|start_header_id|>", "llama3" }, { "[INST]", "mistral" } }

-- For a model whose file carries no template: name and text of a shipped one, told
-- by the architecture or the vocabulary; nil when neither tells.
function serve_render.fallback(loaded)
  local name = shipped.for_architecture(loaded.info.architecture)
  for _, mark in ipairs(MARKS) do
    if not name and loaded.model.tok and loaded.model.tok:find(mark[1]) then name = mark[2] end
  end
  if name then return name, shipped.text(name) end
end

return serve_render
