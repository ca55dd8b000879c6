-- SPDX-License-Identifier: MIT
-- Runs one neutral request: model, prompt, submit; choices.lua makes neutral events
-- of what the engine then tells. Everything that can fail on the client's account
-- fails in generate.start, before any event.
local uv = require("luv")
local admission = require("mtx.serve.generate.admission")
local auth = require("mtx.serve.auth")
local breakers = require("mtx.model.breakers")
local capabilities = require("mtx.serve.models.capabilities")
local check = require("mtx.api.check")
local choices = require("mtx.serve.generate.choices")
local prompt = require("mtx.serve.generate.prompt")
local request = require("mtx.api.request")
local resume = require("mtx.serve.generate.resume")
local settings = require("mtx.serve.models.settings")
local toolloop = require("mtx.serve.generate.toolloop")

local generate = {}

local Job = {}
Job.__index = Job

-- A request whose model still loads can be cancelled by its id, and by req.on_wait's taker.
local function while_loading(ctx, req)
  local id, stand_in = req.request_id and auth.own(req.key, req.request_id), nil
  return function(waiter)
    if req.on_wait then req.on_wait(waiter) end
    if not id then return end
    if waiter then
      stand_in = { req = req, cancel = function() waiter.leave(check.fault(499, "request canceled")) end }
      ctx.jobs[id] = stand_in
    elseif ctx.jobs[id] == stand_in then
      ctx.jobs[id] = nil
    end
  end
end

-- Names that clients may make up: so many are remembered, and none twice in the log.
local MAX_TOLD = 256

-- Ollama's options that mean nothing here are said in the reply's header, and once in the log.
local function tell_unknown(ctx, req)
  local names = req.unknown_options
  if not names then return end
  req.warning, req.unknown_options = "options ignored: " .. table.concat(names, ", ") .. (req.warning and "; " .. req.warning or ""), nil
  local told = ctx.told_options
  for _, name in ipairs(names) do
    if not told.names[name] and told.n < MAX_TOLD then
      told.names[name], told.n = true, told.n + 1
      ctx.log("warn", "an unknown option is ignored", { option = name, model = req.model })
    end
  end
end

-- Finds the model and waits for it to load; 404 or 400 when it is not there or cannot
-- do the task. deadline_ms: from now, or nil. Sets req.n_ctx, the context of this request, and req.warning when
-- that is less than it asked for, or it asked for what is not known. -> loaded model, ms waited
function generate.model(ctx, req, wanted, deadline_ms)
  local name = req.model
  if name == "" then name = ctx.default_model(wanted or req.inputs and "embedding") or "" end
  local entry, message = ctx.catalog:find(name)
  local base, adapter = name:match("^(.+)%+([^+]+)$")
  if not entry and base and not req.lora then -- "MODEL+ADAPTER", for clients that can set nothing but a model
    entry = ctx.catalog:find(base)
    if entry then req.lora = { { name = adapter, scale = 1.0 } } end
  end
  if not entry and req.model_by_script then message = message .. " (the server's script chose it)" end
  if not entry then check.fail(name == "" and req.dialect ~= "ollama" and 400 or 404, message) end
  local loaded, load_ms = ctx.pool:acquire(entry, { num_ctx = req.num_ctx, deadline_ms = deadline_ms, on_wait = while_loading(ctx, req) })
  req.n_ctx = math.min(req.num_ctx or loaded.n_ctx, loaded.n_ctx)
  if req.num_ctx and req.num_ctx > loaded.n_ctx then
    req.warning = "num_ctx is " .. req.num_ctx .. ", the context is " .. loaded.n_ctx .. (loaded.n_ctx < loaded.n_ctx_train and ": the model is in use with it"
      or ": the model was trained with no more")
    ctx.log("warn", "a smaller context than asked for", { model = loaded.name, num_ctx = req.num_ctx, context = loaded.n_ctx })
  end
  tell_unknown(ctx, req)
  if not loaded.can then
    local m = entry.manifest
    local own, why = settings.read(m and m.parameters)
    if not own then check.fail(400, '"' .. loaded.name .. '": ' .. why) end
    loaded.own, loaded.template = own, (m and m.template) or loaded.info.chat_template
    loaded.can = capabilities.of(loaded.info, loaded.template)
    if not loaded.template and loaded.can.completion and ctx.fallback_template then
      loaded.template = ctx.fallback_template(loaded)
    end
  end
  if wanted and not loaded.can[wanted] then
    check.fail(400, '"' .. loaded.entry.name .. '" does not support ' .. (wanted == "completion" and req.task == "chat" and "chat" or wanted == "completion" and "generate" or wanted))
  end
  return loaded, load_ms
