// SPDX-License-Identifier: MIT
// Q4_1: 32 elements, 4 bits, scale and offset.
//
// Block: f16 d, f16 m, 16 bytes of codes (element j low, j + 16 high). w = d code + m.
#ifndef MTX_QUANT_Q4_1_H
#define MTX_QUANT_Q4_1_H

#include "quant/unpack.h"

static inline void q4_1_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 20 * i;
  mtx_unpack_nibbles(b + 4, q);
  scale2[0] = scale2[1] = MTX_F16_AT(b, 0);
  min2[0] = min2[1] = MTX_F16_AT(b, 2);
}

MTX_DECODE_BY_UNPACK(q4_1)

#endif
