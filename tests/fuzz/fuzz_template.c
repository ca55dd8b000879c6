// SPDX-License-Identifier: MIT
// Chat templates are untrusted: any bytes must compile to a template or an error,
// and any template must render or fail within its limits. The engine is Lua, so
// this target hosts it; an error that escapes its pcall is a finding.
static const char setup[] =
    "package.path = 'lua/?.lua;lua/?/init.lua;' .. package.path\n"
    "local template = require('mtx.chat.template')\n"
    "local json = require('mtx.json')\n"
    "local vars = json.decode('{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"<|x|> {{ y }}\"},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":[1,2.5,true]}}}]}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}],\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"add_generation_prompt\":true}')\n"
    "local limits = { steps = 20000, bytes = 1 << 20, depth = 60 }\n"
    "return function(source)\n"
    "  local tpl, message, code = template.compile(source, { name = 'fuzz' })\n"
    "  if not tpl then assert(type(message) == 'string' and type(code) == 'string') return end\n"
    "  for _, spans in ipairs({ false, true }) do\n"
    "    local text, where, kind = tpl:render(vars, { now = '2026-03-14 15:09:26', limits = limits, spans = spans })\n"
    "    if text then\n"
    "      assert(type(text) == 'string')\n"
    "      for _, s in ipairs(spans and where or {}) do assert(s[1] >= 1 and s[2] <= #text) end\n"
    "    else assert(type(where) == 'string' and type(kind) == 'string') end\n"
    "  end\n"
    "end\n";

#include "lua_host.h"
