// SPDX-License-Identifier: MIT
// What a model writes is untrusted: any text, cut anyhow, must go through the parsers of
// thoughts and tool calls with the same result and nothing lost (tests/lua/parse_check.lua).
// First byte: the format; second: how the rest, the text, is cut.
static const char setup[] =
    "package.path = 'lua/?.lua;lua/?/init.lua;tests/lua/?.lua;' .. package.path\n"
    "local check = require('parse_check')\n"
    "local formats = require('mtx.parse.formats')\n"
    "local json = require('mtx.json')\n"
    "local tools = json.decode('[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{\"city\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"list\":{\"type\":\"array\"}}}}},{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]')\n"
    "local all = { formats.generic, table.unpack(formats) }\n"
    "return function(input)\n"
    "  if #input < 3 then return end\n"
    "  local kind, seed, text = input:byte(1), input:byte(2), input:sub(3)\n"
    "  local pieces, at = {}, 1\n"
    "  while at <= #text do\n"
    "    seed = (seed * 1103515245 + 12345) & 0x7fffffff\n"
    "    local n = 1 + (seed >> 16) % 7\n"
    "    pieces[#pieces + 1] = text:sub(at, at + n - 1)\n"
    "    at = at + n\n"
    "  end\n"
    "  check.invariants({ format = all[kind % #all + 1], tools = tools, think = kind >= 128, thoughts = kind >= 128 and { open = '<think>', close = '</think>' } or nil }, text, pieces)\n"
    "end\n";

#include "lua_host.h"
