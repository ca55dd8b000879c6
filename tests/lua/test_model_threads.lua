-- SPDX-License-Identifier: MIT
-- What goes on beside the event loop: vectors from the engine's thread, models loaded on a thread, models that share weights.
local lu = require("luaunit")
local mtx = require("mtx")

local MODELS = os.getenv("MTX_MODELS_DIR") or "models"
local SMOL = MODELS .. "/SmolLM2-135M-Instruct.Q4_1.gguf"
local MINILM = MODELS .. "/minilm.gguf"

TestEmbedSubmit = {}

local function event_of(engine, id)
  for _ = 1, 1000 do
    engine:wait(10)
    for _, ev in ipairs(engine:drain()) do
      if ev.id == id then return ev end
    end
  end
end

function TestEmbedSubmit:test_vectors_come_as_an_event_and_are_the_same()
  local model <close> = assert(mtx.load(MINILM))
  local engine = assert(model:engine())
  local lists = {}
  for i = 1, 20 do lists[i] = assert(model:tokenize(("a text of some words "):rep(i), { add_special = true })) end
  local ev = event_of(engine, assert(engine:embed_submit(lists, { pooling = "mean" })))
  lu.assertEquals({ ev.kind, ev.reason }, { "done", "stop" })
  lu.assertEquals(ev.vectors, assert(engine:embed(lists, { pooling = "mean" })))
  local none, flat = assert(engine:embed({ lists[1], lists[2] }, { pooling = "none" })), {}
  for _, rows in ipairs(none) do table.move(rows, 1, #rows, #flat + 1, flat) end
  lu.assertEquals(event_of(engine, assert(engine:embed_submit({ lists[1], lists[2] }, { pooling = "none" }))).vectors, flat)
end

function TestEmbedSubmit:test_cancel_errors_and_close()
  local model <close> = assert(mtx.load(MINILM))
  local engine = assert(model:engine())
  local long = {}
  for i = 1, 400 do long[i] = assert(model:tokenize(("word "):rep(120), { add_special = true })) end
  local id = assert(engine:embed_submit(long))
  engine:cancel(id)
  local ev = event_of(engine, id)
  lu.assertEquals({ ev.reason, ev.vectors }, { "cancelled", nil })
  local _, message, code = engine:embed_submit({})
  lu.assertEquals(code, "invalid")
  _, message, code = engine:embed_submit({ { 1, 99999999 } })
  lu.assertEquals(code, "invalid")
  local too_long = {}
  for i = 1, 5000 do too_long[i] = 5 end
  ev = event_of(engine, assert(engine:embed_submit({ long[1], too_long })))
  lu.assertEquals(ev.reason, "error")
  lu.assertStrContains(ev.message, "5000")
  lu.assertTrue(engine:stats(true).kv_ok)
  lu.assertEquals(engine:stats().pages_free, engine:stats().pages_total)
  assert(engine:embed_submit(long)) -- the engine may be closed meanwhile
end

TestTasks = {}

function TestTasks:test_a_model_loaded_on_a_thread_is_the_same()
  local request = { prompt = "Once upon a time", max_tokens = 8, temperature = 0 }
  local plain <close> = assert(mtx.load(SMOL, { ctx = 256 }))
  local loading = assert(mtx.start_load(SMOL, { ctx = 256 }))
  lu.assertTrue(math.type(loading:fd()) == "integer")
  local other = assert(loading:take())
  lu.assertEquals({ loading:progress() }, { other:info().weight_bytes, other:info().weight_bytes })
  lu.assertEquals(assert(other:generate(request)).ids, assert(plain:generate(request)).ids)
  lu.assertError(function() loading:take() end)
  lu.assertError(function() loading:fd() end)
  local task = assert(other:drop())
  lu.assertErrorMsgContains("closed", function() other.handle:info() end)
  lu.assertTrue(task:take())
end

function TestTasks:test_failures_and_cancel()
  local _, message, code = assert(mtx.start_load("/nonexistent.gguf")):take()
  lu.assertStrContains(message, "/nonexistent.gguf")
  lu.assertEquals(code, "notfound")
  local loading = assert(mtx.start_load(SMOL))
  loading:cancel()
  _, message, code = loading:take()
  lu.assertEquals(code, "cancelled")
  lu.assertStrContains(message, "cancelled")
  -- Left alone they end by themselves.
  for _ = 1, 3 do assert(mtx.start_load(SMOL)) end
  collectgarbage()
  collectgarbage()
end

-- As the server does when an engine could not be started.
function TestTasks:test_drop_without_an_engine()
  lu.assertTrue(assert(assert(mtx.load(SMOL, { ctx = 256 })):drop()):take())
end

-- Models over the same weights: each has its own engine, the weights go with the last, in whatever order they end.
-- What is misused can be done right afterwards.
function TestTasks:test_sessions_that_are_open_keep_a_model()
  for _, shared in ipairs({ false, true }) do
    local first = assert(mtx.load(SMOL, { ctx = 256, n_parallel = 1 }))
    local model = shared and first:share() or first
    local session = assert(model:session())
    for _, name in ipairs({ "drop", "close" }) do
      local ok, message = pcall(function() local _ = model[name](model) end)
      lu.assertFalse(ok)
      lu.assertStrMatches(message, "tests/lua/test_model_threads%.lua:%d+: close the engine's sessions.*")
    end
    lu.assertEquals(#assert(session:eval({ 1, 2 })), model:info().n_vocab)
    session:close()
    lu.assertTrue(assert(model:drop()):take())
    if shared then lu.assertTrue(assert(first:drop()):take()) end
    lu.assertStrContains(tostring(first), "closed")
  end
end

function TestTasks:test_shared_weights()
  local request = { prompt = "Once upon a time", max_tokens = 8, temperature = 0 }
  local function open(m) return tostring(m.handle):find("closed", 1, true) == nil end
  for order = 1, 5 do
    local a = assert(mtx.load(SMOL, { ctx = 256, n_parallel = 2 }))
    local wanted = assert(a:generate(request)).ids
    local before = a:info().weight_bytes
    local b = a:share({ ctx = 512, n_parallel = 1 })
    lu.assertEquals({ b:engine():stats().n_ctx, a:engine():stats().n_ctx, b:info().weight_bytes }, { 512, 256, before })
    lu.assertEquals({ assert(b:generate(request)).ids, assert(a:generate(request)).ids }, { wanted, wanted })
    if order == 1 then -- the first goes, on a thread
      lu.assertTrue(assert(a:drop()):take())
      lu.assertErrorMsgContains("closed", function() a:tokenize("x") end)
      lu.assertEquals({ assert(b:generate(request)).ids, open(b) }, { wanted, true })
      lu.assertTrue(assert(b:drop()):take())
    elseif order == 2 then -- both end at once; whoever is taken last gives the weights back
      local first, second = assert(a:drop()), assert(b:drop())
      lu.assertEquals({ second:take(), open(a) }, { true, true })
      lu.assertTrue(first:take())
    elseif order == 3 then
      a:close()
      lu.assertEquals({ assert(b:generate(request)).ids, open(b) }, { wanted, true })
      b:close()
      b:close() -- again means nothing
    elseif order == 4 then -- one of three that never had an engine
      local c = b:share()
      lu.assertTrue(assert(c:drop()):take())
      a:close()
      lu.assertTrue(open(b))
      lu.assertTrue(assert(b:drop()):take())
    else
      local task = assert(b:drop())
      a:close()
      lu.assertTrue(open(a))
      lu.assertTrue(task:take())
    end
    lu.assertFalse(open(a), order)
  end
end
