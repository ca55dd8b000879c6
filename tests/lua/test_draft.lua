-- SPDX-License-Identifier: MIT
-- Drafts by lookup on a real model: the answers are those of plain runs byte for byte, from Lua, the command line and
-- every dialect of the server, and what was drafted is told.
local lu = require("luaunit")
local client = require("http_client")
local config = require("mtx.config")
local core = require("mtx.core")
local fixture = require("http_fixture")
local mtx = require("mtx")
local serve = require("mtx.serve")

local MODELS = os.getenv("MTX_MODELS_DIR") or "models"
local NAME = "SmolLM2-135M-Instruct.Q4_1"
local SMOL = MODELS .. "/" .. NAME .. ".gguf"
local LIST = "Monday: bread, milk. Tuesday: bread, eggs. Wednesday: bread, milk. Thursday: bread, eggs. Friday: bread, milk."
local PROMPT = "The list, twice.\n" .. LIST .. "\n" .. LIST:sub(1, 30)

local model

TestDraft = {}
function TestDraft:setUp() model = model or assert(mtx.load(SMOL, { ctx = 1024 })) end

-- The same request without drafts and with each of them. -> tokens accepted by the last
local function compare(request)
  local drafts, accepted = { { adaptive = false }, { max = 5, min_match = 1, adaptive = false }, { max = 32, min_match = 3, adaptive = false }, "lookup" }, nil
  request.draft = nil
  local plain = assert(model:generate(request))
  lu.assertNil(plain.timings.n_drafted)
  for i, draft in ipairs(drafts) do
    request.draft = draft
    local r = assert(model:generate(request))
    lu.assertEquals(r.ids, plain.ids, "draft " .. i)
    lu.assertEquals({ r.text, r.finish_reason, r.stop_string, r.logprobs }, { plain.text, plain.finish_reason, plain.stop_string, plain.logprobs })
    if i == 1 then accepted = r.timings.n_draft_accepted or 0 end
  end
  return accepted
end

function TestDraft:test_same_answers()
  lu.assertTrue(compare({ prompt = PROMPT, max_tokens = 60, temperature = 0 }) > 20)
  compare({ prompt = PROMPT, max_tokens = 60, temperature = 0.9, seed = 3, logprobs = 2 })
  compare({ prompt = PROMPT, max_tokens = 60, temperature = 0.7, seed = 4, repeat_penalty = 1.2, dry_multiplier = 0.8 })
  compare({ prompt = PROMPT, max_tokens = 60, temperature = 1, seed = 5, mirostat = 2 })
  lu.assertEquals(assert(model:generate({ prompt = PROMPT, max_tokens = 60, temperature = 0, stop = { "Thursday" }, draft = { adaptive = false } })).stop_string, "Thursday")
  compare({ prompt = PROMPT, max_tokens = 60, temperature = 0, stop = { "Thursday" } })
  compare({ prompt = PROMPT, max_tokens = 60, temperature = 0, banned_strings = { "milk", "eggs" } })
  local days = assert(core.grammar.regex("( [A-Z][a-z]+day: [a-z, ]+\\.){3,5}"))
  compare({ prompt = PROMPT, max_tokens = 60, temperature = 0.5, seed = 6, grammar = days })
end

-- What a text is expected to be is drafted from, right and wrong.
function TestDraft:test_reference()
  local request = { prompt = "Write a sentence about rivers.", max_tokens = 40, temperature = 0 }
  local plain = assert(model:generate(request))
  request.draft = { reference = request.prompt .. plain.text, adaptive = false }
  local r = assert(model:generate(request))
  lu.assertEquals(r.ids, plain.ids)
  lu.assertTrue(r.timings.n_draft_accepted > 25)
  request.draft = { reference = "Write a sentence about lakes. It is not what comes.", adaptive = false }
  lu.assertEquals(assert(model:generate(request)).ids, plain.ids)
end

function TestDraft:test_misuse()
  for given, told in pairs({ model = "no kind is called 'model'", [5] = "not a number" }) do
    lu.assertErrorMsgContains(told, model.generate, model, { prompt = "a", draft = given })
  end
  lu.assertErrorMsgContains("did you mean max", model.generate, model, { prompt = "a", draft = { maxx = 3 } })
  local _, message, code = model:generate({ prompt = "a", draft = { max = 99 } })
  lu.assertEquals({ code, message:find("draft.max", 1, true) ~= nil }, { "invalid", true })
  _, message, code = model:generate({ prompt = "a", draft = "lookup", cfg_scale = 2 })
  lu.assertEquals({ code, message:find("guidance", 1, true) ~= nil }, { "unsupported", true })
  lu.assertErrorMsgContains("sampler function", model.generate, model, { prompt = "a", draft = "lookup", sampler = function() end })
end

local function shell(options)
  local p = assert(io.popen(("build/mtx run %s %q --raw --json --temp 0 -n 40 %s 2>&1"):gsub("build", os.getenv("BUILD") or "build"):format(SMOL, PROMPT, options)))
  local text = p:read("a")
  p:close()
  return text
