-- SPDX-License-Identifier: MIT
-- How each tool-call format is written, for grammars that force it (call_grammar.lua):
-- head call (sep call)* tail. $N the name, $A the arguments as JSON, $I a number, $C nine letters
-- or digits; formats with parameters: $P all of them, each written as `parameter` with $K and $V;
-- `text`: a string's own form where it differs, $T then the type of another value; attribute(text): names as they are written there;
-- cdata: strings that XML cannot hold stand in a CDATA section; nested: objects and lists are parameters in parameters. $L up to two line ends, $O an id that may be left out; also: forms that may
-- come in its place. goes_on: what may come before, ending: behind. answer: what comes before an answer in a given format.
-- one: a turn has one call only. turn: the frames of texts, when a whole answer is messages: each of `headers`, a text, `close` and
-- `again`; or when it is channels: `open` or not, a text, `close` or not; `marks` stand in no text. A function makes the form from the template.
-- Facts: the families' own chat templates (tests/golden/chat).
local nested = require("mtx.parse.nested")
local xtml = require("mtx.parse.xtml")

local NAME_ARGUMENTS = '{"name": "$N", "arguments": $A}'

local function xml(open, close, pad)
  local nl = pad and "\n" or ""
  return { call = open .. "\n<function=$N>\n$P</function>\n" .. close, sep = "\n", parameter = "<parameter=$K>" .. nl .. "$V" .. nl .. "</parameter>\n", close = "</parameter>" }
end

local function dsml(template)
  local frame = template:find("function_calls", 1, true) and "function_calls" or "tool_calls"
  return { head = "<｜DSML｜" .. frame .. ">\n", call = '<｜DSML｜invoke name="$N">\n$P$L</｜DSML｜invoke>', sep = "\n", tail = "\n</｜DSML｜" .. frame .. ">",
    parameter = '<｜DSML｜parameter name="$K" string="false">$V</｜DSML｜parameter>\n', text = '<｜DSML｜parameter name="$K" string="true">$V</｜DSML｜parameter>\n',
    close = "</｜DSML｜parameter>" }
end

