// SPDX-License-Identifier: MIT
// mtx.core task: work that would hold up an event loop, on a thread of its own.
// Loading packs gigabytes; closing waits for the engine's step, saves prompts and unmaps them.
// A descriptor becomes readable at the end, as an engine's does for its events.
#include "bind/task.h"

#include <errno.h>
#include <lauxlib.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "bind/core.h"
#include "bind/engine.h"
#include "bind/model.h"
#include "bind/options.h"
#include "bind/reader.h"

#define TYPE "mtx.task"

enum { MAX_WARNINGS = 16 << 10 };  // bytes kept

// Until the thread has been joined everything but the atomics is the thread's.
typedef struct {
  pthread_t thread;
  bool running, taken;
  int fd;                       // -1 once closed
  atomic_bool ended, stop;
  atomic_uint_fast64_t n_done, n_total;
  const mtx_bind_work *work;    // other work, on self
  void *self;
  int *n_users;                 // of what must stay until the task has been taken
  char *path;                   // of a load; NULL: `reader`, or
  mtx_chunk reader;             // without code: model and engine are to be closed
  mtx_model_opts opts;
  mtx_buf warnings;             // lines
  mtx_bind_model model;
  mtx_engine *engine;
  mtx_code rc;
  mtx_err err;
} task;

static bool is_load(const task *t) { return t->path || t->reader.text[0]; }

static void on_progress(void *user, uint64_t done, uint64_t total) {
  task *t = user;
  atomic_store(&t->n_done, done);
  atomic_store(&t->n_total, total);
}

static void on_warn(void *user, const char *line) {
  task *t = user;
  size_t n = strlen(line);
  if (t->warnings.len + n > MAX_WARNINGS || mtx_buf_reserve(&t->warnings, n + 1, NULL)) return;
  mtx_buf_append(&t->warnings, line, n, NULL);
  mtx_buf_append(&t->warnings, "\n", 1, NULL);
}

static void *task_main(void *arg) {
  task *t = arg;
  if (t->work) {
    t->work->run(t->self);
  } else if (is_load(t)) {
    mtx_gguf *file;
    t->rc = t->path ? mtx_gguf_open(&file, t->path, 0, &t->err) : mtx_bind_reader_run(&t->reader, &t->stop, &file, &t->err);
    if (!t->rc) t->rc = mtx_bind_model_load(&t->model, file, &t->opts, &t->err);
  } else {
    char line[1024];
    mtx_err err;
    if (t->engine && mtx_engine_stop(t->engine, &err)) {
      mtx_err_format(&err, line, (int)sizeof line);
      on_warn(t, line);
    }
    mtx_engine_close(t->engine);
    t->engine = NULL;
    mtx_bind_model_free(&t->model);
  }
  atomic_store(&t->ended, true);
  while (eventfd_write(t->fd, 1) && errno == EINTR) {}
  return NULL;
}

static void finish(task *t) {
  if (t->running) pthread_join(t->thread, NULL);
  t->running = false;
  if (t->fd >= 0) close(t->fd);
  t->fd = -1;
  if (t->n_users) --*t->n_users;
  t->n_users = NULL;
}

static task *check(lua_State *L) { return luaL_checkudata(L, 1, TYPE); }

static task *push_task(lua_State *L) {
  task *t = lua_newuserdatauv(L, sizeof *t, 2);
  memset(t, 0, sizeof *t);
  t->fd = -1;
  luaL_setmetatable(L, TYPE);
  return t;
}

// On failure pushes nil, message, code.
static int run(lua_State *L, task *t) {
  t->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  t->running = t->fd >= 0 && pthread_create(&t->thread, NULL, task_main, t) == 0;
  if (t->running) return 1;
  finish(t);
  mtx_fail(&t->err, MTX_ENOMEM, "no thread or file descriptor to work on a model");
  return mtx_bind_fail(L, &t->err);
}

