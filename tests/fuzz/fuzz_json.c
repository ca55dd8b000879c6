// SPDX-License-Identifier: MIT
// JSON comes from clients and from models: any bytes decode to a value that encodes and
// decodes to the same text again, or fail with one message.
static const char setup[] =
    "package.path = 'lua/?.lua;lua/?/init.lua;' .. package.path\n"
    "local json = require('mtx.json')\n"
    "return function(text)\n"
    "  local value, message = json.decode(text)\n"
    "  if value == nil then assert(type(message) == 'string' and message:find('line %d+ column %d+')) return end\n"
    "  local once = assert(json.encode(value, { nan = true }))\n"
    "  if once:find('Infinity', 1, true) then return end\n"
    "  local again, why = json.decode(once)\n"
    "  if again == nil then error(why) end\n"
    "  assert(assert(json.encode(again, { nan = true })) == once)\n"
    "end\n";

#include "lua_host.h"
