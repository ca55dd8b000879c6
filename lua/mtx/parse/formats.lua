-- SPDX-License-Identifier: MIT
-- The tool-call formats of model families. An entry:
--   name, detect(template)   how a template shows that it uses the format
--   open      marks that begin calls             inner   further marks that may be control tokens
--   read(p, mark)            reads what follows a mark (calls.lua); false: no call
--   first     read also at the answer's beginning, without a mark
--   guess     a bare JSON call of a known tool at the answer's beginning is a call too: models write it where their own
--             template shows no calls of the history and so the chat holds them as text (chat/shape.lua)
--   whole(p)  reads the whole answer             always  parse it without tools too
--   frame     marks around the answer's text that are no part of it; `always` then too, but calls need tools
--   thoughts  marks of thoughts when the format has its own
-- Facts: the families' own chat templates (tests/golden/chat).
local addressed = require("mtx.parse.addressed")
local calls = require("mtx.parse.calls")
local nested = require("mtx.parse.nested")
local tagged = require("mtx.parse.tagged")
local values = require("mtx.parse.values")
local xtml = require("mtx.parse.xtml")

local function has(...)
  local marks = { ... }
  return function(template)
    for _, mark in ipairs(marks) do
      if not template:find(mark, 1, true) then return false end
    end
    return true
  end
end

local function either(a, b)
  return function(template) return a(template) or b(template) end
end

-- read() of JSON calls up to one of `closes`.
local function json_until(...)
  local closes = { ... }
  return function(p) return calls.json(p, closes) end
end

