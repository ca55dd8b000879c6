// SPDX-License-Identifier: MIT
// mtx.core.limit: see limit.h. The count hook fires every 200 instructions and
// reads the clock: one C function on a large string may take milliseconds, and
// many of them fit into a million instructions.
#include "bind/limit.h"

#include <lauxlib.h>
#include <string.h>
#include <time.h>

#include "bind/core.h"

enum { STEP = 200 };

static int64_t thread_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// The budget's address lies in the extra space that every Lua thread has.
static mtx_limit *get(lua_State *L) {
  mtx_limit *l;
  memcpy(&l, lua_getextraspace(L), sizeof l);
  return l;
}

static void hook(lua_State *L, lua_Debug *ar) {
  (void)ar;
  mtx_limit *l = get(L);
  if (!l) return;
  l->instructions -= STEP;
  int late = thread_ns() > l->until_ns;
  if (l->instructions > 0 && !late) return;
  lua_sethook(L, hook, LUA_MASKCOUNT, 1);
  luaL_error(L, late ? "the script took too much time" : "the script took too many instructions");
}

void mtx_limit_set(lua_State *L, mtx_limit *l) {
  memcpy(lua_getextraspace(L), &l, sizeof l);
  lua_sethook(L, l ? hook : NULL, l ? LUA_MASKCOUNT : 0, STEP);
}

void mtx_limit_time(mtx_limit *l, double seconds) { l->until_ns = thread_ns() + (int64_t)(seconds * 1e9); }

static char budgets;  // its address: registry key of {[coroutine] = budget}, weak in its keys

// limit(coroutine, instructions or nil, seconds): sets the budget of a coroutine's whole life
// (nil: leaves it) and the processor time of its next turn.
static int l_limit(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTHREAD);
  lua_State *co = lua_tothread(L, 1);
  lua_Number seconds = luaL_checknumber(L, 3);
  luaL_argcheck(L, co != L, 1, "a coroutine cannot limit itself");
  lua_rawgetp(L, LUA_REGISTRYINDEX, &budgets);
  lua_pushvalue(L, 1);
  mtx_limit *l = lua_rawget(L, -2) == LUA_TUSERDATA ? lua_touserdata(L, -1) : NULL;
  lua_pop(L, 1);
  if (!l) {
    l = lua_newuserdatauv(L, sizeof *l, 0);
    l->instructions = luaL_checkinteger(L, 2);
    lua_pushvalue(L, 1);
    lua_insert(L, -2);
    lua_rawset(L, -3);
    mtx_limit_set(co, l);
  }
  mtx_limit_time(l, seconds);
  return 0;
}

int mtx_bind_limit(lua_State *L) {
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "k");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &budgets);
  lua_pushcfunction(L, l_limit);
  return 1;
}
