-- SPDX-License-Identifier: MIT
-- What a request can ask of the samplers, from Lua, the command line and the
-- server's dialects, on a real model: guidance against its formula over two plain
-- sessions, biases with an end, DRY's breakers, banned strings, seeds.
local lu = require("luaunit")
local cjson = require("cjson")
local breakers = require("mtx.model.breakers")
local client = require("http_client")
local config = require("mtx.config")
local fixture = require("http_fixture")
local mtx = require("mtx")
local serve = require("mtx.serve")

local MODELS = os.getenv("MTX_MODELS_DIR") or "models"
local NAME = "SmolLM2-135M-Instruct.Q4_1"
local SMOL = MODELS .. "/" .. NAME .. ".gguf"
local PROMPT, NEGATIVE = "My favourite city is", "My favourite city is Paris, and"
local N = 10

local model, ctx

-- Greedy under guidance by the definition: u + scale * (c - u) over log-probabilities.
local function guided(cond, uncond, scale)
  local a <close> = assert(model:session())
  local b <close> = assert(model:session())
  local x, y, ids = assert(a:eval(cond)), assert(b:eval(uncond)), {}
  for i = 1, N do
    local cx, uy, best, best_v = x:log_softmax_at(1, 1) - x[1], y:log_softmax_at(1, 1) - y[1], nil, -math.huge
    local xs, ys = x:totable(), y:totable()
    for k = 1, #xs do
      local c, u = xs[k] + cx, ys[k] + uy
      local v = u + scale * (c - u)
      if v > best_v then best, best_v = k - 1, v end
    end
    ids[i] = best
    if model:is_eog(best) then return table.move(ids, 1, i - 1, 1, {}) end
    x, y = assert(a:eval({ best })), assert(b:eval({ best }))
  end
  return ids
end

local function setup()
  model = model or assert(mtx.load(SMOL, { ctx = 512 }))
  if ctx then return end
  ctx = assert(serve.new(assert(config.load({ env = function() end, flags = { port = "0", models_dir = MODELS, ctx = "512", log_level = "error" } }))))
  assert(serve.listen(ctx))
end

local function complete(more)
  local body = { model = NAME, prompt = PROMPT, n_predict = N, temperature = 0, return_tokens = true }
  for k, v in pairs(more or {}) do body[k] = v end
  return client.request(ctx.port, "POST", "/completion", body, nil, 20000)
end

local function ids_of(r)
  lu.assertEquals(r.status, 200, r.body)
  local out = {}
  for i, v in ipairs(r.json.tokens) do out[i] = math.tointeger(v) end
  return out
end

TestGuidance = {}
function TestGuidance:setUp() setup() end

function TestGuidance:test_text_in_lua_server_and_command_line()
  local cond, uncond = assert(model:tokenize(PROMPT)), assert(model:tokenize(NEGATIVE))
  local plain = assert(model:generate({ prompt = PROMPT, temperature = 0, max_tokens = N }))
  for _, scale in ipairs({ 1.5, 3, 0, -0.5 }) do
    local want = guided(cond, uncond, scale)
    local got = assert(model:generate({ prompt = PROMPT, temperature = 0, max_tokens = N, cfg_scale = scale, negative_prompt = NEGATIVE, logprobs = 0 }))
    lu.assertEquals(got.ids, want, scale)
    lu.assertEquals(ids_of(complete({ cfg_scale = scale, negative_prompt = NEGATIVE })), want, scale)
  end
  -- without a negative prompt: nothing but the beginning of a text
  local bos = model.tok:special().bos
  lu.assertEquals(assert(model:generate({ prompt = PROMPT, temperature = 0, max_tokens = N, cfg_scale = 2 })).ids, guided(cond, { bos }, 2))
  lu.assertEquals(ids_of(complete({ cfg_scale = 2 })), guided(cond, { bos }, 2))
  lu.assertEquals(ids_of(complete({ cfg_scale = 2, negative_prompt = "" })), guided(cond, { bos }, 2))
  local pipe = io.popen(((os.getenv("BUILD") or "build") .. "/mtx generate %s -p '%s' -n %d --temp 0 --cfg-scale 1.5 --negative-prompt '%s' --json"):format(SMOL, PROMPT, N, NEGATIVE))
  local out = cjson.decode(pipe:read("a"))
  pipe:close()
  lu.assertEquals(out.ids, guided(cond, uncond, 1.5))
  -- scale 1 is off, byte for byte, sampled too
  for _, t in ipairs({ 0, 1 }) do
    local a = assert(model:generate({ prompt = PROMPT, temperature = t, seed = 4, max_tokens = N, logprobs = 3 }))
    local b = assert(model:generate({ prompt = PROMPT, temperature = t, seed = 4, max_tokens = N, logprobs = 3, cfg_scale = 1, negative_prompt = NEGATIVE }))
    lu.assertEquals({ b.ids, b.text, b.logprobs }, { a.ids, a.text, a.logprobs })
  end
  lu.assertEquals(ids_of(complete({ cfg_scale = 1, negative_prompt = NEGATIVE })), plain.ids)
  lu.assertErrorMsgContains("sampler function", model.stream, model, { prompt = "x", cfg_scale = 2, sampler = function() return 1 end })
