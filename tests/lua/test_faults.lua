-- SPDX-License-Identifier: MIT
-- Faults that people report on such servers, played against the real engine over a model
-- that says what it is told (chain_model.lua). A name begins with the fault's number
-- in the list of faults; those of the HTTP layer, templates and grammars have their
-- tests beside their code.
local lu = require("luaunit")
local chain = require("chain_model")
local client = require("http_client")
local config = require("mtx.config")
local fixture = require("http_fixture")
local serve = require("mtx.serve")

local DIR = "build/test/faults"
local HALF = "\xC3" -- the first byte of a two-byte character
local HOSTILE = 'a\\b "c" / {['

local ids, ctx

local function start(flags)
  local f = { port = "0", models_dir = DIR, log_level = "error", ctx = "2048" }
  for k, v in pairs(flags or {}) do f[k] = v end
  ctx = assert(serve.new(assert(config.load({ env = function() end, flags = f }))))
  assert(serve.listen(ctx))
end

local function stop() fixture.stop(ctx) end

-- Takes system turns nowhere and two turns of one role not at all.
local STRICT = "{%- set last = namespace(role='') %}{% for m in messages %}{% if m.role == 'system' or m.role == last.role %}"
  .. "{{ raise_exception('Roles must alternate user/assistant <\"x\">') }}{% endif %}{% set last.role = m.role %}{% endfor %}" .. chain.TEMPLATE

local function write_models()
  os.execute("rm -rf " .. DIR .. " && mkdir -p " .. DIR)
  chain.write(DIR .. "/sick.gguf", { scripts = {}, nan = 7 })
  chain.write(DIR .. "/strict.gguf", { scripts = { hello = { "Hel", "lo wor", "ld" } }, template = STRICT })
  chain.write(DIR .. "/go.gguf", { scripts = {}, template = "{{- if .System }}{{ .System }}{{ end }}" })
  local full = { full = { "<think>", "hm", "</think>", "look", "<tool_call>", "\n{\"name\": \"g\", \"arg", "uments\": {\"b\": 2}}\n", "</tool_call>" } }
  chain.write(DIR .. "/full.gguf", { scripts = full })
  chain.write(DIR .. "/full-strict.gguf", { scripts = full, template = STRICT })
  ids = chain.write(DIR .. "/chain.gguf", { n_ctx = 4096, scripts = {
    hello = { "Hel", "lo wor", "ld" },
    half = { "caf", "\xE2\x82" },
    broken = { "odd ", HALF, "and", "\xA9\xA9" },
    halt = { "before", "<|halt|>", "after" },
    thought = { "<think>", "I think", "</think>", "the answer" },
    call = { "<tool_call>", "\n{\"na", "me\": \"g\", \"arg", "uments\": {\"b\"", ": 2}}\n", "</tool_call>" },
  } })
end

TestFaults = {}
function TestFaults:setUp()
  if not ids then write_models() end
  start()
end
function TestFaults:tearDown() stop() end

local function post(path, body) return client.request(ctx.port, "POST", path, body) end
local function chat(text, more)
  local body = { model = "chain", messages = { { role = "user", content = text } }, temperature = 0 }
  for k, v in pairs(more or {}) do body[k] = v end
  return post("/v1/chat/completions", body)
end
local function answer(r)
  lu.assertEquals(r.status, 200, r.body)
  return r.json.choices[1].message.content, r.json.choices[1].finish_reason
