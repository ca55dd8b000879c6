// SPDX-License-Identifier: MIT
// mtx.core.gguf.write{...}: GGUF files from Lua tables, or an opened file edited.
//
//   path     where the file goes
//   from     an opened GGUF whose keys (and, without `tensors`, tensors) are copied first
//   remove   list of keys of `from` to leave out
//   kv       list of {key=, type=, value=} (arrays also item_type=); replaces or appends
//   tensors  list of {name=, type="F32", shape={...}, data=bytes}, or {name=, from=gguf}; the latter also with a type= to be converted to, and
//            importance={from=gguf, sums=name, counts=name} of its columns
//   threads  that convert (nil or 0: all cores)
//   progress function(bytes of tensors written, of how many); true ends the writing
// Returns true, or nil, message, code. Tables of the wrong shape raise.
#include <float.h>
#include <lauxlib.h>
#include <math.h>
#include <string.h>

#include "bind/core.h"
#include "bind/gguf.h"
#include "bind/options.h"
#include "gguf/parse.h"
#include "gguf/write.h"
#include "quant/quant.h"

#define TYPE "mtx.gguf.writer"

// The writer borrows tensor bytes: user value 1 is a list of the strings and
// files they lie in.
typedef struct { mtx_gguf_writer *w; } box;

static int l_writer_gc(lua_State *L) {
  box *b = luaL_checkudata(L, 1, TYPE);
  mtx_gguf_writer *w = b->w;
  b->w = NULL;
  mtx_gguf_writer_free(w);
  return 0;
}

static void pin(lua_State *L, int i_box, int idx) {
  idx = lua_absindex(L, idx);
  lua_getiuservalue(L, i_box, 1);
  lua_pushvalue(L, idx);
  lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
  lua_pop(L, 1);
}

static int raw_field(lua_State *L, int idx, const char *name) {
  idx = lua_absindex(L, idx);
  lua_pushstring(L, name);
  return lua_rawget(L, idx);
}

// Zero-terminated, without inner zeros; stays valid while the value is on the stack.
static const char *field_name(lua_State *L, int idx, const char *name, const char *where) {
  if (raw_field(L, idx, name) != LUA_TSTRING) luaL_error(L, "%s needs a string '%s'", where, name);
  size_t n;
  const char *s = lua_tolstring(L, -1, &n);
  if (strlen(s) != n) luaL_error(L, "%s: '%s' holds a zero byte", where, name);
  return s;
}

static mtx_gguf_type check_type(lua_State *L, const char *name, const char *key) {
  for (uint32_t t = 0; t <= MTX_GGUF_F64; t++)
    if (!strcmp(mtx_gguf_type_name(t), name)) return (mtx_gguf_type)t;
  return (mtx_gguf_type)luaL_error(L, "metadata key '%s': there is no type '%s'", key, name);
}

static const struct { lua_Integer lo, hi; } RANGE[] = {
  [MTX_GGUF_U8] = {0, UINT8_MAX},       [MTX_GGUF_I8] = {INT8_MIN, INT8_MAX},    [MTX_GGUF_U16] = {0, UINT16_MAX},
  [MTX_GGUF_I16] = {INT16_MIN, INT16_MAX}, [MTX_GGUF_U32] = {0, UINT32_MAX},     [MTX_GGUF_I32] = {INT32_MIN, INT32_MAX},
  [MTX_GGUF_U64] = {0, INT64_MAX},      [MTX_GGUF_I64] = {INT64_MIN, INT64_MAX},
};

