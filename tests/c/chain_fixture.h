// SPDX-License-Identifier: MIT
// The scripted model of chain_model.h, opened, with its vocabulary.
#ifndef MTX_TESTS_CHAIN_FIXTURE_H
#define MTX_TESTS_CHAIN_FIXTURE_H

#include <math.h>

#include "chain_model.h"
#include "check.h"
#include "grammar/grammar.h"
#include "model/model.h"
#include "tok/tok.h"

typedef struct {
  mtx_model *model;
  mtx_tok *tok;
  char path[TEMP_PATH];
} fixture;

static inline bool fixture_open(fixture *f, const chain *c) {
  mtx_err err = {0};
  mtx_gguf *g;
  memset(f, 0, sizeof *f);
  if (!chain_write(c, f->path)) return false;
  mtx_code rc = mtx_model_open(&f->model, f->path, NULL, &err);
  if (!rc && !(rc = mtx_gguf_open(&g, f->path, 0, &err))) {
    rc = mtx_tok_open(&f->tok, g, &err);
    mtx_gguf_close(g);
  }
  CHECK(rc == MTX_OK, "%s %s", err.key, err.msg);
  return rc == MTX_OK;
}

// A model that says "Hello, world. END of it" after `hello` (which stands for "Hel" and does not come back) and x for ever after `loop`.
static inline bool fixture_open_hello(fixture *f, int *hello, int *loop) {
  chain c;
  chain_init(&c);
  *hello = chain_say(&c, "Hello, world. END of it", 3);
  *loop = chain_add(&c, "x", 1);
  c.succ[*loop] = *loop;
  return fixture_open(f, &c);
}

static inline void fixture_close(fixture *f) {
  mtx_tok_close(f->tok);
  mtx_model_close(f->model);
  unlink(f->path);
}

// The token trie of the model's vocabulary; NULL after a failed check.
static inline mtx_vocab_trie *fixture_trie(const fixture *f) {
  const char *pieces[CHAIN_DIM];
  uint32_t lens[CHAIN_DIM];
  uint8_t flags[CHAIN_DIM] = {0};
  mtx_err err = {0};
  mtx_vocab_trie *trie = NULL;
  for (int i = 0; i < CHAIN_DIM; i++) {
    size_t n;
    if (!mtx_tok_piece(f->tok, i, false, &pieces[i], &n)) n = 0;
    lens[i] = (uint32_t)n;
    flags[i] = mtx_tok_is_eog(f->tok, i) ? MTX_TRIE_EOG : 0;
  }
  CHECK(mtx_vocab_trie_new(pieces, lens, flags, CHAIN_DIM, &trie, &err) == MTX_OK, "%s", err.msg);
  return trie;
}

#endif
