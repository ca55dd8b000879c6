// SPDX-License-Identifier: MIT
// Weights from the file's layout into the kernels' layout.
#ifndef MTX_MODEL_PACK_H
#define MTX_MODEL_PACK_H

#include "model/model.h"

typedef struct mtx_packed {
  void *mem;            // one mapping with huge pages where the system has them
  size_t bytes;
} mtx_packed;

// Bytes the packed weights of a plan take, vectors included.
mtx_code mtx_pack_size(const mtx_plan *p, uint64_t *bytes, mtx_err *err);
// Packs every matrix and decodes every vector of the plan with n_threads threads;
// the file's own pages are given back tensor by tensor.
mtx_code mtx_pack_weights(mtx_plan *p, const mtx_gguf *file, const mtx_model_opts *o, int n_threads, mtx_packed *out, mtx_err *err);
void mtx_packed_free(mtx_packed *m);

#endif
