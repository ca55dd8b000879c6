// SPDX-License-Identifier: MIT
// mtx.core.sha256: of(bytes), file(path), new() for bytes that come in parts.
#include <lauxlib.h>
#include <string.h>

#include "base/sha256.h"
#include "bind/core.h"
#include "bind/task.h"

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

// Part of a file on a thread of its own: a copy of the digest goes on there and comes back with take().
typedef struct {
  mtx_sha256 *to, sum;
  uint64_t offset, n, n_read;
  int n_users;
  mtx_code rc;
  mtx_err err;
  char path[];
} part;

static void run_part(void *self) {
  part *p = self;
  p->rc = mtx_sha256_range(&p->sum, p->path, p->offset, p->n, &p->n_read, &p->err);
}

static int push_part(lua_State *L, void *self) {
  part *p = self;
  if (p->rc) return mtx_bind_fail(L, &p->err);
  *p->to = p->sum;
  lua_pushinteger(L, (lua_Integer)p->n_read);
  return 1;
}

// sum:start(path, offset, n) -> task whose take() gives how many bytes there were
static int l_sha256_start(lua_State *L) {
  static const mtx_bind_work work = {run_part, push_part};
  mtx_sha256 *s = luaL_checkudata(L, 1, TYPE);
  size_t len;
  const char *path = luaL_checklstring(L, 2, &len);
  lua_Integer offset = luaL_checkinteger(L, 3), n = luaL_checkinteger(L, 4);
  luaL_argcheck(L, offset >= 0, 3, "must not be negative");
  luaL_argcheck(L, n >= 0, 4, "must not be negative");
  part *p = lua_newuserdatauv(L, sizeof *p + len + 1, 0);
  *p = (part){.to = s, .sum = *s, .offset = (uint64_t)offset, .n = (uint64_t)n};
  memcpy(p->path, path, len + 1);
  return mtx_bind_task_work(L, &work, p, &p->n_users);
}

int mtx_bind_sha256(lua_State *L) {
  static const luaL_Reg methods[] = {{"update", l_sha256_update}, {"start", l_sha256_start}, {"hex", l_sha256_hex}, {NULL, NULL}};
  static const luaL_Reg functions[] = {{"of", l_sha256_of}, {"file", l_sha256_file}, {"new", l_sha256_new}, {NULL, NULL}};
  mtx_bind_new_type(L, TYPE, NULL, methods);
  luaL_newlib(L, functions);
  return 1;
}