end

local function check_abilities(loaded, req)
  local name = '"' .. loaded.entry.name .. '" does not support '
  if req.tools and not loaded.can.tools and req.dialect == "ollama" then check.fail(400, name .. "tools") end
  if req.think and req.think ~= true and not loaded.can.thinking then req.think = true end
  if req.think and not loaded.can.thinking then
    if req.dialect == "ollama" then check.fail(400, name .. "thinking") end
    req.think = nil
  end
  local images = req.images
  for _, m in ipairs(req.messages or {}) do images = images or m.images end
  if images and not loaded.can.vision then check.fail(400, name .. "vision") end
  if req.suffix and not loaded.can.insert then check.fail(400, name .. "insert") end
end

-- Dialect's defaults < model's own < the request's.
local function sampler_of(loaded, req)
  local s = {}
  for k, v in pairs(request.SAMPLER_DEFAULTS[req.dialect]) do s[k] = v end
  for _, from in ipairs({ loaded.info.sampling or {}, loaded.own.sampler, req.sampler or {} }) do
    for k, v in pairs(from) do s[k] = v end
  end
  if s.logit_bias then
    local bias, n_vocab = {}, loaded.info.n_vocab
    for k, v in pairs(s.logit_bias) do
      if type(k) == "string" then
        for _, id in ipairs(loaded.model:tokenize(k, { add_special = false, parse_special = true })) do bias[id] = v end
      else
        if k >= n_vocab then check.fail(400, "logit_bias: " .. k .. " is no token of this model (it has " .. n_vocab .. ")", { param = "logit_bias" }) end
        bias[k] = v
      end
    end
    s.logit_bias = bias
  end
  if (s.dry_multiplier or 0) ~= 0 then s.dry_breakers = breakers.ids(loaded.model, s.dry_sequence_breakers or breakers.DEFAULT) end
  if not s.seed or s.seed < 0 then s.seed = string.unpack("<I4", uv.random(4)) >> 1 end
  return s
end

local function stops_of(loaded, req)
  if req.stop and #req.stop > 0 then return req.stop end
  return loaded.own.stop
end

-- Whose prefixes the request may reuse; nil = nobody's.
local function cache_key(ctx, req)
  if req.no_cache then return nil end
  return ctx.config.cache_shared and "" or auth.owner(req.key)
end

