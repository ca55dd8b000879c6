// SPDX-License-Identifier: MIT
// safetensors behind GGUF's face: the weights of a folder under GGUF's names and
// in its order, beside metadata made from config.json, as one mtx_gguf. Nothing
// is copied but small vectors; which tensor becomes which is the caller's to say
// (lua/mtx/hf).
#ifndef MTX_ST_FACE_H
#define MTX_ST_FACE_H

#include "gguf/gguf.h"
#include "st/safetensors.h"

typedef enum {
  MTX_ST_AS_IS,
  MTX_ST_PLUS_ONE,   // x + 1 (Gemma's norms)
  MTX_ST_MINUS_EXP,  // -exp(x) (Mamba's A_log)
} mtx_st_change;

// One tensor of the model.
typedef struct {
  const char *name;                  // GGUF's
  const mtx_st_tensor *const *from;  // [n_from] matrices of one type and shape, stacked when there are several
  uint32_t n_from;                   // 0: the tensor is `values`
  const float *values;               // [n_values]
  uint64_t n_values;
  uint32_t n_half_heads;             // not 0: rows as in mtx_gguf_scatter; a vector counts as rows of one number
  mtx_st_change change;              // of vectors, which become F32
  // n_heads not 0: the matrix is so many runs of rows, one for each head; rows [first_row, first_row + n_rows) of each
  // run are a matrix of their own, its rows becoming columns when `transposed`.
  uint32_t n_heads, first_row, n_rows;
  bool transposed;
} mtx_st_use;

// `head`: a GGUF file without tensors, copied. On success the mappings of *s have moved to *out; close *s in any case.
// Errors: MTX_EUNSUPPORTED (a type that is no weight's, too many dimensions), MTX_EFORMAT (shapes, alignment), MTX_ENOMEM.
mtx_code mtx_st_face(mtx_gguf **out, mtx_st *s, const void *head, size_t n_head, const mtx_st_use *use, uint64_t n_use, mtx_err *err);

#endif