// Encodes the plain value on top of the stack into dst[8].
static void encode(lua_State *L, mtx_gguf_type type, uint8_t *dst, const char *key) {
  if (type == MTX_GGUF_BOOL) {
    if (!lua_isboolean(L, -1)) luaL_error(L, "metadata key '%s': a boolean is needed", key);
    *dst = (uint8_t)lua_toboolean(L, -1);
  } else if (type == MTX_GGUF_F32 || type == MTX_GGUF_F64) {
    if (lua_type(L, -1) != LUA_TNUMBER) luaL_error(L, "metadata key '%s': a number is needed", key);
    double d = lua_tonumber(L, -1);
    if (type == MTX_GGUF_F32 && isfinite(d) && fabs(d) > FLT_MAX) luaL_error(L, "metadata key '%s': %f does not fit f32", key, d);
    float f = type == MTX_GGUF_F32 ? (float)d : 0;
    if (type == MTX_GGUF_F32) memcpy(dst, &f, 4);
    else memcpy(dst, &d, 8);
  } else {
    int is_int;
    lua_Integer v = lua_type(L, -1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &is_int) : (is_int = 0);
    uint64_t u = (uint64_t)v;
    double d = lua_tonumber(L, -1);
    if (type == MTX_GGUF_U64 && !is_int && lua_type(L, -1) == LUA_TNUMBER && d >= 0 && d < 18446744073709551616.0 && d == floor(d))
      u = (uint64_t)d, v = 0, is_int = 1;
    if (!is_int || v < RANGE[type].lo || v > RANGE[type].hi)
      luaL_error(L, "metadata key '%s': an integer that fits %s is needed", key, mtx_gguf_type_name(type));
    memcpy(dst, &u, mtx_gguf_type_bytes(type));
  }
}

// The array is the table on top of the stack.
static mtx_code put_array(lua_State *L, mtx_gguf_writer *w, const char *key, mtx_gguf_type item, mtx_err *err) {
  if (!lua_istable(L, -1)) luaL_error(L, "metadata key '%s': a list is needed", key);
  lua_Unsigned n = lua_rawlen(L, -1);
  if (item == MTX_GGUF_ARRAY || n > MTX_GGUF_MAX_ITEMS) luaL_error(L, "metadata key '%s': not a list that GGUF can hold", key);
  size_t size = item == MTX_GGUF_STRING ? sizeof(mtx_str) : mtx_gguf_type_bytes(item);
  uint8_t *scratch = lua_newuserdatauv(L, n ? n * size : 1, 0);
  for (lua_Unsigned i = 0; i < n; i++) {
    int type = lua_rawgeti(L, -2, (lua_Integer)i + 1);
    if (item == MTX_GGUF_STRING) {
      if (type != LUA_TSTRING) luaL_error(L, "metadata key '%s': item %d is no string", key, (int)i + 1);
      mtx_str *s = (mtx_str *)scratch + i;
      s->ptr = lua_tolstring(L, -1, &s->len);
    } else {
      uint8_t v[8];
      encode(L, item, v, key);
      memcpy(scratch + i * size, v, size);
    }
    lua_pop(L, 1);
  }
  mtx_code code = item == MTX_GGUF_STRING ? mtx_gguf_put_strs(w, key, (const mtx_str *)scratch, n, err)
                                          : mtx_gguf_put_array(w, key, item, scratch, n, err);
  lua_pop(L, 1);
  return code;
}

// The entry is the table on top of the stack.
static mtx_code put_entry(lua_State *L, mtx_gguf_writer *w, mtx_err *err) {
  int top = lua_gettop(L);
  if (!lua_istable(L, -1)) luaL_error(L, "an entry of 'kv' is no table");
  const char *key = field_name(L, top, "key", "a kv entry");
  mtx_gguf_type type = check_type(L, field_name(L, top, "type", key), key);
  mtx_gguf_type item = type == MTX_GGUF_ARRAY ? check_type(L, field_name(L, top, "item_type", key), key) : type;
  raw_field(L, top, "value");
  mtx_code code;
  if (type == MTX_GGUF_ARRAY) {
    code = put_array(L, w, key, item, err);
  } else if (type == MTX_GGUF_STRING) {
    if (lua_type(L, -1) != LUA_TSTRING) luaL_error(L, "metadata key '%s': a string is needed", key);
    mtx_str s;
    s.ptr = lua_tolstring(L, -1, &s.len);
    code = mtx_gguf_put_str(w, key, s, err);
  } else {
    uint8_t v[8];
    encode(L, type, v, key);
    code = mtx_gguf_put(w, key, type, v, err);
  }
  lua_settop(L, top);
  return code;
}