return {
  bare = { call = NAME_ARGUMENTS, sep = "", one = true, answer = "" },
  taught = { call = "<tool_call>$L" .. NAME_ARGUMENTS .. "$L</tool_call>", sep = "$L" }, -- what serve/generate/teach.lua asks for
  hermes = { call = "<tool_call>\n" .. NAME_ARGUMENTS .. "\n</tool_call>", sep = "\n" },
  mistral = function(template)
    if not template:find("[ARGS]", 1, true) then return { head = "[TOOL_CALLS][", call = '{"name": "$N", "arguments": $A$O}', sep = ", ", tail = "]" } end
    return { call = "[TOOL_CALLS]$N" .. (template:find("[CALL_ID]", 1, true) and "[CALL_ID]$C" or "") .. "[ARGS]$A", sep = "" }
  end,
  deepseek = function(template)
    local fenced = template:find("```json", 1, true)
    return { head = "<｜tool▁calls▁begin｜>", tail = "<｜tool▁calls▁end｜>", sep = fenced and "\n" or "",
      call = fenced and "<｜tool▁call▁begin｜>function<｜tool▁sep｜>$N\n```json\n$A\n```<｜tool▁call▁end｜>" or "<｜tool▁call▁begin｜>$N<｜tool▁sep｜>$A<｜tool▁call▁end｜>" }
  end,
  dsml = dsml,
  kimi = { head = "<|tool_calls_section_begin|>", call = "<|tool_call_begin|>functions.$N:$I<|tool_call_argument_begin|>$A<|tool_call_end|>", sep = "",
    tail = "<|tool_calls_section_end|>" },
  solar = { head = "<|tool_calls|>", call = "<|tool_call:begin|>$C<|tool_call:name|>$N<|tool_call:args|>$A<|tool_call:end|>", sep = "",
    goes_on = "<|begin|>assistant", answer = "<|content|>", turn = { headers = { "<|think|>", "<|content|>" }, close = "<|end|>", again = "<|begin|>assistant",
      marks = { "<|begin|>", "<|think|>", "<|content|>", "<|end|>", "<|tool_calls|>", "<|tool_call:begin|>" } } },
  glm = { call = "<tool_call>$N$L$P$L</tool_call>", sep = "$L", parameter = "$L<arg_key>$K</arg_key>$L<arg_value>$V</arg_value>", close = "</arg_value>" },
  hunyuan = { head = "<tool_calls:opensource>\n", tail = "\n</tool_calls:opensource>", call = "<tool_call:opensource>$N<tool_sep:opensource>\n$P</tool_call:opensource>", sep = "\n", close = "</arg_value:opensource>",
    parameter = "<arg_key:opensource>$K</arg_key:opensource>\n<arg_value:opensource>$V</arg_value:opensource>\n" },
  seed = xml("<seed:tool_call>", "</seed:tool_call>"),
  qwen_xml = xml("<tool_call>", "</tool_call>", true),
  functionary = { call = "<function=$N>$A</function>", sep = "" },
  functionary32 = { call = "$N\n$A", sep = ">>>" },
  minimax = { head = "<minimax:tool_call>\n", call = '<invoke name="$N">\n$P</invoke>', sep = "\n", tail = "\n</minimax:tool_call>",
    parameter = '<parameter name="$K">$V</parameter>\n', close = "</parameter>" },
  minimax3 = { head = nested.MARK .. "<tool_call>\n", call = nested.MARK .. '<invoke name="$N">$P' .. nested.MARK .. "</invoke>\n", sep = "", tail = nested.MARK .. "</tool_call>",
    parameter = nested.MARK .. "<$K>$V" .. nested.MARK .. "</$K>", close = nested.MARK, nested = true },
  minicpm = { call = '<function name="$N">$P</function>', sep = "\n", parameter = '<param name="$K">$V</param>', close = "</param>", cdata = true },
  cohere = { head = "<|START_ACTION|>[\n    ", call = '{"tool_call_id": "$I", "tool_name": "$N", "parameters": $A}', sep = ",\n    ", tail = "\n]<|END_ACTION|>" },
  command_r = { head = "Action: ```json\n[\n    ", call = '{\n        "tool_name": "$N",\n        "parameters": $A\n    }', sep = ",\n    ", tail = "\n]\n```" },
  lfm2 = { head = "<|tool_call_start|>[", call = "$N($P)", sep = ", ", tail = "]<|tool_call_end|>", parameter = "$K=$V", between = ", " },
  gemma4 = { call = "<|tool_call>call:$N{$P}<tool_call|>", sep = "", parameter = "$K:$V", between = ",", quote = '<|"|>' },
  apertus = { head = "<|tools_prefix|>[", call = '{"$N": $A}', sep = ", ", tail = "]<|tools_suffix|>" },
  granite = { head = "<|tool_call|>[", call = NAME_ARGUMENTS, sep = ", ", tail = "]" },
  firefunction = { head = " functools[", call = NAME_ARGUMENTS, sep = ", ", tail = "]" },
  nemotron = { head = "<TOOLCALL>[", call = NAME_ARGUMENTS, sep = ", ", tail = "]</TOOLCALL>" },
  tool_calls = function(template)
    if template:find("<tool_calls>[", 1, true) then return { head = "<tool_calls>[", call = '{"name": "$N", "arguments": $A$O}', sep = ", ", tail = "]</tool_calls>" } end
    return { head = "<tool_calls>\n", call = NAME_ARGUMENTS, sep = "\n", tail = "\n</tool_calls>" }
  end,
  gigachat = { call = "<|function_call|>" .. NAME_ARGUMENTS, sep = "", one = true },
  llama3 = { call = '{"name": "$N", "parameters": $A}', sep = "", one = true },
  gigachat3 = { head = "<|message_sep|>\n\nfunction call<|role_sep|>\n", call = NAME_ARGUMENTS, sep = "", one = true, ending = "<|message_sep|>\n\n" },
  xtml = { head = xtml.close("response") .. xtml.open("tools"), call = '<|open|>call tool="$N" index="$I"<|sep|>$P' .. xtml.close("call"), sep = "", tail = xtml.close("tools"),
    parameter = '<|open|>argument key="$K" type="$T"<|sep|>$V' .. xtml.close("argument"), text = '<|open|>argument key="$K" type="string"<|sep|>$V' .. xtml.close("argument"),
    attribute = xtml.attribute, close = "<|close|>", goes_on = xtml.open("response"), answer = "", ending = xtml.close("message"),
    turn = { open = xtml.open("response"), close = xtml.close("response"), marks = { "<|open|>", "<|close|>" } } },
  atem = { head = " to=", call = '$N<|message|><atem:function_calls>\n<atem:invoke name="$N">\n$P</atem:invoke>\n</atem:function_calls>', sep = "<|eom|><|start|>assistant to=",
    parameter = '<atem:parameter name="$K">$V</atem:parameter>\n', close = "</atem:parameter>", goes_on = "<|start|>assistant", answer = " to=user<|message|>",
    turn = { headers = { " to=self<|message|>", " to=user<|message|>", "<|message|>" }, close = "<|eom|>", again = "<|start|>assistant",
      marks = { "<|start|>", "<|message|>", "<|eom|>", "<|eot|>" } } },
  harmony = { head = "<|channel|>commentary to=functions.", call = "$N <|constrain|>json<|message|>$A", sep = "", one = true, goes_on = "<|start|>assistant",
    answer = "<|channel|>final<|message|>", also = { { head = " to=functions.", call = "$N<|channel|>commentary json<|message|>$A" },
      { head = " to=functions.", call = "$N<|channel|>commentary <|constrain|>json<|message|>$A" } },
    turn = { headers = { "<|channel|>analysis<|message|>", "<|channel|>commentary<|message|>", "<|channel|>final<|message|>", "<|channel|>final <|constrain|>json<|message|>" },
      close = "<|end|>", again = "<|start|>assistant", marks = { "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>" } } },
}
