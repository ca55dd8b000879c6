-- SPDX-License-Identifier: MIT
-- A loaded model as scripts see it: the weights, a tokenizer, and (on first use)
-- an engine that runs requests and sessions.
local adapters = require("mtx.model.adapters")
local breakers = require("mtx.model.breakers")
local core = require("mtx.core")
local guidance = require("mtx.model.guidance")
local quantization = require("mtx.model.quantization")
local source = require("mtx.model.source")

local Model = {}
Model.__index = Model
Model.__name = "mtx.Model"

local model = {}

-- -> model | nil, message, code when its adapters (opts.lora) cannot be had
local function new(handle, opts)
  local self = setmetatable({ handle = handle, opts = opts, tok = handle:tokenizer() }, Model)
  if opts.lora == nil then return self end
  local ok, set, message, code = pcall(adapters.set, self, opts.lora)
  if ok and set then
    self.lora = set
    return self
  end
  self:close()
  if not ok then error(set, 3) end
  return nil, message, code
end

-- See mtx.load in init.lua.
function model.load(path, opts)
  opts = opts or {}
  if type(path) ~= "string" then error("mtx.load needs the path of a model, not " .. type(path), 3) end
  if opts.cpu then core.model.cpu(opts.cpu) end
  local file, message, code = source.open(path)
  if not file then return nil, message, code end
  local handle
  handle, message, code = core.model.open(file, {
    threads = opts.threads, no_memory_check = opts.no_memory_check, progress = opts.progress, warn = opts.warn,
  })
  if not handle then return nil, message, code end
  return new(handle, opts)
end

local Loading = {}
Loading.__index = Loading

-- See mtx.start_load in init.lua.
function model.start(path, opts)
  opts = opts or {}
  if opts.cpu then core.model.cpu(opts.cpu) end
  local task, message, code = core.model.start(source.for_thread(path), { threads = opts.threads, no_memory_check = opts.no_memory_check })
  if not task then return nil, message, code end
  return setmetatable({ task = task, opts = opts }, Loading)
end

-- A descriptor that is readable once loading has ended; closed by take.
function Loading:fd() return self.task:fd() end

-- -> bytes of weights packed, of how many (0, 0 while the header is read)
function Loading:progress() return self.task:progress() end

-- Ends it soon, with code "cancelled".
function Loading:cancel() self.task:cancel() end

-- Waits for the end. -> model | nil, message, code
function Loading:take()
  local handle, message, code = self.task:take()
  if not handle then return nil, message, code end
  for _, line in ipairs(self.opts.warn and message or {}) do self.opts.warn(line) end
  return new(handle, self.opts)
end

local NO_VOCABULARY = "this model has no tokenizer that mtx can read; a session takes token ids and gives logits"
local function vocabulary(self)
  if not self.tok then error(NO_VOCABULARY, 3) end
  return self.tok
end

-- The engine all of this model's work goes through; opened on first use.
local function shared_engine(self)
  if self.main then return self.main end
  local o = self.opts
  local engine, message, code = core.engine.open(self.handle, {
    ctx = o.ctx, threads = o.threads, kv_type = o.kv_type, n_parallel = o.n_parallel, kv_tokens = o.kv_tokens, cache_bytes = o.cache_bytes,
    max_rows = o.max_rows, max_waiting = o.max_waiting,
  })
  if not engine then return nil, message, code end
  self.main = engine
  return engine
end

-- model:engine() -> engine: submit, cancel, drain, fd, wait, stats, set_policy (meta/core.lua).
Model.engine = shared_engine

-- model:adapter(path) -> a LoRA adapter of this model, for the option `lora` {info(), close()} | nil, message, code
function Model:adapter(path)
  return self.handle:adapter(path, { no_memory_check = self.opts.no_memory_check })
end

-- The same on a thread of its own. -> task {fd() readable at the end, take() gives the adapter}
function Model:start_adapter(path)
  return self.handle:start_adapter(path, { no_memory_check = self.opts.no_memory_check })
end

-- The adapters of a request: what it names, else the model's own. -> true, set or nil | false, message, code
local function lora_of(self, value)
  if value == nil then return true, self.lora end
  local set, message, code = adapters.set(self, value)
  if set then return true, set end
  return false, message, code
end

-- ---- facts ------------------------------------------------------------------------

-- model:metadata(key) -> value of the file's metadata, or nil.
function Model:metadata(key) return (self.handle:file():metadata(key)) end

