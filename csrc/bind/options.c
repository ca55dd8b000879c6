// SPDX-License-Identifier: MIT
// Option tables: see options.h.
#include "bind/options.h"

#include <math.h>
#include <string.h>
#include <time.h>

int64_t mtx_opt_integer(lua_State *L, int idx, const char *name, int64_t def) {
  if (!lua_istable(L, idx)) return def;
  int type = lua_getfield(L, idx, name), ok;
  lua_Integer v = lua_tointegerx(L, -1, &ok);
  lua_pop(L, 1);
  if (type == LUA_TNIL) return def;
  if (!ok || type != LUA_TNUMBER) luaL_error(L, "option '%s' must be a whole number", name);
  return v;
}

double mtx_opt_number(lua_State *L, int idx, const char *name, double def) {
  if (!lua_istable(L, idx)) return def;
  int type = lua_getfield(L, idx, name);
  lua_Number v = lua_tonumber(L, -1);
  lua_pop(L, 1);
  if (type == LUA_TNIL) return def;
  if (type != LUA_TNUMBER) luaL_error(L, "option '%s' must be a number", name);
  return v;
}

bool mtx_opt_bool(lua_State *L, int idx, const char *name, bool def) {
  if (!lua_istable(L, idx)) return def;
  int type = lua_getfield(L, idx, name);
  bool v = lua_toboolean(L, -1);
  lua_pop(L, 1);
  if (type == LUA_TNIL) return def;
  if (type != LUA_TBOOLEAN) luaL_error(L, "option '%s' must be true or false", name);
  return v;
}

const char *mtx_opt_string(lua_State *L, int idx, const char *name, size_t *len) {
  if (len) *len = 0;
  if (!lua_istable(L, idx)) return NULL;
  int type = lua_getfield(L, idx, name);
  const char *s = type == LUA_TSTRING ? lua_tolstring(L, -1, len) : NULL;
  lua_pop(L, 1);
  if (type != LUA_TNIL && type != LUA_TSTRING) luaL_error(L, "option '%s' must be a string", name);
  return s;
}

mtx_code mtx_opt_kv_type(lua_State *L, int idx, mtx_kv_type *out, mtx_err *err) {
  *out = MTX_KV_F16;
  const char *name = mtx_opt_string(L, idx, "kv_type", NULL);
  if (!name || mtx_kv_type_parse(name, out)) return MTX_OK;
  return mtx_fail(err, MTX_EINVAL, "no KV cache type is called '%s' (f32, f16, bf16, q8_0)", name);
}

void *mtx_scratch(lua_State *L, size_t n) { return lua_newuserdatauv(L, n ? n : 1, 0); }

const int32_t *mtx_check_ids(lua_State *L, int idx, int64_t *n) {
  luaL_checktype(L, idx, LUA_TTABLE);
  *n = luaL_len(L, idx);
  int32_t *ids = mtx_scratch(L, (size_t)*n * sizeof *ids);
  for (int64_t i = 0; i < *n; i++) {
    int ok;
    lua_rawgeti(L, idx, i + 1);
    lua_Integer v = lua_tointegerx(L, -1, &ok);
    lua_pop(L, 1);
    if (!ok) luaL_argerror(L, idx, "token ids must be whole numbers");
    ids[i] = v < 0 || v > INT32_MAX ? -1 : (int32_t)v;  // -1 is refused where it is used
  }
  return ids;
}

static int32_t int_option(lua_State *L, int idx, const char *name, int32_t def) {
  int64_t v = mtx_opt_integer(L, idx, name, def);
  return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (int32_t)v;
}

static uint64_t fresh_seed(void) {
  struct timespec t;
  static _Thread_local uint64_t counter;
  clock_gettime(CLOCK_REALTIME, &t);
  return ((uint64_t)t.tv_sec * 1000000007u) ^ ((uint64_t)t.tv_nsec << 20) ^ ++counter;
}

// The bias on top of the stack: a number, or {number, tokens it acts on}.
static bool bias_value(lua_State *L, mtx_logit_bias *b) {
  b->n_tokens = 0;
  if (lua_type(L, -1) == LUA_TNUMBER) {
    b->bias = (float)lua_tonumber(L, -1);
    return true;
  }
  if (!lua_istable(L, -1)) return false;
  int ok = lua_rawgeti(L, -1, 1) == LUA_TNUMBER;
  b->bias = (float)lua_tonumber(L, -1);
  ok &= lua_rawgeti(L, -2, 2) == LUA_TNUMBER;
  lua_Integer n = lua_tointeger(L, -1);
  lua_pop(L, 2);
  b->n_tokens = (int32_t)n;
  return ok && n >= 1 && n <= INT32_MAX;
}