static mtx_code add_copy(lua_State *L, mtx_gguf_writer *w, int i_box, int entry, const char *name, mtx_err *err) {
  const mtx_gguf *g = mtx_bind_check_gguf(L, -1);
  const mtx_gguf_tensor *t = mtx_gguf_tensor_find(g, name);
  if (!t) luaL_error(L, "tensor '%s' is not in the file it should be copied from", name);
  pin(L, i_box, -1);
  if (raw_field(L, entry, "type") == LUA_TNIL) return mtx_gguf_add_copy(w, t, err);
  mtx_code code = mtx_bind_add_as(L, w, entry, g, t, (int)mtx_opt_integer(L, 1, "threads", 0), err);
  pin(L, i_box, -1);
  return code;
}

// The entry is the table on top of the stack.
static mtx_code add_tensor(lua_State *L, mtx_gguf_writer *w, int i_box, mtx_err *err) {
  int top = lua_gettop(L);
  if (!lua_istable(L, -1)) luaL_error(L, "an entry of 'tensors' is no table");
  const char *name = field_name(L, top, "name", "a tensor");
  mtx_code code;
  if (raw_field(L, top, "from") != LUA_TNIL) {
    code = add_copy(L, w, i_box, top, name, err);
    lua_settop(L, top);
    return code;
  }
  const mtx_qtype *q = mtx_qtype_by_name(field_name(L, top, "type", name));
  if (!q) luaL_error(L, "tensor '%s': there is no such tensor type", name);
  if (raw_field(L, top, "shape") != LUA_TTABLE) luaL_error(L, "tensor '%s' needs a list 'shape'", name);
  lua_Unsigned n_dims = lua_rawlen(L, -1);
  uint64_t ne[4] = {0};
  for (int d = 0; d < 4 && (lua_Unsigned)d < n_dims; d++) {
    int is_int;
    lua_rawgeti(L, -1, d + 1);
    lua_Integer v = lua_tointegerx(L, -1, &is_int);
    if (!is_int || v < 0) luaL_error(L, "tensor '%s': the shape must hold positive integers", name);
    ne[d] = (uint64_t)v;
    lua_pop(L, 1);
  }
  if (raw_field(L, top, "data") != LUA_TSTRING) luaL_error(L, "tensor '%s' needs a string 'data'", name);
  pin(L, i_box, -1);
  size_t n;
  const char *data = lua_tolstring(L, -1, &n);
  code = mtx_gguf_add(w, (mtx_str){name, strlen(name)}, q->id, n_dims < 9 ? (uint32_t)n_dims : 9, ne, data, n, err);
  lua_settop(L, top);
  return code;
}

// Pushes args[name]; true when it is a list.
static bool list_field(lua_State *L, const char *name) {
  int type = raw_field(L, 1, name);
  if (type != LUA_TNIL && type != LUA_TTABLE) luaL_error(L, "'%s' must be a list", name);
  return type == LUA_TTABLE;
}

static mtx_code collect_from(lua_State *L, mtx_gguf_writer *w, int i_box, bool with_tensors, mtx_err *err) {
  const mtx_gguf *g = mtx_bind_check_gguf(L, -1);
  pin(L, i_box, -1);
  mtx_code code = mtx_gguf_put_all(w, g, err);
  for (uint64_t i = 0; with_tensors && code == MTX_OK && i < mtx_gguf_n_tensors(g); i++)
    code = mtx_gguf_add_copy(w, mtx_gguf_tensor_at(g, i), err);
  if (code == MTX_OK && list_field(L, "remove")) {
    for (lua_Unsigned i = 1; i <= lua_rawlen(L, -1); i++) {
      if (lua_rawgeti(L, -1, (lua_Integer)i) != LUA_TSTRING) luaL_error(L, "'remove' must be a list of keys");
      mtx_gguf_remove(w, lua_tostring(L, -1));
      lua_pop(L, 1);
    }
  }
  return code;
}