// start(path [, {threads, no_memory_check, ctx, kv_type}]) -> task whose take() gives the model. Instead of a path: {code = text of a
// chunk, args = {texts}} that gives an mtx.gguf in a Lua state of the task's own.
int mtx_bind_task_load(lua_State *L) {
  const char *path = lua_istable(L, 1) ? NULL : luaL_checkstring(L, 1);
  mtx_model_opts o;
  mtx_err err;
  if (mtx_bind_model_opts(L, 2, &o, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  task *t = push_task(L);
  o.progress = on_progress, o.warn = on_warn, o.user = t, o.stop = &t->stop;
  t->opts = o;
  if (path) t->path = strdup(path);
  else mtx_chunk_read(L, 1, "a model's reader", &t->reader);
  if (is_load(t)) return run(L, t);
  mtx_fail(&t->err, MTX_ENOMEM, "no memory to load a model");
  return mtx_bind_fail(L, &t->err);
}

// drop(model or nil [, engine of it]) -> task whose take() gives true and warnings: prompts that could not be saved. Both handles are closed
// at once, their memory is given back on the thread; without a thread it is given back here. Without a model only the engine goes,
// and its model cannot be closed before the task has been taken.
int mtx_bind_task_drop(lua_State *L) {
  bool whole = !lua_isnoneornil(L, 1);
  if (whole) luaL_checkudata(L, 1, "mtx.model");
  lua_settop(L, 2);
  task *t = push_task(L);
  if (!lua_isnil(L, 2)) {
    mtx_bind_model *m = mtx_bind_check_engine(L, 2)->model;
    t->engine = mtx_bind_take_engine(L, 2);
    if (!whole) {
      lua_getiuservalue(L, 2, 1);  // the model's handle, which the count lies in
      lua_setiuservalue(L, -2, 1);
      t->n_users = &m->n_users;
      ++*t->n_users;
    }
  }
  if (whole) t->model = mtx_bind_take_model(L, 1);
  lua_settop(L, 3);
  int n = run(L, t);
  if (n == 1) return 1;
  mtx_engine_close(t->engine);
  t->engine = NULL;
  mtx_bind_model_free(&t->model);
  return n;
}

int mtx_bind_task_work(lua_State *L, const mtx_bind_work *work, void *self, int *n_users) {
  task *t = push_task(L);
  lua_pushvalue(L, -2);
  lua_setiuservalue(L, -2, 1);
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, 2);
  t->work = work;
  t->self = self;
  t->n_users = n_users;
  ++*n_users;
  return run(L, t);
}

static int l_task_fd(lua_State *L) {
  task *t = check(L);
  if (t->fd < 0) return luaL_argerror(L, 1, "the task's result has been taken");
  lua_pushinteger(L, t->fd);
  return 1;
}

static int l_task_ended(lua_State *L) {
  task *t = check(L);
  lua_pushboolean(L, !t->running || atomic_load(&t->ended));
  return 1;
}

// progress() -> bytes packed, of how many; 0, 0 while that is not known.
static int l_task_progress(lua_State *L) {
  task *t = check(L);
  lua_pushinteger(L, (lua_Integer)atomic_load(&t->n_done));
  lua_pushinteger(L, (lua_Integer)atomic_load(&t->n_total));
  return 2;
}

static int l_task_cancel(lua_State *L) {
  atomic_store(&check(L)->stop, true);
  return 0;
}

static void push_warnings(lua_State *L, const task *t) {
  lua_newtable(L);
  if (!t->warnings.len) return;
  const char *at = t->warnings.ptr, *end = at + t->warnings.len;
  for (lua_Integer n = 0; at < end;) {
    const char *eol = memchr(at, '\n', (size_t)(end - at));
    lua_pushlstring(L, at, (size_t)(eol - at));
    lua_rawseti(L, -2, ++n);
    at = eol + 1;
  }
}

// take() -> model, list of warnings; true, list of warnings from drop; what other work gives; or nil, message, code.
// Waits for the end.
static int l_task_take(lua_State *L) {
  task *t = check(L);
  if (t->taken) return luaL_argerror(L, 1, "the task's result has been taken");
  finish(t);
  if (t->rc) {
    t->taken = true;
    return mtx_bind_fail(L, &t->err);
  }
  if (t->work) {
    t->taken = true;
    return t->work->push(L, t->self);
  }
  if (!is_load(t)) {
    t->taken = true;
    lua_pushboolean(L, 1);
    push_warnings(L, t);
    return 2;
  }
  mtx_bind_model *h = mtx_bind_push_model(L);
  *h = t->model;
  t->model = (mtx_bind_model){0};
  t->taken = true;
  mtx_bind_model_ready(L);
  push_warnings(L, t);
  return 2;
}

static int l_task_gc(lua_State *L) {
  task *t = check(L);
  atomic_store(&t->stop, true);
  finish(t);
  mtx_engine_close(t->engine);
  t->engine = NULL;
  mtx_bind_model_free(&t->model);
  mtx_buf_fini(&t->warnings);
  free(t->path);
  t->path = NULL;
  mtx_chunk_fini(&t->reader);
  return 0;
}

void mtx_bind_task_type(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_task_gc}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"fd", l_task_fd},         {"ended", l_task_ended}, {"progress", l_task_progress},
                                     {"cancel", l_task_cancel}, {"take", l_task_take},   {NULL, NULL}};
  mtx_bind_new_type(L, TYPE, meta, methods);
}
