// SPDX-License-Identifier: MIT
// mtx.core.safetensors: the weights of a Hugging Face folder from Lua.
//
//   open(folder) -> weights | nil, message, code
//   weights:tensors() -> list of {name, dtype, shape = {...} (last one contiguous), bytes, file}
//   weights:model(head, list) -> mtx.gguf, and weights is closed. head: the bytes of a GGUF file without tensors. list:
//     {name = GGUF's, from = name or {names, stacked}, heads = n (rows lie as rotary halves), change = "plus_one" |
//     "minus_exp", split = {heads, first row, rows [, "transposed"]}} or {name =, values = {numbers}}
#include <lauxlib.h>
#include <string.h>

#include "bind/core.h"
#include "bind/gguf.h"
#include "bind/options.h"
#include "st/face.h"

#define TYPE "mtx.safetensors"

typedef struct { mtx_st *s; } handle;

static mtx_st *check(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, TYPE);
  if (!h->s) luaL_argerror(L, 1, "the weights are closed");
  return h->s;
}

static int l_safetensors_open(lua_State *L) {
  const char *folder = luaL_checkstring(L, 1);
  handle *h = lua_newuserdatauv(L, sizeof *h, 0);
  h->s = NULL;
  luaL_setmetatable(L, TYPE);
  mtx_err err;
  return mtx_st_open(&h->s, folder, &err) ? mtx_bind_fail(L, &err) : 1;
}

static int l_safetensors_close(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, TYPE);
  mtx_st *s = h->s;
  h->s = NULL;
  mtx_st_close(s);
  return 0;
}

static int l_safetensors_tensors(lua_State *L) {
  const mtx_st *s = check(L);
  lua_newtable(L);
  for (uint64_t i = 0; i < mtx_st_n_tensors(s); i++) {
    const mtx_st_tensor *t = mtx_st_tensor_at(s, i);
    lua_createtable(L, 0, 5);
    lua_pushstring(L, t->name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, t->dtype);
    lua_setfield(L, -2, "dtype");
    lua_createtable(L, (int)t->n_dims, 0);
    for (uint32_t d = 0; d < t->n_dims; d++) {
      lua_pushinteger(L, (lua_Integer)t->shape[d]);
      lua_rawseti(L, -2, (lua_Integer)d + 1);
    }
    lua_setfield(L, -2, "shape");
    mtx_bind_set_integer(L, "bytes", (int64_t)t->n_bytes);
    lua_pushstring(L, mtx_st_file_path(s, t->file));
    lua_setfield(L, -2, "file");
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

static const mtx_st_tensor *source(lua_State *L, const mtx_st *s, int idx) {
  const char *name = luaL_checkstring(L, idx);
  const mtx_st_tensor *t = mtx_st_tensor_find(s, name);
  if (!t) luaL_error(L, "there is no tensor '%s'", name);
  return t;
}

// Field `from` of the entry on top of the stack: one name, or a list of them.
static void read_sources(lua_State *L, const mtx_st *s, mtx_st_use *u) {
  int type = lua_getfield(L, -1, "from");
  u->n_from = type == LUA_TTABLE ? (uint32_t)luaL_len(L, -1) : 1;
  if (u->n_from == 0) luaL_error(L, "tensor '%s' comes from an empty list", u->name);
  const mtx_st_tensor **from = mtx_scratch(L, u->n_from * sizeof *from);
  for (uint32_t i = 0; i < u->n_from; i++) {
    if (type == LUA_TTABLE) lua_rawgeti(L, -2, (lua_Integer)i + 1);
    else lua_pushvalue(L, -2);
    from[i] = source(L, s, -1);
    lua_pop(L, 1);
  }
  u->from = from;
}

static void read_values(lua_State *L, mtx_st_use *u) {
  u->n_values = (uint64_t)luaL_len(L, -1);
  float *values = mtx_scratch(L, (size_t)u->n_values * sizeof *values + 1);
  for (uint64_t i = 0; i < u->n_values; i++) {
    lua_rawgeti(L, -2, (lua_Integer)i + 1);
    values[i] = (float)luaL_checknumber(L, -1);
    lua_pop(L, 1);
  }
  u->values = values;
}

static uint32_t split_field(lua_State *L, int i) {
  lua_rawgeti(L, -1, i);
  lua_Integer v = luaL_checkinteger(L, -1);
  if (v < 0 || v > INT32_MAX) luaL_error(L, "a tensor's split holds %I", v);
  lua_pop(L, 1);
  return (uint32_t)v;
}

// The entry is on top of the stack; its memory is pinned in the table at `pins`.
static void read_use(lua_State *L, const mtx_st *s, mtx_st_use *u, int pins) {
  static const char *const changes[] = {"as_is", "plus_one", "minus_exp", NULL};
  int top = lua_gettop(L);
  luaL_checktype(L, top, LUA_TTABLE);
  *u = (mtx_st_use){.name = mtx_opt_string(L, top, "name", NULL), .n_half_heads = (uint32_t)mtx_opt_integer(L, top, "heads", 0)};
  if (!u->name) luaL_error(L, "a tensor has no name");
  lua_getfield(L, top, "change");
  u->change = (mtx_st_change)luaL_checkoption(L, -1, "as_is", changes);
  if (lua_getfield(L, top, "split") == LUA_TTABLE) {
    u->n_heads = split_field(L, 1);
    u->first_row = split_field(L, 2);
    u->n_rows = split_field(L, 3);
    u->transposed = lua_rawgeti(L, -1, 4) != LUA_TNIL;
  }
  lua_settop(L, top);
  if (lua_getfield(L, top, "values") == LUA_TTABLE) {
    read_values(L, u);
  } else {
    lua_settop(L, top);
    read_sources(L, s, u);
  }
  lua_rawseti(L, pins, (lua_Integer)lua_rawlen(L, pins) + 1);
  lua_settop(L, top);
}

static int l_safetensors_model(lua_State *L) {
  mtx_st *s = check(L);
  size_t n_head;
  const char *head = luaL_checklstring(L, 2, &n_head);
  luaL_checktype(L, 3, LUA_TTABLE);
  lua_settop(L, 3);
  lua_newtable(L);
  uint64_t n = (uint64_t)luaL_len(L, 3);
  mtx_st_use *use = mtx_scratch(L, (size_t)(n + 1) * sizeof *use);
  for (uint64_t i = 0; i < n; i++) {
    lua_rawgeti(L, 3, (lua_Integer)i + 1);
    read_use(L, s, &use[i], 4);
    lua_pop(L, 1);
  }
  mtx_gguf **g = mtx_bind_push_gguf(L);
  mtx_err err;
  mtx_code code = mtx_st_face(g, s, head, n_head, use, n, &err);
  if (code) return mtx_bind_fail(L, &err);
  lua_pushcfunction(L, l_safetensors_close);
  lua_pushvalue(L, 1);
  lua_call(L, 1, 0);
  return 1;
}

int mtx_bind_safetensors(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_safetensors_close}, {"__close", l_safetensors_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"tensors", l_safetensors_tensors}, {"model", l_safetensors_model}, {"close", l_safetensors_close}, {NULL, NULL}};
  static const luaL_Reg functions[] = {{"open", l_safetensors_open}, {NULL, NULL}};
  mtx_bind_new_type(L, TYPE, meta, methods);
  luaL_newlib(L, functions);
  return 1;
}
