-- SPDX-License-Identifier: MIT
-- Request -> prompt tokens: template, truncation when asked for, fill in the
-- middle, and the one place where a prompt that does not fit is refused (with
-- both numbers).
local call_texts = require("mtx.serve.generate.call_texts")
local check = require("mtx.api.check")
local guidance = require("mtx.model.guidance")
local teach = require("mtx.serve.generate.teach")

local prompt = {}

-- ctx.render(loaded, messages, req) -> {text, spans} | nil, message (serve/models/init.lua).
-- A prompt the owner's script changed is the owner's: its marks count as written.
local function rendered(ctx, loaded, messages, req)
  local r, message = ctx.render(loaded, messages, req)
  if r and ctx.script and not req.from_script then
    local text = ctx.script:prompt(r.text, req)
    if text ~= r.text then r = { text = text } end
  end
  return r, message
end

-- A template's own refusal is the client's error (chat/render.lua has folded what it could).
local function render(ctx, loaded, messages, req)
  local r, message = rendered(ctx, loaded, messages, req)
  if not r then check.fail(400, "the chat template refused the messages: " .. tostring(message)) end
  return r
end

-- Exactly one leading BOS, whether the template writes it or the vocabulary adds
-- it (bos_once). Spans: only the template's own text may become control tokens.
local function tokenize(loaded, r)
  local ids, message = loaded.model:tokenize(r.text, { add_special = true, bos_once = true, parse_special = true, spans = r.spans })
  if not ids then check.fail(400, "cannot tokenize the prompt: " .. tostring(message)) end
  return ids
end

function prompt.too_long(n, n_ctx)
  check.fail(400, "the prompt has " .. n .. " tokens, the context is " .. n_ctx .. " tokens; shorten the prompt or raise the context", {
    kind = "context", code = "context_length_exceeded", extra = { n_prompt_tokens = n, n_ctx = n_ctx } })
end

