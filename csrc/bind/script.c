// SPDX-License-Identifier: MIT
// A token hook that asks a Lua function.
//
// Each request has a Lua state of its own. It is made on the engine's thread with
// the first token and closed with the request, so no state is ever touched by two
// threads, nothing a script does reaches another request, and memory is counted
// where it is taken. The chunk `code` gets mtx.core.pattern and `args` and returns
// function(logits, history) -> token id or nil (the sampler goes on); what users
// may do is its business (lua/mtx/serve/script/sampler_state.lua), time and memory are ours.
#include "bind/script.h"

#include <lauxlib.h>
#include <lualib.h>
#include <stdlib.h>
#include <string.h>

#include "bind/chunk.h"
#include "bind/core.h"
#include "bind/limit.h"
#include "bind/tensor.h"

// Bytes of a state; instructions and seconds of processor time to load it and for each token.
enum { MAX_BYTES = 64 << 20, LOAD_INSTRUCTIONS = 5000000, TOKEN_INSTRUCTIONS = 5000000 };
static const double LOAD_SECONDS = 1, TOKEN_SECONDS = 0.25;

typedef struct {
  lua_State *L;      // stack: 1 function, 2 logits, 3 history
  size_t used, cap;  // bytes
  mtx_limit limit;
  int64_t n_known;   // tokens in the history table
  mtx_chunk chunk;
} script;

static void *bounded(void *ud, void *p, size_t osize, size_t nsize) {
  script *s = ud;
  size_t old = p ? osize : 0;
  if (nsize > old && s->used + (nsize - old) > s->cap) return NULL;
  void *q = nsize ? realloc(p, nsize) : NULL;
  if (!nsize) free(p);
  if (q || !nsize) s->used = s->used - old + nsize;
  return q;
}

// Protected: opens the libraries, runs the chunk, leaves its function and the two arguments.
static int load_state(lua_State *L) {
  script *s = lua_touserdata(L, 1);
  int64_t n_vocab = *(const int32_t *)lua_touserdata(L, 2);
  lua_settop(L, 0);
  luaL_openlibs(L);
  mtx_bind_tensor(L);
  lua_settop(L, 0);
  mtx_chunk_push_code(L, &s->chunk, "=sampler");
  mtx_bind_pattern(L);
  mtx_chunk_push_args(L, &s->chunk);
  lua_call(L, s->chunk.n_args + 1, 1);
  mtx_bind_push_tensor(L, 1, n_vocab);
  lua_newtable(L);
  return 3;
}

// Protected: one call of the function. Light userdata 1: what pick got.
typedef struct { float *logits; int32_t n_vocab; const int32_t *history; int64_t n; lua_Integer token; } question;

static int ask(lua_State *L) {
  question *q = lua_touserdata(L, 1);
  mtx_tensor *t = mtx_bind_check_tensor(L, 3);
  script *s = lua_touserdata(L, 5);
  for (; s->n_known > q->n; s->n_known--) {  // tokens were taken back
    lua_pushnil(L);
    lua_rawseti(L, 4, s->n_known);
  }
  for (; s->n_known < q->n; s->n_known++) {
    lua_pushinteger(L, q->history[s->n_known]);
    lua_rawseti(L, 4, s->n_known + 1);
  }
  memcpy(t->data, q->logits, (size_t)q->n_vocab * sizeof *q->logits);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, 3);
  lua_pushvalue(L, 4);
  lua_call(L, 2, 1);
  memcpy(q->logits, t->data, (size_t)q->n_vocab * sizeof *q->logits);
  if (lua_isnil(L, -1)) return 0;
  if (!lua_isinteger(L, -1)) return luaL_error(L, "it must return a token id or nil, not a %s", luaL_typename(L, -1));
  q->token = lua_tointeger(L, -1);
  if (q->token < 0 || q->token >= q->n_vocab) return luaL_error(L, "it returned %I, which is no token", q->token);
  return 0;
}

static mtx_code fail(script *s, mtx_err *err) {
  const char *msg = lua_type(s->L, -1) == LUA_TSTRING ? lua_tostring(s->L, -1) : "the error is not a text";
  return mtx_fail(err, MTX_EINVAL, "the sampler function failed: %s", msg);
}

static mtx_code open_state(script *s, int32_t n_vocab, mtx_err *err) {
  s->cap = MAX_BYTES + (size_t)n_vocab * sizeof(float);
  s->L = lua_newstate(bounded, s);
  if (!s->L) return mtx_fail(err, MTX_ENOMEM, "no memory for a sampler function");
  s->limit.instructions = LOAD_INSTRUCTIONS;
  mtx_limit_time(&s->limit, LOAD_SECONDS);
  mtx_limit_set(s->L, &s->limit);
  lua_pushcfunction(s->L, load_state);
  lua_pushlightuserdata(s->L, s);
  lua_pushlightuserdata(s->L, &n_vocab);
  return lua_pcall(s->L, 2, 3, 0) == LUA_OK ? MTX_OK : fail(s, err);
}

static mtx_code pick(void *self, float *logits, int32_t n_vocab, const int32_t *history, int64_t n, int32_t *token, mtx_err *err) {
  script *s = self;
  mtx_code rc = s->L ? MTX_OK : open_state(s, n_vocab, err);
  if (rc) return rc;
  question q = {logits, n_vocab, history, n, -1};
  s->limit.instructions = TOKEN_INSTRUCTIONS;
  mtx_limit_time(&s->limit, TOKEN_SECONDS);
  lua_pushcfunction(s->L, ask);
  lua_pushlightuserdata(s->L, &q);
  for (int i = 1; i <= 3; i++) lua_pushvalue(s->L, i);
  lua_pushlightuserdata(s->L, s);
  if (lua_pcall(s->L, 5, 0, 0) != LUA_OK) return fail(s, err);
  *token = (int32_t)q.token;
  return MTX_OK;
}

static void close_script(void *self) {
  script *s = self;
  if (s->L) {
    mtx_limit_set(s->L, NULL);
    lua_close(s->L);
  }
  mtx_chunk_fini(&s->chunk);
  free(s);
}

// ---- from the request's table -----------------------------------------------------

static int l_hook_gc(lua_State *L) {
  mtx_token_hook *h = lua_touserdata(L, 1), gone = *h;
  *h = (mtx_token_hook){0};
  if (gone.close) gone.close(gone.self);
  return 0;
}

mtx_token_hook *mtx_bind_script_hook(lua_State *L, int idx) {
  static const luaL_Reg meta[] = {{"__gc", l_hook_gc}, {NULL, NULL}};
  mtx_bind_new_type(L, "mtx.token_hook", meta, NULL);
  mtx_token_hook *h = lua_newuserdatauv(L, sizeof *h, 0);
  *h = (mtx_token_hook){0};
  luaL_setmetatable(L, "mtx.token_hook");
  if (lua_getfield(L, idx, "sampler_script") == LUA_TNIL) {
    lua_pop(L, 1);
    return h;
  }
  luaL_checktype(L, -1, LUA_TTABLE);
  script *s = calloc(1, sizeof *s);
  if (!s) luaL_error(L, "not enough memory");
  *h = (mtx_token_hook){pick, close_script, s};
  mtx_chunk_read(L, -1, "option 'sampler_script'", &s->chunk);
  lua_pop(L, 1);
  return h;
}
