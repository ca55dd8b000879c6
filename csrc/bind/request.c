// SPDX-License-Identifier: MIT
// engine:submit: a table that describes a request, handed to the engine.
#include <lauxlib.h>

#include "bind/adapter.h"
#include "bind/core.h"
#include "bind/engine.h"
#include "bind/grammar.h"
#include "bind/model.h"
#include "bind/options.h"
#include "bind/script.h"

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
static mtx_code matcher_of(lua_State *L, mtx_bind_engine *h, mtx_matcher **out, mtx_err *err) {
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

// Field draft = {max, min_match, fixed}: drafts by lookup; reference = ids of a text that the reply may repeat.
static void draft_of(lua_State *L, mtx_request *r) {
  int type = lua_getfield(L, 2, "draft"), idx = lua_gettop(L);
  if (type == LUA_TNIL) return;
  if (type != LUA_TTABLE) luaL_error(L, "option 'draft' must be a table {max, min_match, fixed}");
  int64_t max = mtx_opt_integer(L, idx, "max", MTX_DRAFT_MAX), match = mtx_opt_integer(L, idx, "min_match", MTX_DRAFT_MIN_MATCH);
  r->draft = (mtx_draft_opts){.max = max < 1 || max > INT32_MAX ? -1 : (int)max, .min_match = match < 1 || match > INT32_MAX ? -1 : (int)match,  // refused by the engine
                              .fixed = mtx_opt_bool(L, idx, "fixed", false)};
  if (lua_getfield(L, 2, "reference") != LUA_TNIL) r->reference = mtx_check_ids(L, lua_gettop(L), &r->n_reference);
}

// submit(request) -> id. Fields: see lua/mtx/meta/core.lua.
int mtx_bind_engine_submit(lua_State *L) {
  mtx_bind_engine *h = mtx_bind_check_engine(L, 1);
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
  r.lora = mtx_bind_opt_lora(L, 2, "lora");
  r.ignore_eos = mtx_opt_bool(L, 2, "ignore_eos", false);
  r.resumable = mtx_opt_bool(L, 2, "resumable", false);
  r.rest = mtx_opt_string(L, 2, "rest", &r.n_rest);
  r.progress = mtx_opt_bool(L, 2, "progress", false);
  if (lua_getfield(L, 2, "shown") != LUA_TNIL) {
    int64_t n;
    r.shown = mtx_check_ids(L, lua_gettop(L), &n);
    luaL_argcheck(L, n <= 64, 2, "option 'shown' lists more than 64 tokens");
    r.n_shown = (int)n;
  }
  r.cfg_scale = mtx_opt_number(L, 2, "cfg_scale", 1);
  if (lua_getfield(L, 2, "negative") != LUA_TNIL) r.negative = mtx_check_ids(L, lua_gettop(L), &r.n_negative);
  draft_of(L, &r);
  mtx_err err;
  int64_t id;
  mtx_token_hook *hook = mtx_bind_script_hook(L, 2);
  if (matcher_of(L, h, &r.matcher, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  r.hook = *hook;  // from here on nothing raises
  *hook = (mtx_token_hook){0};
  if (mtx_engine_submit(h->engine, &r, &id, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  lua_pushinteger(L, id);
  lua_pushinteger(L, (lua_Integer)(sampler.seed & INT64_MAX));
  return 2;
}
