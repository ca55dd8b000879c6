-- SPDX-License-Identifier: MIT
-- A loaded model as scripts see it: the weights, a tokenizer, and (on first use)
-- an engine that runs requests and sessions.
local adapters = require("mtx.model.adapters")
local breakers = require("mtx.model.breakers")
local core = require("mtx.core")
local drafts = require("mtx.model.drafts")
local fields = require("mtx.model.fields")
local guidance = require("mtx.model.guidance")
local loading = require("mtx.model.loading")
local misuse = require("mtx.model.misuse")
local quantization = require("mtx.model.quantization")
local source = require("mtx.model.source")
local stream = require("mtx.model.stream")

local Model = {}
Model.__index = Model
Model.__name = "mtx.Model"

local model = {}

local function passed(ok, ...)
  if not ok then misuse((...)) end
  return ...
end

-- f(...), a function of the core; what it raises (an option of the wrong kind) names the line of the caller's program.
local function asked(f, ...) return passed(pcall(f, ...)) end

local function open(self)
  if self.closed then misuse("the model is closed") end
end

-- -> model | nil, message, code when its adapters (opts.lora) cannot be had
local function new(handle, opts)
  local self = setmetatable({ handle = handle, opts = opts }, Model)
  self.tok, self.no_tok = handle:tokenizer() -- nil, why not
  if opts.lora == nil then return self end
  local ok, set, message, code = pcall(adapters.set, self, opts.lora)
  if ok and set then
    self.lora = set
    return self
  end
  self:close()
  if not ok then misuse(set) end
  return nil, message, code
end

local function check_load(what, path, opts)
  if type(path) ~= "string" then misuse(what .. " needs the path of a model, not " .. type(path)) end
  fields.check(opts, what, fields.LOAD)
end

-- See mtx.load in init.lua.
function model.load(path, opts)
  opts = opts or {}
  check_load("mtx.load", path, opts)
  if opts.cpu then core.model.cpu(opts.cpu) end
  local file, message, code = source.open(path)
  if not file then return nil, message, code end
  local handle
  handle, message, code = asked(core.model.open, file, {
    threads = opts.threads, no_memory_check = opts.no_memory_check, ctx = opts.ctx, kv_type = opts.kv_type, progress = opts.progress, warn = opts.warn,
  })
  if not handle then return nil, message, code end
  return new(handle, opts)
end

-- See mtx.start_load in init.lua.
function model.start(path, opts)
  opts = opts or {}
  check_load("mtx.start_load", path, opts)
  if opts.cpu then core.model.cpu(opts.cpu) end
  local task, message, code = asked(core.model.start, source.for_thread(path), {
    threads = opts.threads, no_memory_check = opts.no_memory_check, ctx = opts.ctx, kv_type = opts.kv_type,
  })
  if not task then return nil, message, code end
  return loading.new(task, opts, new)
end

local function vocabulary(self)
  open(self)
  if not self.tok then misuse(self.no_tok) end
  return self.tok
end

