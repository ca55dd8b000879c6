// SPDX-License-Identifier: MIT
#include "bind/chunk.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

// The text on top of the stack, copied and popped.
static void take_text(lua_State *L, const char *what, mtx_chunk *c, int i) {
  size_t len;
  const char *p = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &len) : NULL;
  if (!p) luaL_error(L, "%s must be {code = text, args = {texts}}", what);
  if (!(c->text[i] = malloc(len + 1))) luaL_error(L, "not enough memory");
  memcpy(c->text[i], p, len);
  c->len[i] = len;
  c->n_args = i;
  lua_pop(L, 1);
}

void mtx_chunk_read(lua_State *L, int idx, const char *what, mtx_chunk *c) {
  luaL_checktype(L, idx, LUA_TTABLE);
  idx = lua_absindex(L, idx);
  int top = lua_gettop(L);
  lua_getfield(L, idx, "code");
  take_text(L, what, c, 0);
  lua_getfield(L, idx, "args");
  lua_Integer n = lua_istable(L, -1) ? luaL_len(L, -1) : 0;
  if (n > MTX_CHUNK_MAX_ARGS) luaL_error(L, "%s has more than %d arguments", what, MTX_CHUNK_MAX_ARGS);
  for (int i = 1; i <= n; i++) {
    lua_rawgeti(L, top + 1, i);
    take_text(L, what, c, i);
  }
  lua_settop(L, top);
}

void mtx_chunk_push_code(lua_State *L, const mtx_chunk *c, const char *name) {
  if (luaL_loadbufferx(L, c->text[0], c->len[0], name, "t") != LUA_OK) lua_error(L);
}

void mtx_chunk_push_args(lua_State *L, const mtx_chunk *c) {
  luaL_checkstack(L, c->n_args, "arguments");
  for (int i = 1; i <= c->n_args; i++) lua_pushlstring(L, c->text[i], c->len[i]);
}

void mtx_chunk_fini(mtx_chunk *c) {
  for (int i = 0; i <= c->n_args; i++) free(c->text[i]);
  memset(c, 0, sizeof *c);
}
