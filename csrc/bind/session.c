// SPDX-License-Identifier: MIT
// Sessions: sequences steered by hand from Lua, evaluated by the engine's thread.
#include <lauxlib.h>
#include <string.h>

#include "bind/adapter.h"
#include "bind/core.h"
#include "bind/engine.h"
#include "bind/options.h"
#include "bind/tensor.h"

#define TYPE "mtx.session"

// User value 1 pins the engine.
typedef struct {
  mtx_session *s;
  mtx_bind_engine *e;
} handle;

static handle *check(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, TYPE);
  if (!h->s) luaL_argerror(L, 1, "the session is closed");
  return h;
}

// A closed session handle that pins the engine at index `engine`.
static handle *push_handle(lua_State *L, int engine) {
  engine = lua_absindex(L, engine);
  handle *h = lua_newuserdatauv(L, sizeof *h, 1);
  *h = (handle){0};
  luaL_setmetatable(L, TYPE);
  lua_pushvalue(L, engine);
  lua_setiuservalue(L, -2, 1);
  return h;
}

// engine:session([{lora}]) -> session
int mtx_bind_engine_session(lua_State *L) {
  mtx_bind_engine *e = mtx_bind_check_engine(L, 1);
  mtx_lora *lora = mtx_bind_opt_lora(L, 2, "lora");
  handle *h = push_handle(L, 1);
  mtx_err err;
  if (mtx_session_open(e->engine, lora, &h->s, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  h->e = e;
  e->n_users++;
  return 1;
}

static int l_session_close(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, TYPE);
  mtx_session *s = h->s;
  mtx_bind_engine *e = h->e;
  *h = (handle){0};
  if (s) {
    e->n_users--;
    mtx_session_close(s);
  }
  return 0;
}

// eval(ids [, {all = true}]) -> tensor: logits of the last token, or one row per token.
static int l_session_eval(lua_State *L) {
  handle *h = check(L);
  bool all = mtx_opt_bool(L, 3, "all", false);
  int64_t n;
  const int32_t *ids = mtx_check_ids(L, 2, &n);
  const float *logits;
  mtx_err err;
  if (mtx_session_eval(h->s, ids, n, all, &logits, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  mtx_tensor *t = mtx_bind_push_tensor(L, all ? n : 1, h->e->n_out);
  memcpy(t->data, logits, (size_t)(t->rows * t->cols) * sizeof(float));
  return 1;
}

// engine:eval(sessions, ids) -> tensors: one id behind each session, all in one step.
int mtx_bind_engine_eval(lua_State *L) {
  enum { MAX = 256 };
  mtx_bind_engine *e = mtx_bind_check_engine(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  int64_t n_ids;
  lua_settop(L, 3);
  const int32_t *ids = mtx_check_ids(L, 3, &n_ids);
  lua_Integer n = luaL_len(L, 2);
  luaL_argcheck(L, n == n_ids && n <= MAX, 3, "one id for each session, at most 256");
  mtx_session *s[MAX];
  const float *logits[MAX];
  lua_createtable(L, (int)n, 0);  // the tensors exist before: nothing raises behind the evaluation
  int out = lua_gettop(L);
  for (lua_Integer i = 0; i < n; i++) {
    lua_rawgeti(L, 2, i + 1);
    handle *h = luaL_checkudata(L, -1, TYPE);
    luaL_argcheck(L, h->s && h->e == e, 2, "open sessions of this engine are needed");
    s[i] = h->s;
    mtx_bind_push_tensor(L, 1, e->n_out);
    lua_rawseti(L, out, i + 1);
    lua_pop(L, 1);
  }
  mtx_err err;
  if (mtx_sessions_eval(s, ids, (int)n, logits, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  for (lua_Integer i = 0; i < n; i++) {
    lua_rawgeti(L, out, i + 1);
    memcpy(mtx_bind_check_tensor(L, -1)->data, logits[i], (size_t)e->n_out * sizeof(float));
    lua_pop(L, 1);
  }
  return 1;
}

// fork() -> a session with the same tokens, sharing their memory.
static int l_session_fork(lua_State *L) {
  handle *h = check(L);
  lua_getiuservalue(L, 1, 1);
  handle *f = push_handle(L, -1);
  mtx_err err;
  if (mtx_session_fork(h->s, &f->s, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  f->e = h->e;
  f->e->n_users++;
  return 1;
}

// rewind(n): forgets all but the first n tokens. -> true
static int l_session_rewind(lua_State *L) {
  handle *h = check(L);
  mtx_err err;
  if (mtx_session_rewind(h->s, luaL_checkinteger(L, 2), &err) != MTX_OK) return mtx_bind_fail(L, &err);
  lua_pushboolean(L, 1);
  return 1;
}

// save(path) -> bytes written | nil, message, code
static int l_session_save(lua_State *L) {
  handle *h = check(L);
  uint64_t n_bytes;
  mtx_err err;
  if (mtx_session_save(h->s, luaL_checkstring(L, 2), &n_bytes, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  lua_pushinteger(L, (lua_Integer)n_bytes);
  return 1;
}

// load(path) -> tokens the session has now | nil, message, code (it is as it was)
static int l_session_load(lua_State *L) {
  handle *h = check(L);
  mtx_err err;
  if (mtx_session_load(h->s, luaL_checkstring(L, 2), &err) != MTX_OK) return mtx_bind_fail(L, &err);
  lua_pushinteger(L, mtx_session_n_tokens(h->s));
  return 1;
}

static int l_session_n_tokens(lua_State *L) {
  lua_pushinteger(L, mtx_session_n_tokens(check(L)->s));
  return 1;
}

static int l_session_tostring(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, TYPE);
  if (h->s) lua_pushfstring(L, "session (%I tokens)", (lua_Integer)mtx_session_n_tokens(h->s));
  else lua_pushliteral(L, "session (closed)");
  return 1;
}

void mtx_bind_session_type(lua_State *L) {
  static const luaL_Reg meta[] = {
      {"__gc", l_session_close}, {"__close", l_session_close}, {"__len", l_session_n_tokens}, {"__tostring", l_session_tostring}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"eval", l_session_eval},         {"fork", l_session_fork},   {"rewind", l_session_rewind},
                                     {"save", l_session_save},         {"load", l_session_load},
                                     {"n_tokens", l_session_n_tokens}, {"close", l_session_close}, {NULL, NULL}};
  mtx_bind_new_type(L, TYPE, meta, methods);
}
