-- SPDX-License-Identifier: MIT
-- A model and engine with the C binding's face and a scripted mouth: tokens are
-- code points, replies come from fake.reply (or from marks in the prompt), one
-- token per step on a timer. Lets every server behaviour be tested without weights.
--
-- Marks in the last user text: @say{TEXT} answers TEXT; @long{N} answers N words;
-- @slow{MS} waits MS per token; @error fails after two tokens; @think{TEXT} puts
-- TEXT into <think> tags first; @call{JSON} answers a <tool_call>.
local uv = require("luv")
local temp = require("temp")

local fake = {}

local SPECIAL = { ["<|im_start|>"] = 0x110000, ["<|im_end|>"] = 0x110001, ["<s>"] = 0x110002 }
local SPECIAL_TEXT = {}
for text, id in pairs(SPECIAL) do SPECIAL_TEXT[id] = text end

-- Takes tools and has a switch for thoughts, which is what the server finds out by rendering it.
fake.TEMPLATE = "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
  .. "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"

function fake.special_text(id) return SPECIAL_TEXT[id] end

local Model, Engine = {}, {}
Model.__index, Engine.__index = Model, Engine

local function load(path, options)
  fake.loads = fake.loads + 1
  if fake.load_error then return nil, fake.load_error, "io" end
  if path:find("broken") then return nil, path .. ": not a model file", "format" end
  return setmetatable({ path = path, options = options or {}, embedder = path:find("minilm") ~= nil }, Model)
end