end

-- With messages the negative prompt stands for the system message.
function TestGuidance:test_chat_in_every_dialect()
  local messages = { { role = "system", content = "Answer in one word." }, { role = "user", content = "What is the sky?" } }
  local function ids(list)
    local text, spans = assert(model:apply_template(list))
    return assert(model:tokenize(text, { add_special = true, bos_once = true, parse_special = true, spans = spans }))
  end
  local negative = { { role = "system", content = "Be rude." }, messages[2] }
  local want = guided(ids(messages), ids(negative), 2)
  lu.assertEquals(assert(model:generate({ messages = messages, temperature = 0, max_tokens = N, cfg_scale = 2, negative_prompt = "Be rude." })).ids, want)
  local text = model:detokenize(want)
  local body = { model = NAME, messages = messages, max_tokens = N, temperature = 0, cfg_scale = 2, negative_prompt = "Be rude." }
  lu.assertEquals(client.request(ctx.port, "POST", "/v1/chat/completions", body).json.choices[1].message.content, text)
  local ollama = { model = NAME, messages = messages, stream = false, options = { num_predict = N, temperature = 0, cfg_scale = 2, negative_prompt = "Be rude." } }
  lu.assertEquals(client.request(ctx.port, "POST", "/api/chat", ollama).json.message.content, text)
  body.system, body.messages = messages[1].content, { messages[2] }
  lu.assertEquals(client.request(ctx.port, "POST", "/v1/messages", body).json.content[1].text, text)
end

function TestGuidance:test_bad_fields()
  for _, bad in ipairs({ { cfg_scale = "2" }, { cfg_scale = 1e9 }, { cfg_scale = 2, negative_prompt = 5 }, { cfg_scale = 2, negative_prompt = ("word "):rep(2000) } }) do
    lu.assertEquals(complete(bad).status, 400, cjson.encode(bad))
  end
end

TestBiasAndBans = {}
function TestBiasAndBans:setUp() setup() end

function TestBiasAndBans:test_a_bias_ends()
  local plain = ids_of(complete())
  local first = plain[1]
  local banned = ids_of(complete({ logit_bias = { { first, false } } }))
  lu.assertNotEquals(banned[1], first)
  -- for one token: from the second on everything is allowed again, so the first comes where the model wants it
  local once = ids_of(complete({ logit_bias = { { first, false, 1 } } }))
  lu.assertEquals(once[1], banned[1])
  local session <close> = assert(model:session())
  local logits = assert(session:eval(assert(model:tokenize(PROMPT))))
  for i = 1, N do
    if i == 1 then logits[first + 1] = -math.huge end
    lu.assertEquals(once[i], logits:argmax() - 1, i)
    logits = assert(session:eval({ once[i] }))
  end
  -- ended by the last token: as if for ever
  lu.assertEquals(ids_of(complete({ logit_bias = { { first, false, N } } })), banned)
  lu.assertEquals(assert(model:generate({ prompt = PROMPT, temperature = 0, max_tokens = N, logit_bias = { [first] = { -math.huge, 1 } } })).ids, once)
  for _, bad in ipairs({ 0, -1, 1.5, "2" }) do lu.assertEquals(complete({ logit_bias = { { first, 1, bad } } }).status, 400, bad) end
end

function TestBiasAndBans:test_banned_strings()
  local text = complete().json.content
  local word = text:match("%a%a%a%a+")
  local r = complete({ banned_strings = { word } })
  lu.assertEquals(r.status, 200)
  lu.assertNil(r.json.content:find(word, 1, true))
  lu.assertEquals(complete({ banned_strings = { 5 } }).status, 400)
  lu.assertEquals(complete({ bad_words = { word } }).json.content, r.json.content) -- vLLM's name
  lu.assertEquals(complete({ bad_words = { 5 } }).status, 400)
  lu.assertEquals(complete({ banned_strings = { word }, n_probs = 1 }).status, 400)
end

