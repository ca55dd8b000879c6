// SPDX-License-Identifier: MIT
// mtx.core.model: an open model. Weights, tokenizer and facts; engines run it.
#include "bind/model.h"

#include <lauxlib.h>
#include <stdlib.h>

#include "base/sysinfo.h"
#include "bind/adapter.h"
#include "bind/core.h"
#include "bind/gguf.h"
#include "bind/options.h"
#include "bind/task.h"
#include "bind/tok.h"
#include "kern/kern.h"

#define TYPE "mtx.model"

mtx_bind_model *mtx_bind_check_model(lua_State *L, int idx) {
  mtx_bind_model *h = luaL_checkudata(L, idx, TYPE);
  if (!h->model) luaL_argerror(L, idx, "the model is closed");
  return h;
}

// ---- callbacks while loading: protected, their errors are dropped ----------------

typedef struct {
  lua_State *L;
  int progress, warn;  // stack indices, 0 = none
} callbacks;

static void on_progress(void *user, uint64_t done, uint64_t total) {
  callbacks *c = user;
  if (!c->progress || !lua_checkstack(c->L, 4)) return;
  lua_pushvalue(c->L, c->progress);
  lua_pushinteger(c->L, (lua_Integer)done);
  lua_pushinteger(c->L, (lua_Integer)total);
  if (lua_pcall(c->L, 2, 0, 0) != LUA_OK) lua_pop(c->L, 1);
}

// The line is copied into Lua inside the protected call.
static int call_warn(lua_State *L) {
  lua_pushstring(L, lua_touserdata(L, 2));
  lua_replace(L, 2);
  lua_call(L, 1, 0);
  return 0;
}

static void on_warn(void *user, const char *line) {
  callbacks *c = user;
  if (!c->warn || !lua_checkstack(c->L, 4)) return;
  lua_pushcfunction(c->L, call_warn);
  lua_pushvalue(c->L, c->warn);
  lua_pushlightuserdata(c->L, (void *)line);
  if (lua_pcall(c->L, 2, 0, 0) != LUA_OK) lua_pop(c->L, 1);
}

static int function_field(lua_State *L, int idx, const char *name) {
  if (lua_getfield(L, idx, name) == LUA_TFUNCTION) return lua_gettop(L);
  if (!lua_isnil(L, -1)) luaL_error(L, "option '%s' must be a function", name);
  lua_pop(L, 1);
  return 0;
}

mtx_code mtx_bind_model_opts(lua_State *L, int idx, mtx_model_opts *o, mtx_err *err) {
  *o = (mtx_model_opts){.n_threads = (int)mtx_opt_integer(L, idx, "threads", 0), .no_memory_check = mtx_opt_bool(L, idx, "no_memory_check", false),
                        .n_ctx = mtx_opt_integer(L, idx, "ctx", 0)};
  return mtx_opt_kv_type(L, idx, &o->kv_type, err);
}

