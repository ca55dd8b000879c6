// SPDX-License-Identifier: MIT
// Chat templates are untrusted: any bytes must compile to a template or an error,
// and any template must render or fail within its limits. The engine is Lua, so
// this target hosts it; an error that escapes its pcall is a finding.
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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

// Lua's lines as coverage: libFuzzer takes these counters beside its own.
__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t counters[1 << 16];

static void on_line(lua_State *L, lua_Debug *ar) {
  lua_getinfo(L, "Sl", ar);
  uint32_t h = (uint32_t)ar->currentline * 2654435761u;
  for (const char *p = ar->source; *p; p++) h = (h ^ (uint8_t)*p) * 16777619u;
  if (!++counters[h >> 16]) counters[h >> 16] = 255;
}

static lua_State *state(void) {
  static lua_State *L;
  if (L) return L;
  L = luaL_newstate();
  luaL_openlibs(L);
  if (luaL_loadstring(L, setup) || lua_pcall(L, 0, 1, 0)) {
    fprintf(stderr, "set-up: %s\n", lua_tostring(L, -1));
    exit(2);
  }
  lua_sethook(L, on_line, LUA_MASKLINE, 0);
  return L;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  lua_State *L = state();
  lua_pushvalue(L, 1);
  lua_pushlstring(L, (const char *)data, size);
  if (lua_pcall(L, 1, 0, 0)) {
    fprintf(stderr, "escaped: %s\n", lua_tostring(L, -1));
    abort();
  }
  return 0;
}
