// SPDX-License-Identifier: MIT
// A file's tensor in another type, row by row: what `mtx quantize` writes.
#ifndef MTX_GGUF_CONVERT_H
#define MTX_GGUF_CONVERT_H

#include "gguf/gguf.h"
#include "quant/quant.h"

typedef struct mtx_gguf_conversion {
  const mtx_gguf *file;         // an open file,
  const mtx_gguf_tensor *from;  // a tensor of it, whose type decodes and whose rows divide into blocks of `to`
  const mtx_qtype *to;          // a type that encodes
  const float *importance;      // NULL, or [ne[2] * ne[3]][ne[0]] weights: how much errors cost in each column of each matrix
  int n_threads;                // 0: all cores this process may use
} mtx_gguf_conversion;

// What is asked of `from`, `to` and the importance (each weight finite, none negative). Errors: MTX_EINVAL, MTX_ENOMEM.
mtx_code mtx_gguf_conversion_check(const mtx_gguf_conversion *c, mtx_err *err);

// Converts rows [r0, r0 + n) of the ne[1] * ne[2] * ne[3] to dst, byte for byte as ggml. The pages read are given back with the
// last row. Errors: MTX_ENUMERIC (the first row with a NaN or infinity, or with a value the type cannot hold), MTX_ENOMEM,
// MTX_EIO (the file was cut short).
mtx_code mtx_gguf_convert(const mtx_gguf_conversion *c, uint64_t r0, uint64_t n, void *dst, mtx_err *err);

#endif
