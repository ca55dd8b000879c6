// SPDX-License-Identifier: MIT
// mtx.core's matchers: one position in a grammar, for scripts that want to know
// what may come next, by bytes or by the tokens of a model.
#include <lauxlib.h>
#include <stdlib.h>

#include "bind/core.h"
#include "bind/grammar.h"
#include "bind/model.h"
#include "bind/options.h"

#define TYPE "mtx.matcher"

typedef struct {
  mtx_matcher *m;
  uint32_t n_tokens;  // 0: made without a model
} handle;

static handle *check(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, TYPE);
  if (!h->m) luaL_argerror(L, 1, "the matcher is closed");
  return h;
}

static handle *check_tokens(lua_State *L) {
  handle *h = check(L);
  if (!h->n_tokens) luaL_error(L, "this matcher was made without a model, so it knows no tokens; use grammar:matcher(model)");
  return h;
}

int mtx_bind_matcher(lua_State *L) {
  mtx_grammar *g = mtx_bind_check_grammar(L, 1);
  mtx_vocab_trie *trie = NULL;
  mtx_err err;
  lua_settop(L, 2);
  if (!lua_isnil(L, 2) && mtx_bind_model_trie(mtx_bind_check_model(L, 2), &trie, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  handle *h = lua_newuserdatauv(L, sizeof *h, 0);
  *h = (handle){NULL, trie ? mtx_vocab_trie_n_tokens(trie) : 0};
  luaL_setmetatable(L, TYPE);
  return mtx_matcher_new(g, trie, NULL, &h->m, &err) == MTX_OK ? 1 : mtx_bind_fail(L, &err);
}

static int l_matcher_close(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, TYPE);
  mtx_matcher *m = h->m;
  h->m = NULL;
  mtx_matcher_free(m);
  return 0;
}

// accept(text) -> true, or nil and the byte (from 1) that cannot come: it stands before that one then.
// accept(token id) -> true, or nil, message, code.
static int l_matcher_accept(lua_State *L) {
  mtx_err err;
  mtx_code code;
  if (lua_type(L, 2) == LUA_TNUMBER) {
    handle *h = check_tokens(L);
    lua_Integer id = luaL_checkinteger(L, 2);
    luaL_argcheck(L, id >= 0 && id < h->n_tokens, 2, "no token has this id");
    code = mtx_matcher_accept_token(h->m, (uint32_t)id, &err);
  } else {
    size_t n, n_ok = 0;
    const char *text = luaL_checklstring(L, 2, &n);
    code = mtx_matcher_accept_bytes(check(L)->m, text, n, &n_ok, &err);
    if (code == MTX_EINVAL) {
      lua_pushnil(L);
      lua_pushinteger(L, (lua_Integer)n_ok + 1);
      return 2;
    }
  }
  if (code != MTX_OK) return mtx_bind_fail(L, &err);
  lua_pushboolean(L, true);
  return 1;
}

// allowed() -> list of the ids of the tokens that may come next, ascending.
static int l_matcher_allowed(lua_State *L) {
  handle *h = check_tokens(L);
  const size_t n_words = ((size_t)h->n_tokens + 63) / 64;
  uint64_t *bits = mtx_scratch(L, n_words * sizeof *bits);
  mtx_err err;
  if (mtx_matcher_mask(h->m, bits, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  lua_newtable(L);
  lua_Integer n = 0;
  for (size_t w = 0; w < n_words; w++)
    for (uint64_t left = bits[w]; left; left &= left - 1) {
      lua_pushinteger(L, (lua_Integer)(w * 64 + (size_t)__builtin_ctzll(left)));
      lua_rawseti(L, -2, ++n);
    }
  return 1;
}

static int l_matcher_complete(lua_State *L) {
  lua_pushboolean(L, mtx_matcher_complete(check(L)->m));
  return 1;
}

// where() -> the rules it stands in, innermost first: "object > items > root".
static int l_matcher_where(lua_State *L) {
  char text[1000];
  mtx_matcher_describe(check(L)->m, text, sizeof text);
  lua_pushstring(L, text);
  return 1;
}

void mtx_bind_matcher_type(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_matcher_close}, {"__close", l_matcher_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"accept", l_matcher_accept},     {"allowed", l_matcher_allowed}, {"complete", l_matcher_complete},
                                     {"where", l_matcher_where}, {"close", l_matcher_close},     {NULL, NULL}};
  mtx_bind_new_type(L, TYPE, meta, methods);
}
