// SPDX-License-Identifier: MIT
// mtx.core.engine: requests in, events out. One engine runs one model on a thread
// of its own; nothing here waits for it except wait() and embed().
#include "bind/engine.h"

#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

#include "bind/core.h"
#include "bind/grammar.h"
#include "bind/model.h"
#include "bind/options.h"
#include "bind/script.h"

#define TYPE "mtx.engine"

// User value 1 pins the model.
typedef struct {
  mtx_bind_engine pub;
  mtx_bind_model *model;
} handle;

static handle *check(lua_State *L, int idx) {
  handle *h = luaL_checkudata(L, idx, TYPE);
  if (!h->pub.engine) luaL_argerror(L, idx, "the engine is closed");
  return h;
}

mtx_bind_engine *mtx_bind_check_engine(lua_State *L, int idx) { return &check(L, idx)->pub; }

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
                       .cache_bytes = (uint64_t)mtx_opt_integer(L, 2, "cache_bytes", 0),
                       .kv_type = MTX_KV_F16};
  const char *kv = mtx_opt_string(L, 2, "kv_type", NULL);
  mtx_err err;
  if (kv && !mtx_kv_type_parse(kv, &o.kv_type)) {
    mtx_fail(&err, MTX_EINVAL, "no KV cache type is called '%s' (f32, f16, bf16, q8_0)", kv);
    return mtx_bind_fail(L, &err);
  }
  handle *h = lua_newuserdatauv(L, sizeof *h, 1);
  *h = (handle){0};
  luaL_setmetatable(L, TYPE);
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, 1);
  if (mtx_engine_open(&h->pub.engine, m->model, m->tok, &o, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  h->pub.n_out = mtx_model_get_info(m->model)->n_out;
  h->model = m;
  m->n_users++;
  return 1;
}

mtx_engine *mtx_bind_take_engine(lua_State *L, int idx) {
  handle *h = luaL_checkudata(L, idx, TYPE);
  if (h->pub.n_sessions > 0) luaL_error(L, "close the engine's sessions first");
  mtx_engine *e = h->pub.engine;
  if (e) h->model->n_users--;
  *h = (handle){0};
  return e;
}

static int l_engine_close(lua_State *L) {
  mtx_engine_close(mtx_bind_take_engine(L, 1));
  return 0;
}

static int l_engine_gc(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, TYPE);
  return h->pub.n_sessions > 0 ? 0 : l_engine_close(L);
}

// ---- submit ------------------------------------------------------------------------

typedef struct {
  const char **ptr;
  size_t *len;
  int n;
} strings;

// The list of strings in field `name`; its arrays stay on the stack.
static strings string_list(lua_State *L, int idx, const char *name) {
  strings s = {0};
  if (lua_getfield(L, idx, name) == LUA_TNIL) return s;
  if (!lua_istable(L, -1)) luaL_error(L, "option '%s' must be a list of strings", name);
  int list = lua_gettop(L);
  lua_Integer n = luaL_len(L, list);
  if (n > 4096) luaL_error(L, "option '%s' lists more than 4096 strings", name);
  s.ptr = mtx_scratch(L, (size_t)n * sizeof *s.ptr);
  s.len = mtx_scratch(L, (size_t)n * sizeof *s.len);
  for (lua_Integer i = 0; i < n; i++) {
    if (lua_rawgeti(L, list, i + 1) != LUA_TSTRING) luaL_error(L, "option '%s' must be a list of strings", name);
    s.ptr[i] = lua_tolstring(L, -1, &s.len[i]);  // the list keeps it alive
    lua_pop(L, 1);
  }
  s.n = (int)n;
  return s;
}