-- The engine all of this model's work goes through; opened on first use.
local function shared_engine(self)
  if self.main then return self.main end
  open(self)
  local o = self.opts
  local engine, message, code = asked(core.engine.open, self.handle, {
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
function Model:metadata(key)
  open(self)
  return (self.handle:file():metadata(key))
end

-- model:info() -> architecture, name, n_params, n_vocab, n_embd, n_layer, n_ctx_train, n_ctx, quantization,
-- file_bytes, weight_bytes, resident_bytes, has_logits, pooling, chat_template, n_threads, tier, path
function Model:info()
  open(self)
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
  open(self)
  if type(text) ~= "string" then misuse("tokenize needs a text, not " .. type(text)) end
  if not self.tok then return nil, self.no_tok, "unsupported" end
  return asked(self.tok.encode, self.tok, text, opts or { add_special = true })
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
  open(self)
  if not self.tok then return nil, self.no_tok, "unsupported" end
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

-- The prompt's token ids: from tokens, prompt (plain text) or messages (through the template).
local function prompt_ids(self, request)
  if request.tokens then return request.tokens end
  if request.prompt and type(request.prompt) ~= "string" then misuse("prompt must be a text, not a " .. type(request.prompt)) end
  if request.prompt then return self:tokenize(request.prompt, { add_special = true, parse_special = false }) end
  if not request.messages then misuse("generate needs messages, prompt or tokens") end
  if type(request.messages) ~= "table" then misuse("messages must be a list of { role =, content = }") end
  if not self.handle:info().has_logits then return nil, "this model gives embeddings, no text; use embed (in the shell `mtx embed`)", "unsupported" end
  local text, spans, code = self:apply_template(request.messages, request)
  if not text then return nil, spans, code end
  return self:tokenize(text, { add_special = true, bos_once = true, parse_special = true, spans = spans })
end

-- What every way of generating begins with. -> engine, prompt ids, adapters (or nil) | nil, message, code
local function prepare(self, request)
  local engine, message, code = shared_engine(self)
  if not engine then return nil, message, code end
  local ids
  ids, message, code = prompt_ids(self, request)
  if not ids then return nil, message, code end
  local ok, lora, lora_code = lora_of(self, request.lora)
  if not ok then return nil, lora, lora_code end
  return engine, ids, lora
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

-- for piece in assert(model:stream{ messages = | prompt = | tokens =, max_tokens, temperature, ..., stop = {texts}, grammar,
-- logprobs, ignore_eos, cache_key, lora (see mtx.load), cfg_scale, negative_prompt }) do ... end. cfg_scale other than 1 guides the answer away
-- from negative_prompt (with messages: from the same conversation under that system message; log-probabilities
-- u + cfg_scale * (c - u)). `draft`: see drafts.lua. `sampler` may be a function(logits, history, options) -> id or nil (sampled.lua).
-- A failure on the way raises in the loop. The stream can also be cancelled (:cancel()), gives :result(), and its pieces one by one
-- with failures as values (:next()).
function Model:stream(request)
  fields.check(request, "generate", fields.REQUEST)
  local engine, ids, lora = prepare(self, request)
  if not engine then return nil, ids, lora end
  local negative, message, code
  if request.cfg_scale and request.cfg_scale ~= 1 then
    negative, message, code = negative_ids(self, request, ids)
    if not negative then return nil, message, code end
  end
  local sampler = {}
  for _, name in ipairs(fields.SAMPLER) do sampler[name] = request[name] end
  if (request.dry_multiplier or 0) ~= 0 and not request.dry_breakers then
    sampler.dry_breakers = breakers.ids(self, request.dry_sequence_breakers or breakers.DEFAULT)
  end
  if type(request.sampler) == "function" then
    if request.cfg_scale and request.cfg_scale ~= 1 then misuse("cfg_scale cannot be combined with a sampler function") end
    if request.draft then misuse("draft cannot be combined with a sampler function") end
    return require("mtx.model.sampled").stream(engine, self, ids, request, sampler, lora)
  end
  local draft, reference
  draft, reference, code = drafts.of(self, request.draft)
  if draft == nil then return nil, reference, code end
  local started = stream.clock()
  local id, seed
  id, seed, code = asked(engine.submit, engine, {
    tokens = ids, max_tokens = request.max_tokens, sampler = sampler, stop = request.stop, banned_strings = request.banned_strings,
    grammar = request.grammar, grammar_triggers = request.grammar_triggers, grammar_opening = request.grammar_opening, logprobs = request.logprobs, ignore_eos = request.ignore_eos,
    cfg_scale = request.cfg_scale, negative = negative, shown = request.shown, priority = request.priority, deadline_ms = request.deadline_ms, cache_key = request.cache_key, lora = lora,
    draft = draft or nil, reference = reference,
  })
  if not id then return nil, seed, code end
  return stream.new({ model = self, engine = engine, id = id, seed = seed, prompt_ids = ids, want_logprobs = request.logprobs ~= nil, started = started })
end

-- model:generate{...} as stream -> result | nil, message, code
function Model:generate(request)
  local pieces, message, code = self:stream(request)
  if not pieces then return nil, message, code end
  return pieces:result()
end

-- model:beam{messages | prompt | tokens, n_beams = 4, n_best = 1, max_tokens = 64, length_penalty = 1, ignore_eos, lora}
-- -> list of {ids, text, logprob, score, finish_reason}, best first | nil, message, code (beam.lua). Blocks.
function Model:beam(request)
  fields.check(request, "beam", fields.BEAM)
  local engine, ids, lora = prepare(self, request)
  if not engine then return nil, ids, lora end
  return require("mtx.model.beam").search(self, engine, ids, request, lora)
end

-- model:session([{lora}]) -> session: eval(ids [, {all = true}]) -> tensor, fork(), rewind(n), close().
function Model:session(opts)
  local engine, message, code = shared_engine(self)
  if not engine then return nil, message, code end
  local ok, lora, lora_code = lora_of(self, opts and opts.lora)
  if not ok then return nil, lora, lora_code end
  return asked(engine.session, engine, { lora = lora })
end

-- model:embed(list of id lists or texts [, {pooling, normalize, lora}]) -> list of vectors | nil, message, code
function Model:embed(inputs, opts)
  if type(inputs) ~= "table" then misuse("embed needs a list of texts or of lists of ids, not " .. type(inputs)) end
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
  return asked(engine.embed, engine, lists, { pooling = opts.pooling, normalize = opts.normalize, lora = lora })
end

-- model:profile(on) -> list of {op, ns, calls, bytes} since the last call; measures from now on when `on`.
function Model:profile(on)
  local engine, message, code = shared_engine(self)
  if not engine then return nil, message, code end
  return engine:profile(on)
end

-- Another model over the same weights, with an engine of its own. opts: what may differ (ctx, n_parallel, max_waiting, kv_tokens,
-- cache_bytes, max_rows). The weights stay until the last of them is closed. -> model
function Model:share(opts)
  open(self)
  fields.check(opts or {}, "model:share", fields.LOAD)
  local all = {}
  for _, from in ipairs({ self.opts, opts or {} }) do
    for k, v in pairs(from) do all[k] = v end
  end
  all.lora = nil
  self.weights = self.weights or { n_open = 1, n_ending = 0 }
  self.weights.n_open = self.weights.n_open + 1
  return setmetatable({ handle = self.handle, opts = all, tok = self.tok, no_tok = self.no_tok, weights = self.weights }, Model)
end

-- Must the weights stay for others when this model goes?
local function shared(self)
  local w = self.weights
  return w and (w.n_open > 1 or w.n_ending > 0)
end

-- The model has gone: only now, since the core refuses while sessions are open.
local function gone(self)
  self.main, self.tok, self.closed = nil, nil, true
  if self.weights then self.weights.n_open = self.weights.n_open - 1 end
end

-- Ends the engine and frees the weights. Sessions must be closed first.
function Model:close()
  if self.closed then return end
  if self.main then asked(self.main.close, self.main) end
  self.main = nil
  if not shared(self) then asked(self.handle.close, self.handle) end
  gone(self)
end

-- A task that ends an engine whose weights are (or were) others' as well: whoever is the last to end gives them back.
local Ending = {}
Ending.__index = Ending

function Ending:fd() return self.task:fd() end

function Ending:take()
  local ok, lost, code = self.task:take()
  local w = self.weights
  w.n_ending = w.n_ending - 1
  if w.n_open == 0 and w.n_ending == 0 then self.handle:close() end
  return ok, lost, code
end

-- The same, but the memory is given back on a thread of its own: a big model takes
-- its time. -> task {fd() readable at the end, take() waits for it}
function Model:drop()
  open(self)
  local others = shared(self)
  local task, message, code = asked(core.model.drop, not others and self.handle or nil, self.main)
  gone(self)
  if not task or not others then return task, message, code end
  self.weights.n_ending = self.weights.n_ending + 1
  return setmetatable({ task = task, handle = self.handle, weights = self.weights }, Ending)
end

Model.__close = Model.close
function Model:__tostring() return tostring(self.handle) end

return model
