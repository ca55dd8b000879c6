// SPDX-License-Identifier: MIT
// Q8_K: 256 elements, 8 bits, one f32 scale; an activation format, rarely in a file.
//
// Block: f32 d, 256 signed bytes, 16 sums of 16 elements as i16 (not needed to decode). w = d q.
#ifndef MTX_QUANT_Q8_K_H
#define MTX_QUANT_Q8_K_H

#include "quant/unpack.h"

static inline void q8_k_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 292 * (i / 8);
  int s = (int)(i % 8);
  memcpy(q, b + 4 + 32 * s, 32);
  mtx_unpack_scale(scale2, min2, mtx_f32_from_bits(mtx_load_u32(b)));
}

MTX_DECODE_BY_UNPACK(q8_k)

#endif
