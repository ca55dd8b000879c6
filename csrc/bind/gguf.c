// SPDX-License-Identifier: MIT
// mtx.core.gguf: reading GGUF files from Lua.
#include "bind/gguf.h"

#include <lauxlib.h>
#include <stdbool.h>
#include <string.h>

#include "bind/core.h"
#include "bind/options.h"
#include "gguf/parse.h"
#include "quant/quant.h"

#define TYPE "mtx.gguf"
// Arrays up to this length are part of metadata(); longer ones (vocabularies)
// only of metadata(key).
enum { LIST_ITEMS = 256 };

typedef struct {
  mtx_gguf *g;
  bool lent;  // user value 1 owns it
} handle;

mtx_gguf *mtx_bind_check_gguf(lua_State *L, int idx) {
  handle *h = luaL_checkudata(L, idx, TYPE);
  if (!h->g) luaL_argerror(L, idx, "the GGUF file is closed");
  return h->g;
}

mtx_gguf *mtx_bind_test_gguf(lua_State *L, int idx) { return luaL_testudata(L, idx, TYPE) ? mtx_bind_check_gguf(L, idx) : NULL; }

mtx_gguf **mtx_bind_push_gguf(lua_State *L) {
  handle *h = lua_newuserdatauv(L, sizeof *h, 1);
  *h = (handle){0};
  luaL_setmetatable(L, TYPE);
  return &h->g;
}

void mtx_bind_lend_gguf(lua_State *L, mtx_gguf *g, int owner) {
  owner = lua_absindex(L, owner);
  *mtx_bind_push_gguf(L) = g;
  ((handle *)lua_touserdata(L, -1))->lent = true;
  lua_pushvalue(L, owner);
  lua_setiuservalue(L, -2, 1);
}

mtx_gguf *mtx_bind_take_gguf(lua_State *L, int idx) {
  mtx_gguf *g = mtx_bind_check_gguf(L, idx);
  handle *h = lua_touserdata(L, idx);
  if (h->lent) luaL_argerror(L, idx, "the file belongs to an open model");
  h->g = NULL;
  return g;
}

static int l_gguf_open(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  int flags = 0;
  if (!lua_isnoneornil(L, 2)) {
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_getfield(L, 2, "vocab_only");
    if (lua_toboolean(L, -1)) flags |= MTX_GGUF_VOCAB_ONLY;
  }
  mtx_gguf **g = mtx_bind_push_gguf(L);
  mtx_err err;
  if (mtx_gguf_open(g, path, flags, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  return 1;
}

static int l_gguf_close(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, TYPE);
  mtx_gguf *g = h->g;
  h->g = NULL;
  if (!h->lent) mtx_gguf_close(g);
  return 0;
}

static int l_gguf_tostring(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, TYPE);
  if (h->g) lua_pushfstring(L, "gguf (%s)", mtx_gguf_path(h->g));
  else lua_pushliteral(L, "gguf (closed)");
  return 1;
}

static void push_item(lua_State *L, const mtx_gguf_kv *kv, mtx_gguf_type type, uint64_t i) {
  if (type == MTX_GGUF_STRING) {
    mtx_str s = mtx_gguf_item_str(kv, i);
    lua_pushlstring(L, s.ptr, s.len);
  } else if (type == MTX_GGUF_BOOL) {
    lua_pushboolean(L, mtx_gguf_item_i64(kv, i) != 0);
  } else if (type == MTX_GGUF_F32 || type == MTX_GGUF_F64 ||
             (type == MTX_GGUF_U64 && mtx_gguf_item_i64(kv, i) < 0)) {  // above 2^63: a float
    lua_pushnumber(L, mtx_gguf_item_f64(kv, i));
  } else {
    lua_pushinteger(L, mtx_gguf_item_i64(kv, i));
  }
}