static mtx_code collect(lua_State *L, mtx_gguf_writer *w, int i_box, mtx_err *err) {
  mtx_code code = MTX_OK;
  int top = lua_gettop(L);
  bool with_tensors = !list_field(L, "tensors");
  if (raw_field(L, 1, "from") != LUA_TNIL) code = collect_from(L, w, i_box, with_tensors, err);
  lua_settop(L, top);
  if (list_field(L, "kv"))
    for (lua_Unsigned i = 1; code == MTX_OK && i <= lua_rawlen(L, top + 1); i++) {
      lua_rawgeti(L, top + 1, (lua_Integer)i);
      code = put_entry(L, w, err);
      lua_settop(L, top + 1);
    }
  lua_settop(L, top);
  if (list_field(L, "tensors"))
    for (lua_Unsigned i = 1; code == MTX_OK && i <= lua_rawlen(L, top + 1); i++) {
      lua_rawgeti(L, top + 1, (lua_Integer)i);
      code = add_tensor(L, w, i_box, err);
      lua_settop(L, top + 1);
    }
  lua_settop(L, top);
  return code;
}

// check_pins(box): raises when a file whose tensors were collected has been closed, by a finaliser or by args.progress.
static int check_pins(lua_State *L) {
  lua_getiuservalue(L, 1, 1);
  for (lua_Unsigned i = lua_rawlen(L, -1); i > 0; i--) {
    lua_rawgeti(L, -1, (lua_Integer)i);
    mtx_bind_test_gguf(L, -1);
    lua_pop(L, 1);
  }
  return 0;
}

static void push_check(lua_State *L, int i_box) {
  lua_pushcfunction(L, check_pins);
  lua_pushvalue(L, i_box);
}

// Calls args.progress; a fault of it, or a file that it closed, ends the writing. That error is then on top of the stack.
typedef struct { lua_State *L; int i_box; bool failed; } progress;

static bool on_progress(void *user, uint64_t done, uint64_t total) {
  progress *p = user;
  raw_field(p->L, 1, "progress");
  lua_pushinteger(p->L, (lua_Integer)done);
  lua_pushinteger(p->L, (lua_Integer)total);
  p->failed = lua_pcall(p->L, 2, 1, 0) != LUA_OK;
  if (p->failed) return false;
  bool stop = lua_toboolean(p->L, -1);
  lua_pop(p->L, 1);
  push_check(p->L, p->i_box);
  p->failed = lua_pcall(p->L, 1, 0, 0) != LUA_OK;
  return !stop && !p->failed;
}

int mtx_bind_gguf_write(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  const char *path = field_name(L, 1, "path", "gguf.write");
  box *b = lua_newuserdatauv(L, sizeof *b, 1);
  b->w = NULL;
  if (luaL_newmetatable(L, TYPE)) {
    lua_pushcfunction(L, l_writer_gc);
    lua_setfield(L, -2, "__gc");
  }
  lua_setmetatable(L, -2);
  lua_newtable(L);
  lua_setiuservalue(L, 3, 1);
  mtx_err err;
  mtx_code code = mtx_gguf_writer_new(&b->w, &err);
  if (code == MTX_OK) code = collect(L, b->w, 3, &err);
  progress p = {L, 3, false};
  if (code == MTX_OK && raw_field(L, 1, "progress") == LUA_TFUNCTION) mtx_gguf_on_progress(b->w, on_progress, &p);
  push_check(L, 3);
  lua_call(L, 1, 0);
  if (code == MTX_OK) code = mtx_gguf_write(b->w, path, &err);
  mtx_gguf_writer *w = b->w;
  b->w = NULL;
  mtx_gguf_writer_free(w);
  if (p.failed) return lua_error(L);
  if (code != MTX_OK) return mtx_bind_fail(L, &err);
  lua_pushboolean(L, 1);
  return 1;
}
