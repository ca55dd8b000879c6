// SPDX-License-Identifier: MIT
// A fuzz target written in Lua (mtx.core holds only the JSON decoder there): `setup` (Lua source, defined before this is included)
// returns a function of the input; an error that it lets out is a finding.
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "bind/core.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Lua's lines as coverage: libFuzzer takes these counters beside its own.
__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t counters[1 << 16];

static void on_line(lua_State *L, lua_Debug *ar) {
  lua_getinfo(L, "Sl", ar);
  uint32_t h = (uint32_t)ar->currentline * 2654435761u;
  for (const char *p = ar->source; *p; p++) h = (h ^ (uint8_t)*p) * 16777619u;
  if (!++counters[h >> 16]) counters[h >> 16] = 255;
}

static int open_core(lua_State *L) {
  lua_newtable(L);
  mtx_bind_json(L);
  lua_setfield(L, -2, "json_decoder");
  return 1;
}

static lua_State *state(void) {
  static lua_State *L;
  if (L) return L;
  L = luaL_newstate();
  luaL_openlibs(L);
  luaL_requiref(L, "mtx.core", open_core, 0);
  lua_pop(L, 1);
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
