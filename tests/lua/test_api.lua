-- SPDX-License-Identifier: MIT
-- The Lua API on a real model: generation, streams, sessions, samplers, errors.
local lu = require("luaunit")
local mtx = require("mtx")
local core = require("mtx.core")
local temp = require("temp")

local MODELS = os.getenv("MTX_MODELS_DIR") or "models"
local SMOL = MODELS .. "/SmolLM2-135M-Instruct.Q4_1.gguf"

TestModel = {}

function TestModel:setUp()
  if not self.model then TestModel.model = assert(mtx.load(SMOL, { ctx = 512 })) end
end

function TestModel:test_info()
  local i = self.model:info()
  lu.assertEquals({ i.architecture, i.n_vocab, i.n_layer, i.n_embd, i.has_logits }, { "llama", 49152, 30, 576, true })
  lu.assertTrue(#i.chat_template > 0)
end

function TestModel:test_tokens_round_trip()
  local text = "Hello, world! \u{1F600} 123"
  local ids = assert(self.model:tokenize(text, { add_special = false }))
  lu.assertEquals(self.model:detokenize(ids), text)
  local pieces = {}
  for i, id in ipairs(ids) do pieces[i] = self.model:piece(id) end
  lu.assertEquals(table.concat(pieces), text)
end

function TestModel:test_control_text_of_users_stays_text()
  local _, spans = assert(self.model:apply_template({ { role = "user", content = "<|im_end|>" } }))
  local text = self.model:apply_template({ { role = "user", content = "<|im_end|>" } })
  local ids = assert(self.model:tokenize(text, { parse_special = true, spans = spans }))
  local n = 0
  for _, id in ipairs(ids) do n = n + (self.model:piece(id) == "<|im_end|>" and 1 or 0) end
  lu.assertEquals(n, 2) -- the system turn's and the user turn's own, not the user's text
end

function TestModel:test_generate_is_the_same_twice_and_streamed()
  local request = { prompt = "Once upon a time", max_tokens = 12, temperature = 0 }
  local a, b = assert(self.model:generate(request)), assert(self.model:generate(request))
  lu.assertEquals(a.ids, b.ids)
  local parts = {}
  for piece in assert(self.model:stream(request)) do parts[#parts + 1] = piece end
  lu.assertEquals(table.concat(parts), a.text)
  lu.assertEquals({ a.finish_reason, #a.ids, a.timings.n_prompt }, { "length", 12, #a.prompt_ids })
end

function TestModel:test_seed_and_stop()
  local function text(seed, stop)
    return assert(self.model:generate({ prompt = "The sea", max_tokens = 16, temperature = 1, seed = seed, stop = stop })).text
  end
  lu.assertEquals(text(5), text(5))
  lu.assertNotEquals(text(5), text(6))
  local whole = text(5)
  local word = whole:match("%a%a%a+")
  lu.assertEquals(text(5, { word }), whole:sub(1, whole:find(word, 1, true) - 1))
end

function TestModel:test_streams_side_by_side_equal_each_alone()
  local prompts = { "A cat", "The moon and", "In 1969" }
  local alone, streams, texts = {}, {}, { "", "", "" }
  for i, p in ipairs(prompts) do alone[i] = assert(self.model:generate({ prompt = p, max_tokens = 10, temperature = 0 })).text end
  for i, p in ipairs(prompts) do streams[i] = assert(self.model:stream({ prompt = p, max_tokens = 10, temperature = 0 })) end
  for i, s in ipairs(streams) do
    for piece in s do texts[i] = texts[i] .. piece end
  end
  lu.assertEquals(texts, alone)
end

-- A request that fails on the way raises in the loop, with the line of the loop; asked one by one, the failure is a value.
function TestModel:test_a_failure_in_a_loop_is_not_its_end()
  local request = { prompt = "Count: 1, 2, 3", max_tokens = 400, temperature = 0, ignore_eos = true, deadline_ms = 1 }
  local s = assert(self.model:stream(request))
  local piece, message, code
  repeat piece, message, code = s:next() until not piece
  lu.assertStrContains(message, "deadline")
  lu.assertEquals({ code, s:result() }, { "deadline", nil, message, "deadline" })
  local fine, raised = pcall(function()
    for _ in assert(self.model:stream(request)) do end
  end)
  lu.assertFalse(fine)
  lu.assertStrMatches(raised, "tests/lua/test_api%.lua:%d+: the deadline of this request has passed")
end

function TestModel:test_cancel()
  local s = assert(self.model:stream({ prompt = "Count: 1, 2, 3", max_tokens = 400, temperature = 0, ignore_eos = true }))
  s()
  s:cancel()
  local r = assert(s:result())
  lu.assertEquals(r.finish_reason, "cancelled")
  lu.assertTrue(#r.ids < 400)
end

-- A sampler in Lua: greedy there equals greedy here; its faults are values.
function TestModel:test_sampler_function()
  local request = { prompt = "The sky is", max_tokens = 10, temperature = 0 }
  local plain = assert(self.model:generate(request))
  request.sampler = function(logits, history)
    lu.assertTrue(#history >= #plain.prompt_ids)
    return logits:argmax() - 1
  end
  local own = assert(self.model:generate(request))
  lu.assertEquals({ own.ids, own.text, own.finish_reason }, { plain.ids, plain.text, plain.finish_reason })
  local word = plain.text:match("%a%a%a+")
  request.stop = { word }
  lu.assertEquals(assert(self.model:generate(request)).text, plain.text:sub(1, plain.text:find(word, 1, true) - 1))
  -- nil leaves the choice to the usual samplers, on the logits as they are now
  local seeded = { prompt = "The sky is", max_tokens = 10, temperature = 1, top_k = 50, seed = 9 }
  plain = assert(self.model:generate(seeded))
  seeded.sampler, seeded.sampler_options = function(_, _, o) lu.assertEquals(o.x, 5) end, { x = 5 }
  lu.assertEquals(assert(self.model:generate(seeded)).ids, plain.ids)
  seeded.sampler = function(logits) for i = 1, #logits do if i ~= 31 then logits[i] = -math.huge end end end
  lu.assertEquals(assert(self.model:generate(seeded)).ids[10], 30)
  for _, bad in ipairs({ function() return "x" end, function() return -1 end, function() return 1 << 40 end, function() error("oops") end,
    function() while true do end end, function() while true do pcall(function() while true do end end) end end, function() coroutine.yield() end }) do
    local r, message, code = self.model:generate({ prompt = "x", max_tokens = 2, sampler = bad })
    lu.assertNil(r)
    lu.assertStrContains(message, "sampler function")
    lu.assertEquals(code, "sampler")
    lu.assertEquals({ assert(self.model:stream({ prompt = "x", max_tokens = 2, sampler = bad })):next() }, { nil, message, code })
    local fine, raised = pcall(function() -- a loop would take nil for the end
      for _ in assert(self.model:stream({ prompt = "x", max_tokens = 2, sampler = bad })) do end
    end)
    lu.assertFalse(fine)
    lu.assertStrContains(raised, message)
    lu.assertStrMatches(raised, "tests/lua/test_api%.lua:%d+: .*")
  end
end

-- Control tokens are silent unless a request asks to see them.
function TestModel:test_shown_control_tokens()
  local function text(shown)
    return assert(self.model:generate({ prompt = "x", max_tokens = 3, temperature = 0, logit_bias = { [1] = 1000 }, shown = shown })).text
  end
  lu.assertEquals(text(), "")
  lu.assertEquals(text({ 1 }), ("<|im_start|>"):rep(3))
end

function TestModel:test_session_fork_and_rewind()
  local ids = assert(self.model:tokenize("The quick brown fox jumps", { add_special = false }))
  local s = assert(self.model:session())
  local whole = assert(s:eval(ids))
  local f = assert(s:fork())
  lu.assertTrue(s:rewind(2))
  lu.assertEquals({ s:n_tokens(), f:n_tokens() }, { 2, #ids })
  local again = assert(s:eval(table.move(ids, 3, #ids, 1, {})))
  lu.assertEquals(again:bytes(), whole:bytes())
  local rows = assert(f:eval(ids, { all = true }))
  lu.assertEquals({ rows:shape() }, { #ids, 49152 })
  f:close()
  s:close()
  s:close()
  lu.assertError(s.eval, s, ids)
end

function TestModel:test_session_saved_and_loaded()
  local path = temp.path()
  local ids = assert(self.model:tokenize("The quick brown fox jumps over the lazy dog", { add_special = false }))
  local s, t = assert(self.model:session()), assert(self.model:session())
  assert(s:eval(ids))
  local n_bytes = assert(s:save(path))
  assert(t:eval({ 1, 2, 3 }))
  lu.assertEquals(assert(t:load(path)), #ids)
  lu.assertEquals(assert(t:eval({ 253 })):bytes(), assert(s:eval({ 253 })):bytes())
  local f = assert(io.open(path, "r+b"))
  lu.assertEquals(f:seek("end"), n_bytes)
  f:seek("set", n_bytes // 2)
  f:write("xx")
  f:close()
  local r, message, code = t:load(path)
  lu.assertEquals({ r, code }, { nil, "format" })
  lu.assertStrContains(message, path)
  lu.assertStrContains(message, "damaged")
  lu.assertEquals(t:n_tokens(), #ids + 1)
  s:close()
  t:close()
  os.remove(path)
end

function TestModel:test_errors_are_values()
  local r, message, code = self.model:generate({ tokens = { 49152 }, max_tokens = 1 })
  lu.assertNil(r)
  lu.assertStrContains(message, "49152")
  lu.assertIsString(code)
  local ids = {}
  for i = 1, 600 do ids[i] = 5 end
  r, message, code = self.model:generate({ tokens = ids, max_tokens = 1 })
  lu.assertNil(r)
  lu.assertEquals(code, "limit")
  lu.assertStrContains(message, "512")
  lu.assertError(self.model.generate, self.model, {})
  lu.assertError(self.model.generate, self.model, { prompt = "x", temperature = "hot" })
  lu.assertErrorMsgContains("generate has no field 'temprature'; did you mean temperature?", self.model.generate, self.model, { prompt = "x", temprature = 0 })
  lu.assertErrorMsgContains("no field 'zzzzzz'", self.model.stream, self.model, { prompt = "x", zzzzzz = 1 })
  lu.assertErrorMsgContains("beam has no field 'n_beam'; did you mean n_beams?", self.model.beam, self.model, { prompt = "x", n_beam = 4 })
  lu.assertErrorMsgContains("mtx.load has no field 'n_ctxx'", mtx.load, SMOL, { n_ctxx = 4 })
  lu.assertErrorMsgContains("mtx.start_load has no field 'thread'; did you mean threads?", mtx.start_load, SMOL, { thread = 4 })
  lu.assertErrorMsgContains("mtx.load needs a table with ctx, threads or kv_type", mtx.load, SMOL, "f16")
  local model, text, kind = mtx.load("no/such/file.gguf")
  lu.assertNil(model)
  lu.assertStrContains(text, "no/such/file.gguf")
  lu.assertIsString(kind)
end

-- Weights and the context asked for must fit, with a margin; nothing is read before that is known.
function TestModel:test_a_context_beyond_memory_is_refused_before_loading()
  for _, f in ipairs({ mtx.load, function(...) return assert(mtx.start_load(...)):take() end }) do
    for kv_type, per_token in pairs({ f16 = 23040, f32 = 46080 }) do
      local n = core.model.free_memory() // per_token * 2
      local model, message, code = f(SMOL, { ctx = n, kv_type = kv_type, progress = f == mtx.load and function() error("weights are read") end or nil })
      lu.assertEquals({ model, code }, { nil, "nomem" })
      local needed, free = message:match("^" .. SMOL:gsub("%p", "%%%0") .. ": the weights need %d+ bytes and " .. n .. " tokens of context (%d+) .*, (%d+) are free; .* a smaller context or KV type$")
      lu.assertTrue(math.abs(tonumber(needed) - n * per_token) <= 32 * per_token and tonumber(free) < tonumber(needed), message)
    end
  end
end

-- What is known of the file's own words is what the error says.
function TestModel:test_an_unknown_pre_tokenizer_is_named()
  local path = temp.path(".gguf")
  local from = assert(core.gguf.open(SMOL))
  assert(core.gguf.write({ path = path, from = from, kv = { { key = "tokenizer.ggml.pre", type = "string", value = "zigzag" } } }))
  from:close()
  local model = assert(mtx.load(path, { ctx = 64 }))
  os.remove(path)
  local says = path .. ": tokenizer.ggml.pre: unknown pre-tokenizer 'zigzag'; a newer mtx may know it"
  for _, f in ipairs({ function() return model:tokenize("x") end, function() return model:generate({ prompt = "x" }) end,
    function() return model:generate({ messages = { { role = "user", content = "x" } } }) end, function() return model:embed({ "x" }) end }) do
    lu.assertEquals({ f() }, { nil, says, "unsupported" })
  end
  lu.assertErrorMsgContains(says, model.piece, model, 1)
  local session <close> = assert(model:session())
  lu.assertEquals(#assert(session:eval({ 1, 2 })), 49152) -- ids work
  session:close()
  model:close()
end

-- The error names the line of the script, wherever in the library it is found.
function TestModel:test_misuse_names_the_callers_line()
  local closed = assert(mtx.load(SMOL, { ctx = 64 }))
  closed:close()
  local line = debug.getinfo(1, "l").currentline
  for i, f in ipairs({
    function() self.model:generate({}) end,
    function() self.model:stream({ max_tokns = 2 }) end,
    function() local _ = self.model:beam({ prompt = "x", n_beams = -1 }) end,
    function() local _ = mtx.load(SMOL, { lora = 5 }) end,
    function() assert(mtx.load(nil)) end,
    function() mtx.start_load(SMOL, { ctxx = 1 }) end,
    function() mtx.load(SMOL, { threads = "two" }) end,
    function() self.model:generate({ prompt = "x", stop = "a" }) end,
    function() self.model:generate({ prompt = 5 }) end,
    function() self.model:tokenize(nil) end,
    function() self.model:tokenize("x", { spans = 5 }) end,
    function() self.model:embed("x") end,
    function() self.model:embed({ "x" }, { pooling = "most" }) end,
    function() closed:generate({ prompt = "x" }) end,
    function() closed:tokenize("x") end,
    function() closed:info() end,
    function() closed:metadata("general.name") end,
    function() closed:session() end,
    function() closed:embed({ "x" }) end,
    function() closed:piece(1) end,
    function() closed:apply_template({}) end,
  }) do
    local ok, message = pcall(f)
    lu.assertFalse(ok)
    lu.assertStrContains(message, "test_api.lua:" .. line + 1 + i .. ": ")
  end
end

function TestModel:test_close_order()
  local model = assert(mtx.load(SMOL, { ctx = 64 }))
  local s = assert(model:session())
  lu.assertError(model.close, model)
  s:close()
  model:close()
  lu.assertError(model.tokenize, model, "x")
end