-- model:info() -> architecture, name, n_params, n_vocab, n_embd, n_layer, n_ctx_train, n_ctx, quantization,
-- file_bytes, weight_bytes, resident_bytes, has_logits, pooling, chat_template, n_threads, tier, path
function Model:info()
  local info = self.handle:info()
  if not self.facts then
    local g = self.handle:file()
    self.facts = {
      name = g:metadata("general.name"), chat_template = g:metadata("tokenizer.chat_template"), quantization = quantization.name(g:metadata("general.file_type"), g:tensors()),
      tokenizer = g:metadata("tokenizer.ggml.model"),
    }
  end
  for k, v in pairs(self.facts) do info[k] = v end
  info.n_threads = math.min(self.opts.threads or core.model.cores(), core.model.cores())
  info.n_ctx = self.main and self.main:stats().n_ctx or self.opts.ctx
  return info
end

-- ---- text and tokens -----------------------------------------------------------------

-- model:tokenize(text [, {add_special = true, parse_special = false, spans}]) -> ids | nil, message, code
function Model:tokenize(text, opts)
  if self.closed then error("the model is closed", 2) end
  if not self.tok then return nil, NO_VOCABULARY, "unsupported" end
  return self.tok:encode(text, opts or { add_special = true })
end

function Model:detokenize(ids) return vocabulary(self):decode(ids) end

-- model:piece(id) -> the bytes this token adds to a text.
function Model:piece(id) return vocabulary(self):piece(id) end

-- model:containing(text) -> ids of the tokens whose text holds it.
function Model:containing(text) return vocabulary(self):containing(text) end

function Model:is_eog(id) return vocabulary(self):is_eog(id) end

-- model:apply_template(messages [, {tools, kwargs, add_generation_prompt}]) -> text, spans | nil, message, code
function Model:apply_template(messages, opts)
  opts = opts or {}
  local render = require("mtx.chat.render")
  if not self.tok then return nil, NO_VOCABULARY, "unsupported" end
  local special = self.tok:special()
  local function text_of(id) return id and id >= 0 and self.tok:piece(id) or "" end
  if not self.renderer then
    local source = self.opts.template or self:info().chat_template
    local r, message, code = render.new({
      template = source, bos_token = text_of(special.bos), eos_token = text_of(special.eos), name = self:info().name,
      architecture = self:info().architecture,
    })
    if not r then return nil, message, code end
    self.renderer = r
  end
  return self.renderer:render({
    messages = messages, tools = opts.tools, kwargs = opts.kwargs, add_generation_prompt = opts.add_generation_prompt ~= false,
    continue_final_message = opts.continue_final_message,
  })
end

-- ---- generation ------------------------------------------------------------------------

local SAMPLER_FIELDS = {
  "temperature", "dynatemp_range", "dynatemp_exponent", "top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "top_a", "epsilon", "eta",
  "xtc_probability", "xtc_threshold", "repeat_penalty", "repeat_last_n", "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base",
  "dry_allowed_length", "dry_last_n", "dry_breakers", "mirostat", "mirostat_tau", "mirostat_eta", "adaptive_target", "adaptive_decay", "seed",
  "logit_bias", "order",
}

