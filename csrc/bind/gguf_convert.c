// SPDX-License-Identifier: MIT
// Tensors that gguf.write converts: entries {name=, from=gguf, type=T, importance={from=, sums=, counts=}}.
#include <lauxlib.h>
#include <string.h>

#include "bind/core.h"
#include "bind/gguf.h"
#include "gguf/convert.h"

static const mtx_gguf_tensor *f32_tensor(lua_State *L, const mtx_gguf *g, int idx, const char *field) {
  lua_getfield(L, idx, field);
  const mtx_gguf_tensor *t = mtx_gguf_tensor_find(g, luaL_checkstring(L, -1));
  if (!t || t->type != 0 || !t->data) luaL_error(L, "importance: '%s' names no F32 tensor of the file", field);
  lua_pop(L, 1);
  return t;
}

// The table on top of the stack -> a userdata on top of it with a mean for each column of each matrix. A matrix that has a count of 0
// got no input: ones.
static const float *push_importance(lua_State *L, const mtx_gguf_tensor *t) {
  int idx = lua_absindex(L, -1);
  luaL_checktype(L, idx, LUA_TTABLE);
  lua_getfield(L, idx, "from");
  const mtx_gguf *g = mtx_bind_check_gguf(L, -1);
  lua_pop(L, 1);
  const mtx_gguf_tensor *sums = f32_tensor(L, g, idx, "sums"), *counts = f32_tensor(L, g, idx, "counts");
  uint64_t n = t->ne[0], n_mats = t->ne[2] * t->ne[3];
  if (sums->n_bytes != 4 * n * n_mats || counts->n_bytes != 4 * n_mats) luaL_error(L, "importance: not one sum a column and one count a matrix");
  float *mean = lua_newuserdatauv(L, (size_t)(4 * n * n_mats), 0);
  for (uint64_t m = 0; m < n_mats; m++) {
    float count;
    memcpy(&count, (const char *)counts->data + 4 * m, 4);
    for (uint64_t i = m * n; i < (m + 1) * n; i++) {
      memcpy(&mean[i], (const char *)sums->data + 4 * i, 4);
      mean[i] = count > 0.0f ? mean[i] / count : 1.0f;
    }
  }
  mtx_err err;
  char text[1024];
  if (mtx_gguf_check(g, &err) == MTX_OK) return mean;
  mtx_err_format(&err, text, (int)sizeof text);
  luaL_error(L, "importance: %s", text);
  return NULL;
}

mtx_code mtx_bind_add_as(lua_State *L, mtx_gguf_writer *w, int entry, const mtx_gguf *g, const mtx_gguf_tensor *t, int n_threads, mtx_err *err) {
  mtx_gguf_conversion c = {.file = g, .from = t, .n_threads = n_threads};
  lua_getfield(L, entry, "type");
  const char *type = luaL_checkstring(L, -1);
  c.to = mtx_qtype_by_name(type);
  if (!c.to) luaL_error(L, "there is no tensor type '%s'", type);
  lua_pop(L, 1);
  lua_getfield(L, entry, "importance");
  if (lua_isnil(L, -1)) lua_pushnil(L);
  else c.importance = push_importance(L, t);
  lua_remove(L, -2);
  return mtx_gguf_add_as(w, &c, err);
}

// types() -> name -> {block, bytes (of a block), reads, writes}: the tensor types of GGUF.
int mtx_bind_gguf_types(lua_State *L) {
  lua_newtable(L);
  for (int i = 0; i < mtx_qtype_count(); i++) {
    const mtx_qtype *t = mtx_qtype_at(i);
    lua_createtable(L, 0, 4);
    mtx_bind_set_integer(L, "block", t->block);
    mtx_bind_set_integer(L, "bytes", t->block_bytes);
    lua_pushboolean(L, t->decode != NULL);
    lua_setfield(L, -2, "reads");
    lua_pushboolean(L, mtx_qtype_encodes(t));
    lua_setfield(L, -2, "writes");
    lua_setfield(L, -2, t->name);
  }
  return 1;
}
