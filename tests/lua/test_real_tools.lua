-- SPDX-License-Identifier: MIT
-- Forced calls with a real model and engine: the grammar of a format's own form holds it, and
-- the parser reads what it wrote.
local lu = require("luaunit")
local mtx = require("mtx")
local call_grammar = require("mtx.parse.call_grammar")
local json = require("mtx.json")
local parse = require("mtx.parse")

local TOOLS = json.decode([=[[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":
  {"city":{"type":"string","enum":["Oslo","Rome"]},"days":{"type":"integer","minimum":1,"maximum":9}},"required":["city","days"]}}}]]=])

TestRealTools = {}

function TestRealTools:test_every_kind_of_form()
  local model = assert(mtx.load((os.getenv("MTX_MODELS_DIR") or "models") .. "/SmolLM2-135M-Instruct.Q4_1.gguf", { ctx = 512 }))
  for _, name in ipairs({ "hermes", "qwen_xml", "gemma4", "harmony", "mistral", "dsml", "lfm2", "glm" }) do -- one of each kind
    local format = parse.by_name(name)
    local text, schemas = call_grammar.of({ format = format, template = "", tools = TOOLS, parallel = false })
    local p, calls = parse.new({ format = format, tools = TOOLS }), {}
    local function take(events)
      for _, e in ipairs(events) do
        lu.assertNotEquals(e.kind, "call_cut", name)
        if e.kind == "call" then calls[#calls + 1] = { e.name, "" } elseif e.kind == "arguments" then calls[#calls][2] = calls[#calls][2] .. e.text
        elseif e.kind == "text" then lu.assertEquals(e.text, "", name) end
      end
    end
    for piece in model:stream({ prompt = "The weather in Rome?", max_tokens = 400, sampler = { temperature = 1.5, seed = 7 }, grammar = assert(mtx.core.grammar.gbnf(text, schemas)) }) do
      take(p:feed(piece))
    end
    take(p:finish())
    lu.assertEquals({ #calls, calls[1] and calls[1][1] }, { 1, "get_weather" }, name)
    local a = json.decode(calls[1][2])
    lu.assertTrue((a.city == "Oslo" or a.city == "Rome") and math.type(a.days) == "integer" and a.days >= 1 and a.days <= 9, name .. ": " .. calls[1][2])
  end
  model:close()
end
