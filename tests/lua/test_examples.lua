-- SPDX-License-Identifier: MIT
-- Every example runs and prints what it should.
local lu = require("luaunit")
local temp = require("temp")

local MODELS = os.getenv("MTX_MODELS_DIR") or "models"
local SMOL = MODELS .. "/SmolLM2-135M-Instruct.Q4_1.gguf"
local MINILM = MODELS .. "/minilm.gguf"

TestExamples = {}

local function run(command)
  local pipe = assert(io.popen(command .. " 2>&1"))
  local out = pipe:read("a")
  local ok = pipe:close()
  lu.assertTrue(ok, out)
  return out
end

local MTX = (os.getenv("BUILD") or "build") .. "/mtx "

function TestExamples:test_chat()
  lu.assertStrMatches(run(MTX .. "examples/chat.lua " .. SMOL .. " 'What is 2+2?'"), ".+\n%d+ tokens, finish reason %a+\n")
end

function TestExamples:test_custom_sampler()
  lu.assertTrue(#run(MTX .. "examples/custom_sampler.lua " .. SMOL) > 20)
end

function TestExamples:test_best_of_n()
  local out = run(MTX .. "examples/best_of_n.lua " .. SMOL .. " 'The sun' 3")
  lu.assertStrMatches(out, "1: .*\n2: .*\n3: .*\nbest: .*\n")
end

function TestExamples:test_saved_session()
  local path = temp.path()
  local command = MTX .. "examples/saved_session.lua " .. SMOL .. " " .. path
  local first, second = run(command), run(command)
  lu.assertStrContains(first, "bytes saved")
  lu.assertNil(second:find("bytes saved"))
  local text = "%d+ tokens are there without reading them\n.*"
  lu.assertEquals(second:match(text), first:match(text))
  os.remove(path)
end

function TestExamples:test_similarity()
  local out = run(MTX .. "examples/similarity.lua " .. MINILM .. " 'a small dog' 'a puppy' 'tax law'")
  local near, far = out:match("([%d%.]+)  a puppy\n([%-%d%.]+)  tax law")
  lu.assertTrue(tonumber(near) > tonumber(far) + 0.2, out)
end
