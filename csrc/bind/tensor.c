// SPDX-License-Identifier: MIT
// mtx.core.tensor: a vector or matrix of floats. Indices count from 1, as in Lua;
// every access is bounds-checked.
#include "bind/tensor.h"

#include <lauxlib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bind/core.h"
#include "kern/vec.h"
#include "sample/real.h"

#define TYPE "mtx.tensor"

mtx_tensor *mtx_bind_push_tensor(lua_State *L, int64_t rows, int64_t cols) {
  size_t n = 0;
  if (rows < 0 || cols < 0 || __builtin_mul_overflow((size_t)rows, (size_t)cols, &n) || n > SIZE_MAX / 8)
    luaL_error(L, "a tensor of %I x %I floats is too large", (lua_Integer)rows, (lua_Integer)cols);
  mtx_tensor *t = lua_newuserdatauv(L, sizeof *t + n * sizeof(float), 0);
  t->rows = rows;
  t->cols = cols;
  luaL_setmetatable(L, TYPE);
  return t;
}

mtx_tensor *mtx_bind_check_tensor(lua_State *L, int idx) { return luaL_checkudata(L, idx, TYPE); }

static int64_t check_row(lua_State *L, const mtx_tensor *t, int idx) {
  lua_Integer r = luaL_optinteger(L, idx, 1);
  luaL_argcheck(L, r >= 1 && r <= t->rows, idx, "row is outside the tensor");
  return r - 1;
}

static float *row_of(lua_State *L, mtx_tensor *t, int idx) { return t->data + check_row(L, t, idx) * t->cols; }

// t[i]: element i of a vector, row i (a copy) of a matrix; t.name: a method.
static int l_tensor_index(lua_State *L) {
  mtx_tensor *t = luaL_checkudata(L, 1, TYPE);
  if (lua_type(L, 2) != LUA_TNUMBER) {
    luaL_getmetafield(L, 1, "methods");
    lua_pushvalue(L, 2);
    lua_rawget(L, -2);
    return 1;
  }
  lua_Integer i = luaL_checkinteger(L, 2);  // 4 / 2 is a float and an index
  if (t->rows == 1) {
    if (i < 1 || i > t->cols) return luaL_error(L, "index %I is outside a tensor of %I floats", i, (lua_Integer)t->cols);
    lua_pushnumber(L, t->data[i - 1]);
    return 1;
  }
  if (i < 1 || i > t->rows) return luaL_error(L, "row %I is outside a tensor of %I rows", i, (lua_Integer)t->rows);
  mtx_tensor *row = mtx_bind_push_tensor(L, 1, t->cols);
  memcpy(row->data, t->data + (i - 1) * t->cols, (size_t)t->cols * sizeof(float));
  return 1;
}

static int l_tensor_newindex(lua_State *L) {
  mtx_tensor *t = luaL_checkudata(L, 1, TYPE);
  lua_Integer i = luaL_checkinteger(L, 2);
  float x = (float)luaL_checknumber(L, 3);
  if (t->rows != 1) return luaL_error(L, "elements of a matrix are set with t:set(row, column, value)");
  if (i < 1 || i > t->cols) return luaL_error(L, "index %I is outside a tensor of %I floats", i, (lua_Integer)t->cols);
  t->data[i - 1] = x;
  return 0;
}

static int l_tensor_len(lua_State *L) {
  mtx_tensor *t = luaL_checkudata(L, 1, TYPE);
  lua_pushinteger(L, t->rows == 1 ? t->cols : t->rows);
  return 1;
}

static int l_tensor_shape(lua_State *L) {
  mtx_tensor *t = luaL_checkudata(L, 1, TYPE);
  lua_pushinteger(L, t->rows);
  lua_pushinteger(L, t->cols);
  return 2;
}

// set(row, column, value), get(row, column)
static int64_t check_place(lua_State *L, const mtx_tensor *t) {
  lua_Integer r = luaL_checkinteger(L, 2), c = luaL_checkinteger(L, 3);
  luaL_argcheck(L, r >= 1 && r <= t->rows, 2, "row is outside the tensor");
  luaL_argcheck(L, c >= 1 && c <= t->cols, 3, "column is outside the tensor");
  return (r - 1) * t->cols + c - 1;
}

