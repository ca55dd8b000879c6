-- SPDX-License-Identifier: MIT
-- Every golden template: a turn with one call, with two, and with a thought and a call, as the template
-- writes it in a history, is read back, whatever the cuts.
local lu = require("luaunit")
local check = require("parse_check")
local json = require("mtx.json")
local parse = require("mtx.parse")
local turns = require("template_turns")

local N_TEMPLATES = 77

-- Templates that do less, and why. Everything else does all.
local ONE_CALL = {
  ["GigaChat3-10B-A1.8B"] = "writes the first call only", ["GigaChat3.1-10B-A1.8B"] = "writes the first call only", ["openai-gpt-oss-120b"] = "writes the first call only",
  ["meta-llama-Llama-3.1-8B-Instruct"] = "refuses two calls", ["meta-llama-Llama-3.2-3B-Instruct"] = "refuses two calls", ["meta-llama-Llama-3.3-70B-Instruct"] = "refuses two calls",
}
-- Their history has no place for calls: mtx writes them as JSON text (chat/shape.lua), which is read back too.
local NO_CALLS = {}
for _, name in ipairs({ "HuggingFaceTB-SmolLM3-3B", "LFM2-8B-A1B", "LFM2.5-Instruct", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "google-gemma-2-2b-it", "ibm-granite-granite-3.3-2B-Instruct",
  "llama-cpp-rwkv-world", "microsoft-Phi-3.5-mini-instruct", "real-SmolLM2-135M-Instruct", "vocab-command-r", "vocab-phi-3", "vocab-qwen2", "vocab-qwen35" }) do NO_CALLS[name] = true end
-- Their history does not go on from their prompt: the calls are read, but what else stands there is no answer of the model.
local OTHER_WORDS = { ["CohereForAI-c4ai-command-r-plus-tool_use"] = "the prompt ends in instructions that the history does not repeat" }
-- Formats that write thoughts in a history before a call; the others leave them out.
local THOUGHTS = {}
for _, name in ipairs({ "Bielik-11B-v3.0-Instruct", "ByteDance-Seed-OSS", "Cohere2MoE", "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "GLM-4.6", "GLM-4.7-Flash", "Kimi-K2-Thinking", "Kimi-K3",
  "LFM2.5-8B-A1B", "MiniMax-M2", "MiniMax-M3", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "Qwen-Qwen3-0.6B", "Qwen3.5-4B", "Reka-Edge", "Spark2.5", "StepFun3.5-Flash", "deepseek-ai-DeepSeek-V3.2",
  "deepseek-ai-DeepSeek-V4", "deepseek-ai-DeepSeek-V4-Flash-0731", "google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved", "inclusionai-ling-3.0-flash", "muse-glimmer", "openai-gpt-oss-120b",
  "openbmb-MiniCPM5-1B", "poolside-Laguna-S-2.1", "poolside-Laguna-XS-2.1", "poolside-Laguna-XS.2", "tencent-Hy3", "upstage-Solar-Open-100B" }) do THOUGHTS[name] = true end

-- Templates that leave out the text beside a call.
local NO_TEXT = {}
for _, name in ipairs({ "Cohere2MoE", "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "MiniMax-M1", "Mistral-Small-3.2-24B-Instruct-2506", "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
  "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "google-gemma-4-31B-it", "meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct",
  "meta-llama-Llama-3.3-70B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407", "muse-glimmer", "upstage-Solar-Open-100B" }) do NO_TEXT[name] = true end

local TOOLS = json.decode([=[[
  {"type":"function","function":{"name":"get_weather","description":"W","parameters":{"type":"object","additionalProperties":false,"properties":{"city":{"type":"string","description":"c"},"days":{"type":"integer","description":"d"},
    "list":{"type":"array","items":{"type":"string"},"description":"l"},"deep":{"type":"object","description":"o","additionalProperties":{"type":"string"},"properties":{"x":{"type":"array","items":{"type":"object","additionalProperties":{"type":"string"},"properties":{"y":{"type":"number"}}}}}},
    "on":{"type":"boolean","description":"b"}},"required":["city"]}}},
  {"type":"function","function":{"name":"now","description":"N","parameters":{"type":"object","properties":{}}}}]]=])
-- What they write of hard arguments cannot be read.
local UNREADABLE = { ["LFM2.5-8B-A1B"] = "writes strings between apostrophes as they are, apostrophes too" }
local WEATHER, NOW = turns.call("abcdefgh1", "get_weather", '{"city": "12", "days": 3}'), turns.call("abcdefgh2", "now", "{}")
local HARD = turns.call("abcdefgh3", "get_weather", [=[{"city": " O's \"lo\"\n<b> & c\\d {ø}, ", "list": ["a", "true"], "deep": {"x": [{"y": 1.5}, {"y": -2}]}, "on": true}]=])

-- Read whole, byte by byte and cut at every place: {text, thinking, calls = {{name, arguments}}}.
local function everywhere(options, output)
  local want = check.run(options, { output })
  lu.assertEquals(check.run(options, check.bytes(output)), want, output)
  for cut = 1, #output - 1 do lu.assertEquals(check.run(options, { output:sub(1, cut), output:sub(cut + 1) }), want, "cut at " .. cut .. ": " .. output) end
  return want
end

local function played(name, message)
  local source, show = turns.renderer(name, TOOLS)
  local output, prompt = turns.written(name, show, message, parse.thoughts(source))
  lu.assertEquals(output == nil, OTHER_WORDS[name] ~= nil)
  local got = everywhere({ template = source, tools = TOOLS, opened = output and parse.opened(source, prompt) }, output or prompt)
  local calls = {}
  for i, c in ipairs(got.calls) do
    lu.assertNil(c[3])
    calls[i] = turns.call(message.tool_calls[i].id, c[1], c[2])
  end
  lu.assertEquals(calls, { table.unpack(message.tool_calls) }, output)
  return got, output
end

TestEveryTemplate = {}

for _, name in ipairs(turns.templates()) do
  TestEveryTemplate["test_" .. name] = function()
    local _, _, can = turns.renderer(name)
    lu.assertEquals(not can.tool_calls, NO_CALLS[name] ~= nil)
    local beside = can.calls_beside_text and not can.thought_alone -- gpt-oss takes a text before a call as a thought
    local got, output = played(name, { role = "assistant", content = beside and "TEXT" or "", tool_calls = json.array{ WEATHER } })
    if output then lu.assertEquals({ got.text, got.thinking }, { beside and not NO_TEXT[name] and "TEXT" or "", "" }) end
    local both = { role = "assistant", content = "", tool_calls = json.array{ WEATHER, NOW } }
    if ONE_CALL[name] then
      lu.assertFalse((pcall(played, name, both)))
    else
      got, output = played(name, both)
      if output then lu.assertEquals({ got.text, got.thinking }, { "", "" }) end
    end
    if not UNREADABLE[name] then played(name, { role = "assistant", content = "", tool_calls = json.array{ HARD } }) end
    got, output = played(name, { role = "assistant", content = "", reasoning_content = "THOUGHT", tool_calls = json.array{ WEATHER } })
    if output then lu.assertEquals({ got.text, got.thinking }, { "", THOUGHTS[name] and "THOUGHT" or "" }) end
  end
end

function TestEveryTemplate:test_all_of_them() lu.assertEquals(#turns.templates(), N_TEMPLATES) end
