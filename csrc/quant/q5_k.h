// SPDX-License-Identifier: MIT
// Q5_K: 256 elements, 5 bits; 6-bit scale and offset for each 32.
//
// Block: f16 d, f16 dmin, 12 bytes of scales (k_scales.h), 32 bytes of fifth bits (bit s of byte j:
// element j of run s), 128 bytes of low codes as in Q4_K.
#ifndef MTX_QUANT_Q5_K_H
#define MTX_QUANT_Q5_K_H

#include "quant/k_scales.h"

static inline void q5_k_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 176 * (i / 8);
  int s = (int)(i % 8);
  const uint8_t *high = b + 16, *codes = b + 48 + 32 * (s / 2);
  for (int j = 0; j < 32; j++) q[j] = (int8_t)((codes[j] >> 4 * (s % 2) & 15) | (high[j] >> s & 1) << 4);
  mtx_k_scales_get(b + 4, s, MTX_F16_AT(b, 0), MTX_F16_AT(b, 2), scale2, min2);
}

MTX_DECODE_BY_UNPACK(q5_k)

#endif
