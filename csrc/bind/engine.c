// SPDX-License-Identifier: MIT
// mtx.core.engine: requests in, events out. One engine runs one model on a thread
// of its own; nothing here waits for it except wait() and embed().
#include "bind/engine.h"

#include <lauxlib.h>

#include "bind/core.h"
#include "bind/model.h"
#include "bind/options.h"

#define TYPE "mtx.engine"

mtx_bind_engine *mtx_bind_check_engine(lua_State *L, int idx) {
  mtx_bind_engine *h = luaL_checkudata(L, idx, TYPE);
  if (!h->engine) luaL_argerror(L, idx, "the engine is closed");
  return h;
}

// open(model [, {ctx, n_parallel, max_waiting, max_rows, threads, kv_type, kv_tokens, cache_bytes}]) -> engine
static int l_engine_open(lua_State *L) {
  mtx_bind_model *m = mtx_bind_check_model(L, 1);
  lua_settop(L, 2);
  if (!lua_isnil(L, 2)) luaL_checktype(L, 2, LUA_TTABLE);
  mtx_engine_opts o = {.n_ctx = mtx_opt_integer(L, 2, "ctx", 0),
                       .n_parallel = (int)mtx_opt_integer(L, 2, "n_parallel", 0),
                       .max_waiting = (int)mtx_opt_integer(L, 2, "max_waiting", 0),
                       .max_sessions = (int)mtx_opt_integer(L, 2, "max_sessions", 0),
                       .max_rows = (int)mtx_opt_integer(L, 2, "max_rows", 0),
                       .n_threads = (int)mtx_opt_integer(L, 2, "threads", 0),
                       .kv_tokens = mtx_opt_integer(L, 2, "kv_tokens", 0),
                       .cache_bytes = (uint64_t)mtx_opt_integer(L, 2, "cache_bytes", 0)};
  mtx_err err;
  if (mtx_opt_kv_type(L, 2, &o.kv_type, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  mtx_bind_engine *h = lua_newuserdatauv(L, sizeof *h, 1);
  *h = (mtx_bind_engine){0};
  luaL_setmetatable(L, TYPE);
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, 1);
  if (mtx_engine_open(&h->engine, m->model, m->tok, &o, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  h->n_out = mtx_model_get_info(m->model)->n_out;
  h->model = m;
  m->n_users++;
  return 1;
}

mtx_engine *mtx_bind_take_engine(lua_State *L, int idx) {
  mtx_bind_engine *h = luaL_checkudata(L, idx, TYPE);
  if (h->n_users > 0) luaL_error(L, "close the engine's sessions and take its tasks first");
  mtx_engine *e = h->engine;
  if (e) h->model->n_users--;
  *h = (mtx_bind_engine){0};
  return e;
}

static int l_engine_close(lua_State *L) {
  mtx_engine_close(mtx_bind_take_engine(L, 1));
  return 0;
}

static int l_engine_gc(lua_State *L) {
  mtx_bind_engine *h = luaL_checkudata(L, 1, TYPE);
  return h->n_users > 0 ? 0 : l_engine_close(L);
}

static int l_engine_cancel(lua_State *L) {
  mtx_engine_cancel(mtx_bind_check_engine(L, 1)->engine, luaL_checkinteger(L, 2));
  return 0;
}

static int l_engine_fd(lua_State *L) {
  lua_pushinteger(L, mtx_engine_fd(mtx_bind_check_engine(L, 1)->engine));
  return 1;
}

// wait([ms]) -> true when events wait, false after ms.
static int l_engine_wait(lua_State *L) {
  lua_pushboolean(L, mtx_engine_wait(mtx_bind_check_engine(L, 1)->engine, luaL_optinteger(L, 2, -1)));
  return 1;
}

static const int64_t *id_list(lua_State *L, int idx, const char *name, int *n) {
  *n = 0;
  if (lua_getfield(L, idx, name) == LUA_TNIL) return NULL;
  if (!lua_istable(L, -1)) luaL_error(L, "policy field '%s' must be a list of request ids", name);
  int list = lua_gettop(L);
  lua_Integer len = luaL_len(L, list);
  int64_t *ids = mtx_scratch(L, (size_t)len * sizeof *ids);
  for (lua_Integer i = 0; i < len; i++) {
    lua_rawgeti(L, list, i + 1);
    ids[i] = luaL_checkinteger(L, -1);
    lua_pop(L, 1);
  }
  *n = (int)len;
  return ids;
}

// set_policy{step_tokens, prefill_tokens, prefill_ratio, order = {ids}, preempt = {ids}} -> true
static int l_engine_set_policy(lua_State *L) {
  mtx_bind_engine *h = mtx_bind_check_engine(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  mtx_policy p = {.step_tokens = (int)mtx_opt_integer(L, 2, "step_tokens", 0), .prefill_tokens = (int)mtx_opt_integer(L, 2, "prefill_tokens", 0),
                  .prefill_ratio = mtx_opt_number(L, 2, "prefill_ratio", 0)};
  p.order = id_list(L, 2, "order", &p.n_order);
  p.preempt = id_list(L, 2, "preempt", &p.n_preempt);
  mtx_err err;
  if (mtx_engine_set_policy(h->engine, &p, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  lua_pushboolean(L, 1);
  return 1;
}

static int l_engine_set_threads(lua_State *L) {
  mtx_engine_set_threads(mtx_bind_check_engine(L, 1)->engine, (int)luaL_checkinteger(L, 2));
  return 0;
}

// stats([check]) -> table of counters.
static int l_engine_stats(lua_State *L) {
  mtx_bind_engine *h = mtx_bind_check_engine(L, 1);
  mtx_engine_stats s;
  mtx_engine_get_stats(h->engine, &s, lua_toboolean(L, 2));
  lua_createtable(L, 0, 28);
  const struct { const char *name; int64_t v; } fields[] = {
      {"n_waiting", s.n_waiting}, {"n_running", s.n_prefill + s.n_decode}, {"n_prefill", s.n_prefill}, {"n_decode", s.n_decode},
      {"n_parked", s.n_parked}, {"n_sessions", s.n_sessions}, {"pages_total", s.n_pages}, {"pages_free", s.n_pages_free},
      {"pages_shared", s.n_pages_shared}, {"cache_entries", s.n_cache_entries}, {"cache_bytes", (int64_t)s.cache_bytes},
      {"page_bytes", (int64_t)s.kv_page_bytes}, {"n_submitted", s.n_submitted}, {"n_finished", s.n_finished}, {"n_cancelled", s.n_cancelled},
      {"n_failed", s.n_failed}, {"n_preempted", s.n_preempted}, {"n_prompt_tokens", s.n_prompt_tokens}, {"n_cached_tokens", s.n_cached_tokens},
      {"n_generated_tokens", s.n_generated_tokens}, {"n_drafted_tokens", s.n_drafted_tokens}, {"n_accepted_tokens", s.n_accepted_tokens},
      {"n_steps", s.n_steps}, {"n_rows", s.n_rows}, {"last_rows", s.last_rows},
      {"n_ctx", mtx_engine_n_ctx(h->engine)}};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) mtx_bind_set_integer(L, fields[i].name, fields[i].v);
  mtx_bind_set_number(L, "busy_ms", s.t_busy_ms);
  lua_pushboolean(L, s.kv_ok);
  lua_setfield(L, -2, "kv_ok");
  return 1;
}

// profile(on) -> list of {op, ns, calls, bytes} since the last call.
static int l_engine_profile(lua_State *L) {
  mtx_bind_engine *h = mtx_bind_check_engine(L, 1);
  mtx_profile_row rows[64];
  int n = mtx_engine_profile(h->engine, lua_toboolean(L, 2), rows, 64);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_createtable(L, 0, 4);
    lua_pushstring(L, rows[i].op);
    lua_setfield(L, -2, "op");
    mtx_bind_set_integer(L, "ns", (int64_t)rows[i].ns);
    mtx_bind_set_integer(L, "calls", (int64_t)rows[i].calls);
    mtx_bind_set_integer(L, "bytes", (int64_t)rows[i].bytes);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

int mtx_bind_engine_open(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_engine_gc}, {"__close", l_engine_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"submit", mtx_bind_engine_submit}, {"cancel", l_engine_cancel}, {"drain", mtx_bind_engine_drain}, {"fd", l_engine_fd}, {"wait", l_engine_wait},
      {"embed", mtx_bind_engine_embed}, {"embed_submit", mtx_bind_engine_embed_submit}, {"session", mtx_bind_engine_session}, {"eval", mtx_bind_engine_eval},
      {"set_policy", l_engine_set_policy}, {"set_threads", l_engine_set_threads}, {"stats", l_engine_stats}, {"profile", l_engine_profile},
      {"save_prefix", mtx_bind_engine_save_prefix}, {"load_prefix", mtx_bind_engine_load_prefix}, {"forget_prefix", mtx_bind_engine_forget_prefix},
      {"set_disk", mtx_bind_engine_set_disk}, {"store_disk", mtx_bind_engine_store_disk}, {"start", mtx_bind_engine_start},
      {"close", l_engine_close}, {NULL, NULL}};
  static const luaL_Reg functions[] = {{"open", l_engine_open}, {NULL, NULL}};
  mtx_bind_events_type(L);
  mtx_bind_session_type(L);
  mtx_bind_new_type(L, TYPE, meta, methods);
  luaL_newlib(L, functions);
  return 1;
}
