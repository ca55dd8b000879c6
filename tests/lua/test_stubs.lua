-- SPDX-License-Identifier: MIT
-- The stubs in lua/mtx/meta against the real functions, both ways.
local lu = require("luaunit")
local mtx = require("mtx")
local core = require("mtx.core")

local MODELS = os.getenv("MTX_MODELS_DIR") or "models"
local SMOL = MODELS .. "/SmolLM2-135M-Instruct.Q4_1.gguf"

TestStubs = {}

-- real and stubs: sets of names, which must be the same.
local function same_names(what, real, stubs)
  for name in pairs(real) do lu.assertTrue(stubs[name], what .. ": no stub of " .. name) end
  for name in pairs(stubs) do lu.assertTrue(real[name], what .. ": a stub of nothing: " .. name) end
end

local function text_of(path)
  local file <close> = assert(io.open(path))
  return file:read("a")
end

-- What `require "mtx"` gives: functions, methods, and the fields of every table that a call takes.
function TestStubs:test_the_lua_api_has_a_stub_and_the_reverse()
  local fields = require("mtx.model.fields")
  local text = text_of("lua/mtx/meta/mtx.lua")
  local real, stubs = {}, {}
  for name, v in pairs(mtx) do real["mtx." .. name] = type(v) == "function" or nil end
  local model = assert(mtx.load(SMOL, { ctx = 64 }))
  local stream, loading = assert(model:stream({ prompt = "x", max_tokens = 1 })), assert(mtx.start_load(SMOL))
  for class, value in pairs({ Model = model, Stream = stream, Loading = loading }) do
    for name in pairs(getmetatable(value).__index) do
      if name:sub(1, 2) ~= "__" then real[class .. ":" .. name] = true end
    end
  end
  for name in text:gmatch("\nfunction ([%w_%.:]+)%(") do stubs[name] = true end
  same_names("functions", real, stubs)
  local result = assert(stream:result())
  loading:take():close()
  model:close()
  for class, known in pairs({ LoadOptions = fields.LOAD.set, QuantizeOptions = fields.QUANTIZE.set, PullOptions = fields.PULL.set, Request = fields.REQUEST.set, BeamRequest = fields.BEAM.set }) do
    stubs = {}
    local own = text:match("%-%-%-@class mtx%." .. class .. "[^\n]*\n(.-)\n\n")
    if class == "Request" then own = own .. "\n" .. text:match("%-%-%-@class mtx%.SamplerOptions\n(.-)\n\n") end
    for name in own:gmatch("%-%-%-@field ([%w_]+)") do stubs[name] = true end
    same_names(class, known, stubs)
  end
  local described = text:match("%-%-%-@class mtx%.Result\n(.-)\n\n")
  for name in pairs(result) do lu.assertStrContains(described, "@field " .. name) end
  for name in pairs(result.timings) do lu.assertStrContains(described, name .. ": ") end
end

function TestStubs:test_every_function_has_a_stub_and_the_reverse()
  local real, stubs = {}, {}
  for name, v in pairs(core) do
    if type(v) == "table" then
      for f in pairs(v) do real["core." .. name .. "." .. f] = true end
    else
      real["core." .. name] = true
    end
  end
  local registry = debug.getregistry()
  for _, class in ipairs({ "tensor", "sampler", "model", "engine", "session", "tokenizer", "detokenizer", "gguf", "safetensors", "grammar", "matcher", "sha256", "task", "adapter", "lora" }) do
    local meta = registry["mtx." .. class]
    for f in pairs(meta.methods or meta.__index) do real[class .. ":" .. f] = true end
  end
  for name in text_of("lua/mtx/meta/core.lua"):gmatch("\nfunction ([%w_%.:]+)%(") do stubs[name] = true end
  same_names("core", real, stubs)
end
