// SPDX-License-Identifier: MIT
// mtx.core.join_marked(list, first, last, meta) -> string | marked text: joins list[first..last], whose values are
// strings or marked text. Marked text (lua/mtx/chat/jinja/text.lua) is a table with the metatable `meta`: [0] the
// text, then pairs first, last of the byte ranges that the template wrote, in order, never touching. Every render
// ends with one join of all its pieces, which is why it is here.
#include <lauxlib.h>

#include "bind/core.h"

enum { LIST = 1, META = 4, MARKS = 5 };  // where things are on the stack

typedef struct {
  lua_Integer n;         // integers in the table of marks
  lua_Integer from, to;  // the range that may still grow; from = 0: none yet
} ranges;

static void put(lua_State *L, ranges *r) {
  if (r->n == 0) {
    lua_createtable(L, 4, 1);
    lua_replace(L, MARKS);
  }
  lua_pushinteger(L, r->from);
  lua_rawseti(L, MARKS, ++r->n);
  lua_pushinteger(L, r->to);
  lua_rawseti(L, MARKS, ++r->n);
}

// Adds the ranges of the marked text on the top of the stack, whose text begins behind `at` bytes.
static void add_ranges(lua_State *L, ranges *r, lua_Integer at) {
  for (lua_Integer k = 1; lua_rawgeti(L, -1, k) != LUA_TNIL; k += 2) {
    lua_rawgeti(L, -2, k + 1);
    lua_Integer from = lua_tointeger(L, -2) + at, to = lua_tointeger(L, -1) + at;
    lua_pop(L, 2);
    if (!r->from || r->to != from - 1) {
      if (r->from) put(L, r);
      r->from = from;
    }
    r->to = to;
  }
  lua_pop(L, 1);
}

static int join(lua_State *L) {
  lua_Integer first = luaL_checkinteger(L, 2), last = luaL_checkinteger(L, 3), at = 0;
  luaL_checktype(L, LIST, LUA_TTABLE);
  luaL_checktype(L, META, LUA_TTABLE);
  lua_settop(L, META);
  lua_pushnil(L);
  ranges r = {0};
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  for (lua_Integer i = first; i <= last; i++) {
    if (lua_rawgeti(L, LIST, i) == LUA_TTABLE) {
      add_ranges(L, &r, at);
      lua_rawgeti(L, -1, 0);
      lua_remove(L, -2);
    }
    size_t n;
    const char *s = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &n) : NULL;
    if (!s) return luaL_error(L, "join_marked: item %d is no text", (int)i);
    lua_pop(L, 1);  // the list keeps the string
    luaL_addlstring(&b, s, n);
    at += (lua_Integer)n;
  }
  luaL_pushresult(&b);
  if (!r.from) return 1;
  put(L, &r);
  lua_rawseti(L, MARKS, 0);
  lua_pushvalue(L, META);
  lua_setmetatable(L, MARKS);
  lua_settop(L, MARKS);
  return 1;
}

int mtx_bind_join_marked(lua_State *L) {
  lua_pushcfunction(L, join);
  return 1;
}
