// SPDX-License-Identifier: MIT
// Collects the bindings of every type into the module table `mtx.core`.
#include "bind/core.h"

#include <lauxlib.h>

// Each opener pushes one value (a table or a function), stored as core[name].
static const luaL_Reg OPENERS[] = {
  {"gguf", mtx_bind_gguf},
  {"safetensors", mtx_bind_safetensors},
  {"json_decoder", mtx_bind_json},
  {"memory_cap", mtx_bind_memory_cap},
  {"limit", mtx_bind_limit},
  {"pattern", mtx_bind_pattern},
  {"join_marked", mtx_bind_join_marked},
  {"notify", mtx_bind_notify},
  {"short_slices", mtx_bind_short_slices},
  {"sha256", mtx_bind_sha256},
  {"tokenizer", mtx_bind_tok},
  {"grammar", mtx_bind_grammar},
  {"tensor", mtx_bind_tensor},
  {"sampler", mtx_bind_sampler},
  {"model", mtx_bind_model_open},
  {"engine", mtx_bind_engine_open},
  {"trim_prompts", mtx_bind_trim_prompts},
  {"forget_prompts", mtx_bind_forget_prompts},
};

int mtx_bind_fail(lua_State *L, const mtx_err *err) {
  char text[1024];
  mtx_err_format(err, text, (int)sizeof text);
  lua_pushnil(L);
  lua_pushstring(L, text);
  lua_pushstring(L, mtx_code_name(err->code));
  return 3;
}

void mtx_bind_new_type(lua_State *L, const char *name, const luaL_Reg *meta, const luaL_Reg *methods) {
  if (luaL_newmetatable(L, name)) {
    if (meta) luaL_setfuncs(L, meta, 0);
    if (methods) {
      lua_newtable(L);
      luaL_setfuncs(L, methods, 0);
      lua_setfield(L, -2, "__index");
    }
  }
  lua_pop(L, 1);
}

void mtx_bind_set_integer(lua_State *L, const char *name, int64_t v) {
  lua_pushinteger(L, v);
  lua_setfield(L, -2, name);
}

void mtx_bind_set_number(lua_State *L, const char *name, double v) {
  lua_pushnumber(L, v);
  lua_setfield(L, -2, name);
}

int luaopen_mtx_core(lua_State *L) {
  lua_newtable(L);
  for (size_t i = 0; i < sizeof OPENERS / sizeof *OPENERS; i++) {
    lua_pushcfunction(L, OPENERS[i].func);
    lua_call(L, 0, 1);
    lua_setfield(L, -2, OPENERS[i].name);
  }
  return 1;
}
