// SPDX-License-Identifier: MIT
// engine:save_prefix, load_prefix, forget_prefix: the prefix index to files and back.
#include <string.h>

#include "bind/core.h"
#include "bind/engine.h"
#include "bind/options.h"

// save_prefix(key, ids, path) -> tokens saved, bytes of the file | nil, message, code
int mtx_bind_engine_save_prefix(lua_State *L) {
  mtx_bind_engine *e = mtx_bind_check_engine(L, 1);
  const char *key = luaL_checkstring(L, 2), *path = luaL_checkstring(L, 4);
  int64_t n, n_saved;
  uint64_t n_bytes;
  const int32_t *ids = mtx_check_ids(L, 3, &n);
  mtx_err err;
  if (mtx_engine_save_prefix(e->engine, key, ids, n, path, &n_saved, &n_bytes, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  lua_pushinteger(L, n_saved);
  lua_pushinteger(L, (lua_Integer)n_bytes);
  return 2;
}

// load_prefix(key, path) -> ids that are known now | nil, message, code
int mtx_bind_engine_load_prefix(lua_State *L) {
  mtx_bind_engine *e = mtx_bind_check_engine(L, 1);
  const char *key = luaL_checkstring(L, 2), *path = luaL_checkstring(L, 3);
  mtx_ids ids = {0};
  mtx_err err;
  if (mtx_engine_load_prefix(e->engine, key, path, &ids, &err) != MTX_OK) {
    mtx_ids_fini(&ids);
    return mtx_bind_fail(L, &err);
  }
  int32_t *copy = mtx_scratch(L, ids.len * sizeof *copy);
  if (ids.len) memcpy(copy, ids.ptr, ids.len * sizeof *copy);
  int n = (int)ids.len;
  mtx_ids_fini(&ids);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushinteger(L, copy[i]);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

// forget_prefix(key, ids) -> how many of them were known
int mtx_bind_engine_forget_prefix(lua_State *L) {
  mtx_bind_engine *e = mtx_bind_check_engine(L, 1);
  const char *key = luaL_checkstring(L, 2);
  int64_t n, n_known;
  const int32_t *ids = mtx_check_ids(L, 3, &n);
  mtx_err err;
  if (mtx_engine_forget_prefix(e->engine, key, ids, n, &n_known, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  lua_pushinteger(L, n_known);
  return 1;
}