static int l_tensor_set(lua_State *L) {
  mtx_tensor *t = luaL_checkudata(L, 1, TYPE);
  t->data[check_place(L, t)] = (float)luaL_checknumber(L, 4);
  return 0;
}

static int l_tensor_get(lua_State *L) {
  mtx_tensor *t = luaL_checkudata(L, 1, TYPE);
  lua_pushnumber(L, t->data[check_place(L, t)]);
  return 1;
}

// argmax([row]) -> index, value; the lowest index among equals. NaN never wins.
static int l_tensor_argmax(lua_State *L) {
  mtx_tensor *t = luaL_checkudata(L, 1, TYPE);
  const float *x = row_of(L, t, 2);
  int64_t best = 0;
  for (int64_t i = 1; i < t->cols; i++)
    if (x[i] > x[best] || isnan(x[best])) best = i;
  if (t->cols == 0) return 0;
  lua_pushinteger(L, best + 1);
  lua_pushnumber(L, x[best]);
  return 2;
}

typedef struct { float x; int64_t i; } entry;

static int worse(const entry *a, const entry *b) { return a->x < b->x || (a->x == b->x && a->i > b->i); }

static void sift(entry *h, int64_t n, int64_t at) {
  for (int64_t c; (c = 2 * at + 1) < n; at = c) {
    if (c + 1 < n && worse(&h[c + 1], &h[c])) c++;
    if (!worse(&h[c], &h[at])) return;
    entry e = h[c];
    h[c] = h[at];
    h[at] = e;
  }
}

static int by_rank(const void *a, const void *b) { return worse(a, b) ? 1 : -1; }