-- Guidance's other prompt; what a resumed choice has behind its own prompt stands behind this one too.
local function negative_of(job, choice, tokens)
  local negative = job.negatives and job.negatives[choice.prompt]
  if not negative or not choice.round then return negative end
  local out = table.move(negative, 1, #negative, 1, {})
  return table.move(tokens, #job.prompts[choice.prompt] + 1, #tokens, #out + 1, out)
end

local PREDICTION_BYTES = 16 -- of a predicted text, for each token of the context

-- Drafts of a request: what it says, else the model's own, else the server's. What a model or guidance cannot do is told when
-- it was asked for. Also gives the ids of the text that the client predicts.
local function drafts_of(ctx, loaded, req, guided)
  local draft = req.draft
  if draft == nil then draft = loaded.own.draft end
  local wanted = draft or req.prediction
  if draft == nil and (req.prediction or ctx.config.draft == "lookup") then draft = {} end
  if not draft then return nil end
  local why = loaded.info.recurrent and "this model has recurrent state" or guided and "cfg_scale is set"
  if why then
    if wanted then req.warning = "no drafts: " .. why .. (req.warning and "; " .. req.warning or "") end
    return nil
  end
  -- Only the first n_ctx tokens can serve; a text of megabytes would hold up the event loop.
  local reference = req.prediction and loaded.model:tokenize(req.prediction:sub(1, req.n_ctx * PREDICTION_BYTES), { add_special = false, parse_special = false })
  return { max = draft.max or ctx.config.draft_max }, reference or nil
end

-- Hands the tokens of a choice to the engine; again (choice.round) when it is resumed, with the text held at its last end.
local function submit(job, choice, tokens, rest)
  local ctx, req, l = job.ctx, job.req, job.loaded
  local room = req.n_ctx - #tokens
  local max = math.min(resume.limit(job) - (choice.n_before or 0), room)
  local s = {}
  for k, v in pairs(job.sampler) do s[k] = v end
  s.seed = (job.sampler.seed + choice.index + (choice.round or 0) * 1000003) & 0x7fffffff
  choice.submitted = uv.hrtime()
  local id, message, code = l.engine:submit({ tokens = tokens, max_tokens = math.tointeger(max) or room, sampler = s, stop = job.stop,
    grammar = job.grammar, grammar_triggers = not choice.thought_over and job.triggers or nil,
    grammar_opening = not choice.round and job.grammar_opening or nil, grammar_optional = job.grammar_optional, logprobs = req.logprobs,
    prompt_logprobs = not choice.round and req.echo and req.logprobs or nil, priority = req.priority or 0,
    deadline_ms = job.deadline_ms and math.max(1, job.deadline_ms - (uv.hrtime() - job.t0) // 1000000), cache_key = job.cache_key, lora = job.lora,
    ignore_eos = req.ignore_eos or false, progress = req.return_progress, resumable = resume.wanted(req), rest = rest, banned_strings = s.banned_strings, sampler_script = job.sampler_script,
    cfg_scale = job.negatives and s.cfg_scale, negative = negative_of(job, choice, tokens), shown = choice.parser and choice.parser.shown,
    draft = job.draft, reference = job.draft_reference })
  if not id then
    if code == "limit" then
      if tostring(message):find("queue", 1, true) then admission.engine_full(ctx, l, message) end
      check.fail(400, tostring(message), { kind = "context", extra = { n_prompt_tokens = #tokens, n_ctx = req.n_ctx } })
    end
    local theirs = code == "invalid" or code == "unsupported"
    check.fail(theirs and 400 or 500, tostring(message), { kind = theirs and "invalid" or "internal" })
  end
  choice.id, choice.n_prompt = id, choice.n_prompt or #tokens
  choice.n_given, choice.budget = 0, math.tointeger(max) or room
  choice.speculative = job.draft ~= nil
  choice.n_queued, l.n_queued = #tokens, (l.n_queued or 0) + #tokens
  if resume.wanted(req) or job.tagged then choice.ids, choice.n_prompt_ids = table.move(tokens, 1, #tokens, 1, {}), #tokens end
  job.by_id[id] = choice
  l.handlers[id] = function(ev) choices.take(job, choice, ev) end
end

local FOREVER = 1 << 53 -- ms; what is left of more is no whole number for luv's clock, which counts in floats

-- Milliseconds the whole request may take, or nil.
local function deadline_of(ctx, req)
  local timeout = ctx.config.request_timeout
  local limit = timeout > 0 and timeout ~= math.huge and math.floor(timeout * 1000) or nil
  local own = req.deadline_ms and math.min(req.deadline_ms, FOREVER)
  return own and limit and math.min(own, limit) or own or limit
end

local function start_once(ctx, req, sink)
  local t0, arrived = uv.hrtime(), ctx.clock()
  local deadline_ms = deadline_of(ctx, req)
  local loaded, load_ms = generate.model(ctx, req, "completion", deadline_ms)
  check_abilities(loaded, req)
  req.max_tokens = req.max_tokens or loaded.own.max_tokens
  req.n_keep = req.n_keep or loaded.own.n_keep or req.dialect == "ollama" and 4 or nil
  if req.ignore_eos == nil then req.ignore_eos = loaded.own.ignore_eos end
  local lora = ctx.adapters:of(loaded, req.lora)
  admission.check_places(ctx, loaded)
  local prompts = prompt.build(ctx, loaded, req)
  admission.check_tokens(ctx, loaded, prompts, req.n)
  local job = setmetatable({ ctx = ctx, req = req, loaded = loaded, sink = sink, by_id = {}, n_left = 0, submit = submit, cache_key = cache_key(ctx, req), lora = lora, t0 = t0, arrived = arrived, deadline_ms = deadline_ms, stop = stops_of(loaded, req),
    usage = { n_prompt = 0, n_cached = 0, n_generated = 0, n_drafted = 0, n_draft_accepted = 0, load_ms = load_ms, n_truncated = req.n_truncated, counted = {} } }, Job)
  local sampler = sampler_of(loaded, req)
  job.seed, job.sampler, job.prompts = sampler.seed, sampler, prompts
  job.grammar, job.triggers, job.grammar_opening, job.grammar_optional = ctx.grammar(loaded, req)
  if sampler.script then
    if not ctx.script then check.fail(400, "sampler: the server runs no script, so it has no samplers by name", { param = "sampler" }) end
    job.sampler_script = ctx.script:sampler(sampler.script, sampler.script_options)
  end
  if sampler.cfg_scale and sampler.cfg_scale ~= 1 then
    if req.shift then check.fail(400, "cfg_scale cannot be combined with a context shift", { param = "cfg_scale" }) end
    job.negatives = prompt.negatives(ctx, loaded, req, sampler.negative_prompt, prompts)
  end
  job.draft, job.draft_reference = drafts_of(ctx, loaded, req, job.negatives)
  job.tagged = req.cache_tag and job.cache_key and ctx.persistence.enabled
  job.keep_tokens = req.dialect == "ollama" and req.task == "text" or req.return_tokens
  if req.echo then
    req.prompt_texts = {}
    for i, p in ipairs(prompts) do
      local from = #p > 1 and p[1] == loaded.info.bos and 2 or 1
      req.prompt_texts[i] = loaded.model:detokenize(table.move(p, from, #p, 1, {}))
    end
  end
  if ctx.script and ctx.script:has("token") and not req.from_script then
    job.token_hook, req.script_view = true, { model = req.model, key = auth.owner(req.key), seed = sampler.seed }
  end
  ctx.pool:hold(loaded)
  ctx.n_jobs = ctx.n_jobs + 1
  loaded.jobs[job] = true
  job.choices = {}
  local ok, err = xpcall(function()
    for p, tokens in ipairs(prompts) do
      for _ = 1, req.n do
        local choice = { index = #job.choices, prompt = p, n_calls = 0, tokens = job.keep_tokens and {} or nil,
          parser = (req.task == "chat" or not req.raw and loaded.template) and ctx.parser and ctx.parser(loaded, req) or nil }
        job.choices[#job.choices + 1] = choice
        submit(job, choice, tokens)
        job.n_left = job.n_left + 1
      end
    end
    ctx.policy:changed(loaded, "arrive")
    admission.check_deadline(job)
  end, function(e) return check.is_fault(e) and e or debug.traceback(tostring(e), 2) end)
  if not ok then
    job:cancel()
    for id, choice in pairs(job.by_id) do
      loaded.handlers[id] = nil
      choices.left_queue(job, choice)
    end
    choices.release(job)
    error(err, 0)
  end
  if req.request_id then
    job.place = auth.own(req.key, req.request_id)
    ctx.jobs[job.place] = job
  end
  if req.controlled_as then ctx.controlled[req.controlled_as] = job end -- the next round of a tool loop
  return job
end

-- Stops the work; a done event with reason "cancelled" follows for each choice.
function Job:cancel()
  self.cancelled = true
  for id in pairs(self.by_id) do self.loaded.engine:cancel(id) end
end

-- Starts the request. sink(event) is called from the event loop, never from
-- within start. req.key: the caller's key entry. Raises a Fault; gives the job
-- {req, loaded, usage, seed, cancel}.
function generate.start(ctx, req, sink)
  if ctx.script and not req.from_script then
    ctx.script:request(req)
    if toolloop.wanted(ctx, req) then return toolloop.start(ctx, req, sink, start_once) end
  end
  return start_once(ctx, req, sink)
end

return generate