local formats = {}
local function add(f) formats[#formats + 1] = f end

add({ name = "harmony", open = {}, inner = { "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>" }, always = true, whole = addressed.harmony,
  thoughts = { open = "<|channel|>analysis<|message|>", close = "<|end|>", after = "<|start|>assistant" },
  detect = has("<|channel|>", "<|message|>", "<|call|>") })

-- Muse Glimmer: <|eom|> between messages.
add({ name = "atem", open = {}, inner = { "<|start|>", "<|message|>", "<|eom|>" }, always = true, whole = addressed.atem,
  thoughts = { open = "to=self<|message|>", close = "<|eom|>", after = "<|start|>assistant" }, detect = has("<atem:function_calls>") })

-- Kimi K3: the prompt opens the think or the response channel.
add({ name = "xtml", open = { xtml.open("tools") }, inner = { "<|open|>", "<|close|>", "<|sep|>" }, always = true, read = xtml.calls,
  frame = { xtml.open("response"), xtml.close("response"), xtml.close("message") },
  thoughts = { open = xtml.open("think"), close = xtml.close("think"), after = xtml.open("response") }, detect = has("<|open|>", "<|close|>", "<|sep|>") })

-- Gemma 4: call:NAME{key:value,...}, strings between <|"|>.
add({ name = "gemma4", open = { "<|tool_call>" }, inner = { "<tool_call|>", '<|"|>' }, detect = has("<|tool_call>", "<tool_call|>"),
  read = function(p)
    local r = p.r
    r:space()
    if not r:try("call:") then return false end
    local name = calls.valid_name(r:run("[{%s]", nil, calls.NAME_BYTES))
    if not name or r:peek() ~= "{" then return false end
    p:begin(name)
    if not values.gemma(r, p.arguments) then return false end
    p:done()
    r:space()
    return r:try("<tool_call|>") or r:peek() == ""
  end })

-- Mistral: [TOOL_CALLS] then a JSON list, or (v11 on) name[CALL_ID]id[ARGS]{...} for each call.
add({ name = "mistral", open = { "[TOOL_CALLS]" }, inner = { "[ARGS]", "[CALL_ID]" }, detect = has("[TOOL_CALLS]"),
  read = function(p)
    local r = p.r
    r:space()
    if r:peek() == "[" and not r:try("[ARGS]") then return calls.json(p) end
    if r:peek() == "{" then return calls.json(p) end
    local name = r:run("[%[{%s]", nil, calls.NAME_BYTES)
    if r:try("[CALL_ID]") and not r:run("[%[{%s]", nil, calls.NAME_BYTES) then return false end
    r:try("[ARGS]")
    r:space()
    return calls.named(p, name)
  end })

-- DeepSeek R1 ("function", name, ```json fence) and V3.1 (name, bare JSON).
local function deepseek_call(p)
  local r = p.r
  local name = r:before({ "<｜tool▁sep｜>" }, calls.NAME_BYTES)
  if not name then return false end
  if r:peek() == "{" then return calls.named(p, name) end
  name = r:before({ "\n```json\n" }, calls.NAME_BYTES)
  if not name or not calls.named(p, name) then return false end
  r:space()
  r:try("```")
  return true
end
add({ name = "deepseek", guess = true, open = { "<｜tool▁calls▁begin｜>" }, detect = has("<｜tool▁calls▁begin｜>"),
  inner = { "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>" },
  read = function(p) return calls.section(p, "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", deepseek_call) end })

-- DeepSeek V3.2 and V4.
add({ name = "dsml", open = { "<｜DSML｜function_calls>", "<｜DSML｜tool_calls>" }, inner = { "｜DSML｜" }, detect = has("｜DSML｜"),
  read = tagged.reader({ call = '<｜DSML｜invoke name="', name_end = '">', parameter = '<｜DSML｜parameter name="', key_ends = tagged.DSML_KEYS,
    close = "</｜DSML｜parameter>", call_close = "</｜DSML｜invoke>", frame = { "</｜DSML｜function_calls>", "</｜DSML｜tool_calls>" } }) })

-- Kimi K2: functions.NAME:INDEX before each call's JSON.
local function kimi_call(p)
  local id = p.r:before({ "<|tool_call_argument_begin|>" }, calls.NAME_BYTES)
  p.r:space()
  return id ~= nil and calls.named(p, id:match("^%s*functions%.(.-):%d+%s*$") or id:match("^%s*(.-)%s*$"))
end
add({ name = "kimi", open = { "<|tool_calls_section_begin|>" }, detect = has("<|tool_calls_section_begin|>"),
  inner = { "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>" },
  read = function(p) return calls.section(p, "<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>", kimi_call) end })

-- Solar: messages of thoughts, text (<|content|>) or calls: an id, the name, the JSON.
add({ name = "solar", open = { "<|tool_calls|>", "<|tool_call:begin|>" }, inner = { "<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>", "<|begin|>", "<|content|>" },
  always = true, frame = { "<|begin|>assistant", "<|content|>", "<|end|>" }, thoughts = { open = "<|think|>", close = "<|end|>", after = "<|begin|>assistant", anywhere = true },
  detect = has("<|tool_call:begin|>", "<|tool_call:args|>"),
  read = function(p, mark)
    local r = p.r
    if mark == "<|tool_calls|>" and not r:try("<|tool_call:begin|>") then return false end
    local id = r:before({ "<|tool_call:name|>" }, calls.NAME_BYTES)
    local name = id and r:before({ "<|tool_call:args|>" }, calls.NAME_BYTES)
    if not name or not calls.named(p, name) then return false end
    r:space()
    return r:try("<|tool_call:end|>") or r:peek() == ""
  end })

-- GLM 4.5 on, Laguna, Ling, Spark; Hunyuan 3 under longer tags.
add({ name = "glm", open = { "<tool_call>" }, inner = { "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>" }, detect = has("<arg_key>", "<tool_call>"),
  read = tagged.pairs_reader({ key = "<arg_key>", key_close = "</arg_key>", value = "<arg_value>", value_close = "</arg_value>", close = "</tool_call>" }) })
local hunyuan_call = tagged.pairs_reader({ sep = "<tool_sep:opensource>", key = "<arg_key:opensource>", key_close = "</arg_key:opensource>",
  value = "<arg_value:opensource>", value_close = "</arg_value:opensource>", close = "</tool_call:opensource>" })
add({ name = "hunyuan", open = { "<tool_calls:opensource>" }, detect = has("<tool_sep{}>"),
  read = function(p) return calls.section(p, "<tool_call:opensource>", nil, "</tool_calls:opensource>", hunyuan_call) end })

-- Seed-OSS, and Qwen3-Coder, Qwen 3.5, Nemotron 3, Step 3.5, whose values stand on lines of their own.
local function xml(frame, pad)
  return tagged.reader({ call = "<function=", name_end = ">", call_close = "</function>", parameter = "<parameter=", key_ends = { { ">" } },
    close = "</parameter>", frame = { frame }, pad = pad })
end
add({ name = "seed", open = { "<seed:tool_call>" }, inner = { "</seed:tool_call>" }, detect = has("<function=", "<seed:tool_call>"), read = xml("</seed:tool_call>") })
add({ name = "qwen_xml", open = { "<tool_call>", "<function=" }, inner = { "</tool_call>" }, detect = has("<function=", "<parameter="),
  read = xml("</tool_call>", true) })

-- Functionary 3.1: <function=NAME>{json}</function>.
add({ name = "functionary", open = { "<function=" }, detect = has("<function="),
  read = function(p)
    local r = p.r
    local name = r:before({ ">" }, calls.NAME_BYTES)
    if not name or not calls.named(p, name) then return false end
    r:space()
    return r:try("</function>") or r:peek() == ""
  end })

-- Functionary 3.2: >>>NAME, a line end and the JSON, or >>>all and text. The prompt ends with >>>.
add({ name = "functionary32", open = { ">>>" }, first = true, always = true, detect = has(">>>all"),
  read = function(p)
    local r = p.r
    if r:try("all\n") then
      p:accept()
      return true
    end
    local name = r:run("[%s{]", nil, calls.NAME_BYTES)
    if not p.tools[name] or not r:try("\n") then return false end
    return calls.named(p, name)
  end })

-- MiniMax M3, whose template is also one that mentions <tool_call>.
add({ name = "minimax3", open = { nested.MARK .. "<tool_call>" }, inner = { nested.MARK }, detect = has(nested.MARK), read = nested.calls })

-- MiniMax M2, and MiniCPM5 under shorter tags.
add({ name = "minimax", open = { "<minimax:tool_call>" }, inner = { "</minimax:tool_call>" }, detect = has("minimax:tool_call", "<invoke name="),
  read = tagged.reader({ call = '<invoke name="', name_end = '">', call_close = "</invoke>", parameter = '<parameter name="', key_ends = { { '">' } },
    close = "</parameter>", frame = { "</minimax:tool_call>" } }) })
add({ name = "minicpm", open = { '<function name="' }, detect = has('<function name="', '<param name="'),
  read = tagged.reader({ call = '<function name="', name_end = '">', call_close = "</function>", parameter = '<param name="', key_ends = { { '">' } },
    close = "</param>", frame = {}, pad = "cdata" }) })

-- Command R7B and A: a JSON list between action marks; Command R+ writes Action: and a fence.
add({ name = "cohere", open = { "<|START_ACTION|>" }, inner = { "<|END_ACTION|>" }, detect = has("<|START_ACTION|>"), read = json_until("<|END_ACTION|>"),
  always = true, frame = { "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>" } })
add({ name = "command_r", open = { "Action: ```json\n", "Action:```json\n", "Action:\n```json\n" }, detect = has("Action:", "```json"), read = json_until("```") })

-- LFM2: a list of calls as Python writes them.
add({ name = "lfm2", guess = true, open = { "<|tool_call_start|>" }, inner = { "<|tool_call_end|>" }, detect = either(has("tool_call_start"), has("tool_list_start")),
  read = function(p) return calls.python(p, { "<|tool_call_end|>" }) end })

-- Apertus: the name is the key.
add({ name = "apertus", open = { "<|tools_prefix|>" }, inner = { "<|tools_suffix|>" }, detect = has("<|tools_prefix|>"),
  read = function(p) return calls.keyed_json(p, { "<|tools_suffix|>" }) end })

-- JSON after one mark. Granite 3, Phi-4-mini; firefunction, Phi-4-mini too; Nemotron Nano 2; Apriel, MiniMax M1; GigaChat 3.1.
add({ name = "granite", guess = true, open = { "<|tool_call|>" }, inner = { "<|/tool_call|>" }, detect = has("<|tool_call|>"), read = json_until("<|/tool_call|>") })
add({ name = "firefunction", open = { "functools" }, detect = has("functools["), read = json_until() })
add({ name = "nemotron", open = { "<TOOLCALL>" }, inner = { "</TOOLCALL>" }, detect = has("<TOOLCALL>"), read = json_until("</TOOLCALL>") })
add({ name = "tool_calls", open = { "<tool_calls>" }, inner = { "</tool_calls>" }, detect = has("<tool_calls>"), read = json_until("</tool_calls>") })
add({ name = "gigachat", open = { "<|function_call|>" }, detect = has("<|function_call|>"), read = json_until() })

-- GigaChat 3.0: the turn ends and another one, of the role "function call", begins.
add({ name = "gigachat3", open = { "function call<|role_sep|>\n" }, inner = { "<|message_sep|>\n\n", "<|message_sep|>", "<|role_sep|>\n", "<|role_sep|>" }, always = true,
  frame = { "<|message_sep|>\n\n" }, detect = has("<|role_sep|>", "function call"), read = json_until() })

-- Llama 3.x: JSON, alone or after the Python mark; that may also be followed by a built-in tool's call.
add({ name = "llama3", open = { "<|python_tag|>" }, guess = true, detect = either(has("<|python_tag|>"), has('{"name": function name, "parameters"')),
  read = function(p)
    local r = p.r
    r:space()
    if r:peek() == "{" or r:peek() == "[" then return calls.json(p) end
    return calls.python_call(p, ".call")
  end })

-- Qwen 2.5 and 3, Hermes, Granite 4, SmolLM3 and many others; also what is tried where a template teaches nothing known.
local hermes = { open = { "<tool_call>" }, inner = { "</tool_call>" }, guess = true, read = json_until("</tool_call>") }
add({ name = "hermes", open = hermes.open, inner = hermes.inner, guess = true, detect = has("<tool_call>"), read = hermes.read })
formats.generic = { name = "generic", open = hermes.open, inner = hermes.inner, guess = true, read = hermes.read }

return formats
