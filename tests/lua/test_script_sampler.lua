-- SPDX-License-Identifier: MIT
-- Sampler functions of the owner's script, on a real model behind the real server:
-- what they choose, that nothing else changes, and that faults end one request.
local lu = require("luaunit")
local client = require("http_client")
local config = require("mtx.config")
local fixture = require("http_fixture")
local mtx = require("mtx")
local serve = require("mtx.serve")
local temp = require("temp")

local MODELS = os.getenv("MTX_MODELS_DIR") or "models"
local NAME = "SmolLM2-135M-Instruct.Q4_1"
local PROMPT = "The capital of France is"

local function start(text)
  local path = text
  if not text:find("^examples/") then
    path = temp.path()
    local f = assert(io.open(path, "w"))
    f:write(text)
    f:close()
  end
  local ctx = assert(serve.new(assert(config.load({ env = function() end, flags = { port = "0", models_dir = MODELS, ctx = "512", log_level = "error", script = path } })),
    { log_out = { write = function() end } }))
  assert(serve.listen(ctx))
  return ctx
end

local function body_of(more)
  local body = { model = NAME, prompt = PROMPT, n_predict = 12, temperature = 0, return_tokens = true }
  for k, v in pairs(more or {}) do body[k] = v end
  return body
end

local function complete(ctx, more) return client.request(ctx.port, "POST", "/completion", body_of(more), nil, 20000) end

TestSamplers = {}