-- A task with the C binding's face: ends at once, or with fake.let_go() when held.
local function task(held, result)
  local p = uv.pipe({ nonblock = true }, { nonblock = true })
  local t = { cancelled = false }
  if held then fake.held[#fake.held + 1] = p.write else uv.fs_write(p.write, "x") end
  function t:fd() return p.read end
  function t:progress() return 1, 2 end
  function t:cancel() self.cancelled = true end
  function t:take()
    uv.fs_close(p.read)
    uv.fs_close(p.write)
    if self.cancelled then return nil, "loading was cancelled", "cancelled" end
    return result()
  end
  return t
end

-- fake.hold_loads, fake.hold_drops: they end with let_go only. fake.tasks: loads so
-- far, each with `cancelled`.
function fake.let_go()
  local list = fake.held
  fake.held, fake.hold_loads, fake.hold_drops, fake.hold_work = {}, nil, nil, nil
  for _, fd in ipairs(list) do uv.fs_write(fd, "x") end
end

function fake.start_load(path, options)
  local t = task(fake.hold_loads, function() return load(path, options) end)
  fake.tasks[#fake.tasks + 1] = t
  return t
end

function Model:info()
  return { architecture = self.embedder and "bert" or "fake", n_params = 1000000, n_ctx_train = 4096,
    has_logits = not self.embedder, n_ctx = self.options.ctx and self.options.ctx > 0 and self.options.ctx or 2048, n_vocab = 0x110003, n_embd = 8,
    chat_template = not self.embedder and fake.TEMPLATE or nil, quantization = "F32", file_bytes = 4000000,
    pooling = self.embedder and "mean" or nil, bos = 0x110002, eos = 0x110001, add_bos = false }
end

function Model:tokenize(text, options)
  local ids, pos = {}, 1
  while pos <= #text do
    local id, stop
    if options and options.parse_special and text:byte(pos) == 60 then
      for s, i in pairs(SPECIAL) do
        if text:sub(pos, pos + #s - 1) == s then id, stop = i, pos + #s end
      end
    end
    if not id then
      id = utf8.codepoint(text, pos)
      stop = utf8.offset(text, 2, pos)
    end
    ids[#ids + 1], pos = id, stop
  end
  return ids
end

function Model:piece(id) return SPECIAL_TEXT[id] or utf8.char(id) end

function Model:detokenize(ids)
  local out = {}
  for i, id in ipairs(ids) do out[i] = SPECIAL_TEXT[id] and "" or utf8.char(id) end
  return table.concat(out)
end

function Model:containing(text) return #text == 1 and { text:byte() } or {} end

function Model:is_eog(id) return id == SPECIAL["<|im_end|>"] end

function Model:embed(lists, options)
  local out = {}
  for i, ids in ipairs(lists) do
    local v, norm = {}, 0
    for k = 1, 8 do v[k] = 0.1 * k end
    for j, id in ipairs(ids) do v[(id + j) % 8 + 1] = v[(id + j) % 8 + 1] + 1 end
    for k = 1, 8 do norm = norm + v[k] * v[k] end
    if options and options.normalize then
      for k = 1, 8 do v[k] = v[k] / math.sqrt(norm) end
    end
    out[i] = options and options.pooling == "none" and {} or v
    for j = 1, options and options.pooling == "none" and #ids or 0 do out[i][j] = v end
  end
  return out
end

function Model:close() self.closed = true end

function Model:share(options) return setmetatable({ path = self.path, options = options or {}, embedder = self.embedder }, Model) end

function Model:drop()
  self:close()
  if self.main then self.main:close() end
  return task(fake.hold_drops, function() return true, fake.lost or {} end)
end

function Model:engine()
  local p = uv.pipe({ nonblock = true }, { nonblock = true })
  local e = setmetatable({ model = self, rfd = p.read, wfd = p.write, waiting = {}, running = {}, events = {}, next_id = 1,
    n_parallel = self.options.n_parallel or 8, max_waiting = self.options.max_waiting or 256, submitted = {}, policies = {} }, Engine)
  e.timer = uv.new_timer()
  self.main = e
  fake.engines[#fake.engines + 1] = e
  return e
end

local function mark(text, name) return text:match("@" .. name .. "(%b{})") and text:match("@" .. name .. "(%b{})"):sub(2, -2) end

-- prompt text, request -> {text, delay_ms, fail_after}
local function default_reply(prompt)
  local last
  for user in prompt:gmatch("<|im_start|>user\n(.-)<|im_end|>") do last = user end
  last = last or prompt
  local text = mark(last, "say")
  if not text and mark(last, "long") then
    local words = {}
    for i = 1, tonumber(mark(last, "long")) do words[i] = "word" .. i end
    text = table.concat(words, " ")
  end
  if not text and mark(last, "call") then text = "<tool_call>\n" .. mark(last, "call") .. "\n</tool_call>" end
  text = text or ("You said: " .. last)
  if mark(last, "think") then text = "<think>\n" .. mark(last, "think") .. "\n</think>\n\n" .. text end
  return { text = text, delay_ms = tonumber(mark(last, "slow") or ""), fail_after = last:find("@error", 1, true) and 2 or nil }
end

local function wake(e)
  if not e.closed then uv.fs_write(e.wfd, "x") end
end

local function emit(e, ev)
  e.events[#e.events + 1] = ev
  if #e.events == 1 then wake(e) end
end

local function done(e, r, reason, extra)
  e.running[r.id] = nil
  e.n_finished = (e.n_finished or 0) + 1
  local ev = { id = r.id, kind = "done", reason = reason, n_prompt = #r.args.tokens, n_cached = r.reply and r.reply.n_cached or 0, n_generated = r.n, t_queue_ms = 1,
    t_prefill_ms = 2, t_decode_ms = 3 }
  for k, v in pairs(extra or {}) do ev[k] = v end
  emit(e, ev)
end

function fake.let_go_embeds()
  local list = fake.embeds
  fake.embeds = {}
  for _, held in ipairs(list) do emit(held.engine, held.event) end
end

local function pieces_of(text)
  local out = {}
  for s in text:gmatch("[^%s%p\128-\255]*[%s%p]?[\128-\255]*") do
    if s ~= "" then out[#out + 1] = s end
  end
  return out
end

local function begin(e, r)
  local prompt = {}
  for i, id in ipairs(r.args.tokens) do prompt[i] = SPECIAL_TEXT[id] or utf8.char(id) end
  local reply = (fake.reply or default_reply)(table.concat(prompt), r.args)
  if type(reply) == "string" then reply = { text = reply } end
  local text, cut = reply.text, nil
  for _, s in ipairs(r.args.stop or {}) do
    local at = text:find(s, 1, true)
    if at then text, cut = text:sub(1, at - 1), s end
  end
  r.pieces, r.cut, r.delay, r.fail_after, r.at = reply.pieces or pieces_of(text), cut, reply.delay_ms, reply.fail_after, uv.now()
  r.reply = reply
  local start = { id = r.id, kind = "start", n_prompt = #r.args.tokens, n_cached = reply.n_cached or 0 }
  if r.args.prompt_logprobs then
    start.logprobs = {} -- from the second token on
    for i = 2, #r.args.tokens do start.logprobs[i - 1] = { id = r.args.tokens[i], logprob = -0.5, top = { { id = r.args.tokens[i], logprob = -0.5 } } } end
  end
  emit(e, start)
  for i = 1, r.args.progress and reply.chunks or 0 do
    emit(e, { id = r.id, kind = "progress", n_prompt = #r.args.tokens, n_cached = start.n_cached, n_processed = #r.args.tokens * i // reply.chunks, t_prefill_ms = i })
  end
end

local function advance(e, r)
  if r.delay and uv.now() < r.at + r.delay * (r.n + 1) then return end
  if r.fail_after and r.n >= r.fail_after then return done(e, r, "error", { message = "the model failed on purpose", code = r.reply.code or "internal" }) end
  if r.n >= (r.args.max_tokens or math.huge) then return done(e, r, "length") end
  local piece = r.pieces[r.n + 1]
  if not piece then
    if r.cut then return done(e, r, "stop_string", { stop_string = r.cut }) end
    return done(e, r, "stop")
  end
  r.n = r.n + 1
  local logprobs
  if r.args.logprobs then
    local id = utf8.codepoint(piece, 1)
    local top = {}
    for k = 1, r.args.logprobs do top[k] = { id = id + k - 1, logprob = -0.25 * k } end
    logprobs = { { id = id, logprob = r.reply.logprob or -0.25, top = top } }
  end
  emit(e, { id = r.id, kind = "token", text = piece, tokens = { utf8.codepoint(piece, 1) }, logprobs = logprobs })
end

local function step(e)
  local n = 0
  for _ in pairs(e.running) do n = n + 1 end
  while n < e.n_parallel and e.waiting[1] and not e.frozen do
    local r = table.remove(e.waiting, 1)
    e.running[r.id] = r
    n = n + 1
    begin(e, r)
  end
  local ids = {}
  for id in pairs(e.running) do ids[#ids + 1] = id end
  table.sort(ids)
  for _, id in ipairs(ids) do advance(e, e.running[id]) end
  if #e.waiting == 0 and next(e.running) == nil then
    e.timer:stop()
    e.ticking = false
  end
end

function Engine:submit(args)
  if args.deadline_ms and not math.tointeger(args.deadline_ms) then error("option 'deadline_ms' must be a whole number") end -- as the engine does
  local n_ctx = self.model:info().n_ctx
  if #args.tokens > n_ctx then return nil, "prompt of " .. #args.tokens .. " tokens, context of " .. n_ctx, "limit" end
  if #self.waiting >= self.max_waiting then return nil, "queue full: " .. #self.waiting .. " requests wait", "limit" end
  local r = { id = self.next_id, args = args, n = 0 }
  self.next_id = self.next_id + 1
  self.waiting[#self.waiting + 1] = r
  self.submitted[#self.submitted + 1] = args
  if not self.ticking then
    self.ticking = true
    self.timer:start(0, 1, function() step(self) end)
  end
  return r.id
end

-- The vectors of model:embed as an event, at once or with fake.let_go_embeds().
function Engine:embed_submit(lists, options)
  if #lists == 0 then return nil, "inputs: there are none", "invalid" end
  local id = self.next_id
  self.next_id = id + 1
  local vectors = self.model:embed(lists, options)
  if options.pooling == "none" then
    local flat = {}
    for _, rows in ipairs(vectors) do table.move(rows, 1, #rows, #flat + 1, flat) end
    vectors = flat
  end
  fake.embeds[#fake.embeds + 1] = { id = id, engine = self, event = { id = id, kind = "done", reason = "stop", vectors = vectors } }
  if not fake.hold_embeds then fake.let_go_embeds() end
  return id
end

function Engine:cancel(id)
  fake.cancelled = (fake.cancelled or 0) + 1
  for _, held in ipairs(fake.embeds) do
    if held.id == id then held.event = { id = id, kind = "done", reason = "cancelled" } end
  end
  local r = self.running[id]
  if r then return done(self, r, "cancelled") end
  for i, w in ipairs(self.waiting) do
    if w.id == id then
      table.remove(self.waiting, i)
      return done(self, w, "cancelled")
    end
  end
end

function Engine:fd() return self.rfd end

function Engine:drain()
  uv.fs_read(self.rfd, 4096)
  local list = self.events
  self.events = {}
  return list
end

function Engine:stats()
  local n = 0
  for _ in pairs(self.running) do n = n + 1 end
  return { n_waiting = #self.waiting, n_running = n, n_finished = self.n_finished or 0, pages_total = 100, pages_free = 100 - n }
end

-- A prefix cache that knows everything it is asked for; a file holds the key, then one id a line.
function Engine:save_prefix(key, ids, path)
  local f, message = io.open(path, "w")
  if not f then return nil, message, "io" end
  f:write(key, "\n", table.concat(ids, "\n"), "\n")
  local n = f:seek()
  f:close()
  return #ids, n
end

function Engine:load_prefix(key, path)
  local f, message = io.open(path)
  if not f then return nil, message, "notfound" end
  local owner, ids = f:read("l"), {}
  for line in f:lines() do ids[#ids + 1] = math.tointeger(tonumber(line)) end
  f:close()
  return ids, key or owner
end

function Engine:forget_prefix(_, ids) return ids and #ids or 0 end

function Engine:set_disk(options)
  self.disk = options
  return true
end

-- Saves nothing and says what fake.store says.
function Engine:store_disk()
  self.stored = (self.stored or 0) + 1
  if fake.store then return fake.store() end
  return 1
end

-- One of these calls as a task; fake.hold_work: it ends with let_go only, and does its work there.
function Engine:start(name, ...)
  local args = table.pack(...)
  return task(fake.hold_work, function() return self[name](self, table.unpack(args, 1, args.n)) end)
end

function Engine:set_policy(p) self.policies[#self.policies + 1] = p end

function Engine:close()
  if self.closed then return end
  self.closed = true
  self.timer:close()
  uv.fs_close(self.rfd)
  uv.fs_close(self.wfd)
end

-- ChatML by hand: what the template engine does for real models.
function fake.render(_, messages, req)
  local out = {}
  for i, m in ipairs(messages) do
    if m.role == "system" and i > 1 and fake.strict_system then return nil, "system must come first" end
    local text = m.content or ""
    for _, c in ipairs(m.tool_calls or {}) do text = text .. "<tool_call>" .. require("mtx.json").encode(c["function"].arguments) .. "</tool_call>" end
    out[#out + 1] = "<|im_start|>" .. m.role .. "\n" .. text
    if not (req.continue and i == #messages) then out[#out + 1] = "<|im_end|>\n" end
  end
  if not req.continue then out[#out + 1] = "<|im_start|>assistant\n" end
  return { text = table.concat(out) }
end

-- A models folder of empty files and the `deps` of serve.new. Files: tiny, other,
-- minilm (an encoder), broken (does not load).
function fake.deps()
  local dir = temp.dir()
  for _, n in ipairs({ "tiny.gguf", "other.gguf", "minilm.gguf", "broken.gguf" }) do
    local f = assert(io.open(dir .. "/" .. n, "w"))
    f:write(("x"):rep(1000))
    f:close()
  end
  return { core = fake, render = fake.render, describe = function(path)
    if path:find("broken") then return nil, "not a model file" end
    local encoder = path:find("minilm") ~= nil
    return { architecture = encoder and "bert" or "fake", n_params = 7600000000, n_ctx_train = 4096, n_embd = 8,
      chat_template = not encoder and fake.TEMPLATE or nil, quantization = "Q4_K_M", format = "gguf",
      pooling = encoder and "mean" or nil, metadata = { ["general.architecture"] = encoder and "bert" or "fake" } }
  end }, dir
end

function fake.reset()
  fake.reply, fake.load_error, fake.cancelled, fake.strict_system, fake.loads, fake.engines = nil, nil, nil, nil, 0, {}
  fake.hold_loads, fake.hold_drops, fake.hold_work, fake.held, fake.tasks, fake.store, fake.lost = nil, nil, nil, {}, {}, nil, nil
  fake.hold_embeds, fake.embeds = nil, {}
end

fake.reset()

return fake
