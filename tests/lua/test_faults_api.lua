-- SPDX-License-Identifier: MIT
-- Faults that people report on such servers, played against the real engine over a model
-- that says what it is told (chain_model.lua): what the APIs promise, sampling, the context. A name begins with the fault's number
-- in the list of faults; those of the HTTP layer, templates and grammars have their
-- tests beside their code.
local lu = require("luaunit")
local client = require("http_client")
local faults = require("faults_server")

local post, chat, answer, alive = faults.post, faults.chat, faults.answer, faults.alive

TestFaults = {}
function TestFaults:setUp() faults.start() end
TestFaults.tearDown = faults.stop

function TestFaults:test_t39_finish_reason_is_null_until_the_end()
  local seen = {}
  for i, e in ipairs(client.sse(chat("@hello", { stream = true }).body)) do
    if e.data ~= "[DONE]" then
      if i == 1 then lu.assertEquals(e.data.choices[1].delta.role, "assistant") end
      seen[#seen + 1] = e.data.choices[1].finish_reason
    end
  end
  for i = 1, #seen - 1 do lu.assertEquals(seen[i], require("cjson").null) end
  lu.assertEquals(seen[#seen], "stop")
end

function TestFaults:test_t40_the_smaller_limit_wins()
  lu.assertEquals({ answer(chat("@hello", { max_completion_tokens = 2 })) }, { "Hello wor", "length" })
  lu.assertEquals({ answer(chat("@hello", { max_completion_tokens = 2, max_tokens = 50 })) }, { "Hello wor", "length" })
  local zero = chat("@hello", { max_completion_tokens = 0 })
  lu.assertTrue(zero.status == 400 or answer(zero) == "")
  local none = chat("@hello", { max_completion_tokens = -1 })
  lu.assertTrue(none.status == 400 or answer(none) == "Hello world")
end

function TestFaults:test_t41_n_choices_of_one_prompt()
  local r = chat("@random", { n = 3, temperature = 1, seed = 7, max_tokens = 6 })
  lu.assertEquals(#r.json.choices, 3)
  for i, c in ipairs(r.json.choices) do lu.assertEquals(c.index, i - 1) end
  lu.assertEquals(r.json.usage.prompt_tokens, chat("@random", { max_tokens = 1 }).json.usage.prompt_tokens)
  lu.assertEquals({ chat("x", { n = 0 }).status, chat("x", { n = 1000 }).status }, { 400, 400 })
end

function TestFaults:test_t42_echo_with_logprobs()
  local r = post("/v1/completions", { model = "chain", prompt = "abc", echo = true, logprobs = 2, max_tokens = 1, temperature = 0 })
  lu.assertEquals(r.status, 200, r.body)
  local p = r.json.choices[1].logprobs
  lu.assertEquals(r.json.choices[1].text, "abcc")
  lu.assertEquals({ #p.tokens, #p.token_logprobs, #p.text_offset }, { 4, 4, 4 })
  lu.assertEquals(p.token_logprobs[1], require("cjson").null)
  r = post("/v1/completions", { model = "chain", prompt = "abc", echo = true, logprobs = 2, max_tokens = 0, temperature = 0 })
  lu.assertEquals({ r.status, r.json.choices[1].text, #r.json.choices[1].logprobs.tokens }, { 200, "abc", 3 }, r.body)
end

function TestFaults:test_t46_format_with_and_without_thoughts()
  local format = { type = "object", properties = { a = { const = 1 } }, required = { "a" }, additionalProperties = false }
  for _, think in ipairs({ true, false }) do
    local r = post("/api/chat", { model = "chain", messages = { { role = "user", content = think and "@thought" or "x" } }, think = think, format = format,
      stream = false, options = { temperature = 0, num_predict = 60 } })
    lu.assertEquals(r.status, 200, r.body)
    lu.assertEquals(require("cjson").decode(r.json.message.content), { a = 1 })
    lu.assertEquals(r.json.message.thinking, think and "I think" or nil)
  end
end

function TestFaults:test_t48_num_ctx_counts_on_every_api()
  local long = ("word "):rep(160)
  local r = chat(long, { options = { num_ctx = 512 } })
  lu.assertEquals(r.status, 400, r.body)
  lu.assertEquals(r.json.error.code, "context_length_exceeded")
  lu.assertEquals(chat("@hello", { options = { num_ctx = 512 } }).status, 200)
  lu.assertEquals(client.request(faults.ctx.port, "GET", "/api/ps").json.models[1].context_length, 512)
end

function TestFaults:test_t52_the_seed_counts()
  local function of(seed)
    return post("/completion", { model = "chain", prompt = "<|@random|>", n_predict = 12, temperature = 1, top_k = 0, top_p = 1, min_p = 0,
      seed = seed, return_tokens = true, ignore_eos = true }).json.tokens
  end
  lu.assertEquals(of(42), of(42))
  lu.assertNotEquals(of(42), of(43))
  local first, differs = of(-1), false
  for _ = 1, 4 do differs = differs or of(-1)[1] ~= first[1] end -- by chance alone all five are equal once in 512^4
  lu.assertTrue(differs)
end

function TestFaults:test_t53_the_same_from_cache_cold_and_beside_others()
  local prompt = ("The quick brown fox jumps over the lazy dog. "):rep(33) .. "@hello"
  local first = answer(chat(prompt))
  lu.assertEquals(first, "Hello world")
  local again = chat(prompt)
  lu.assertEquals((answer(again)), first)
  lu.assertTrue(again.json.usage.prompt_tokens_details.cached_tokens > 1000)
  lu.assertEquals((answer(chat(prompt, { cache_prompt = false }))), first)
end

function TestFaults:test_t55_nothing_left_to_choose_ends_one_request()
  local r = post("/completion", { model = "chain", prompt = "a", grammar = 'root ::= "x"', logit_bias = { { faults.ids.x, false } }, n_predict = 4 })
  lu.assertTrue(r.status == 400 or r.status == 500, r.body)
  lu.assertNotNil(r.json.error.message)
  alive()
  -- a model whose logits are no numbers
  r = chat("x", { model = "sick", max_tokens = 4 })
  lu.assertEquals(r.status, 500, r.body)
  lu.assertStrContains(r.json.error.message, "not a finite number")
  alive()
end

function TestFaults:test_t56_forms_of_logit_bias()
  for _, bias in ipairs({ { ["5"] = -100 }, { { 5, -100 } }, { { "Hel", -100 } } }) do
    lu.assertEquals(post("/completion", { model = "chain", prompt = "a", logit_bias = bias, n_predict = 1 }).status, 200)
  end
  lu.assertEquals(chat("x", { logit_bias = { ["999999999"] = 1 } }).status, 400)
  lu.assertEquals(chat("x", { logit_bias = { ["5"] = "a" } }).status, 400)
end

function TestFaults:test_t57_logprobs_are_those_before_sampling()
  local function top(temperature)
    local r = chat("@hello", { temperature = temperature, logprobs = true, top_logprobs = 5, max_tokens = 1 })
    return r.json.choices[1].logprobs.content[1].top_logprobs
  end
  local cold = top(0)
  lu.assertEquals(cold, top(1))
  lu.assertEquals(cold[1].token, "Hel")
  for i = 2, #cold do lu.assertTrue(cold[i].logprob <= cold[i - 1].logprob and cold[i].logprob > -math.huge) end
end

function TestFaults:test_t58_temperature_zero_is_greedy()
  for seed = 1, 5 do
    lu.assertEquals((answer(chat("@hello", { seed = seed, top_k = 40, min_p = 0.05, xtc_probability = 1.0, xtc_threshold = 0.1 }))), "Hello world")
  end
  lu.assertEquals((answer(chat("@hello", { temperature = 2, top_k = 1 }))), "Hello world")
  lu.assertEquals((answer(chat("@hello", { temperature = 1, min_p = 1 }))), "Hello world")
  lu.assertEquals(chat("@hello", { temperature = 1, top_k = 0 }).status, 200)
end

function TestFaults:test_t59_odd_values_are_answered()
  for _, more in ipairs({ { samplers = { "min_p", "temperature" } }, { n_keep = 99999 }, { n_keep = -5 }, { top_p = -1 }, { temperature = "hot" } }) do
    local r = post("/completion", { model = "chain", prompt = "a", n_predict = 2, samplers = more.samplers, n_keep = more.n_keep, top_p = more.top_p, temperature = more.temperature })
    lu.assertTrue(r.status == 200 or (r.status == 400 and r.body:find((next(more)), 1, true) ~= nil), r.body)
  end
  alive()
end

function TestFaults:test_t60_a_prompt_over_the_context_is_told_with_both_numbers()
  for _, path in ipairs({ "/v1/chat/completions", "/v1/completions" }) do
    local r = post(path, { model = "chain", messages = { { role = "user", content = ("a"):rep(3000) } }, prompt = ("a"):rep(3000) })
    lu.assertEquals({ r.status, r.json.error.code }, { 400, "context_length_exceeded" }, r.body)
    lu.assertStrContains(r.json.error.message, "2048")
    lu.assertStrMatches(r.json.error.message, ".*30%d%d.*")
  end
end

function TestFaults:test_t61_an_endless_answer_ends_at_the_context()
  local r = post("/v1/completions", { model = "chain", prompt = ("a"):rep(2000), max_tokens = 4000, temperature = 0 })
  lu.assertEquals({ r.status, r.json.choices[1].finish_reason, r.json.usage.total_tokens }, { 200, "length", 2048 }, r.body)
end

function TestFaults:test_t67_fifty_at_once_do_not_mix()
  local list = {}
  for i = 1, 50 do
    local letter = string.char(97 + i % 26)
    local body = require("mtx.json").encode({ model = "chain", prompt = ("z"):rep(i * 3) .. letter, max_tokens = 5 + i % 7, temperature = 0 })
    local c = client.connect(faults.ctx.port)
    c:send(("POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"):format(#body, body))
    list[i] = { c = c, want = letter:rep(5 + i % 7) }
  end
  for i, l in ipairs(list) do
    l.c:until_closed(30000)
    local r = l.c:responses()[1]
    l.c:close()
    lu.assertEquals(require("cjson").decode(r.body).choices[1].text, l.want, "request " .. i)
  end
end
