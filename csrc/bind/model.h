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
  mtx_tok *tok;           // NULL when the file holds no vocabulary mtx can read
  mtx_vocab_trie *trie;   // built with the first grammar
  int n_users;            // engines open on it: close waits for them
} mtx_bind_model;

// The open model at stack index idx; raises when it is none or closed.
mtx_bind_model *mtx_bind_check_model(lua_State *L, int idx);
// The token trie of the model's vocabulary, built on first use.
mtx_code mtx_bind_model_trie(mtx_bind_model *h, mtx_vocab_trie **out, mtx_err *err);

#endif
