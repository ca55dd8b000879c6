// SPDX-License-Identifier: MIT
// mtx.core.sha256: of(bytes), file(path), new() for bytes that come in parts.
#include <lauxlib.h>

#include "base/sha256.h"
#include "bind/core.h"

#define TYPE "mtx.sha256"

static int push_hex(lua_State *L, const mtx_sha256 *s) {
  char hex[65];
  mtx_sha256_hex(s, hex);
  lua_pushlstring(L, hex, 64);
  return 1;
}

static int l_sha256_of(lua_State *L) {
  size_t n;
  const char *p = luaL_checklstring(L, 1, &n);
  mtx_sha256 s;
  mtx_sha256_init(&s);
  mtx_sha256_update(&s, p, n);
  return push_hex(L, &s);
}

static int l_sha256_file(lua_State *L) {
  char hex[65];
  mtx_err err;
  if (mtx_sha256_file(luaL_checkstring(L, 1), hex, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  lua_pushlstring(L, hex, 64);
  return 1;
}

static int l_sha256_new(lua_State *L) {
  mtx_sha256_init(lua_newuserdatauv(L, sizeof(mtx_sha256), 0));
  luaL_setmetatable(L, TYPE);
  return 1;
}

static int l_sha256_update(lua_State *L) {
  size_t n;
  mtx_sha256 *s = luaL_checkudata(L, 1, TYPE);
  const char *p = luaL_checklstring(L, 2, &n);
  mtx_sha256_update(s, p, n);
  lua_settop(L, 1);
  return 1;
}

static int l_sha256_hex(lua_State *L) { return push_hex(L, luaL_checkudata(L, 1, TYPE)); }

int mtx_bind_sha256(lua_State *L) {
  static const luaL_Reg methods[] = {{"update", l_sha256_update}, {"hex", l_sha256_hex}, {NULL, NULL}};
  static const luaL_Reg functions[] = {{"of", l_sha256_of}, {"file", l_sha256_file}, {"new", l_sha256_new}, {NULL, NULL}};
  mtx_bind_new_type(L, TYPE, NULL, methods);
  luaL_newlib(L, functions);
  return 1;
}