// open(path or mtx.gguf (which moves into the model) [, {threads, no_memory_check, ctx and kv_type (what memory must suffice for), progress = f(done, total), warn = f(line)}]) -> model
static int l_model_open(lua_State *L) {
  bool opened = mtx_bind_test_gguf(L, 1);
  const char *path = opened ? NULL : luaL_checkstring(L, 1);
  lua_settop(L, 2);
  if (lua_isnil(L, 2)) {
    lua_newtable(L);
    lua_replace(L, 2);
  }
  luaL_checktype(L, 2, LUA_TTABLE);
  callbacks c = {L, function_field(L, 2, "progress"), function_field(L, 2, "warn")};
  mtx_model_opts o;
  mtx_err err;
  if (mtx_bind_model_opts(L, 2, &o, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  o.progress = c.progress ? on_progress : NULL, o.warn = c.warn ? on_warn : NULL, o.user = &c;
  mtx_bind_model *h = mtx_bind_push_model(L);
  mtx_gguf *file;
  if (!opened && mtx_gguf_open(&file, path, 0, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  if (opened) file = mtx_bind_take_gguf(L, 1);
  if (mtx_bind_model_load(h, file, &o, &err) != MTX_OK) return mtx_bind_fail(L, &err);
  mtx_bind_model_ready(L);
  return 1;
}

// Runs on any thread. Without a vocabulary mtx can read, ids still work; toy models have none.
mtx_code mtx_bind_model_load(mtx_bind_model *h, mtx_gguf *file, const mtx_model_opts *o, mtx_err *err) {
  mtx_code code = mtx_model_open_file(&h->model, file, o, err);
  if (code) return code;
  code = mtx_tok_open(&h->tok, mtx_model_gguf(h->model), err);
  if (code == MTX_OK) return code;
  h->tok = NULL;
  if (code != MTX_EUNSUPPORTED && code != MTX_ENOTFOUND) {
    mtx_model_close(h->model);
    h->model = NULL;
    return code;
  }
  h->no_tok = *err;
  char line[1024];
  mtx_err_format(err, line, (int)sizeof line);
  if (o->warn) o->warn(o->user, line);
  return MTX_OK;
}

mtx_bind_model *mtx_bind_push_model(lua_State *L) {
  mtx_bind_model *h = lua_newuserdatauv(L, sizeof *h, 2);  // handles of its tokenizer, its file
  *h = (mtx_bind_model){0};
  luaL_setmetatable(L, TYPE);
  return h;
}

void mtx_bind_model_ready(lua_State *L) {
  mtx_bind_model *h = lua_touserdata(L, -1);
  mtx_bind_lend_gguf(L, (mtx_gguf *)mtx_model_gguf(h->model), -1);
  lua_setiuservalue(L, -2, 2);
  if (!h->tok) return;
  mtx_bind_push_tok(L, h->tok, -1);
  lua_setiuservalue(L, -2, 1);
}

// What a handle at user value i borrows is about to be closed.
static void close_lent(lua_State *L, int idx, int i) {
  if (lua_getiuservalue(L, idx, i) == LUA_TUSERDATA) {
    lua_getfield(L, -1, "close");
    lua_pushvalue(L, -2);
    lua_call(L, 1, 0);
    lua_pushnil(L);
    lua_setiuservalue(L, idx, i);
  }
  lua_pop(L, 1);
}

mtx_bind_model mtx_bind_take_model(lua_State *L, int idx) {
  mtx_bind_model *h = luaL_checkudata(L, idx, TYPE);
  idx = lua_absindex(L, idx);
  if (h->n_users > 0) luaL_error(L, "close the model's engines and take its tasks first");
  for (int i = 1; i <= 2; i++) close_lent(L, idx, i);
  mtx_bind_model gone = *h;
  *h = (mtx_bind_model){0};
  return gone;
}

void mtx_bind_model_free(mtx_bind_model *h) {
  mtx_vocab_trie_unref(h->trie);
  mtx_tok_close(h->tok);
  mtx_model_close(h->model);
  *h = (mtx_bind_model){0};
}

static int l_model_close(lua_State *L) {
  mtx_bind_model gone = mtx_bind_take_model(L, 1);
  mtx_bind_model_free(&gone);
  return 0;
}

// The collector may meet the model before engines that pin it are gone only when
// the whole state closes; it then leaves the model to the process's end.
static int l_model_gc(lua_State *L) {
  mtx_bind_model *h = luaL_checkudata(L, 1, TYPE);
  return h->n_users > 0 ? 0 : l_model_close(L);
}

static int l_model_tostring(lua_State *L) {
  mtx_bind_model *h = luaL_checkudata(L, 1, TYPE);
  if (h->model) lua_pushfstring(L, "model (%s)", mtx_gguf_path(mtx_model_gguf(h->model)));
  else lua_pushliteral(L, "model (closed)");
  return 1;
}

// tokenizer() -> mtx.core tokenizer handle | nil, message, code when the file holds no vocabulary that can be read.
static int l_model_tokenizer(lua_State *L) {
  const mtx_bind_model *h = mtx_bind_check_model(L, 1);
  if (!h->tok) return mtx_bind_fail(L, &h->no_tok);
  lua_getiuservalue(L, 1, 1);
  return 1;
}

// file() -> mtx.gguf of its metadata and tensors, open as long as the model.
static int l_model_file(lua_State *L) {
  mtx_bind_check_model(L, 1);
  lua_getiuservalue(L, 1, 2);
  return 1;
}

static void set_boolean(lua_State *L, const char *name, bool v) {
  lua_pushboolean(L, v);
  lua_setfield(L, -2, name);
}

// info() -> table of facts.
static int l_model_info(lua_State *L) {
  const mtx_bind_model *h = mtx_bind_check_model(L, 1);
  const mtx_model_info *i = mtx_model_get_info(h->model);
  lua_createtable(L, 0, 20);
  lua_pushstring(L, mtx_gguf_path(mtx_model_gguf(h->model)));
  lua_setfield(L, -2, "path");
  lua_pushstring(L, i->arch);
  lua_setfield(L, -2, "architecture");
  lua_pushstring(L, mtx_tier_name(mtx_kern_tier()));
  lua_setfield(L, -2, "tier");
  mtx_bind_set_integer(L, "n_params", (int64_t)i->n_params);
  mtx_bind_set_integer(L, "file_bytes", (int64_t)i->file_bytes);
  mtx_bind_set_integer(L, "weight_bytes", (int64_t)i->weight_bytes);
  mtx_bind_set_integer(L, "resident_bytes", (int64_t)mtx_resident_memory());
  mtx_bind_set_integer(L, "n_vocab", i->n_vocab);
  mtx_bind_set_integer(L, "n_layer", i->n_layer);
  mtx_bind_set_integer(L, "n_embd", i->n_embd);
  mtx_bind_set_integer(L, "n_ctx_train", i->n_ctx_train);
  mtx_bind_set_integer(L, "n_out", i->n_out);
  mtx_bind_set_integer(L, "n_embed", i->n_embed);
  mtx_bind_set_integer(L, "pooling", i->pooling);
  set_boolean(L, "has_logits", i->has_logits);
  set_boolean(L, "causal", i->causal);
  set_boolean(L, "recurrent", i->recurrent);
  return 1;
}

mtx_code mtx_bind_model_trie(mtx_bind_model *h, mtx_vocab_trie **out, mtx_err *err) {
  if (h->trie) {
    *out = h->trie;
    return MTX_OK;
  }
  if (!h->tok) return mtx_fail(err, MTX_EUNSUPPORTED, "this model's vocabulary cannot be read, so its output cannot be constrained");
  // The trie must cover every logit, and the file's token list may be shorter.
  uint32_t n = (uint32_t)mtx_model_get_info(h->model)->n_vocab, n_tok = (uint32_t)mtx_tok_n_tokens(h->tok);
  const char **piece = calloc(n, sizeof *piece);
  uint32_t *len = calloc(n, sizeof *len);
  uint8_t *flags = calloc(n, 1);
  mtx_code code = MTX_ENOMEM;
  if (!piece || !len || !flags) {
    mtx_fail(err, code, "not enough memory for the vocabulary's trie");
    goto done;
  }
  for (uint32_t i = 0; i < n; i++) {
    size_t l = 0;
    piece[i] = "";
    if (i < n_tok) mtx_tok_piece(h->tok, (int32_t)i, true, &piece[i], &l);
    len[i] = (uint32_t)l;
    unsigned attr = i < n_tok ? mtx_tok_attr(h->tok, (int32_t)i) : 0;
    if (attr & MTX_TOK_ATTR_CONTROL) flags[i] |= MTX_TRIE_CONTROL;
    if (i < n_tok && mtx_tok_is_eog(h->tok, (int32_t)i)) flags[i] |= MTX_TRIE_EOG;
  }
  code = mtx_vocab_trie_new(piece, len, flags, n, &h->trie, err);
  if (!code) code = mtx_vocab_trie_warm(h->trie, err);
  *out = h->trie;
done:
  free(piece);
  free(len);
  free(flags);
  return code;
}

// cpu([cap]) -> name of the tier in use. With a cap ("scalar", "avx2", ...) chooses
// again; only before a model is opened, since packed weights belong to a tier.
static int l_model_cpu(lua_State *L) {
  if (!lua_isnoneornil(L, 1)) {
    const char *name = luaL_checkstring(L, 1);
    mtx_tier t = MTX_TIER_SCALAR;
    while (t <= MTX_TIER_NEON && strcmp(mtx_tier_name(t), name) != 0) t++;
    if (t > MTX_TIER_NEON) return luaL_error(L, "no CPU tier is called '%s' (scalar, avx2, avx512, amx, neon)", name);
    mtx_kern_init(t);
  }
  lua_pushstring(L, mtx_tier_name(mtx_kern_tier()));
  return 1;
}

// architectures() -> list of names this build knows.
static int l_model_architectures(lua_State *L) {
  lua_newtable(L);
  int n = 0;
  for (const char *const *a = mtx_model_architectures(); *a; a++) {
    lua_pushstring(L, *a);
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

static int l_model_cores(lua_State *L) {
  lua_pushinteger(L, mtx_usable_cores());
  return 1;
}

static int l_model_free_memory(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)mtx_free_memory());
  return 1;
}

int mtx_bind_model_open(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", l_model_gc}, {"__close", l_model_close}, {"__tostring", l_model_tostring}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"info", l_model_info}, {"tokenizer", l_model_tokenizer}, {"adapter", mtx_bind_model_adapter}, {"start_adapter", mtx_bind_model_start_adapter}, {"lora", mtx_bind_model_lora}, {"file", l_model_file}, {"close", l_model_close}, {NULL, NULL}};
  static const luaL_Reg functions[] = {{"open", l_model_open},
                                       {"start", mtx_bind_task_load},
                                       {"drop", mtx_bind_task_drop},
                                       {"cpu", l_model_cpu},
                                       {"cores", l_model_cores},
                                       {"free_memory", l_model_free_memory},
                                       {"architectures", l_model_architectures},
                                       {NULL, NULL}};
  mtx_kern_init(MTX_TIER_NEON > MTX_TIER_AMX ? MTX_TIER_NEON : MTX_TIER_AMX);
  mtx_bind_new_type(L, TYPE, meta, methods);
  mtx_bind_adapter_types(L);
  mtx_bind_task_type(L);
  luaL_newlib(L, functions);
  return 1;
}
