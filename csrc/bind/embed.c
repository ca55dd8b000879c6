// SPDX-License-Identifier: MIT
// engine:embed and engine:embed_submit: token lists to vectors.
#include <lauxlib.h>
#include <string.h>

#include "bind/adapter.h"
#include "bind/core.h"
#include "bind/engine.h"
#include "bind/model.h"
#include "bind/options.h"

void mtx_bind_push_vectors(lua_State *L, const float *v, int64_t n, int64_t width) {
  lua_createtable(L, (int)n, 0);
  for (int64_t i = 0; i < n; i++, v += width) {
    lua_createtable(L, (int)width, 0);
    for (int64_t k = 0; k < width; k++) {
      lua_pushnumber(L, v[k]);
      lua_rawseti(L, -2, k + 1);
    }
    lua_rawseti(L, -2, i + 1);
  }
}

static mtx_pooling pooling_of(lua_State *L, int idx) {
  static const char *const names[] = {"model", "none", "mean", "cls", "last", NULL};
  static const mtx_pooling values[] = {MTX_POOL_MODEL, MTX_POOL_NONE, MTX_POOL_MEAN, MTX_POOL_CLS, MTX_POOL_LAST};
  const char *name = mtx_opt_string(L, idx, "pooling", NULL);
  for (int i = 0; names[i]; i++)
    if (!name || strcmp(name, names[i]) == 0) return values[i];
  return luaL_error(L, "no pooling is called '%s' (model, none, mean, cls, last)", name);
}

typedef struct {
  const int32_t **ids;
  int64_t *lens;
  int n;
  mtx_pooling pooling;
  bool normalize;
  mtx_lora *lora;
} embed_args;

// (engine, list of id lists [, {pooling, normalize, lora}]); the arrays stay on the stack.
static embed_args check_embed(lua_State *L) {
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_settop(L, 3);
  embed_args a = {.pooling = pooling_of(L, 3), .normalize = mtx_opt_bool(L, 3, "normalize", true), .lora = mtx_bind_opt_lora(L, 3, "lora")};
  lua_Integer n = luaL_len(L, 2);
  luaL_argcheck(L, n <= 65536, 2, "more than 65536 inputs at once");
  a.n = (int)n;
  a.ids = mtx_scratch(L, (size_t)n * sizeof *a.ids);
  a.lens = mtx_scratch(L, (size_t)n * sizeof *a.lens);
  lua_newtable(L);  // keeps the id arrays alive
  int keep = lua_gettop(L);
  for (lua_Integer i = 0; i < n; i++) {
    lua_rawgeti(L, 2, i + 1);
    a.ids[i] = mtx_check_ids(L, lua_gettop(L), &a.lens[i]);
    lua_rawseti(L, keep, i + 1);
    lua_pop(L, 1);
  }
  return a;
}

// embed(list of id lists [, {pooling, normalize, lora}]) -> list of vectors (pooling "none": of
// lists of vectors, one per token). Blocks.
int mtx_bind_engine_embed(lua_State *L) {
  mtx_bind_engine *h = mtx_bind_check_engine(L, 1);
  embed_args a = check_embed(L);
  int64_t width = mtx_model_get_info(h->model->model)->n_embed, n_rows = a.n;
  if (a.pooling == MTX_POOL_NONE) {
    n_rows = 0;
    for (int i = 0; i < a.n; i++) n_rows += a.lens[i];
  }
  float *out = mtx_scratch(L, (size_t)(n_rows * width) * sizeof *out);
  mtx_err err;
  if (mtx_engine_embed(h->engine, a.ids, a.lens, a.n, a.pooling, a.normalize, a.lora, out, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  if (a.pooling != MTX_POOL_NONE) {
    mtx_bind_push_vectors(L, out, n_rows, width);
    return 1;
  }
  lua_createtable(L, a.n, 0);
  for (int i = 0; i < a.n; i++) {
    mtx_bind_push_vectors(L, out, a.lens[i], width);
    lua_rawseti(L, -2, i + 1);
    out += a.lens[i] * width;
  }
  return 1;
}

// embed_submit(list of id lists [, {pooling, normalize, lora}]) -> id; a done event brings `vectors`
// (pooling "none": those of all tokens, input after input).
int mtx_bind_engine_embed_submit(lua_State *L) {
  mtx_bind_engine *h = mtx_bind_check_engine(L, 1);
  embed_args a = check_embed(L);
  int64_t id;
  mtx_err err;
  if (mtx_engine_embed_submit(h->engine, a.ids, a.lens, a.n, a.pooling, a.normalize, a.lora, &id, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  lua_pushinteger(L, id);
  return 1;
}