end
-- Joined content deltas and the last finish_reason of a streamed chat.
local function streamed(r)
  local text, finish = {}, nil
  for _, e in ipairs(client.sse(r.body)) do
    local c = e.data ~= "[DONE]" and e.data.choices[1]
    if c then
      text[#text + 1] = type(c.delta.content) == "string" and c.delta.content or ""
      if type(c.finish_reason) == "string" then finish = c.finish_reason end
    end
  end
  return table.concat(text), finish
end
local function alive() lu.assertEquals(answer(chat("@hello")), "Hello world") end

-- (b) Tokens ------------------------------------------------------------------------

function TestFaults:test_t12_cut_characters_are_replaced_once_in_both_modes()
  local whole, finish = answer(chat("@half", { max_tokens = 2 }))
  lu.assertEquals({ whole, finish }, { "caf\u{FFFD}", "length" })
  lu.assertEquals({ streamed(chat("@half", { max_tokens = 2, stream = true })) }, { whole, finish })
end

function TestFaults:test_t13_bytes_that_are_no_text_end_nothing()
  local r = chat("@broken", { logprobs = true })
  lu.assertEquals(answer(r), "odd \u{FFFD}and\u{FFFD}\u{FFFD}")
  lu.assertEquals(r.json.choices[1].logprobs.content[2].bytes, { 0xC3 })
  lu.assertEquals((streamed(chat("@broken", { stream = true, logprobs = true }))), "odd \u{FFFD}and\u{FFFD}\u{FFFD}")
  local biased = chat("@hello", { max_tokens = 8, temperature = 1, logit_bias = { [tostring(ids["\u{C3}"])] = 100 } })
  lu.assertNotNil(utf8.len((answer(biased))))
  alive()
end

function TestFaults:test_t18_a_stop_string_may_name_a_control_token()
  lu.assertEquals({ answer(chat("@halt", { stop = { "<|halt|>" } })) }, { "before", "stop" })
  lu.assertEquals({ streamed(chat("@halt", { stop = { "<|halt|>" }, stream = true })) }, { "before", "stop" })
  lu.assertEquals((answer(chat("@halt"))), "beforeafter")
end

-- (c) Templates ---------------------------------------------------------------------

local function turns(...)
  local list = {}
  for i, t in ipairs({ ... }) do list[i] = { role = t[1], content = t[2] } end
  return list
end

function TestFaults:test_t23_t24_a_templates_refusal_is_a_400_with_its_words_and_nothing_is_generated()
  local two = turns({ "user", "a" }, { "user", "@hello" })
  for _, stream in ipairs({ false, true }) do
    local r = post("/v1/chat/completions", { model = "strict", messages = two, stream = stream })
    lu.assertEquals({ r.status, r.json.error.type }, { 400, "invalid_request_error" }, r.body)
    lu.assertStrContains(r.json.error.message, 'Roles must alternate user/assistant <"x">')
    lu.assertNil(r.json.usage)
  end
  lu.assertEquals(post("/api/chat", { model = "strict", messages = two, stream = false }).status, 400)
  lu.assertEquals(post("/v1/messages", { model = "strict", messages = two, max_tokens = 5 }).status, 400)
  lu.assertEquals((answer(post("/v1/chat/completions", { model = "strict", messages = two, merge_turns = true, temperature = 0 }))), "Hello world")
end

function TestFaults:test_t25_system_and_developer_turns_anywhere()
  for _, model in ipairs({ "chain", "strict" }) do
    for _, messages in ipairs({ turns({ "user", "a" }, { "assistant", "b" }, { "system", "S" }, { "user", "@hello" }), turns({ "developer", "D" }, { "user", "@hello" }),
      turns({ "system", "S" }, { "user", "@hello" }) }) do
      lu.assertEquals((answer(post("/v1/chat/completions", { model = model, messages = messages, temperature = 0 }))), "Hello world", model)
    end
  end
end

-- A template that is no Jinja is not replaced in silence: a chat says so, and so does what shows the model.
function TestFaults:test_t26_a_template_of_another_language()
  local r = post("/v1/chat/completions", { model = "go", messages = turns({ "user", "@hello" }) })
  lu.assertEquals(r.status, 400, r.body)
  lu.assertStrContains(r.json.error.message, "Go template")
  lu.assertNotStrContains(r.json.error.message, "\n")
  local shown = post("/api/show", { model = "go" })
  lu.assertEquals(shown.status, 200, shown.body)
  lu.assertStrContains(shown.json.template, "{{- if .System }}")
  lu.assertEquals(post("/v1/completions", { model = "go", prompt = "aaa", max_tokens = 2, temperature = 0 }).json.choices[1].text, "aa")
end

function TestFaults:test_t27_what_the_server_produced_is_accepted_when_it_comes_back()
  local tools = { { type = "function", ["function"] = { name = "g", parameters = { type = "object", properties = { b = { type = "integer" } } } } } }
  for _, model in ipairs({ "full", "full-strict" }) do
    local question = { role = "user", content = "@full" }
    local r = post("/v1/chat/completions", { model = model, messages = { question }, tools = tools, temperature = 0 })
    lu.assertEquals(r.status, 200, r.body)
    local m = r.json.choices[1].message
    lu.assertEquals({ m.reasoning_content, m.content, m.tool_calls[1]["function"].name, m.tool_calls[1]["function"].arguments }, { "hm", "look", "g", '{"b": 2}' }, r.body)
    local again = post("/v1/chat/completions", { model = model, tools = tools, temperature = 0,
      messages = { question, m, { role = "tool", tool_call_id = m.tool_calls[1].id, content = "42" }, { role = "user", content = "@full" } } })
    lu.assertEquals(again.status, 200, again.body)
    lu.assertEquals(again.json.choices[1].message.content, "look")
  end
end

-- (d) Tool calls --------------------------------------------------------------------

local function tool(name, properties, required)
  return { type = "function", ["function"] = { name = name, description = "d", parameters = { type = "object", properties = properties, required = required } } }
end
local function calls_of(r)
  lu.assertEquals(r.status, 200, r.body)
  return r.json.choices[1].message.tool_calls
end

function TestFaults:test_t29_every_delta_appends_whatever_the_argument_holds()
  local tools = { tool("f", { a = { type = "string", enum = { HOSTILE } } }, { "a" }) }
  -- one call: where calls may follow one another this model would go on until its limit
  local whole = chat("x", { tools = tools, tool_choice = "required", parallel_tool_calls = false })
  local call = calls_of(whole)[1]
  lu.assertEquals(require("cjson").decode(call["function"].arguments), { a = HOSTILE })
  local parts, finish = {}, nil
  for _, e in ipairs(client.sse(chat("x", { tools = tools, tool_choice = "required", parallel_tool_calls = false, stream = true }).body)) do
    local c = e.data ~= "[DONE]" and e.data.choices[1]
    for _, t in ipairs(c and c.delta.tool_calls or {}) do parts[#parts + 1] = t["function"].arguments or "" end
    if c and type(c.finish_reason) == "string" then finish = c.finish_reason end
  end
  lu.assertEquals(table.concat(parts), call["function"].arguments)
  lu.assertEquals(finish, "tool_calls")
end

function TestFaults:test_t31_arguments_that_are_no_object_are_a_400()
  for _, arguments in ipairs({ "[1]", '"x"', "{bad" }) do
    local r = post("/v1/chat/completions", { model = "chain", messages = { { role = "user", content = "x" },
      { role = "assistant", tool_calls = { { id = "c1", type = "function", ["function"] = { name = "f", arguments = arguments } } } },
      { role = "tool", tool_call_id = "c1", content = "r" } } })
    lu.assertEquals(r.status, 400, arguments)
    lu.assertStrMatches(r.json.error.message, ".*messages%[1%]%.tool_calls%[0%].*")
    if arguments ~= "[1]" then lu.assertNotStrContains(r.json.error.message, arguments) end
  end
end

function TestFaults:test_t32_a_cut_call_is_not_lost_and_the_next_request_works()
  local r = chat("x", { tools = { tool("f", { a = { type = "integer" } }, { "a" }) }, tool_choice = "required", max_tokens = 3 })
  lu.assertEquals(r.status, 200)
  lu.assertEquals(r.json.choices[1].finish_reason, "length")
  local m = r.json.choices[1].message
  lu.assertTrue((type(m.content) == "string" and #m.content > 0) or #m.tool_calls > 0, r.body)
  alive()
end

function TestFaults:test_t33_a_call_ends_with_tool_calls_and_length_wins()
  local tools = { tool("f", { a = { type = "integer" } }), tool("g", { b = { type = "integer" } }) }
  lu.assertEquals({ streamed(chat("@call", { tools = tools, stream = true })) }, { "", "tool_calls" })
  local r = chat("@call", { tools = tools })
  lu.assertEquals(calls_of(r)[1]["function"].name, "g")
  lu.assertEquals(r.json.choices[1].finish_reason, "tool_calls")
  lu.assertEquals(select(2, streamed(chat("@call", { tools = tools, stream = true, max_tokens = 4 }))), "length")
end

function TestFaults:test_t34_type_lists_and_empty_property_lists()
  local tools = { tool("f", { a = { type = { "string", "null" } } }), tool("g", {}) }
  tools[2]["function"].parameters.properties = require("mtx.json").array() -- as PHP clients write an object without entries
  for _, path in ipairs({ "/v1/chat/completions", "/api/chat" }) do
    local r = post(path, { model = "chain", messages = { { role = "user", content = "@hello" } }, tools = tools, stream = false, temperature = 0, options = { temperature = 0 } })
    lu.assertEquals(r.status, 200, r.body)
  end
  local r = chat("x", { tools = { tool("f", { a = { type = { "string", "null" }, enum = { require("cjson").null } } }, { "a" }) }, tool_choice = "required" })
  lu.assertEquals(require("mtx.json").decode(calls_of(r)[1]["function"].arguments).a, require("mtx.json").null)
end

function TestFaults:test_t35_content_as_parts()
  local function send(parts)
    return post("/api/chat", { model = "chain", stream = false, messages = { { role = "user", content = "x" },
      { role = "assistant", content = "", tool_calls = { { ["function"] = { name = "f", arguments = { a = 1 } } } } },
      { role = "tool", tool_name = "f", content = parts }, { role = "user", content = "@hello" } }, options = { temperature = 0 } })
  end
  lu.assertEquals(send({ { type = "text", text = "42" } }).json.message.content, "Hello world")
  local r = send({ { type = "text", text = "42" }, { type = "hologram" } })
  lu.assertEquals(r.status, 400)
  lu.assertStrContains(r.json.error, "1")
end

function TestFaults:test_t36_thoughts_are_split_with_and_without_tools()
  for _, tools in ipairs({ false, { tool("f", { a = { type = "integer" } }) } }) do
    local r = chat("@thought", { tools = tools or nil })
    lu.assertEquals(r.status, 200, r.body)
    local m = r.json.choices[1].message
    lu.assertEquals({ m.reasoning_content, m.content }, { "I think", "the answer" }, r.body)
  end
end

-- (e), (f) The APIs -----------------------------------------------------------------------

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
  lu.assertEquals(client.request(ctx.port, "GET", "/api/ps").json.models[1].context_length, 512)
end

-- (g) Sampling ------------------------------------------------------------------------

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
  local r = post("/completion", { model = "chain", prompt = "a", grammar = 'root ::= "x"', logit_bias = { { ids.x, false } }, n_predict = 4 })
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

-- (h) Context -------------------------------------------------------------------------------

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
    local c = client.connect(ctx.port)
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

-- (j) Embeddings, by the real MiniLM ------------------------------------------------------------

TestEmbeddingFaults = {}
function TestEmbeddingFaults:setUp() start({ models_dir = os.getenv("MTX_MODELS_DIR") or "models", ctx = "512" }) end
function TestEmbeddingFaults:tearDown() stop() end

local function embed(input, more)
  local body = { model = "minilm", input = input }
  for k, v in pairs(more or {}) do body[k] = v end
  return post("/api/embed", body)
end

-- n words of one token each.
local function words(n) return ("the "):rep(n) end

function TestEmbeddingFaults:test_t79_every_length_up_to_the_context_and_t84_beyond()
  for _, n in ipairs({ 1, 200, 257, 400, 510 }) do
    local r = embed(words(n))
    lu.assertEquals({ r.status, r.json.prompt_eval_count }, { 200, n + 2 }, r.body:sub(1, 200))
  end
  for _, truncate in ipairs({ "absent", true }) do
    local r = embed(words(1600), { truncate = truncate ~= "absent" and true or nil })
    lu.assertEquals({ r.status, r.json.prompt_eval_count }, { 200, 512 }, r.body:sub(1, 200))
  end
  local r = embed({ "short", words(511) }, { truncate = false })
  lu.assertEquals(r.status, 400)
  lu.assertStrContains(r.json.error, "input length exceeds the context length")
  lu.assertStrContains(r.json.error, "1")
end

function TestEmbeddingFaults:test_t81_lists_keep_order_and_equal_the_single_one()
  local one = embed("a").json.embeddings[1]
  local three = embed({ "a", "b", "a" }).json.embeddings
  lu.assertEquals(#three, 3)
  lu.assertEquals(three[1], one)
  lu.assertEquals(three[3], one)
  lu.assertNotEquals(three[2], one)
  local r = post("/v1/embeddings", { model = "minilm", input = { "a", "b" } })
  lu.assertEquals({ r.json.data[1].index, r.json.data[2].index, r.json.data[1].embedding }, { 0, 1, one })
  lu.assertEquals(post("/v1/embeddings", { model = "minilm", input = require("cjson").empty_array }).status, 400)
  lu.assertEquals(#post("/v1/embeddings", { model = "minilm", input = { "" } }).json.data[1].embedding, 384)
  lu.assertEquals(#post("/v1/embeddings", { model = "minilm", input = { { 101, 2054, 102 } } }).json.data[1].embedding, 384)
end

function TestEmbeddingFaults:test_t82_a_wrong_field_is_named_or_taken()
  local r = post("/api/embeddings", { model = "minilm", input = "a" })
  lu.assertTrue(r.status == 400 and r.json.error:find("prompt") ~= nil or #r.json.embedding == 384, r.body:sub(1, 200))
  r = post("/api/embed", { model = "minilm", prompt = "a" })
  lu.assertTrue(r.status == 400 and r.json.error:find("input") ~= nil or #r.json.embeddings[1] == 384, r.body:sub(1, 200))
end

function TestEmbeddingFaults:test_t83_mixed_lengths_in_one_batch_equal_each_alone()
  local texts = {}
  for i = 1, 8 do texts[i] = words(i * i * 4) end
  local batch = embed(texts).json.embeddings
  for i, text in ipairs(texts) do lu.assertEquals(embed(text).json.embeddings[1], batch[i], "text " .. i) end
end

function TestEmbeddingFaults:test_t85_many_inputs_on_one_socket()
  local c = client.connect(ctx.port)
  local texts = {}
  for i = 1, 32 do texts[i] = "text number " .. i end
  local body = require("mtx.json").encode({ model = "minilm", input = require("mtx.json").array(texts) })
  local before = #io.popen("ls /proc/self/fd"):read("a")
  for _ = 1, 10 do c:send(("POST /api/embed HTTP/1.1\r\nHost: x.localhost\r\nContent-Length: %d\r\n\r\n%s"):format(#body, body)) end
  lu.assertTrue(client.wait(function() return #c:responses() == 10 end, 30000) == true)
  for _, r in ipairs(c:responses()) do lu.assertEquals(r.status, 200) end
  lu.assertNil(c.closed)
  c:close()
  lu.assertEquals(#io.popen("ls /proc/self/fd"):read("a"), before)
end
