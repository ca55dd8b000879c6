// SPDX-License-Identifier: MIT
// A model of the golden data, opened for the engine: weights and vocabulary.
#ifndef MTX_TESTS_GOLDEN_OPEN_H
#define MTX_TESTS_GOLDEN_OPEN_H

#include "golden_arch.h"
#include "model/model.h"
#include "tok/tok.h"

// Opens `name`; the caller closes both. The file is gone again, the mapping stays. False with err (empty when
// golden_arch_write has said why).
static inline bool golden_open(const golden_model *models, int n_models, const char *name, mtx_model **model, mtx_tok **tok, mtx_err *err) {
  char path[TEMP_PATH];
  mtx_gguf *g = NULL;
  *err = (mtx_err){0};
  if (!golden_arch_write(models, n_models, name, path)) return false;
  bool ok = !mtx_model_open(model, path, NULL, err) && !mtx_gguf_open(&g, path, 0, err) && !mtx_tok_open(tok, g, err);
  mtx_gguf_close(g);
  unlink(path);
  return ok;
}

#endif
