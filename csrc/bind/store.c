// SPDX-License-Identifier: MIT
// engine:save_prefix, load_prefix, forget_prefix, set_disk, store_disk: the prefix index to files and back. Each also as
// a task, engine:start(name, ...), since they read and write gigabytes, or wait for the engine's step.
// mtx.core.trim_prompts, forget_prompts: the folder where it outlives its engine.
#include <stdlib.h>
#include <string.h>

#include "bind/core.h"
#include "bind/engine.h"
#include "bind/options.h"
#include "bind/task.h"
#include "engine/disk.h"

#define TYPE "mtx.engine_work"

// Arguments of one call, copied, and what came of it. The engine is the caller's to keep open.
typedef struct {
  mtx_engine *engine;
  char *key, *path;           // path: of set_disk its folder
  int32_t *ids; int64_t n;
  uint64_t budget; double ttl;
  // results
  mtx_code rc;
  mtx_err err;
  int64_t n_saved;            // or forgotten
  uint64_t n_bytes;
  mtx_ids tokens;
  mtx_buf owner;
  int n_files;
} work;

static int l_work_gc(lua_State *L) {
  work *w = lua_touserdata(L, 1);
  free(w->key);
  free(w->path);
  free(w->ids);
  mtx_ids_fini(&w->tokens);
  mtx_buf_fini(&w->owner);
  *w = (work){0};
  return 0;
}

static work *push_work(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_work_gc}, {NULL, NULL}};
  work *w = lua_newuserdatauv(L, sizeof *w, 0);
  *w = (work){0};
  mtx_bind_new_type(L, TYPE, meta, NULL);
  luaL_setmetatable(L, TYPE);
  return w;
}

static void *copied(lua_State *L, const void *bytes, size_t n) {
  void *p = malloc(n + 1);
  if (!p) luaL_error(L, "no memory");
  memcpy(p, bytes, n);
  ((char *)p)[n] = 0;
  return p;
}

static char *string_at(lua_State *L, int idx) {
  size_t n;
  const char *s = luaL_checklstring(L, idx, &n);
  return copied(L, s, n);
}

// ---- the calls: arguments from stack index `a` on, the work itself, its results ------------

static void read_save(lua_State *L, int a, work *w) {
  const int32_t *ids = mtx_check_ids(L, a + 1, &w->n);
  w->key = string_at(L, a);
  w->path = string_at(L, a + 2);
  w->ids = copied(L, ids, (size_t)w->n * sizeof *ids);
}

static void run_save(void *self) {
  work *w = self;
  w->rc = mtx_engine_save_prefix(w->engine, w->key, w->ids, w->n, w->path, &w->n_saved, &w->n_bytes, &w->err);
}

static int push_save(lua_State *L, void *self) {
  const work *w = self;
  if (w->rc) return mtx_bind_fail(L, &w->err);
  lua_pushinteger(L, w->n_saved);
  lua_pushinteger(L, (lua_Integer)w->n_bytes);
  return 2;
}

static void read_load(lua_State *L, int a, work *w) {
  if (!lua_isnoneornil(L, a)) w->key = string_at(L, a);
  w->path = string_at(L, a + 1);
}

static void run_load(void *self) {
  work *w = self;
  w->rc = mtx_engine_load_prefix(w->engine, w->key, w->path, &w->tokens, &w->owner, &w->err);
}