// logit_bias = {[id] = number or {number, n_tokens}}
static void read_bias(lua_State *L, int idx, mtx_sampler_opts *o) {
  if (lua_getfield(L, idx, "logit_bias") == LUA_TNIL) {
    lua_pop(L, 1);
    return;
  }
  if (!lua_istable(L, -1)) luaL_error(L, "option 'logit_bias' must be a table {[id] = number}");
  int t = lua_gettop(L);
  int32_t n = 0;
  for (lua_pushnil(L); lua_next(L, t); lua_pop(L, 1)) n++;
  mtx_logit_bias *bias = mtx_scratch(L, (size_t)n * sizeof *bias);
  n = 0;
  for (lua_pushnil(L); lua_next(L, t); lua_pop(L, 1)) {
    mtx_logit_bias *b = &bias[n++];
    if (!lua_isinteger(L, -2) || !bias_value(L, b)) luaL_error(L, "option 'logit_bias' must be a table {[id] = number or {number, tokens}}");
    lua_Integer id = lua_tointeger(L, -2);
    b->id = id < 0 || id > INT32_MAX ? -1 : (int32_t)id;
  }
  o->logit_bias = bias;
  o->n_logit_bias = n;
}

static void read_order(lua_State *L, int idx, mtx_sampler_opts *o) {
  if (lua_getfield(L, idx, "order") != LUA_TNIL) {
    if (!lua_istable(L, -1)) luaL_error(L, "option 'order' must be a list of sampler names");
    o->n_order = 0;
    lua_Integer n = luaL_len(L, -1);
    for (lua_Integer i = 1; i <= n; i++) {
      lua_rawgeti(L, -1, i);
      const char *name = lua_tostring(L, -1);
      mtx_stage stage;
      if (!name || !mtx_stage_parse(name, &stage)) luaL_error(L, "option 'order': no sampler is called '%s'", name ? name : "?");
      if (o->n_order == MTX_STAGE_N) luaL_error(L, "option 'order' names more than %d samplers", MTX_STAGE_N);
      o->order[o->n_order++] = stage;
      lua_pop(L, 1);
    }
  }
  lua_pop(L, 1);
}

void mtx_check_sampler(lua_State *L, int idx, mtx_sampler_opts *o) {
  mtx_sampler_opts_init(o);
  o->seed = fresh_seed();
  if (lua_isnoneornil(L, idx)) return;
  luaL_checktype(L, idx, LUA_TTABLE);
  static const struct { const char *name; size_t at; } numbers[] = {
      {"temperature", offsetof(mtx_sampler_opts, temperature)},       {"dynatemp_range", offsetof(mtx_sampler_opts, dynatemp_range)},
      {"dynatemp_exponent", offsetof(mtx_sampler_opts, dynatemp_exponent)}, {"top_p", offsetof(mtx_sampler_opts, top_p)},
      {"min_p", offsetof(mtx_sampler_opts, min_p)},                   {"typical_p", offsetof(mtx_sampler_opts, typical_p)},
      {"top_n_sigma", offsetof(mtx_sampler_opts, top_n_sigma)},       {"top_a", offsetof(mtx_sampler_opts, top_a)},
      {"epsilon", offsetof(mtx_sampler_opts, epsilon)},               {"eta", offsetof(mtx_sampler_opts, eta)},
      {"xtc_probability", offsetof(mtx_sampler_opts, xtc_probability)}, {"xtc_threshold", offsetof(mtx_sampler_opts, xtc_threshold)},
      {"repeat_penalty", offsetof(mtx_sampler_opts, repeat_penalty)}, {"presence_penalty", offsetof(mtx_sampler_opts, presence_penalty)},
      {"frequency_penalty", offsetof(mtx_sampler_opts, frequency_penalty)}, {"dry_multiplier", offsetof(mtx_sampler_opts, dry_multiplier)},
      {"dry_base", offsetof(mtx_sampler_opts, dry_base)},             {"mirostat_tau", offsetof(mtx_sampler_opts, mirostat_tau)},
      {"mirostat_eta", offsetof(mtx_sampler_opts, mirostat_eta)},     {"adaptive_target", offsetof(mtx_sampler_opts, adaptive_target)},
      {"adaptive_decay", offsetof(mtx_sampler_opts, adaptive_decay)}};
  static const struct { const char *name; size_t at; } integers[] = {
      {"top_k", offsetof(mtx_sampler_opts, top_k)},           {"repeat_last_n", offsetof(mtx_sampler_opts, repeat_last_n)},
      {"dry_allowed_length", offsetof(mtx_sampler_opts, dry_allowed_length)}, {"dry_last_n", offsetof(mtx_sampler_opts, dry_last_n)},
      {"mirostat", offsetof(mtx_sampler_opts, mirostat)}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    double *v = (double *)((char *)o + numbers[i].at);
    *v = mtx_opt_number(L, idx, numbers[i].name, *v);
  }
  for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
    int32_t *v = (int32_t *)((char *)o + integers[i].at);
    *v = int_option(L, idx, integers[i].name, *v);
  }
  int64_t seed = mtx_opt_integer(L, idx, "seed", -1);
  if (seed >= 0) o->seed = (uint64_t)seed;
  read_order(L, idx, o);
  read_bias(L, idx, o);
  if (lua_getfield(L, idx, "dry_breakers") == LUA_TTABLE) {
    int64_t n;
    o->dry_breakers = mtx_check_ids(L, lua_gettop(L), &n);
    o->n_dry_breakers = (int32_t)n;
  } else {
    lua_pop(L, 1);
  }
}
