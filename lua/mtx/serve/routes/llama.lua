-- SPDX-License-Identifier: MIT
-- llama-server's native routes.
local answer = require("mtx.serve.answer")
local check = require("mtx.api.check")
local embed = require("mtx.serve.generate.embed")
local generate = require("mtx.serve.generate")
local ids = require("mtx.ids")
local llama = require("mtx.api.llama")
local openai = require("mtx.api.openai")
local prompt = require("mtx.serve.generate.prompt")
local request = require("mtx.api.request")
local wire = require("mtx.api.wire")

local M = {}

local get, fail, list = check.get, check.fail, wire.list

local function completion(ctx, decode)
  return function(x)
    local req = decode(answer.body(x))
    answer.run(ctx, x, req, function(job) return llama.writer(req, { model = job.loaded.name, job = job }) end)
  end
end

local function plain(body) return { dialect = "llama", model = check.string(body, "model") or "", lora = request.lora(body) } end

local function tokenize(ctx, field)
  return function(x)
    local body = answer.body(x)
    local content = get(body, "content") or get(body, "prompt") or get(body, "text")
    if content == nil then content = "" end
    if type(content) ~= "string" then fail(400, "content must be a string", { param = "content" }) end
    local special = check.boolean(body, "add_special")
    local parse = check.boolean(body, "parse_special")
    local l = generate.model(ctx, plain(body))
    local out, message = l.model:tokenize(content, { add_special = special or false, parse_special = parse ~= false })
    if not out then fail(400, tostring(message)) end
    if check.boolean(body, "with_pieces") then
      local tokens = list()
      for i, id in ipairs(out) do
        local piece = l.model:piece(id)
        tokens[i] = { id = id, piece = utf8.len(piece) and piece or list({ piece:byte(1, -1) }) }
      end
      return x:send(200, wire.encode({ [field] = tokens }))
    end
    x:send(200, wire.encode({ [field] = list(out), count = field == "tokens" and #out or nil }))
  end
end

local function detokenize(ctx)
  return function(x)
    local body = answer.body(x)
    local tokens = check.array(body, "tokens")
    if not tokens then fail(400, "tokens must be an array of token ids") end
    local l = generate.model(ctx, plain(body))
    local out = {}
    for i, v in ipairs(tokens) do
      local id = type(v) == "number" and math.tointeger(v)
      if not id or id < 0 or id >= l.info.n_vocab then fail(400, "tokens[" .. (i - 1) .. "] is no token of this model") end
      out[i] = id
    end
    x:send(200, wire.encode({ content = wire.clean(l.model:detokenize(out)) }))
  end
end

local function apply_template(ctx)
  return function(x)
    local req = openai.chat(answer.body(x))
    local l = generate.model(ctx, req, "completion")
    prompt.build(ctx, l, req)
    x:send(200, wire.encode({ prompt = req.rendered or "" }))
  end
end

-- A decoder whose file names no pooling gives one vector per token, as llama-server does.
local function native_pooling(info)
  if info.has_logits and (info.pooling or -1) <= 0 then return "none" end
end

local function embedding(ctx)
  return function(x)
    local body = answer.body(x)
    local key = get(body, "content") ~= nil and "content" or "input"
    local norm = check.integer(body, "embd_normalize") or 2
    if norm < -1 then fail(400, "embd_normalize must be -1 (none), 0 (largest value), 1, 2 or a higher norm", { param = "embd_normalize" }) end
    local req = plain(body)
    req.inputs, req.normalize, req.key, req.pooling_of = openai.prompts(body, key, request.MAX.inputs), false, x.key, native_pooling
    embed.run(ctx, x, req, function(vectors)
      local out = list()
      for i, v in ipairs(vectors) do
        local rows = list()
        if req.pooling == "none" then -- raw
          for k, row in ipairs(v) do rows[k] = list(row) end
        else
          rows[1] = list(llama.normalized(v, norm))
        end
        out[i] = { index = i - 1, embedding = rows }
      end
      x:send(200, wire.encode(out))
    end)
  end
end

local function dot(a, b)
  local s = 0
  for i = 1, #a do s = s + a[i] * b[i] end
  return s
end

-- Scores documents against the query: a rank head when the model has one, else
-- the cosine of the two vectors.
local function rerank(ctx)
  return function(x)
    local body = answer.body(x)
    local query = check.string(body, "query")
    if not query then fail(400, "query is required", { param = "query" }) end
    local tei = get(body, "texts") ~= nil
    local docs = check.array(body, tei and "texts" or "documents", nil, request.MAX.inputs)
    if not docs or #docs == 0 then fail(400, "documents must be a non-empty array of strings", { param = "documents" }) end
    local req = plain(body)
    req.inputs, req.key = { query }, x.key
    for i, d in ipairs(docs) do
      if type(d) == "table" then d = d.text end
      if type(d) ~= "string" then fail(400, "documents[" .. (i - 1) .. "] must be a string", { param = "documents" }) end
      req.inputs[i + 1] = d
    end
    local top_n = check.integer(body, "top_n", 1) or #docs
    local with_text = check.boolean(body, "return_text")
    embed.run(ctx, x, req, function(vectors, info)
      local results = {}
      for i = 2, #vectors do results[i - 1] = { index = i - 2, score = dot(vectors[1], vectors[i]), text = req.inputs[i] } end
      table.sort(results, function(a, b)
        if a.score ~= b.score then return a.score > b.score end
        return a.index < b.index
      end)
      local out = list()
      for i = 1, math.min(top_n, #results) do
        local o = results[i]
        out[i] = tei and { index = o.index, score = o.score, text = with_text and o.text or nil } or { index = o.index, relevance_score = o.score }
      end
      if tei then return x:send(200, wire.encode(out)) end
      x:send(200, wire.encode({ model = answer.name_told(req, info.model), object = "list", results = out,
        usage = { prompt_tokens = info.n_tokens, total_tokens = info.n_tokens } }))
    end)
  end
end

-- vLLM's score: the cosine of each text_1 with the text_2 beside it, or of a single one with all of them.
local function score(ctx)
  return function(x)
    local body = answer.body(x)
    local req = plain(body)
    local function texts(name)
      local v = get(body, name)
      local items = type(v) == "string" and { v } or check.array(body, name, nil, request.MAX.inputs) or {}
      if #items == 0 then fail(400, name .. " must be a text or a non-empty array of texts", { param = name }) end
      for i, item in ipairs(items) do
        if type(item) ~= "string" then fail(400, ("%s[%d] must be a string"):format(name, i - 1), { param = name }) end
      end
      return items
    end
    local left, right = texts("text_1"), texts("text_2")
    if #left ~= 1 and #left ~= #right then fail(400, "text_1 must be one text, or as many as text_2", { param = "text_1" }) end
    req.inputs, req.key = table.move(right, 1, #right, #left + 1, table.move(left, 1, #left, 1, {})), x.key
    embed.run(ctx, x, req, function(vectors, info)
      local out = list()
      for i = 1, #right do out[i] = { index = i - 1, object = "score", score = dot(vectors[math.min(i, #left)], vectors[#left + i]) } end
      x:send(200, wire.encode({ id = "score-" .. ids.random(24), object = "list", created = os.time(), data = out,
        model = answer.name_told(req, info.model), usage = { prompt_tokens = info.n_tokens, total_tokens = info.n_tokens } }))
    end)
  end
end

local MARKER = "<__media_" .. ids.random(16) .. "__>"

local function props(ctx)
  return function(x)
    local l = ctx.pool:list()[1]
    local defaults = {}
    for k, v in pairs(request.SAMPLER_DEFAULTS.llama) do defaults[k] = v end
    x:send(200, wire.encode({ default_generation_settings = { n_ctx = l and l.n_ctx or 0, params = defaults }, total_slots = ctx.config.parallel,
      model_path = l and l.name or "", model_alias = l and l.name or "", chat_template = l and l.template or (l and l.info.chat_template) or "",
      chat_template_caps = { supports_tools = l and l.can and l.can.tools or false }, modalities = { vision = false, audio = false },
      media_marker = MARKER, build_info = "mtx " .. ctx.version, is_sleeping = false }))
  end
end

local function lora_list(ctx)
  return function(x)
    local out = list()
    for i, e in ipairs(ctx.adapters.list) do
      out[i] = { id = i - 1, name = e.name, path = e.path:match("[^/]+$"), scale = e.scale, task_name = e.info.task_name, prompt_prefix = e.info.prompt_prefix }
    end
    x:send(200, wire.encode(out))
  end
end

-- [{id, scale}]: of requests that name none themselves; adapters not in the list are off.
local function lora_scales(ctx)
  return function(x)
    local items, message = require("mtx.api.body").array(x.body or "")
    if not items then fail(400, message) end
    ctx.adapters:set_scales(request.lora({ lora = items }) or {})
    x:send(200, '{"success":true}')
  end
end

function M.add(ctx)
  local r = ctx.routes
  local function native(method, scope, handler, ...)
    for _, path in ipairs({ ... }) do r:add(method, path, { scope = scope, dialect = path:find("^/v1/") and "openai" or "llama", handler = handler }) end
  end
  native("POST", "infer", completion(ctx, llama.completion), "/completion", "/completions")
  native("POST", "infer", completion(ctx, llama.infill), "/infill")
  native("POST", "infer", tokenize(ctx, "tokens"), "/tokenize")
  native("POST", "infer", detokenize(ctx), "/detokenize")
  native("POST", "infer", apply_template(ctx), "/apply-template")
  native("POST", "embed", embedding(ctx), "/embedding", "/embeddings")
  native("POST", "embed", rerank(ctx), "/rerank", "/reranking", "/v1/rerank", "/v1/reranking")
  native("POST", "embed", score(ctx), "/score", "/v1/score")
  native("GET", "infer", props(ctx), "/props")
  native("POST", "admin", function(x)
    if not ctx.config.props_writable then fail(501, "changing properties is switched off; start with --props-writable") end
    answer.body(x)
    x:send(200, '{"success":true}')
  end, "/props")
  native("GET", "infer", lora_list(ctx), "/lora-adapters")
  native("POST", "admin", lora_scales(ctx), "/lora-adapters")
  r:add("POST", "/api/tokenize", { scope = "infer", dialect = "ollama", handler = tokenize(ctx, "tokens") })
  r:add("POST", "/api/detokenize", { scope = "infer", dialect = "ollama", handler = detokenize(ctx) })
end

return M