function TestBiasAndBans:test_dry_breakers()
  local ids = breakers.ids(model, { "\n" })
  lu.assertTrue(#ids >= 1)
  for _, id in ipairs(ids) do lu.assertStrContains(model:piece(id), "\n") end
  local whole = {}
  for id = 0, model:info().n_vocab - 1 do
    if model:piece(id):find("*", 1, true) then whole[#whole + 1] = id end
  end
  lu.assertEquals(model:containing("*"), whole)
  local long = "no token says all of this"
  local last = model:tokenize(long, { add_special = false, parse_special = false })
  lu.assertEquals(breakers.ids(model, { long, "" }), { last[#last] })
  -- a loop that DRY ends goes on when the looping word is a breaker
  local loop = { prompt = ("yes no "):rep(12), n_predict = 6, dry_multiplier = 5 }
  local plain = ids_of(complete({ prompt = loop.prompt, n_predict = 6 }))
  lu.assertNotEquals(ids_of(complete(loop)), plain)
  loop.dry_sequence_breakers = { "yes", "no" }
  lu.assertEquals(ids_of(complete(loop)), plain)
  loop.dry_sequence_breakers = require("mtx.json").array({})
  lu.assertNotEquals(ids_of(complete(loop)), plain)
end

TestSeeds = {}
function TestSeeds:setUp() setup() end

-- One seed, the same text: alone, in a crowd, with another number of threads, in a small step.
function TestSeeds:test_alone_in_a_crowd_on_any_threads()
  local request = { prompt = PROMPT, temperature = 1.2, top_k = 200, top_p = 0.97, min_p = 0.01, seed = 77, max_tokens = 24, logprobs = 2 }
  local function of(m)
    local r = assert(m:generate(request))
    return { r.ids, r.text, r.logprobs }
  end
  local want = of(model)
  local crowd = {}
  for i = 1, 7 do crowd[i] = assert(model:stream({ prompt = ("word "):rep(i * 9), temperature = 1, seed = i, max_tokens = 40 })) end
  lu.assertEquals(of(model), want)
  for _, s in ipairs(crowd) do assert(s:result()) end
  for _, options in ipairs({ { threads = 1 }, { threads = 2, n_parallel = 1 }, { threads = 1, max_rows = 8 } }) do
    options.ctx = 256
    local other = assert(mtx.load(SMOL, options))
    lu.assertEquals(of(other), want)
    other:close()
  end
  request.seed = 78
  lu.assertNotEquals(of(model)[1], want[1])
end

-- Faults of other servers, section (g) of the inventory, as a client sees them.
TestFaults = {}
function TestFaults:setUp() setup() end

-- T52: the seed counts while others run; a negative or absent one is fresh, and the one used is told.
function TestFaults:test_seeds_over_http()
  local busy = client.connect(ctx.port)
  local body = cjson.encode({ model = NAME, prompt = "A very long story:", n_predict = 200, temperature = 1, ignore_eos = true })
  busy:send("POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  local function with(seed)
    local r = complete({ temperature = 1, seed = seed, n_predict = 16, ignore_eos = true }) -- a short answer may be the same by chance
    return ids_of(r), r.json.generation_settings.seed
  end
  local a, used = with(42)
  lu.assertEquals(used, 42)
  lu.assertEquals((with(42)), a)
  lu.assertNotEquals((with(43)), a)
  local fresh, s1 = with(-1)
  local other, s2 = with(-1)
  lu.assertNotEquals(s1, s2)
  lu.assertNotEquals(fresh, other)
  lu.assertEquals((with(math.tointeger(s1))), fresh)
  busy:close()
end

-- T53: the same greedy text cold, from cache, uncached, and beside other requests.
function TestFaults:test_greedy_from_cache()
  local prompt = ("The quick brown fox jumps over the lazy dog. "):rep(30)
  local first = complete({ prompt = prompt })
  lu.assertEquals(first.json.tokens_cached, 0)
  local second = complete({ prompt = prompt })
  lu.assertTrue(second.json.tokens_cached > 200)
  lu.assertEquals(second.json.tokens, first.json.tokens)
  lu.assertEquals(complete({ prompt = prompt }).json.tokens, first.json.tokens)
  lu.assertEquals(complete({ prompt = prompt, cache_prompt = false }).json.tokens, first.json.tokens)
  local body = cjson.encode({ model = NAME, prompt = "Others:", n_predict = 60, temperature = 1, ignore_eos = true })
  local crowd = {}
  for i = 1, 3 do
    crowd[i] = client.connect(ctx.port)
    crowd[i]:send("POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body)
  end
  lu.assertEquals(complete({ prompt = prompt }).json.tokens, first.json.tokens)
  for _, c in ipairs(crowd) do c:close() end
end

-- T55: nothing left to choose ends that request with its reason; T56: every form of logit_bias works or is a 400.
function TestFaults:test_nothing_left_and_bias_forms()
  local yes = model:tokenize("yes", { add_special = false })[1]
  local starts = {}
  for _, id in ipairs(model:containing("y")) do
    if model:piece(id):sub(1, 1) == "y" then starts[#starts + 1] = { id, false } end
  end
  local r = complete({ grammar = 'root ::= "yes"', logit_bias = starts })
  lu.assertEquals(r.status, 500)
  lu.assertStrContains(r.json.error.message, "no token is left")
  lu.assertEquals(complete({ grammar = 'root ::= "yes"' }).json.content, "yes")
  local first = ids_of(complete())[1]
  for _, bias in ipairs({ { [tostring(first)] = -100 }, { { first, -100 } }, { { model:piece(first), -100 } } }) do
    lu.assertNotEquals(ids_of(complete({ logit_bias = bias }))[1], first)
  end
  for _, bias in ipairs({ { ["999999999"] = 1 }, { [tostring(yes)] = "a" }, { { 1e9, 1 } }, 5 }) do lu.assertEquals(complete({ logit_bias = bias }).status, 400, cjson.encode(bias)) end
end

-- T57: logprobs are the model's own, whatever is sampled; sorted, finite, the chosen token's too.
function TestFaults:test_logprobs_before_sampling()
  local function first(more)
    more.n_probs = 5
    return complete(more).json.completion_probabilities[1]
  end
  local greedy = first({ temperature = 0 })
  lu.assertEquals(#greedy.top_logprobs, 5)
  lu.assertEquals(greedy.top_logprobs[1].id, greedy.id)
  for i = 2, 5 do lu.assertTrue(greedy.top_logprobs[i].logprob <= greedy.top_logprobs[i - 1].logprob) end
  for _, more in ipairs({ { temperature = 1, seed = 5 }, { temperature = 3, top_k = 2, seed = 9 }, { temperature = 0, cfg_scale = 2 }, { temperature = 0, repeat_penalty = 2 },
    { mirostat = 2, temperature = 1 }, { xtc_probability = 1, xtc_threshold = 0.01, temperature = 1 } }) do
    local p = first(more)
    lu.assertEquals(p.top_logprobs, greedy.top_logprobs)
    lu.assertTrue(p.logprob <= 0 and p.logprob > -1e30)
    for _, t in ipairs(p.top_logprobs) do
      if t.id == p.id then lu.assertEquals(p.logprob, t.logprob) end
    end
  end
end

-- T58: temperature 0, top_k 1 and min_p 1 are greedy whatever else is asked; top_k 0 is off.
function TestFaults:test_greedy_forms()
  local plain = ids_of(complete())
  for seed = 1, 5 do lu.assertEquals(ids_of(complete({ seed = seed, top_k = 40, min_p = 0.05, xtc_probability = 1, top_a = 0.3, mirostat = 1 })), plain) end
  lu.assertEquals(ids_of(complete({ temperature = 2, top_k = 1, seed = 3 })), plain)
  lu.assertEquals(ids_of(complete({ temperature = 2, min_p = 1, seed = 3 })), plain)
  lu.assertEquals(ids_of(complete({ temperature = 1, top_k = 0, top_p = 1, min_p = 0, seed = 3 })), ids_of(complete({ temperature = 1, top_k = 49152, top_p = 1, min_p = 0, seed = 3 })))
end

-- T59: unusual but legal values answer, illegal ones are a 400 that names the field.
function TestFaults:test_odd_values()
  for _, more in ipairs({ { samplers = { "min_p", "temperature" } }, { samplers = { "temperature" }, temperature = 1 }, { n_keep = 99999 }, { n_keep = -5 }, { top_k = 1000000 }, { dry_multiplier = 1, dry_allowed_length = 1 } }) do
    lu.assertEquals(complete(more).status, 200, cjson.encode(more))
  end
  for field, bad in pairs({ top_p = -1, temperature = "hot", top_k = 1.5, mirostat = 3, epsilon = 2, adaptive_decay = 1, dry_base = 0, xtc_threshold = -1, typical_p = 2, samplers = { "nope" } }) do
    local r = complete({ [field] = bad })
    lu.assertEquals(r.status, 400, field)
    lu.assertStrContains(r.json.error.message, field, false, false, field)
  end
end

TestZ = {}
function TestZ:test_close()
  fixture.stop(ctx)
  model:close()
end
