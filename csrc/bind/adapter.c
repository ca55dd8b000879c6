// SPDX-License-Identifier: MIT
// Adapters of a model, and sets of them as requests and sessions take them.
#include "bind/adapter.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "bind/core.h"
#include "bind/model.h"
#include "bind/options.h"
#include "bind/task.h"

#define TYPE "mtx.adapter"
#define SET_TYPE "mtx.lora"
#define OPENING_TYPE "mtx.opening_adapter"

// ---- adapters -------------------------------------------------------------------------

static mtx_adapter **check(lua_State *L, int idx) {
  mtx_adapter **h = luaL_checkudata(L, idx, TYPE);
  if (!*h) luaL_argerror(L, idx, "the adapter is closed");
  return h;
}

static mtx_adapter **push_adapter(lua_State *L) {
  mtx_adapter **h = lua_newuserdatauv(L, sizeof *h, 0);
  *h = NULL;
  luaL_setmetatable(L, TYPE);
  return h;
}

// model:adapter(path [, {no_memory_check}]) -> adapter
int mtx_bind_model_adapter(lua_State *L) {
  const mtx_bind_model *m = mtx_bind_check_model(L, 1);
  const char *path = luaL_checkstring(L, 2);
  mtx_model_opts o = {.no_memory_check = mtx_opt_bool(L, 3, "no_memory_check", false)};
  mtx_adapter **h = push_adapter(L);
  mtx_err err;
  return mtx_adapter_open(h, m->model, path, &o, &err) ? mtx_bind_fail(L, &err) : 1;
}

// The same on a thread of its own.
typedef struct {
  const mtx_model *model;
  mtx_model_opts opts;
  char *path;
  mtx_adapter *adapter;
  mtx_code rc;
  mtx_err err;
} opening;

static void run_opening(void *self) {
  opening *o = self;
  o->rc = mtx_adapter_open(&o->adapter, o->model, o->path, &o->opts, &o->err);
}

static int push_opening(lua_State *L, void *self) {
  opening *o = self;
  if (o->rc) return mtx_bind_fail(L, &o->err);
  *push_adapter(L) = o->adapter;
  o->adapter = NULL;
  return 1;
}

static int l_opening_gc(lua_State *L) {
  opening *o = lua_touserdata(L, 1);
  mtx_adapter_unref(o->adapter);
  free(o->path);
  *o = (opening){0};
  return 0;
}

// model:start_adapter(path [, {no_memory_check}]) -> task whose take() gives the adapter. The model stays open until then.
int mtx_bind_model_start_adapter(lua_State *L) {
  static const mtx_bind_work work = {run_opening, push_opening};
  mtx_bind_model *m = mtx_bind_check_model(L, 1);
  const char *path = luaL_checkstring(L, 2);
  opening *o = lua_newuserdatauv(L, sizeof *o, 0);
  *o = (opening){.model = m->model, .opts = {.no_memory_check = mtx_opt_bool(L, 3, "no_memory_check", false)}};
  luaL_setmetatable(L, OPENING_TYPE);
  o->path = strdup(path);
  if (o->path) return mtx_bind_task_work(L, &work, o, &m->n_users);
  mtx_fail(&o->err, MTX_ENOMEM, "no memory to open an adapter");
  return mtx_bind_fail(L, &o->err);
}

static int l_adapter_close(lua_State *L) {
  mtx_adapter **h = luaL_checkudata(L, 1, TYPE), *gone = *h;
  *h = NULL;
  mtx_adapter_unref(gone);
  return 0;
}

static void set_string(lua_State *L, const char *name, const char *v) {
  lua_pushstring(L, v);
  lua_setfield(L, -2, name);
}

// info() -> {path, name, task_name, prompt_prefix, alpha, max_rank, n_pairs, n_unused, file_bytes, weight_bytes}
static int l_adapter_info(lua_State *L) {
  const mtx_adapter_info *i = mtx_adapter_get_info(*check(L, 1));
  lua_createtable(L, 0, 10);
  set_string(L, "path", i->path);
  set_string(L, "name", i->name);
  set_string(L, "task_name", i->task_name);
  set_string(L, "prompt_prefix", i->prompt_prefix);
  lua_pushnumber(L, (lua_Number)i->alpha);
  lua_setfield(L, -2, "alpha");
  mtx_bind_set_integer(L, "max_rank", i->max_rank);
  mtx_bind_set_integer(L, "n_pairs", i->n_pairs);
  mtx_bind_set_integer(L, "n_unused", i->n_unused);
  mtx_bind_set_integer(L, "file_bytes", (int64_t)i->file_bytes);
  mtx_bind_set_integer(L, "weight_bytes", (int64_t)i->weight_bytes);
  return 1;
}

