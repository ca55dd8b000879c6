// SPDX-License-Identifier: MIT
// mtx.core.sampler: a sampler chain for scripts that hold the logits themselves.
#include <lauxlib.h>

#include "bind/core.h"
#include "bind/options.h"
#include "bind/tensor.h"

#define TYPE "mtx.sampler"

typedef struct {
  mtx_sampler *s;
  mtx_sample_work *work;
  int32_t n_vocab;
} handle;

// sampler(options, n_vocab) -> sampler
static int l_sampler_new(lua_State *L) {
  lua_settop(L, 2);
  lua_Integer n = luaL_checkinteger(L, 2);
  luaL_argcheck(L, n >= 1 && n <= INT32_MAX, 2, "vocabulary size is out of range");
  mtx_sampler_opts o;
  mtx_check_sampler(L, 1, &o);
  handle *h = lua_newuserdatauv(L, sizeof *h, 0);
  *h = (handle){.n_vocab = (int32_t)n};
  luaL_setmetatable(L, TYPE);
  mtx_err err;
  if (mtx_sampler_open(&h->s, &o, h->n_vocab, &err) != MTX_OK || mtx_sample_work_open(&h->work, h->n_vocab, &err) != MTX_OK)
    return mtx_bind_fail(L, &err);
  return 1;
}

static int l_sampler_close(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, TYPE);
  handle gone = *h;
  *h = (handle){0};
  mtx_sampler_close(gone.s);
  mtx_sample_work_close(gone.work);
  return 0;
}

// sample(logits, history) -> token id (from 0)
static int l_sampler_sample(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, TYPE);
  luaL_argcheck(L, h->s, 1, "the sampler is closed");
  const mtx_tensor *t = mtx_bind_check_tensor(L, 2);
  luaL_argcheck(L, t->rows == 1 && t->cols == h->n_vocab, 2, "logits must be one row of the vocabulary's size");
  if (lua_isnoneornil(L, 3)) {
    lua_settop(L, 2);
    lua_newtable(L);
  }
  int64_t n;
  const int32_t *history = mtx_check_ids(L, 3, &n);
  mtx_err err;
  int32_t id;
  mtx_sample_load(h->work, t->data);
  if (mtx_sampler_pick(h->s, h->work, history, n, &id, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  lua_pushinteger(L, id);
  return 1;
}

int mtx_bind_sampler(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_sampler_close}, {"__close", l_sampler_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"sample", l_sampler_sample}, {"close", l_sampler_close}, {NULL, NULL}};
  mtx_bind_new_type(L, TYPE, meta, methods);
  lua_pushcfunction(L, l_sampler_new);
  return 1;
}
