// SPDX-License-Identifier: MIT
// mtx.core.grammar: what a model may say, compiled from GBNF, JSON Schema, a regex
// or a list of choices. A grammar is immutable and may serve many requests.
#include "bind/grammar.h"

#include <lauxlib.h>

#include "bind/core.h"
#include "bind/options.h"

#define TYPE "mtx.grammar"

typedef struct { mtx_grammar *g; } handle;

mtx_grammar *mtx_bind_check_grammar(lua_State *L, int idx) {
  handle *h = luaL_checkudata(L, idx, TYPE);
  if (!h->g) luaL_argerror(L, idx, "the grammar is closed");
  return h->g;
}

static handle *push_handle(lua_State *L) {
  handle *h = lua_newuserdatauv(L, sizeof *h, 0);
  h->g = NULL;
  luaL_setmetatable(L, TYPE);
  return h;
}

// What a rule of gbnf's table is: the text of a JSON Schema, {schema = it, stop = text} for its
// strings as plain text, or {inside = regex}. The table keeps the strings alive.
static void schema_rule(lua_State *L, mtx_schema_rule *r) {
  luaL_argcheck(L, lua_type(L, -2) == LUA_TSTRING && (lua_type(L, -1) == LUA_TSTRING || lua_istable(L, -1)), 2, "a table of rule = schema text is needed");
  *r = (mtx_schema_rule){.as_text = lua_istable(L, -1)};
  r->name = lua_tolstring(L, -2, &r->name_len);
  if (!r->as_text) {
    r->text = lua_tolstring(L, -1, &r->len);
    return;
  }
  r->inside = lua_getfield(L, -1, "inside") == LUA_TSTRING;
  r->as_text = !r->inside;
  if (!r->inside) {
    lua_pop(L, 1);
    luaL_argcheck(L, lua_getfield(L, -1, "schema") == LUA_TSTRING, 2, "{schema = text, stop = text} or {inside = regex} is needed");
  }
  r->text = lua_tolstring(L, -1, &r->len);
  lua_pop(L, 1);
  const int type = lua_getfield(L, -1, "stop");
  luaL_argcheck(L, type == LUA_TSTRING || type == LUA_TNIL, 2, "stop must be a string");
  if (type == LUA_TSTRING) r->stop = lua_tolstring(L, -1, &r->stop_len);
  lua_pop(L, 1);
}

// gbnf(text [, {rule = JSON Schema text, {schema = it, stop = text} or {inside = regex}}]) -> grammar
static int l_grammar_gbnf(lua_State *L) {
  size_t n, n_schemas = 0;
  const char *text = luaL_checklstring(L, 1, &n);
  mtx_schema_rule *rules = NULL;
  if (!lua_isnoneornil(L, 2)) {
    luaL_checktype(L, 2, LUA_TTABLE);
    for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) n_schemas++;
    rules = mtx_scratch(L, n_schemas * sizeof *rules);
    mtx_schema_rule *r = rules;
    for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1), r++) schema_rule(L, r);
  }
  handle *h = push_handle(L);
  mtx_err err;
  return mtx_grammar_compile_mixed(text, n, rules, n_schemas, NULL, &h->g, &err) == MTX_OK ? 1 : mtx_bind_fail(L, &err);
}

static int l_grammar_regex(lua_State *L) {
  size_t n;
  const char *text = luaL_checklstring(L, 1, &n);
  handle *h = push_handle(L);
  mtx_err err;
  return mtx_grammar_compile_regex(text, n, &h->g, &err) == MTX_OK ? 1 : mtx_bind_fail(L, &err);
}

