// SPDX-License-Identifier: MIT
// Q5_0: 32 elements, 5 bits, one scale.
//
// Block: f16 d, u32 of fifth bits (bit j of element j), 16 bytes of low codes (element j low,
// j + 16 high). w = d (code - 16).
#ifndef MTX_QUANT_Q5_0_H
#define MTX_QUANT_Q5_0_H

#include "quant/unpack.h"

static inline void q5_0_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 22 * i;
  mtx_unpack_nibbles(b + 6, q);
  mtx_unpack_or_bits(mtx_load_u32(b + 2), 4, q);
  for (int j = 0; j < 32; j++) q[j] = (int8_t)(q[j] - 16);
  mtx_unpack_scale(scale2, min2, MTX_F16_AT(b, 0));
}

MTX_DECODE_BY_UNPACK(q5_0)

#endif