-- The first n_keep ids and the youngest of the others, n_max in all (Ollama's truncate).
local function cut(req, ids, n_max)
  local keep = math.max(0, math.min(req.n_keep or 4, n_max // 2))
  req.n_truncated = (req.n_truncated or 0) + #ids - n_max
  local out = table.move(ids, 1, keep, 1, {})
  return table.move(ids, #ids - (n_max - keep) + 1, #ids, keep + 1, out)
end

-- Chat: drops the oldest turns after the system message until the rest fits.
local function fit_chat(ctx, loaded, req, ids, n_max)
  local full, messages = #ids, {}
  for i, m in ipairs(req.messages) do messages[i] = m end
  local first = messages[1] and messages[1].role == "system" and 2 or 1
  while #ids > n_max and #messages > first do
    table.remove(messages, first)
    while #messages > first and (messages[first].role == "tool" or messages[first].role == "assistant") do table.remove(messages, first) end
    local r = render(ctx, loaded, messages, req)
    ids = tokenize(loaded, r)
  end
  req.n_truncated = full - #ids
  return #ids > n_max and cut(req, ids, n_max) or ids
end

local function chat_prompt(ctx, loaded, req)
  call_texts.recall(ctx.call_texts, req.messages)
  local r = render(ctx, loaded, req.messages, req)
  req.rendered = r.text
  local ids = tokenize(loaded, r)
  local n_max = req.n_ctx - 1
  if #ids > n_max then
    if not req.truncate then prompt.too_long(#ids, req.n_ctx) end
    ids = fit_chat(ctx, loaded, req, ids, n_max)
  end
  return ids
end

-- Fill in the middle: prefix, suffix, middle marks around the two texts.
local function infill_prompt(loaded, req, text)
  local info = loaded.info
  if not (info.fim_prefix and info.fim_suffix and info.fim_middle) then
    check.fail(400, '"' .. loaded.name .. '" does not support insert', { kind = "invalid" })
  end
  local ids = { info.fim_prefix }
  local function append(list) table.move(list, 1, #list, #ids + 1, ids) end
  append(loaded.model:tokenize(text, { add_special = false, parse_special = false }))
  ids[#ids + 1] = info.fim_suffix
  append(loaded.model:tokenize(req.suffix, { add_special = false, parse_special = false }))
  ids[#ids + 1] = info.fim_middle
  return ids
end

local function check_ids(loaded, ids)
  for i, id in ipairs(ids) do
    if id >= loaded.info.n_vocab then check.fail(400, "prompt[" .. (i - 1) .. "]: " .. id .. " is no token of this model") end
  end
  return ids
end

-- Texts and ids in turn; only a text that begins the prompt gets what the vocabulary puts before one.
function prompt.join(loaded, parts)
  local out = {}
  for i, part in ipairs(parts) do
    local ids = part
    if type(part) == "string" and i == 1 then ids = tokenize(loaded, { text = part })
    elseif type(part) == "string" then ids = loaded.model:tokenize(part, { add_special = false, parse_special = true })
    else check_ids(loaded, part) end
    table.move(ids, 1, #ids, #out + 1, out)
  end
  return out
end

local function text_prompt(ctx, loaded, req, text)
  local ids
  if type(text) == "table" then
    ids = text.parts and prompt.join(loaded, text.parts) or check_ids(loaded, text)
  elseif req.suffix then
    ids = infill_prompt(loaded, req, text)
  elseif req.raw or not (req.template or loaded.template) then
    local system = not req.raw and req.system and req.system ~= "" and req.system .. "\n\n" or ""
    ids = tokenize(loaded, { text = system .. text })
    req.rendered = system .. text
  else
    local messages = { { role = "user", content = text, images = req.images } }
    local system = req.system or (loaded.entry.manifest and loaded.entry.manifest.system)
    if system and system ~= "" then table.insert(messages, 1, { role = "system", content = system }) end
    local r = render(ctx, loaded, messages, req)
    req.rendered = r.text
    ids = tokenize(loaded, r)
  end
  if req.context then
    local all = table.move(req.context, 1, #req.context, 1, {})
    ids = table.move(ids, 1, #ids, #all + 1, all)
  end
  if #ids == 0 then
    if not loaded.info.bos then check.fail(400, "the prompt is empty") end
    ids = { loaded.info.bos }
  end
  if #ids > req.n_ctx - 1 then
    if req.context and req.truncate then -- the oldest tokens of the carried context go first
      local cut = #ids - (req.n_ctx - 1)
      if cut <= #req.context then
        req.n_truncated = cut
        return table.move(ids, cut + 1, #ids, 1, {})
      end
    end
    if req.truncate then return cut(req, ids, req.n_ctx - 1) end
    prompt.too_long(#ids, req.n_ctx)
  end
  return ids
end

-- -> list of token lists, one per prompt. Raises Faults. Sets req.rendered and req.n_truncated.
function prompt.build(ctx, loaded, req)
  if req.task == "chat" then
    local manifest = loaded.entry.manifest
    if manifest and (manifest.system or manifest.messages) then
      local list = {}
      for _, m in ipairs(manifest.messages or {}) do list[#list + 1] = { role = m.role, content = m.content } end
      table.move(req.messages, 1, #req.messages, #list + 1, list)
      if manifest.system and list[1].role ~= "system" then table.insert(list, 1, { role = "system", content = manifest.system }) end
      req.messages = list
    end
    if teach.wanted(loaded, req) then
      req.messages = teach.messages(req.messages, req.tool_choice ~= "none" and req.tools or nil)
    end
    return { chat_prompt(ctx, loaded, req) }
  end
  local out = {}
  for i, text in ipairs(req.prompts or { req.prompt }) do out[i] = text_prompt(ctx, loaded, req, text) end
  return out
end

-- Guidance's other prompt for each of `prompts` (what build gave): lists of tokens. Raises Faults.
function prompt.negatives(ctx, loaded, req, text, prompts)
  local out = {}
  for i, ids in ipairs(prompts) do
    if not text or text == "" then out[i] = guidance.bare(ids, loaded.info.bos)
    elseif req.task ~= "chat" then out[i] = tokenize(loaded, { text = text })
    else
      local r, message = ctx.render(loaded, guidance.messages(req.messages, text), req)
      if not r then check.fail(400, "the chat template refused the negative prompt: " .. tostring(message), { param = "negative_prompt" }) end
      out[i] = tokenize(loaded, r)
    end
  end
  return out
end

return prompt