// schema(json_text [, {ws = "space"|"none"|"any", strict, any_order, open_types, open_keys}]) -> grammar
static int l_grammar_schema(lua_State *L) {
  size_t n, len;
  const char *text = luaL_checklstring(L, 1, &n);
  static const char *const names[] = {"space", "none", "any"};
  mtx_schema_opts o = {.strict = mtx_opt_bool(L, 2, "strict", false), .any_order = mtx_opt_bool(L, 2, "any_order", false),
                       .open_types = mtx_opt_bool(L, 2, "open_types", false), .open_keys = mtx_opt_bool(L, 2, "open_keys", false)};
  const char *ws = mtx_opt_string(L, 2, "ws", &len);
  for (int i = 0; ws; i++) {
    if (i == 3) return luaL_error(L, "option 'ws' must be space, none or any");
    if (strcmp(ws, names[i]) == 0) {
      o.ws = (mtx_json_ws)i;
      break;
    }
  }
  handle *h = push_handle(L);
  mtx_err err;
  return mtx_grammar_compile_json_schema(text, n, &o, &h->g, &err) == MTX_OK ? 1 : mtx_bind_fail(L, &err);
}

// choice(list of strings) -> grammar
static int l_grammar_choice(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_Integer n = luaL_len(L, 1);
  luaL_argcheck(L, n <= 100000, 1, "more than 100000 choices");
  const char **ptr = mtx_scratch(L, (size_t)n * sizeof *ptr);
  size_t *len = mtx_scratch(L, (size_t)n * sizeof *len);
  for (lua_Integer i = 0; i < n; i++) {
    luaL_argcheck(L, lua_rawgeti(L, 1, i + 1) == LUA_TSTRING, 1, "a list of strings is needed");
    ptr[i] = lua_tolstring(L, -1, &len[i]);  // the list keeps it alive
    lua_pop(L, 1);
  }
  handle *h = push_handle(L);
  mtx_err err;
  return mtx_grammar_compile_choice(ptr, len, (size_t)n, &h->g, &err) == MTX_OK ? 1 : mtx_bind_fail(L, &err);
}

static int l_grammar_close(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, TYPE);
  mtx_grammar *g = h->g;
  h->g = NULL;
  mtx_grammar_unref(g);
  return 0;
}

// warnings() -> list of what the grammar does not enforce.
static int l_grammar_warnings(lua_State *L) {
  mtx_grammar *g = mtx_bind_check_grammar(L, 1);
  lua_newtable(L);
  for (size_t i = 0; i < mtx_grammar_n_warnings(g); i++) {
    lua_pushstring(L, mtx_grammar_get_warning(g, i));
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

// match(text) -> "complete", or "partial" (may go on to be), or nil, the byte (from 1)
// that cannot stand there and the rules it stands in, innermost first.
static int l_grammar_match(lua_State *L) {
  mtx_grammar *g = mtx_bind_check_grammar(L, 1);
  size_t n, n_ok = 0;
  const char *text = luaL_checklstring(L, 2, &n);
  mtx_matcher *m;
  mtx_err err;
  char where[1000];
  if (mtx_matcher_new(g, NULL, NULL, &m, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  mtx_code code = mtx_matcher_accept_bytes(m, text, n, &n_ok, &err);
  bool complete = code == MTX_OK && mtx_matcher_complete(m);
  mtx_matcher_describe(m, where, sizeof where);
  mtx_matcher_free(m);
  if (code == MTX_OK) {
    lua_pushstring(L, complete ? "complete" : "partial");
    return 1;
  }
  if (code != MTX_EINVAL) return mtx_bind_fail(L, &err);
  lua_pushnil(L);
  lua_pushinteger(L, (lua_Integer)n_ok + 1);
  lua_pushstring(L, where);
  return 3;
}

int mtx_bind_grammar(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_grammar_close}, {"__close", l_grammar_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"match", l_grammar_match}, {"matcher", mtx_bind_matcher}, {"warnings", l_grammar_warnings},
                                     {"close", l_grammar_close}, {NULL, NULL}};
  static const luaL_Reg functions[] = {
      {"gbnf", l_grammar_gbnf}, {"schema", l_grammar_schema}, {"regex", l_grammar_regex}, {"choice", l_grammar_choice}, {NULL, NULL}};
  mtx_bind_new_type(L, TYPE, meta, methods);
  mtx_bind_matcher_type(L);
  luaL_newlib(L, functions);
  return 1;
}