// Field grammar = a compiled grammar; grammar_triggers = free text up to one of these;
// grammar_opening = the text that alone enters that free text.
static mtx_code matcher_of(lua_State *L, handle *h, mtx_matcher **out, mtx_err *err) {
  *out = NULL;
  if (lua_getfield(L, 2, "grammar") == LUA_TNIL) return MTX_OK;
  mtx_grammar *g = mtx_bind_check_grammar(L, lua_gettop(L));
  strings t = string_list(L, 2, "grammar_triggers");
  mtx_matcher_opts o = {.triggers = t.ptr, .trigger_lens = t.len, .n_triggers = (size_t)t.n,
                        .trigger_optional = mtx_opt_bool(L, 2, "grammar_optional", false), .skip_ws = t.n > 0};
  if (t.n) o.opening = mtx_opt_string(L, 2, "grammar_opening", &o.opening_len);
  mtx_vocab_trie *trie;
  mtx_code code = mtx_bind_model_trie(h->model, &trie, err);
  return code ? code : mtx_matcher_new(g, trie, &o, out, err);
}

// submit(request) -> id. Fields: see lua/mtx/meta/core.lua.
static int l_engine_submit(lua_State *L) {
  handle *h = check(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_settop(L, 2);
  mtx_request r;
  mtx_request_init(&r);
  lua_getfield(L, 2, "tokens");
  r.tokens = mtx_check_ids(L, lua_gettop(L), &r.n_tokens);
  r.max_tokens = mtx_opt_integer(L, 2, "max_tokens", INT32_MAX);
  mtx_sampler_opts sampler;
  lua_getfield(L, 2, "sampler");
  mtx_check_sampler(L, lua_gettop(L), &sampler);
  r.sampler = &sampler;
  strings stop = string_list(L, 2, "stop"), ban = string_list(L, 2, "banned_strings");
  r.stops = stop.ptr, r.stop_lens = stop.len, r.n_stops = stop.n;
  r.bans = ban.ptr, r.ban_lens = ban.len, r.n_bans = ban.n;
  r.logprobs = (int)mtx_opt_integer(L, 2, "logprobs", -1);
  r.prompt_logprobs = (int)mtx_opt_integer(L, 2, "prompt_logprobs", -1);
  r.priority = (int)mtx_opt_integer(L, 2, "priority", 0);
  r.deadline_ms = mtx_opt_integer(L, 2, "deadline_ms", 0);
  r.cache_key = mtx_opt_string(L, 2, "cache_key", NULL);
  r.ignore_eos = mtx_opt_bool(L, 2, "ignore_eos", false);
  r.progress = mtx_opt_bool(L, 2, "progress", false);
  if (lua_getfield(L, 2, "shown") != LUA_TNIL) {
    int64_t n;
    r.shown = mtx_check_ids(L, lua_gettop(L), &n);
    luaL_argcheck(L, n <= 64, 2, "option 'shown' lists more than 64 tokens");
    r.n_shown = (int)n;
  }
  r.cfg_scale = mtx_opt_number(L, 2, "cfg_scale", 1);
  if (lua_getfield(L, 2, "negative") != LUA_TNIL) r.negative = mtx_check_ids(L, lua_gettop(L), &r.n_negative);
  mtx_err err;
  int64_t id;
  mtx_token_hook *hook = mtx_bind_script_hook(L, 2);
  if (matcher_of(L, h, &r.matcher, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  r.hook = *hook;  // from here on nothing raises
  *hook = (mtx_token_hook){0};
  if (mtx_engine_submit(h->pub.engine, &r, &id, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  lua_pushinteger(L, id);
  lua_pushinteger(L, (lua_Integer)(sampler.seed & INT64_MAX));
  return 2;
}

static int l_engine_cancel(lua_State *L) {
  mtx_engine_cancel(check(L, 1)->pub.engine, luaL_checkinteger(L, 2));
  return 0;
}

// ---- events ------------------------------------------------------------------------

static void set_number(lua_State *L, const char *name, double v) {
  lua_pushnumber(L, v);
  lua_setfield(L, -2, name);
}

static void push_top(lua_State *L, const mtx_event *ev, const mtx_token_logprob *t) {
  lua_createtable(L, t->n_top, 0);
  for (int32_t i = 0; i < t->n_top; i++) {
    const mtx_logprob *p = &ev->top[t->top + (size_t)i];
    lua_createtable(L, 0, 2);
    mtx_bind_set_integer(L, "id", p->id);
    set_number(L, "logprob", p->logprob);
    lua_rawseti(L, -2, i + 1);
  }
}

static void push_logprobs(lua_State *L, const mtx_event *ev) {
  lua_createtable(L, (int)ev->n_logprobs, 0);
  for (size_t i = 0; i < ev->n_logprobs; i++) {
    lua_createtable(L, 0, 3);
    mtx_bind_set_integer(L, "id", ev->logprobs[i].id);
    set_number(L, "logprob", ev->logprobs[i].logprob);
    push_top(L, ev, &ev->logprobs[i]);
    lua_setfield(L, -2, "top");
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

// A list of n vectors of `width` numbers each.
static void push_vectors(lua_State *L, const float *v, int64_t n, int64_t width) {
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

static void push_done(lua_State *L, const mtx_event *ev) {
  lua_pushstring(L, mtx_done_reason_name(ev->reason));
  lua_setfield(L, -2, "reason");
  mtx_bind_set_integer(L, "n_generated", ev->n_generated);
  set_number(L, "t_queue_ms", ev->t_queue_ms);
  set_number(L, "t_prefill_ms", ev->t_prefill_ms);
  set_number(L, "t_decode_ms", ev->t_decode_ms);
  if (ev->vectors && ev->reason == MTX_DONE_STOP) {
    push_vectors(L, ev->vectors, ev->n_vectors, ev->vector_len);
    lua_setfield(L, -2, "vectors");
  }
  if (ev->reason == MTX_DONE_STOP_STRING) {
    lua_pushlstring(L, ev->text.ptr ? ev->text.ptr : "", ev->text.len);
    lua_setfield(L, -2, "stop_string");
  }
  if (ev->reason == MTX_DONE_ERROR) {
    lua_pushstring(L, ev->message);
    lua_setfield(L, -2, "message");
    lua_pushstring(L, ev->code ? ev->code : "internal");
    lua_setfield(L, -2, "code");
  }
}

static void push_event(lua_State *L, const mtx_event *ev) {
  static const char *const kinds[] = {[MTX_EVENT_START] = "start", [MTX_EVENT_PROGRESS] = "progress", [MTX_EVENT_TOKEN] = "token", [MTX_EVENT_DONE] = "done"};
  lua_createtable(L, 0, 10);
  mtx_bind_set_integer(L, "id", ev->id);
  lua_pushstring(L, kinds[ev->kind]);
  lua_setfield(L, -2, "kind");
  if (ev->kind == MTX_EVENT_TOKEN) {
    lua_pushlstring(L, ev->text.ptr ? ev->text.ptr : "", ev->text.len);
    lua_setfield(L, -2, "text");
    lua_createtable(L, (int)ev->tokens.len, 0);
    for (size_t i = 0; i < ev->tokens.len; i++) {
      lua_pushinteger(L, ev->tokens.ptr[i]);
      lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_setfield(L, -2, "tokens");
  } else {
    mtx_bind_set_integer(L, "n_prompt", ev->n_prompt);
    mtx_bind_set_integer(L, "n_cached", ev->n_cached);
  }
  if (ev->kind == MTX_EVENT_PROGRESS) {
    mtx_bind_set_integer(L, "n_processed", ev->n_processed);
    set_number(L, "t_prefill_ms", ev->t_prefill_ms);
  }
  if (ev->n_logprobs) {
    push_logprobs(L, ev);
    lua_setfield(L, -2, "logprobs");
  }
  if (ev->kind == MTX_EVENT_DONE) push_done(L, ev);
}

// Owns a list of events while they become tables, which may raise.
static int l_events_gc(lua_State *L) {
  mtx_event **list = lua_touserdata(L, 1);
  mtx_event *ev = *list;
  *list = NULL;
  mtx_event_free(ev);
  return 0;
}

// drain() -> list of events since last time, maybe empty.
static int l_engine_drain(lua_State *L) {
  handle *h = check(L, 1);
  mtx_event **owned = lua_newuserdatauv(L, sizeof *owned, 0);
  *owned = NULL;
  luaL_setmetatable(L, "mtx.events");
  lua_newtable(L);
  *owned = mtx_engine_take(h->pub.engine);
  lua_Integer n = 0;
  for (const mtx_event *ev = *owned; ev; ev = ev->next) {
    push_event(L, ev);
    lua_rawseti(L, -2, ++n);
  }
  mtx_event *ev = *owned;
  *owned = NULL;
  mtx_event_free(ev);
  return 1;
}

static int l_engine_fd(lua_State *L) {
  lua_pushinteger(L, mtx_engine_fd(check(L, 1)->pub.engine));
  return 1;
}

// wait([ms]) -> true when events wait, false after ms.
static int l_engine_wait(lua_State *L) {
  lua_pushboolean(L, mtx_engine_wait(check(L, 1)->pub.engine, luaL_optinteger(L, 2, -1)));
  return 1;
}

// ---- policy, statistics, embeddings --------------------------------------------------

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
  handle *h = check(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  mtx_policy p = {.step_tokens = (int)mtx_opt_integer(L, 2, "step_tokens", 0), .prefill_tokens = (int)mtx_opt_integer(L, 2, "prefill_tokens", 0),
                  .prefill_ratio = mtx_opt_number(L, 2, "prefill_ratio", 0)};
  p.order = id_list(L, 2, "order", &p.n_order);
  p.preempt = id_list(L, 2, "preempt", &p.n_preempt);
  mtx_err err;
  if (mtx_engine_set_policy(h->pub.engine, &p, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  lua_pushboolean(L, 1);
  return 1;
}

static int l_engine_set_threads(lua_State *L) {
  mtx_engine_set_threads(check(L, 1)->pub.engine, (int)luaL_checkinteger(L, 2));
  return 0;
}

// stats([check]) -> table of counters.
static int l_engine_stats(lua_State *L) {
  handle *h = check(L, 1);
  mtx_engine_stats s;
  mtx_engine_get_stats(h->pub.engine, &s, lua_toboolean(L, 2));
  lua_createtable(L, 0, 26);
  const struct { const char *name; int64_t v; } fields[] = {
      {"n_waiting", s.n_waiting}, {"n_running", s.n_prefill + s.n_decode}, {"n_prefill", s.n_prefill}, {"n_decode", s.n_decode},
      {"n_parked", s.n_parked}, {"n_sessions", s.n_sessions}, {"pages_total", s.n_pages}, {"pages_free", s.n_pages_free},
      {"pages_shared", s.n_pages_shared}, {"cache_entries", s.n_cache_entries}, {"cache_bytes", (int64_t)s.cache_bytes},
      {"page_bytes", (int64_t)s.kv_page_bytes}, {"n_submitted", s.n_submitted}, {"n_finished", s.n_finished}, {"n_cancelled", s.n_cancelled},
      {"n_failed", s.n_failed}, {"n_preempted", s.n_preempted}, {"n_prompt_tokens", s.n_prompt_tokens}, {"n_cached_tokens", s.n_cached_tokens},
      {"n_generated_tokens", s.n_generated_tokens}, {"n_steps", s.n_steps}, {"n_rows", s.n_rows}, {"last_rows", s.last_rows},
      {"n_ctx", mtx_engine_n_ctx(h->pub.engine)}};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) mtx_bind_set_integer(L, fields[i].name, fields[i].v);
  set_number(L, "busy_ms", s.t_busy_ms);
  lua_pushboolean(L, s.kv_ok);
  lua_setfield(L, -2, "kv_ok");
  return 1;
}

// profile(on) -> list of {op, ns, calls, bytes} since the last call.
static int l_engine_profile(lua_State *L) {
  handle *h = check(L, 1);
  mtx_profile_row rows[64];
  int n = mtx_engine_profile(h->pub.engine, lua_toboolean(L, 2), rows, 64);
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
} embed_args;

// (engine, list of id lists [, {pooling, normalize}]); the arrays stay on the stack.
static embed_args check_embed(lua_State *L) {
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_settop(L, 3);
  embed_args a = {.pooling = pooling_of(L, 3), .normalize = mtx_opt_bool(L, 3, "normalize", true)};
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

// embed(list of id lists [, {pooling, normalize}]) -> list of vectors (pooling "none": of
// lists of vectors, one per token). Blocks.
static int l_engine_embed(lua_State *L) {
  handle *h = check(L, 1);
  embed_args a = check_embed(L);
  int64_t width = mtx_model_get_info(h->model->model)->n_embed, n_rows = a.n;
  if (a.pooling == MTX_POOL_NONE) {
    n_rows = 0;
    for (int i = 0; i < a.n; i++) n_rows += a.lens[i];
  }
  float *out = mtx_scratch(L, (size_t)(n_rows * width) * sizeof *out);
  mtx_err err;
  if (mtx_engine_embed(h->pub.engine, a.ids, a.lens, a.n, a.pooling, a.normalize, out, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  if (a.pooling != MTX_POOL_NONE) {
    push_vectors(L, out, n_rows, width);
    return 1;
  }
  lua_createtable(L, a.n, 0);
  for (int i = 0; i < a.n; i++) {
    push_vectors(L, out, a.lens[i], width);
    lua_rawseti(L, -2, i + 1);
    out += a.lens[i] * width;
  }
  return 1;
}

// embed_submit(list of id lists [, {pooling, normalize}]) -> id; a done event brings `vectors`
// (pooling "none": those of all tokens, input after input).
static int l_engine_embed_submit(lua_State *L) {
  handle *h = check(L, 1);
  embed_args a = check_embed(L);
  int64_t id;
  mtx_err err;
  if (mtx_engine_embed_submit(h->pub.engine, a.ids, a.lens, a.n, a.pooling, a.normalize, &id, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  lua_pushinteger(L, id);
  return 1;
}

int mtx_bind_engine_open(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_engine_gc}, {"__close", l_engine_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"submit", l_engine_submit},   {"cancel", l_engine_cancel},       {"drain", l_engine_drain},
                                     {"fd", l_engine_fd},           {"wait", l_engine_wait},           {"set_policy", l_engine_set_policy},
                                     {"stats", l_engine_stats},     {"set_threads", l_engine_set_threads}, {"embed", l_engine_embed},
                                     {"embed_submit", l_engine_embed_submit},
                                     {"session", mtx_bind_engine_session}, {"eval", mtx_bind_engine_eval}, {"profile", l_engine_profile}, {"close", l_engine_close},
                                     {"save_prefix", mtx_bind_engine_save_prefix}, {"load_prefix", mtx_bind_engine_load_prefix},
                                     {"forget_prefix", mtx_bind_engine_forget_prefix}, {"set_disk", mtx_bind_engine_set_disk}, {NULL, NULL}};
  static const luaL_Reg events_meta[] = {{"__gc", l_events_gc}, {NULL, NULL}};
  static const luaL_Reg functions[] = {{"open", l_engine_open}, {NULL, NULL}};
  mtx_bind_new_type(L, "mtx.events", events_meta, NULL);
  mtx_bind_session_type(L);
  mtx_bind_new_type(L, TYPE, meta, methods);
  luaL_newlib(L, functions);
  return 1;
}