-- The fields a call takes: the names in `text` and in `more`, as a list and as a set.
local function fields_of(text, more)
  local fields = { set = {} }
  for field in text:gmatch("%S+") do fields[#fields + 1] = field end
  table.move(more, 1, #more, #fields + 1, fields)
  for _, field in ipairs(fields) do fields.set[field] = true end
  return fields
end

local REQUEST_FIELDS = fields_of([[messages prompt tokens tools kwargs add_generation_prompt continue_final_message max_tokens stop
  banned_strings grammar grammar_triggers grammar_opening logprobs ignore_eos shown priority deadline_ms cache_key lora cfg_scale
  negative_prompt sampler sampler_options dry_sequence_breakers]], SAMPLER_FIELDS)
local BEAM_FIELDS = fields_of([[messages prompt tokens tools kwargs add_generation_prompt continue_final_message max_tokens ignore_eos lora]],
  { "n_beams", "n_best", "length_penalty" })

-- A misspelt field would be silently without effect.
local function check_fields(request, what, fields)
  if type(request) ~= "table" then error(what .. " needs a table with messages, prompt or tokens", 3) end
  for field in pairs(request) do
    if not fields.set[field] then
      local near = type(field) == "string" and require("mtx.nearest")(field, fields)
      error(("%s has no field '%s'%s"):format(what, tostring(field), near and "; did you mean " .. near .. "?" or ""), 3)
    end
  end
end

-- The prompt's token ids: from tokens, prompt (plain text) or messages (through the template).
local function prompt_ids(self, request)
  if request.tokens then return request.tokens end
  if request.prompt then return self:tokenize(request.prompt, { add_special = true, parse_special = false }) end
  if not request.messages then error("generate needs messages, prompt or tokens", 3) end
  if type(request.messages) ~= "table" then error("messages must be a list of { role =, content = }", 3) end
  if not self.handle:info().has_logits then return nil, "this model gives embeddings, no text; use embed", "unsupported" end
  local text, spans, code = self:apply_template(request.messages, request)
  if not text then return nil, spans, code end
  return self:tokenize(text, { add_special = true, bos_once = true, parse_special = true, spans = spans })
end

-- The token ids that guidance steers away from.
local function negative_ids(self, request, ids)
  local text = request.negative_prompt
  if not text or text == "" then return guidance.bare(ids, vocabulary(self):special().bos) end
  if not request.messages then return self:tokenize(text, { add_special = true, parse_special = false }) end
  local other = {}
  for k, v in pairs(request) do other[k] = v end
  other.messages = guidance.messages(request.messages, text)
  return prompt_ids(self, other)
end

local Stream = {}
Stream.__index = Stream

-- Takes events until there is text, or the end. -> piece | nil at the end
function Stream:__call()
  while not self.finished do
    local event = table.remove(self.queue, 1)
    if not event then
      self.engine:wait(100)
      for _, ev in ipairs(self.engine:drain()) do
        local owner = self.model.streams[ev.id]
        if owner then owner.queue[#owner.queue + 1] = ev end
      end
      if #self.queue == 0 and self.on_idle then self.on_idle() end
    elseif event.kind == "token" then
      table.move(event.tokens, 1, #event.tokens, #self.ids + 1, self.ids)
      for _, l in ipairs(event.logprobs or {}) do self.logprobs[#self.logprobs + 1] = l end
      self.first = self.first or self.clock()
      if event.text ~= "" then
        self.parts[#self.parts + 1] = event.text
        return event.text
      end
    elseif event.kind == "start" then
      self.n_cached = event.n_cached
    else
      self.finished = event
      self.model.streams[self.id] = nil
    end
  end
  return nil
end

-- Ends the request; the pieces that are there still come.
function Stream:cancel() self.engine:cancel(self.id) end

local function per_second(n, ms) return ms > 0 and n / ms * 1000 or 0 end

-- After the last piece: {text, ids, prompt_ids, finish_reason, stop_string, logprobs, seed, timings}
-- | nil, message, code when the request failed.
function Stream:result()
  while self() do end
  local done = self.finished
  if done.reason == "error" then return nil, done.message, done.code end
  local n_new = done.n_prompt - done.n_cached
  return {
    text = table.concat(self.parts), ids = self.ids, prompt_ids = self.prompt_ids,
    finish_reason = done.reason == "stop_string" and "stop" or done.reason, stop_string = done.stop_string,
    logprobs = self.want_logprobs and self.logprobs or nil, seed = self.seed,
    timings = {
      n_prompt = done.n_prompt, n_cached = done.n_cached, n_generated = done.n_generated, queue_ms = done.t_queue_ms,
      prefill_ms = done.t_prefill_ms, decode_ms = done.t_decode_ms, first_token_ms = self.first and (self.first - self.started) * 1000,
      prompt_per_second = per_second(n_new, done.t_prefill_ms),
      -- The first token comes out of the prefill.
      decode_per_second = per_second(math.max(done.n_generated - 1, 0), done.t_decode_ms),
    },
  }
end

-- for piece in model:stream{ messages = | prompt = | tokens =, max_tokens, temperature, ..., stop = {texts}, grammar,
-- logprobs, ignore_eos, cache_key, lora (see mtx.load), cfg_scale, negative_prompt } do ... end. cfg_scale other than 1 guides the answer away
-- from negative_prompt (with messages: from the same conversation under that system message; log-probabilities
-- u + cfg_scale * (c - u)). `sampler` may be a function(logits, history, options) -> id or nil (sampled.lua).
-- The stream can also be cancelled (:cancel()) and gives :result().
function Model:stream(request)
  check_fields(request, "generate", REQUEST_FIELDS)
  local engine, message, code = shared_engine(self)
  if not engine then return nil, message, code end
  local ids
  ids, message, code = prompt_ids(self, request)
  if not ids then return nil, message, code end
  local negative
  if request.cfg_scale and request.cfg_scale ~= 1 then
    negative, message, code = negative_ids(self, request, ids)
    if not negative then return nil, message, code end
  end
  local ok, lora, lora_code = lora_of(self, request.lora)
  if not ok then return nil, lora, lora_code end
  local sampler = {}
  for _, name in ipairs(SAMPLER_FIELDS) do sampler[name] = request[name] end
  if (request.dry_multiplier or 0) ~= 0 and not request.dry_breakers then
    sampler.dry_breakers = breakers.ids(self, request.dry_sequence_breakers or breakers.DEFAULT)
  end
  if type(request.sampler) == "function" then
    if request.cfg_scale and request.cfg_scale ~= 1 then error("cfg_scale cannot be combined with a sampler function", 2) end
    return require("mtx.model.sampled").stream(engine, self, ids, request, sampler, lora)
  end
  local clock = os.clock
  local has_uv, uv = pcall(require, "luv")
  if has_uv then clock = function() return uv.hrtime() / 1e9 end end
  local started = clock()
  local id, seed
  id, seed, code = engine:submit({
    tokens = ids, max_tokens = request.max_tokens, sampler = sampler, stop = request.stop, banned_strings = request.banned_strings,
    grammar = request.grammar, grammar_triggers = request.grammar_triggers, grammar_opening = request.grammar_opening, logprobs = request.logprobs, ignore_eos = request.ignore_eos,
    cfg_scale = request.cfg_scale, negative = negative, shown = request.shown, priority = request.priority, deadline_ms = request.deadline_ms, cache_key = request.cache_key, lora = lora,
  })
  if not id then return nil, seed, code end
  self.streams = self.streams or {}
  local stream = setmetatable({
    model = self, engine = engine, id = id, seed = seed, prompt_ids = ids, queue = {}, parts = {}, ids = {}, logprobs = {},
    want_logprobs = request.logprobs ~= nil, clock = clock, started = started,
  }, Stream)
  self.streams[id] = stream
  return stream
end

-- model:generate{...} as stream -> result | nil, message, code
function Model:generate(request)
  local stream, message, code = self:stream(request)
  if not stream then return nil, message, code end
  return stream:result()
end

-- model:beam{messages | prompt | tokens, n_beams = 4, n_best = 1, max_tokens = 64, length_penalty = 1, ignore_eos, lora}
-- -> list of {ids, text, logprob, score, finish_reason}, best first | nil, message, code (beam.lua). Blocks.
function Model:beam(request)
  check_fields(request, "beam", BEAM_FIELDS)
  local engine, message, code = shared_engine(self)
  if not engine then return nil, message, code end
  local ids
  ids, message, code = prompt_ids(self, request)
  if not ids then return nil, message, code end
  local ok, lora, lora_code = lora_of(self, request.lora)
  if not ok then return nil, lora, lora_code end
  return require("mtx.model.beam").search(self, engine, ids, request, lora)
end

-- model:session([{lora}]) -> session: eval(ids [, {all = true}]) -> tensor, fork(), rewind(n), close().
function Model:session(opts)
  local engine, message, code = shared_engine(self)
  if not engine then return nil, message, code end
  local ok, lora, lora_code = lora_of(self, opts and opts.lora)
  if not ok then return nil, lora, lora_code end
  return engine:session({ lora = lora })
end

-- model:embed(list of id lists or texts [, {pooling, normalize, lora}]) -> list of vectors | nil, message, code
function Model:embed(inputs, opts)
  local lists = {}
  for i, input in ipairs(inputs) do
    local ids, message, code = input, nil, nil
    if type(input) == "string" then ids, message, code = self:tokenize(input, { add_special = true }) end
    if not ids then return nil, message, code end
    lists[i] = ids
  end
  local engine, message, code = shared_engine(self)
  if not engine then return nil, message, code end
  opts = opts or {}
  local ok, lora, lora_code = lora_of(self, opts.lora)
  if not ok then return nil, lora, lora_code end
  return engine:embed(lists, { pooling = opts.pooling, normalize = opts.normalize, lora = lora })
end

-- model:profile(on) -> list of {op, ns, calls, bytes} since the last call; measures from now on when `on`.
function Model:profile(on)
  local engine, message, code = shared_engine(self)
  if not engine then return nil, message, code end
  return engine:profile(on)
end

-- Ends the engine and frees the weights. Sessions must be closed first.
function Model:close()
  if self.main then self.main:close() end
  self.main, self.tok, self.closed = nil, nil, true
  self.handle:close()
end

-- The same, but the memory is given back on a thread of its own: a big model takes
-- its time. -> task {fd() readable at the end, take() waits for it}
function Model:drop()
  local main = self.main
  self.main, self.tok, self.closed = nil, nil, true
  return core.model.drop(self.handle, main)
end

Model.__close = Model.close
function Model:__tostring() return tostring(self.handle) end

return model
