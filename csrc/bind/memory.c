// SPDX-License-Identifier: MIT
// mtx.core.memory_cap: an upper bound on the Lua state's memory while a user's
// script runs. Instruction hooks come too late for `s = s .. s`; only the
// allocator sees every byte. Beyond the cap Lua collects and then raises its
// ordinary "not enough memory" error, which ends the script and nothing else.
#include <lauxlib.h>

#include "bind/core.h"

// One per Lua state, kept by the registry; wraps the allocator found at first use.
typedef struct {
  lua_Alloc f;
  void *ud;
  size_t used, cap;  // bytes; cap 0 = none
} meter;

static void *metered(void *ud, void *p, size_t osize, size_t nsize) {
  meter *m = ud;
  size_t old = p ? osize : 0;  // without a block, osize is a type tag
  if (m->cap && nsize > old && m->used + (nsize - old) > m->cap) return NULL;
  void *q = m->f(m->ud, p, osize, nsize);
  if (q || nsize == 0) m->used = m->used - (old < m->used ? old : m->used) + nsize;
  return q;
}

static meter *get_meter(lua_State *L) {
  static const char key = 0;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key);
  meter *m = lua_touserdata(L, -1);
  lua_pop(L, 1);
  if (m) return m;
  // The meter outlives every Lua object: it is freed by no one, as the state's
  // closing still allocates and frees through it.
  void *ud;
  lua_Alloc f = lua_getallocf(L, &ud);
  m = f(ud, NULL, 0, sizeof *m);
  if (!m) luaL_error(L, "not enough memory");
  *m = (meter){.f = f, .ud = ud};
  lua_pushlightuserdata(L, m);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key);
  lua_setallocf(L, metered, m);
  return m;
}

// memory_cap(extra_bytes): from now on the state may grow by extra_bytes at most; nil lifts the cap.
static int l_memory_cap(lua_State *L) {
  meter *m = get_meter(L);
  m->cap = 0;
  if (lua_isnoneornil(L, 1)) return 0;
  lua_Integer extra = luaL_checkinteger(L, 1);
  luaL_argcheck(L, extra >= 0, 1, "must not be negative");
  m->used = (size_t)lua_gc(L, LUA_GCCOUNT) * 1024 + (size_t)lua_gc(L, LUA_GCCOUNTB);
  m->cap = m->used + (size_t)extra;
  return 0;
}

int mtx_bind_memory_cap(lua_State *L) {
  lua_pushcfunction(L, l_memory_cap);
  return 1;
}