end

function TestDraft:test_command_line()
  local text = shell("--draft lookup"):match('"text":(".-[^\\]")')
  lu.assertEquals(text, shell(""):match('"text":(".-[^\\]")'))
  lu.assertNotNil(text)
  lu.assertStrContains(shell("--draft lookup --draft-max 4"), '"n_drafted":')
  lu.assertNotStrContains(shell("--draft off"), '"n_drafted":')
  lu.assertStrContains(shell("--draft model"), "lookup")
end

-- ---- the server ---------------------------------------------------------------------------

TestServer = {}

local function started(flags)
  flags.port, flags.models_dir, flags.log_level, flags.ctx = "0", MODELS, "error", "1024"
  local ctx = assert(serve.new(assert(config.load({ env = function() end, flags = flags }))))
  assert(serve.listen(ctx))
  return ctx, function(path, body)
    body.model = NAME
    return client.request(ctx.port, "POST", path, body, nil, 20000)
  end
end

-- Whether a draft pays is a matter of measured times; but after so many steps one is tried in any case. -> the reply in which
-- that was so, and how many tokens were drafted and accepted in all of them.
local function drafted(post, path, body)
  local n, n_accepted = 0, 0
  for _ = 1, 20 do
    local r = post(path, body).json
    n, n_accepted = n + (r.timings.draft_n or 0), n_accepted + (r.timings.draft_n_accepted or 0)
    if n > 0 then return r, n, n_accepted end
  end
  lu.fail("no drafts")
end

function TestServer:test_switches_and_counts()
  local ctx, post = started({})
  local plain = post("/completion", { prompt = PROMPT, n_predict = 60, temperature = 0 }).json
  lu.assertNil(plain.timings.draft_n)
  local r, n, n_accepted = drafted(post, "/completion", { prompt = PROMPT, n_predict = 60, temperature = 0, ["speculative.n_max"] = 8 })
  lu.assertEquals(r.content, plain.content)
  lu.assertTrue(n >= n_accepted and n_accepted >= 0)
  local seen = client.request(ctx.port, "GET", "/metrics").body
  lu.assertStrContains(seen, ("mtx_draft_tokens_total %d\n"):format(n))
  lu.assertStrContains(seen, ("mtx_draft_tokens_accepted_total %d\n"):format(n_accepted))
  r = drafted(post, "/v1/completions", { prompt = PROMPT, max_tokens = 60, temperature = 0, speculative = true })
  lu.assertEquals(r.choices[1].text, plain.content)
  local details = r.usage.completion_tokens_details
  lu.assertEquals(details.accepted_prediction_tokens + details.rejected_prediction_tokens, r.timings.draft_n)
  r = post("/api/generate", { prompt = PROMPT, raw = true, stream = false, options = { num_predict = 60, temperature = 0, draft_num_predict = 4, repeat_penalty = 1 } }).json
  lu.assertEquals(r.response, plain.content)
  lu.assertEquals(post("/completion", { prompt = "a", ["speculative.n_max"] = -1 }).status, 400)
  lu.assertEquals(post("/v1/completions", { prompt = "a", speculative = "yes" }).status, 400)
  r = post("/completion", { prompt = PROMPT, n_predict = 5, temperature = 0, speculative = true, cfg_scale = 2 })
  lu.assertStrContains(r.headers["x-mtx-warning"], "no drafts: cfg_scale is set")
  fixture.stop(ctx)
end

function TestServer:test_prediction()
  local ctx, post = started({})
  local body = { messages = { { role = "user", content = "Write a sentence about rivers." } }, max_tokens = 40, temperature = 0 }
  local plain = post("/v1/chat/completions", body).json
  local text = plain.choices[1].message.content
  lu.assertNil(plain.usage.completion_tokens_details)
  for _, content in ipairs({ text, { { type = "text", text = text } } }) do
    body.prediction = { type = "content", content = content }
    local r = drafted(post, "/v1/chat/completions", body)
    lu.assertEquals(r.choices[1].message.content, text)
    lu.assertTrue(r.usage.completion_tokens_details.accepted_prediction_tokens >= 0)
  end
  for _, bad in ipairs({ { type = "guess", content = "x" }, { type = "content" }, { type = "content", content = 5 } }) do
    body.prediction = bad
    lu.assertEquals(post("/v1/chat/completions", body).status, 400)
  end
  fixture.stop(ctx)
end

-- On for all; a request may leave it.
function TestServer:test_server_default()
  local ctx, post = started({ draft = "lookup", draft_max = "6" })
  local body = { prompt = PROMPT, n_predict = 60, temperature = 0 }
  drafted(post, "/completion", body)
  for _, off in ipairs({ { "speculative", false }, { "speculative.n_max", 0 } }) do
    body[off[1]] = off[2]
    lu.assertNil(post("/completion", body).json.timings.draft_n)
    body[off[1]] = nil
  end
  body.cfg_scale = 2
  lu.assertNil(post("/completion", body).headers["x-mtx-warning"], "nobody asked for it")
  fixture.stop(ctx)
end
