// SPDX-License-Identifier: MIT
// engine:save_prefix, load_prefix, forget_prefix: the prefix index to files and back.
// engine:set_disk, mtx.core.trim_prompts: the folder where it outlives its engine.
#include <string.h>

#include "bind/core.h"
#include "bind/engine.h"
#include "bind/options.h"
#include "engine/disk.h"

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

// load_prefix(key | nil, path) -> ids that are known now, the key it was saved with | nil, message, code
int mtx_bind_engine_load_prefix(lua_State *L) {
  mtx_bind_engine *e = mtx_bind_check_engine(L, 1);
  const char *key = luaL_optstring(L, 2, NULL), *path = luaL_checkstring(L, 3);
  mtx_ids ids = {0};
  mtx_buf owner = {0};
  mtx_err err;
  mtx_code rc = mtx_engine_load_prefix(e->engine, key, path, &ids, &owner, &err);
  int32_t *copy = rc ? NULL : mtx_scratch(L, ids.len * sizeof *copy + owner.len);  // Lua may raise from here on
  size_t n = ids.len, n_owner = owner.len;
  if (copy && n) memcpy(copy, ids.ptr, n * sizeof *copy);
  if (copy) memcpy(copy + n, owner.ptr, n_owner);
  mtx_ids_fini(&ids);
  mtx_buf_fini(&owner);
  if (rc) return mtx_bind_fail(L, &err);
  lua_createtable(L, (int)n, 0);
  for (size_t i = 0; i < n; i++) {
    lua_pushinteger(L, copy[i]);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  lua_pushlstring(L, (const char *)(copy + n), n_owner - 1);
  return 2;
}

// forget_prefix(key, ids) -> how many of them were known; forget_prefix(nil): everything -> 0
int mtx_bind_engine_forget_prefix(lua_State *L) {
  mtx_bind_engine *e = mtx_bind_check_engine(L, 1);
  const char *key = luaL_optstring(L, 2, NULL);
  int64_t n = 0, n_known;
  const int32_t *ids = key ? mtx_check_ids(L, 3, &n) : NULL;
  mtx_err err;
  if (mtx_engine_forget_prefix(e->engine, key, ids, n, &n_known, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  lua_pushinteger(L, n_known);
  return 1;
}

// set_disk{dir, budget_bytes, ttl_s}: prompts are saved there; set_disk(nil): no longer. -> true
int mtx_bind_engine_set_disk(lua_State *L) {
  mtx_bind_engine *e = mtx_bind_check_engine(L, 1);
  const char *dir = NULL;
  lua_settop(L, 2);
  if (!lua_isnil(L, 2)) {
    luaL_checktype(L, 2, LUA_TTABLE);
    dir = mtx_opt_string(L, 2, "dir", NULL);
    luaL_argcheck(L, dir, 2, "option 'dir' is missing");
  }
  int64_t bytes = dir ? mtx_opt_integer(L, 2, "budget_bytes", 0) : 0;
  luaL_argcheck(L, bytes >= 0, 2, "option 'budget_bytes' must not be negative");
  double ttl = dir ? mtx_opt_number(L, 2, "ttl_s", 0) : 0;
  mtx_err err;
  if (mtx_engine_set_disk(e->engine, dir, (uint64_t)bytes, ttl, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  lua_pushboolean(L, 1);
  return 1;
}

// trim_prompts(dir, budget_bytes, ttl_s) -> files that are left, their bytes
static int l_trim_prompts(lua_State *L) {
  const char *dir = luaL_checkstring(L, 1);
  const lua_Integer budget = luaL_checkinteger(L, 2);
  luaL_argcheck(L, budget >= 0, 2, "the budget must not be negative");
  const mtx_disk_use use = mtx_disk_trim(dir, (uint64_t)budget, luaL_checknumber(L, 3));
  lua_pushinteger(L, use.n_files);
  lua_pushinteger(L, (lua_Integer)use.bytes);
  return 2;
}

int mtx_bind_trim_prompts(lua_State *L) {
  lua_pushcfunction(L, l_trim_prompts);
  return 1;
}
