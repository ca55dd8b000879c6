// SPDX-License-Identifier: MIT
// Q5_1: 32 elements, 5 bits, scale and offset.
//
// Block: f16 d, f16 m, u32 of fifth bits, 16 bytes of low codes, as in Q5_0. w = d code + m.
#ifndef MTX_QUANT_Q5_1_H
#define MTX_QUANT_Q5_1_H

#include "quant/unpack.h"

static inline void q5_1_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 24 * i;
  mtx_unpack_nibbles(b + 8, q);
  mtx_unpack_or_bits(mtx_load_u32(b + 4), 4, q);
  scale2[0] = scale2[1] = MTX_F16_AT(b, 0);
  min2[0] = min2[1] = MTX_F16_AT(b, 2);
}

MTX_DECODE_BY_UNPACK(q5_1)

#endif