static int l_adapter_tostring(lua_State *L) {
  mtx_adapter **h = luaL_checkudata(L, 1, TYPE);
  if (*h) lua_pushfstring(L, "adapter (%s)", mtx_adapter_get_info(*h)->path);
  else lua_pushliteral(L, "adapter (closed)");
  return 1;
}

// ---- sets -----------------------------------------------------------------------------

typedef struct {
  mtx_lora *l;              // NULL: a set of none, or closed
  bool closed;
} set;

static set *check_set(lua_State *L, int idx) {
  set *h = luaL_checkudata(L, idx, SET_TYPE);
  if (h->closed) luaL_argerror(L, idx, "the set of adapters is closed");
  return h;
}

mtx_lora *mtx_bind_opt_lora(lua_State *L, int idx, const char *name) {
  if (!lua_istable(L, idx)) return NULL;
  mtx_lora *l = NULL;
  if (lua_getfield(L, idx, name) != LUA_TNIL) {
    const set *h = luaL_testudata(L, -1, SET_TYPE);
    if (!h || h->closed) luaL_error(L, "option '%s' must be %s", name, h ? "open: this set of adapters is closed" : "a set of adapters (model:lora)");
    else l = h->l;
  }
  lua_pop(L, 1);  // the table keeps it
  return l;
}

// model:lora({{adapter, scale}, ...}) -> set; scales of 0 are left out
int mtx_bind_model_lora(lua_State *L) {
  const mtx_bind_model *m = mtx_bind_check_model(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_settop(L, 2);
  mtx_adapter *adapter[MTX_LORA_MAX];
  float scale[MTX_LORA_MAX];
  lua_Integer n = luaL_len(L, 2);
  if (n > MTX_LORA_MAX) return luaL_argerror(L, 2, "more than 16 adapters at once");
  for (lua_Integer i = 0; i < n; i++) {
    lua_rawgeti(L, 2, i + 1);
    luaL_checktype(L, -1, LUA_TTABLE);
    lua_rawgeti(L, -1, 1);
    lua_rawgeti(L, -2, 2);
    adapter[i] = *check(L, -2);
    scale[i] = (float)luaL_checknumber(L, -1);
    lua_pop(L, 3);
  }
  set *h = lua_newuserdatauv(L, sizeof *h, 0);
  *h = (set){0};
  luaL_setmetatable(L, SET_TYPE);
  mtx_err err;
  return mtx_lora_new(&h->l, m->model, adapter, scale, (int)n, &err) ? mtx_bind_fail(L, &err) : 1;
}

// What runs with the set keeps what it needs.
static int l_lora_close(lua_State *L) {
  set *h = luaL_checkudata(L, 1, SET_TYPE);
  mtx_lora *gone = h->l;
  *h = (set){.closed = true};
  mtx_lora_unref(gone);
  return 0;
}

// #set: how many adapters take part
static int l_lora_len(lua_State *L) {
  const mtx_lora *l = check_set(L, 1)->l;
  lua_pushinteger(L, l ? l->n : 0);
  return 1;
}

// key(cache_key) -> the key under which save_prefix and forget_prefix find what requests with both left
static int l_lora_key(lua_State *L) {
  const mtx_lora *l = check_set(L, 1)->l;
  size_t n;
  const char *key = luaL_checklstring(L, 2, &n);
  if (n > 65536) return luaL_argerror(L, 2, "a cache key has at most 65536 bytes");
  char *copy = mtx_scratch(L, n + MTX_LORA_LABEL_BYTES + 1);
  mtx_buf b = {0};
  mtx_err err;
  if (mtx_engine_cache_key(key, l, &b, &err)) return mtx_buf_fini(&b), mtx_bind_fail(L, &err);
  memcpy(copy, b.ptr, b.len);
  mtx_buf_fini(&b);
  lua_pushstring(L, copy);
  return 1;
}

void mtx_bind_adapter_types(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_adapter_close}, {"__close", l_adapter_close}, {"__tostring", l_adapter_tostring}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"info", l_adapter_info}, {"close", l_adapter_close}, {NULL, NULL}};
  static const luaL_Reg set_meta[] = {{"__gc", l_lora_close}, {"__close", l_lora_close}, {"__len", l_lora_len}, {NULL, NULL}};
  static const luaL_Reg set_methods[] = {{"key", l_lora_key}, {"close", l_lora_close}, {NULL, NULL}};
  static const luaL_Reg opening_meta[] = {{"__gc", l_opening_gc}, {NULL, NULL}};
  mtx_bind_new_type(L, OPENING_TYPE, opening_meta, NULL);
  mtx_bind_new_type(L, TYPE, meta, methods);
  mtx_bind_new_type(L, SET_TYPE, set_meta, set_methods);
}