-- The examples' functions, run here by hand over a session, give the expected tokens.
function TestSamplers:setUp()
  if TestSamplers.plain then return end
  local model = assert(mtx.load(MODELS .. "/" .. NAME .. ".gguf", { ctx = 512 }))
  local function walk(choose)
    local session <close> = assert(model:session())
    local history, ids = assert(model:tokenize(PROMPT, { add_special = true })), {}
    local logits = assert(session:eval(history))
    for i = 1, 12 do
      local id = choose(logits, history, i)
      ids[i], history[#history + 1] = id, id
      logits = assert(session:eval({ id }))
    end
    return ids
  end
  TestSamplers.plain = walk(function(logits) return logits:argmax() - 1 end)
  TestSamplers.no_echo = walk(function(logits, history)
    for i = #history - 2, #history do logits[history[i] + 1] = -math.huge end
    return logits:argmax() - 1
  end)
  TestSamplers.detour = walk(function(logits, _, i) return logits:topk(2)[i % 4 == 0 and 2 or 1][1] - 1 end)
  model:close()
end

function TestSamplers:tearDown()
  if self.ctx then fixture.stop(self.ctx) end
  self.ctx = nil
end

function TestSamplers:test_example()
  self.ctx = start("examples/serve/sampler.lua")
  lu.assertEquals(complete(self.ctx).json.tokens, self.plain)
  lu.assertEquals(complete(self.ctx, { sampler = "no_echo", sampler_options = { window = 3 } }).json.tokens, self.no_echo)
  lu.assertEquals(complete(self.ctx, { sampler = "detour", sampler_options = { every = 4 } }).json.tokens, self.detour)
  lu.assertEquals(complete(self.ctx, { sampler = "detour", sampler_options = { every = 4 } }).json.tokens, self.detour, "locals are of one request")
  lu.assertEquals(complete(self.ctx).json.tokens, self.plain)
  lu.assertNotEquals(self.plain, self.no_echo)
  lu.assertNotEquals(self.plain, self.detour)
  -- every dialect has the field
  local chat = { model = NAME, messages = { { role = "user", content = "Hi" } }, sampler = "nope", max_tokens = 4 }
  for _, at in ipairs({ { "/v1/chat/completions", chat }, { "/v1/messages", chat }, { "/api/chat", { model = NAME, messages = chat.messages, options = { sampler = "nope" } } },
    { "/completion", { model = NAME, prompt = "x", sampler = "nope" } } }) do
    local r = client.request(self.ctx.port, "POST", at[1], at[2])
    lu.assertEquals(r.status, 400, at[1])
    lu.assertStrContains(r.body, "detour, no_echo", false, false, at[1])
  end
end

function TestSamplers:test_no_script_no_sampler()
  self.ctx = assert(serve.new(assert(config.load({ env = function() end, flags = { port = "0", models_dir = MODELS, log_level = "error" } }))))
  assert(serve.listen(self.ctx))
  local r = complete(self.ctx, { sampler = "x" })
  lu.assertEquals(r.status, 400)
  lu.assertStrContains(r.body, "no script")
end

-- Each of these ends its request with an error that says what happened, while the
-- same prompt beside it is answered as always.
function TestSamplers:test_faults_end_one_request_only()
  self.ctx = start([[
    mtx.sampler("raises", function(logits, history) if #history > 7 then error("oh no") end end)
    mtx.sampler("raises_table", function() error({ a = 1 }) end)
    mtx.sampler("raises_trap", function() error(setmetatable({}, { __tostring = function() while true do end end })) end)
    mtx.sampler("loops", function() while true do end end)
    mtx.sampler("loops_in_pcall", function() while true do pcall(function() while true do end end) end end)
    mtx.sampler("loops_in_c", function(logits) while true do logits:softmax() end end)
    mtx.sampler("backtracks", function() return ("a"):rep(1 << 20):find(".-.-.-b") and 1 end)
    mtx.sampler("eats", function() local s = "x" while true do s = s .. s end end)
    mtx.sampler("eats_tables", function() local t = {} while true do t[#t + 1] = {} end end)
    mtx.sampler("text", function() return "5" end)
    mtx.sampler("outside", function() return 1000000 end)
    mtx.sampler("negative", function() return -1 end)
    mtx.sampler("half", function() return 1.5 end)
    mtx.sampler("opens", function() return io.open("/etc/passwd") and 1 end)
    mtx.sampler("loads", function() return load("return 1")() end)
    mtx.sampler("generates", function() return mtx.generate({ prompt = "x" }) end)
    mtx.sampler("nan", function(logits) logits[1] = 0 / 0 end)
    mtx.sampler("nothing_left", function(logits) for i = 1, #logits do logits[i] = -math.huge end end)
  ]])
  local want = { raises = "oh no", raises_table = "not a text", raises_trap = "not a text", loops = "too many instructions", loops_in_pcall = "too many instructions", loops_in_c = "too much time",
    backtracks = "pattern takes too long", eats = "memory", eats_tables = "memory", text = "not a string", outside = "no token", negative = "no token", half = "not a number",
    opens = "nil value", loads = "nil value", generates = "not there in a sampler", nan = "finite", nothing_left = "no token is left" }
  local port = self.ctx.port
  lu.assertEquals(complete(self.ctx).json.tokens, self.plain)
  for name, text in pairs(want) do
    local text_body = require("cjson").encode(body_of())
    local beside = client.connect(port)
    beside:send("POST /completion HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " .. #text_body .. "\r\n\r\n" .. text_body)
    local r = complete(self.ctx, { sampler = name })
    lu.assertEquals(r.status, 500, name)
    lu.assertStrContains(r.json.error.message, text, false, false, name)
    beside:until_closed(20000)
    lu.assertEquals(require("cjson").decode(beside.data:match("\r\n\r\n(.*)")).tokens, self.plain, name)
    beside:close()
  end
  lu.assertEquals(self.ctx.n_jobs, 0)
  for _, l in pairs(self.ctx.pool.loaded) do lu.assertTrue(l.engine:stats(true).kv_ok) end
end

-- With a grammar the function sees what is forbidden and cannot choose it.
function TestSamplers:test_grammar_and_reload()
  self.ctx = start([[
    mtx.sampler("first", function(logits, history, o)
      for i = 1, #logits do if logits[i] > -math.huge then return i - 1 end end
    end)
    mtx.sampler("any", function() return 0 end)
    mtx.sampler("allow", function(logits) for i = 1, #logits do logits[i] = 0 end end)
  ]])
  local r = complete(self.ctx, { sampler = "first", grammar = 'root ::= "yes" | "no"' })
  lu.assertTrue(r.json.content == "yes" or r.json.content == "no", r.body)
  r = complete(self.ctx, { sampler = "any", grammar = 'root ::= "yes"' })
  lu.assertEquals(r.status, 500)
  lu.assertStrContains(r.json.error.message, "forbids")
  lu.assertEquals(complete(self.ctx, { sampler = "allow", grammar = 'root ::= "yes"' }).json.content, "yes")
  local f = io.open(self.ctx.script.path, "w")
  f:write('mtx.sampler("second", function(logits) return logits:argmax() - 1 end)')
  f:close()
  lu.assertEquals(client.request(self.ctx.port, "POST", "/admin/reload", "{}").status, 200)
  lu.assertEquals(complete(self.ctx, { sampler = "first" }).status, 400)
  lu.assertEquals(complete(self.ctx, { sampler = "second" }).json.tokens, self.plain)
end
