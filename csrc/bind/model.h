// SPDX-License-Identifier: MIT
// For bindings that work on an open model: engines pin it.
#ifndef MTX_BIND_MODEL_H
#define MTX_BIND_MODEL_H

#include <lua.h>

#include "grammar/grammar.h"
#include "model/model.h"
#include "tok/tok.h"

typedef struct mtx_bind_model {
  mtx_model *model;       // NULL once closed
  mtx_tok *tok;           // NULL when the file holds no vocabulary mtx can read:
  mtx_err no_tok;         // why
  mtx_vocab_trie *trie;   // built with the first grammar
  int n_users;            // engines and tasks: it is not closed before them
} mtx_bind_model;

// The open model at stack index idx; raises when it is none or closed.
mtx_bind_model *mtx_bind_check_model(lua_State *L, int idx);
// Options of opening a model in the table at idx: threads, no_memory_check, ctx, kv_type.
mtx_code mtx_bind_model_opts(lua_State *L, int idx, mtx_model_opts *o, mtx_err *err);
// Makes a model and its vocabulary of the opened file, which it owns from then on, also when it fails; into an
// empty handle, on any thread. A file without a vocabulary mtx can read gives a warning and leaves tok NULL.
mtx_code mtx_bind_model_load(mtx_bind_model *h, mtx_gguf *file, const mtx_model_opts *o, mtx_err *err);
mtx_bind_model *mtx_bind_push_model(lua_State *L);  // an empty handle
void mtx_bind_model_ready(lua_State *L);            // the handle on top of the stack has been filled
// Empties the handle at idx and gives what it owned; raises while engines are open on it.
mtx_bind_model mtx_bind_take_model(lua_State *L, int idx);
void mtx_bind_model_free(mtx_bind_model *h);        // closes what it owns; on any thread

// The token trie of the model's vocabulary, built on first use.
mtx_code mtx_bind_model_trie(mtx_bind_model *h, mtx_vocab_trie **out, mtx_err *err);

#endif