static int push_load(lua_State *L, void *self) {
  const work *w = self;
  if (w->rc) return mtx_bind_fail(L, &w->err);
  lua_createtable(L, (int)w->tokens.len, 0);
  for (size_t i = 0; i < w->tokens.len; i++) {
    lua_pushinteger(L, w->tokens.ptr[i]);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  lua_pushlstring(L, w->owner.ptr, w->owner.len - 1);
  return 2;
}

static void read_disk(lua_State *L, int a, work *w) {
  if (lua_isnoneornil(L, a)) return;
  luaL_checktype(L, a, LUA_TTABLE);
  const char *dir = mtx_opt_string(L, a, "dir", NULL);
  luaL_argcheck(L, dir, a, "option 'dir' is missing");
  int64_t bytes = mtx_opt_integer(L, a, "budget_bytes", 0);
  luaL_argcheck(L, bytes >= 0, a, "option 'budget_bytes' must not be negative");
  w->budget = (uint64_t)bytes;
  w->ttl = mtx_opt_number(L, a, "ttl_s", 0);
  w->path = copied(L, dir, strlen(dir));
}

static void run_disk(void *self) {
  work *w = self;
  w->rc = mtx_engine_set_disk(w->engine, w->path, w->budget, w->ttl, &w->err);
}

static int push_disk(lua_State *L, void *self) {
  const work *w = self;
  if (w->rc) return mtx_bind_fail(L, &w->err);
  lua_pushboolean(L, 1);
  return 1;
}

static void read_forget(lua_State *L, int a, work *w) {
  if (lua_isnoneornil(L, a)) return;
  const int32_t *ids = mtx_check_ids(L, a + 1, &w->n);
  w->key = string_at(L, a);
  w->ids = copied(L, ids, (size_t)w->n * sizeof *ids);
}

static void run_forget(void *self) {
  work *w = self;
  w->rc = mtx_engine_forget_prefix(w->engine, w->key, w->ids, w->n, &w->n_saved, &w->err);
}

static int push_forget(lua_State *L, void *self) {
  const work *w = self;
  if (w->rc) return mtx_bind_fail(L, &w->err);
  lua_pushinteger(L, w->n_saved);
  return 1;
}

static void read_nothing(lua_State *L, int a, work *w) {}

static void run_store(void *self) {
  work *w = self;
  w->rc = mtx_engine_store_disk(w->engine, &w->n_files, &w->err);
}

static int push_store(lua_State *L, void *self) {
  const work *w = self;
  if (w->rc) return mtx_bind_fail(L, &w->err);
  lua_pushinteger(L, w->n_files);
  return 1;
}

typedef struct {
  void (*read)(lua_State *L, int a, work *w);
  mtx_bind_work work;
} call;

static const call SAVE = {read_save, {run_save, push_save}}, LOAD = {read_load, {run_load, push_load}},
                  FORGET = {read_forget, {run_forget, push_forget}},
                  DISK = {read_disk, {run_disk, push_disk}}, STORE = {read_nothing, {run_store, push_store}};

static int now(lua_State *L, const call *c) {
  mtx_bind_engine *e = mtx_bind_check_engine(L, 1);
  work *w = push_work(L);
  w->engine = e->engine;
  c->read(L, 2, w);
  c->work.run(w);
  return c->work.push(L, w);
}

// save_prefix(key, ids, path) -> tokens saved, bytes of the file | nil, message, code
int mtx_bind_engine_save_prefix(lua_State *L) { return now(L, &SAVE); }
// load_prefix(key | nil, path) -> ids that are known now, the key it was saved with | nil, message, code
int mtx_bind_engine_load_prefix(lua_State *L) { return now(L, &LOAD); }
// forget_prefix(key, ids) -> how many of them were known; forget_prefix(nil): everything -> 0
int mtx_bind_engine_forget_prefix(lua_State *L) { return now(L, &FORGET); }
// set_disk{dir, budget_bytes, ttl_s}: prompts are saved there; set_disk(nil): no longer. -> true | nil, message, code
int mtx_bind_engine_set_disk(lua_State *L) { return now(L, &DISK); }
// store_disk() -> files written | nil, message, code
int mtx_bind_engine_store_disk(lua_State *L) { return now(L, &STORE); }

// start(name of one of these calls, its arguments) -> task whose take() gives its results. The engine stays open until then.
int mtx_bind_engine_start(lua_State *L) {
  static const char *const names[] = {"save_prefix", "load_prefix", "forget_prefix", "set_disk", "store_disk", NULL};
  static const call *const calls[] = {&SAVE, &LOAD, &FORGET, &DISK, &STORE};
  mtx_bind_engine *e = mtx_bind_check_engine(L, 1);
  const call *c = calls[luaL_checkoption(L, 2, NULL, names)];
  work *w = push_work(L);
  w->engine = e->engine;
  c->read(L, 3, w);
  return mtx_bind_task_work(L, &c->work, w, &e->n_users);
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

// forget_prompts(dir, key, ids) -> files that were removed
static int l_forget_prompts(lua_State *L) {
  const char *dir = luaL_checkstring(L, 1), *key = luaL_checkstring(L, 2);
  int64_t n;
  const int32_t *ids = mtx_check_ids(L, 3, &n);
  lua_pushinteger(L, mtx_disk_remove(dir, key, ids, n));
  return 1;
}

int mtx_bind_forget_prompts(lua_State *L) {
  lua_pushcfunction(L, l_forget_prompts);
  return 1;
}