static void push_value(lua_State *L, const mtx_gguf_kv *kv) {
  if (kv->type != MTX_GGUF_ARRAY) {
    push_item(L, kv, kv->type, 0);
    return;
  }
  lua_createtable(L, kv->n < (1 << 24) ? (int)kv->n : 0, 0);
  for (uint64_t i = 0; i < kv->n; i++) {
    push_item(L, kv, kv->item_type, i);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

// metadata(key) -> value, type, item type; nothing for an absent key.
static int one_value(lua_State *L, const mtx_gguf *g) {
  size_t len;
  const char *key = luaL_checklstring(L, 2, &len);
  const mtx_gguf_kv *kv = strlen(key) == len ? mtx_gguf_find(g, key) : NULL;
  if (!kv) return 0;
  push_value(L, kv);
  lua_pushstring(L, mtx_gguf_type_name(kv->type));
  if (kv->type != MTX_GGUF_ARRAY) return 2;
  lua_pushstring(L, mtx_gguf_type_name(kv->item_type));
  return 3;
}

static int l_gguf_metadata(lua_State *L) {
  const mtx_gguf *g = mtx_bind_check_gguf(L, 1);
  if (!lua_isnoneornil(L, 2)) return one_value(L, g);
  lua_newtable(L);
  for (uint64_t i = 0; i < mtx_gguf_n_kv(g); i++) {
    const mtx_gguf_kv *kv = mtx_gguf_kv_at(g, i);
    lua_createtable(L, 0, 5);
    lua_pushlstring(L, kv->key.ptr, kv->key.len);
    lua_setfield(L, -2, "key");
    lua_pushstring(L, mtx_gguf_type_name(kv->type));
    lua_setfield(L, -2, "type");
    if (kv->type == MTX_GGUF_ARRAY) {
      lua_pushstring(L, mtx_gguf_type_name(kv->item_type));
      lua_setfield(L, -2, "item_type");
      lua_pushinteger(L, (lua_Integer)kv->n);
      lua_setfield(L, -2, "n");
    }
    if (kv->type != MTX_GGUF_ARRAY || kv->n <= LIST_ITEMS) {
      push_value(L, kv);
      lua_setfield(L, -2, "value");
    }
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

static int l_gguf_tensors(lua_State *L) {
  const mtx_gguf *g = mtx_bind_check_gguf(L, 1);
  lua_newtable(L);
  for (uint64_t i = 0; i < mtx_gguf_n_tensors(g); i++) {
    const mtx_gguf_tensor *t = mtx_gguf_tensor_at(g, i);
    lua_createtable(L, 0, 6);
    lua_pushlstring(L, t->name.ptr, t->name.len);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, mtx_qtype_get(t->type)->name);
    lua_setfield(L, -2, "type");
    lua_createtable(L, (int)t->n_dims, 0);
    for (uint32_t d = 0; d < t->n_dims; d++) {
      lua_pushinteger(L, (lua_Integer)t->ne[d]);
      lua_rawseti(L, -2, (lua_Integer)d + 1);
    }
    lua_setfield(L, -2, "shape");
    mtx_bind_set_integer(L, "bytes", (int64_t)t->n_bytes);
    mtx_bind_set_integer(L, "offset", (int64_t)mtx_gguf_tensor_offset(g, t));
    mtx_bind_set_integer(L, "shard", (int64_t)t->shard + 1);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

// tensor_data(name [, offset, n]) -> raw bytes; nothing for an absent tensor.
static int l_gguf_tensor_data(lua_State *L) {
  const mtx_gguf *g = mtx_bind_check_gguf(L, 1);
  const mtx_gguf_tensor *t = mtx_gguf_tensor_find(g, luaL_checkstring(L, 2));
  if (!t || !(t->data || t->scatter)) return 0;
  lua_Integer from = luaL_optinteger(L, 3, 0);
  luaL_argcheck(L, from >= 0 && (uint64_t)from <= t->n_bytes, 3, "outside the tensor");
  lua_Integer n = luaL_optinteger(L, 4, (lua_Integer)t->n_bytes - from);
  luaL_argcheck(L, n >= 0 && (uint64_t)n <= t->n_bytes - (uint64_t)from, 4, "outside the tensor");
  const char *data = t->data;
  if (!data) {
    uint64_t n_mats = t->ne[2] * t->ne[3], mat_bytes = t->n_bytes / n_mats;
    char *whole = mtx_scratch(L, (size_t)t->n_bytes);
    for (uint64_t m = 0; m < n_mats; m++) mtx_gguf_rows(t, m, 0, t->ne[1], whole + m * mat_bytes);
    data = whole;
  }
  lua_pushlstring(L, data + from, (size_t)n);
  mtx_err err;
  return mtx_gguf_check(g, &err) == MTX_OK ? 1 : mtx_bind_fail(L, &err);
}

static int l_gguf_info(lua_State *L) {
  const mtx_gguf *g = mtx_bind_check_gguf(L, 1);
  lua_createtable(L, 0, 7);
  lua_pushstring(L, mtx_gguf_path(g));
  lua_setfield(L, -2, "path");
  lua_pushstring(L, mtx_gguf_is_made(g) ? "safetensors" : "gguf");
  lua_setfield(L, -2, "format");
  mtx_bind_set_integer(L, "version", (int64_t)mtx_gguf_version(g));
  mtx_bind_set_integer(L, "alignment", (int64_t)mtx_gguf_alignment(g));
  mtx_bind_set_integer(L, "bytes", (int64_t)mtx_gguf_file_bytes(g));
  mtx_bind_set_integer(L, "n_tensors", (int64_t)mtx_gguf_n_tensors(g));
  lua_createtable(L, mtx_gguf_n_shards(g), 0);
  for (int i = 0; i < mtx_gguf_n_shards(g); i++) {
    lua_pushstring(L, mtx_gguf_shard_path(g, i));
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "shards");
  return 1;
}

int mtx_bind_gguf(lua_State *L) {
  static const luaL_Reg meta[] = {
    {"__gc", l_gguf_close}, {"__close", l_gguf_close}, {"__tostring", l_gguf_tostring}, {NULL, NULL},
  };
  static const luaL_Reg methods[] = {
    {"metadata", l_gguf_metadata}, {"tensors", l_gguf_tensors}, {"tensor_data", l_gguf_tensor_data},
    {"info", l_gguf_info},         {"close", l_gguf_close},     {NULL, NULL},
  };
  static const luaL_Reg functions[] = {{"open", l_gguf_open}, {"write", mtx_bind_gguf_write}, {"types", mtx_bind_gguf_types}, {NULL, NULL}};
  mtx_bind_new_type(L, TYPE, meta, methods);
  luaL_newlib(L, functions);
  return 1;
}