// topk(n [, row]) -> list of {index, value}, largest first.
static int l_tensor_topk(lua_State *L) {
  mtx_tensor *t = luaL_checkudata(L, 1, TYPE);
  lua_Integer n = luaL_checkinteger(L, 2);
  luaL_argcheck(L, n >= 1, 2, "at least 1");
  const float *x = row_of(L, t, 3);
  if (n > t->cols) n = t->cols;
  entry *h = lua_newuserdatauv(L, (size_t)(n + 1) * sizeof *h, 0);
  int64_t used = 0;
  for (int64_t i = 0; i < t->cols; i++) {
    entry e = {x[i], i};
    if (isnan(e.x)) continue;
    if (used < n) {
      h[used++] = e;
      if (used == n)
        for (int64_t k = n / 2; k >= 0; k--) sift(h, n, k);
    } else if (worse(&h[0], &e)) {
      h[0] = e;
      sift(h, n, 0);
    }
  }
  qsort(h, (size_t)used, sizeof *h, by_rank);
  lua_createtable(L, (int)used, 0);
  for (int64_t i = 0; i < used; i++) {
    lua_createtable(L, 2, 0);
    lua_pushinteger(L, h[i].i + 1);
    lua_rawseti(L, -2, 1);
    lua_pushnumber(L, h[i].x);
    lua_rawseti(L, -2, 2);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

// softmax([temperature]) -> a new tensor, row by row.
static int l_tensor_softmax(lua_State *L) {
  mtx_tensor *t = luaL_checkudata(L, 1, TYPE);
  lua_Number temp = luaL_optnumber(L, 2, 1.0);
  luaL_argcheck(L, temp > 0, 2, "temperature must be above 0");
  mtx_tensor *y = mtx_bind_push_tensor(L, t->rows, t->cols);
  for (int64_t r = 0; r < t->rows; r++) mtx_vec.softmax(t->data + r * t->cols, (float)(1.0 / temp), y->data + r * t->cols, t->cols);
  return 1;
}

// log_softmax_at(row, column) -> log probability, in double, the same on every machine.
static int l_tensor_log_softmax_at(lua_State *L) {
  mtx_tensor *t = luaL_checkudata(L, 1, TYPE);
  int64_t at = check_place(L, t);
  const float *x = t->data + at / t->cols * t->cols;
  double max = -INFINITY, sum = 0;
  for (int64_t i = 0; i < t->cols; i++) max = x[i] > max ? x[i] : max;
  for (int64_t i = 0; i < t->cols; i++) sum += mtx_exp(x[i] - max);
  lua_pushnumber(L, t->data[at] - max - mtx_log(sum));
  return 1;
}

static void push_row(lua_State *L, const float *x, int64_t n) {
  lua_createtable(L, n < (1 << 28) ? (int)n : 0, 0);
  for (int64_t i = 0; i < n; i++) {
    lua_pushnumber(L, x[i]);
    lua_rawseti(L, -2, i + 1);
  }
}

// totable() -> list of numbers, or of lists for a matrix.
static int l_tensor_totable(lua_State *L) {
  mtx_tensor *t = luaL_checkudata(L, 1, TYPE);
  if (t->rows == 1) {
    push_row(L, t->data, t->cols);
    return 1;
  }
  lua_createtable(L, (int)t->rows, 0);
  for (int64_t r = 0; r < t->rows; r++) {
    push_row(L, t->data + r * t->cols, t->cols);
    lua_rawseti(L, -2, r + 1);
  }
  return 1;
}

// bytes() -> little-endian float32, row by row.
static int l_tensor_bytes(lua_State *L) {
  mtx_tensor *t = luaL_checkudata(L, 1, TYPE);
  lua_pushlstring(L, (const char *)t->data, (size_t)(t->rows * t->cols) * sizeof(float));
  return 1;
}

static int l_tensor_tostring(lua_State *L) {
  mtx_tensor *t = luaL_checkudata(L, 1, TYPE);
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  char text[64];
  luaL_addlstring(&b, text, (size_t)snprintf(text, sizeof text, "tensor %lld x %lld {", (long long)t->rows, (long long)t->cols));
  int64_t n = t->rows * t->cols;
  for (int64_t i = 0; i < n && i < 6; i++) luaL_addlstring(&b, text, (size_t)snprintf(text, sizeof text, "%s%.4g", i ? ", " : "", t->data[i]));
  luaL_addstring(&b, n > 6 ? ", ...}" : "}");
  luaL_pushresult(&b);
  return 1;
}

// tensor(list) or tensor(n): a vector of these numbers, or of n zeros.
static int l_tensor_new(lua_State *L) {
  if (lua_isinteger(L, 1)) {
    lua_Integer n = lua_tointeger(L, 1);
    luaL_argcheck(L, n >= 0, 1, "length must not be negative");
    mtx_tensor *t = mtx_bind_push_tensor(L, 1, n);
    memset(t->data, 0, (size_t)n * sizeof(float));
    return 1;
  }
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_Integer n = luaL_len(L, 1);
  mtx_tensor *t = mtx_bind_push_tensor(L, 1, n);
  for (lua_Integer i = 0; i < n; i++) {
    lua_rawgeti(L, 1, i + 1);
    int ok;
    t->data[i] = (float)lua_tonumberx(L, -1, &ok);
    luaL_argcheck(L, ok, 1, "a list of numbers is needed");
    lua_pop(L, 1);
  }
  return 1;
}

int mtx_bind_tensor(lua_State *L) {
  static const luaL_Reg meta[] = {
      {"__index", l_tensor_index}, {"__newindex", l_tensor_newindex}, {"__len", l_tensor_len}, {"__tostring", l_tensor_tostring}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"shape", l_tensor_shape},     {"get", l_tensor_get},         {"set", l_tensor_set},
      {"argmax", l_tensor_argmax},   {"topk", l_tensor_topk},       {"softmax", l_tensor_softmax},
      {"totable", l_tensor_totable}, {"bytes", l_tensor_bytes},     {"log_softmax_at", l_tensor_log_softmax_at},
      {NULL, NULL}};
  luaL_newmetatable(L, TYPE);
  luaL_setfuncs(L, meta, 0);
  luaL_newlib(L, methods);
  lua_setfield(L, -2, "methods");
  lua_pop(L, 1);
  lua_pushcfunction(L, l_tensor_new);
  return 1;
}
