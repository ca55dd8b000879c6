-- SPDX-License-Identifier: MIT
-- A model folder in the models folder of a server: listed, shown, loaded on a thread and chatted with.
local lu = require("luaunit")
local uv = require("luv")
local client = require("http_client")
local config = require("mtx.config")
local infile = require("mtx.infile")
local json = require("mtx.json")
local mtx = require("mtx")
local serve = require("mtx.serve")
local temp = require("temp")

local GOLDEN = "tests/golden/hf/"
local ctx, port, dir

TestFolder = {}

function TestFolder:setUp()
  dir = temp.dir()
  for _, name in ipairs({ "chat", "llama-bias" }) do assert(uv.fs_symlink(assert(uv.fs_realpath(GOLDEN .. name)), dir .. "/" .. name)) end
  uv.fs_mkdir(dir .. "/broken", 493)
  for _, name in ipairs({ "config.json", "model.safetensors" }) do
    local f = assert(io.open(dir .. "/broken/" .. name, "wb"))
    f:write("{}")
    f:close()
  end
  local flags = { port = "0", models_dir = dir, log_level = "error", kv_type = "f32", kv_budget_mb = "16" }
  ctx = assert(serve.new(assert(config.load({ env = function() end, flags = flags }))))
  assert(serve.listen(ctx))
  port = ctx.port
end

function TestFolder:tearDown()
  ctx.config.drain_timeout = 0
  local done = false
  serve.drain(ctx, function() done = true end)
  lu.assertTrue(client.wait(function() return done end, 120000))
end

local function post(path, body) return client.request(port, "POST", path, body, nil, 120000) end

function TestFolder:test_listed_and_shown()
  local by_name = {}
  for _, m in ipairs(client.request(port, "GET", "/api/tags").json.models) do by_name[m.name] = m end
  lu.assertEquals(by_name["chat:latest"].details.format, "safetensors")
  lu.assertEquals(by_name["chat:latest"].details.family, "qwen3")
  lu.assertEquals(by_name["chat:latest"].size, uv.fs_stat(GOLDEN .. "chat/model.safetensors").size)
  local shards = 0
  for i = 1, 6 do shards = shards + uv.fs_stat(("%sllama-bias/model-0000%d-of-00006.safetensors"):format(GOLDEN, i)).size end
  lu.assertEquals(by_name["llama-bias:latest"].size, shards)
  local shown = post("/api/show", { model = "chat" })
  lu.assertEquals(shown.status, 200, shown.body)
  lu.assertEquals(shown.json.model_info["qwen3.block_count"], 2)
  lu.assertEquals(shown.json.details.quantization_level, "BF16")
  lu.assertStrContains(shown.json.template, "<|im_start|>")
end

function TestFolder:test_chat()
  local ref = json.decode(infile.read(GOLDEN .. "chat/reference.json"))
  local model = assert(mtx.load(GOLDEN .. "chat"))
  local want = model:detokenize(ref.ids)
  model:close()
  local r = post("/v1/chat/completions", { model = "chat", messages = ref.messages, temperature = 0, max_tokens = 24 })
  lu.assertEquals(r.status, 200, r.body)
  lu.assertEquals(r.json.choices[1].message.content, json.clean(want))
  lu.assertEquals(r.json.choices[1].finish_reason, "stop")
  lu.assertEquals(r.json.usage.prompt_tokens, #ref.prompt_ids)
end

function TestFolder:test_broken()
  local r = post("/api/generate", { model = "broken", prompt = "x" })
  lu.assertTrue(r.status >= 400, r.body)
  lu.assertStrContains(r.body, "model.safetensors")
  lu.assertEquals(client.request(port, "GET", "/health").status, 200)
end
