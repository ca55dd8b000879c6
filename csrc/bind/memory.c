// SPDX-License-Identifier: MIT
// mtx.core.memory_cap: an upper bound on the Lua state's memory while a user's
// script runs. Instruction hooks come too late for `s = s .. s`; only the
// allocator sees every byte. Beyond the cap Lua collects and then raises its
// ordinary "not enough memory" error, which ends the script and nothing else.
#include <lauxlib.h>

#include "bind/core.h"

// Wraps the allocator of the first state that asks (the server's); static,
// because a closing state still frees its last blocks through it.
typedef struct {
  const void *state;  // lua_topointer of that state's registry
  lua_Alloc f;
  void *ud;
  size_t used, cap;  // bytes; cap 0 = none
} meter;

static meter the_meter;

static void *metered(void *ud, void *p, size_t osize, size_t nsize) {
  meter *m = ud;
  size_t old = p ? osize : 0;  // without a block, osize is a type tag
  if (m->cap && nsize > old && m->used + (nsize - old) > m->cap) return NULL;
  void *q = m->f(m->ud, p, osize, nsize);
  if (q || nsize == 0) m->used = m->used - (old < m->used ? old : m->used) + nsize;
  return q;
}

static meter *get_meter(lua_State *L) {
  meter *m = &the_meter;
  lua_pushvalue(L, LUA_REGISTRYINDEX);
  const void *state = lua_topointer(L, -1);
  lua_pop(L, 1);
  if (m->state == state) return m;
  if (m->state) luaL_error(L, "memory_cap is in use by another Lua state");
  m->f = lua_getallocf(L, &m->ud);
  m->state = state;
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
