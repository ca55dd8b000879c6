// SPDX-License-Identifier: MIT
// Q4_K: 256 elements, 4 bits; 6-bit scale and offset for each 32.
//
// Block: f16 d, f16 dmin, 12 bytes of scales (k_scales.h), 128 bytes of codes: a run of 32 bytes
// holds two runs of 32 elements, low halves first.
#ifndef MTX_QUANT_Q4_K_H
#define MTX_QUANT_Q4_K_H

#include "quant/k_scales.h"

static inline void q4_k_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 144 * (i / 8);
  int s = (int)(i % 8);
  const uint8_t *codes = b + 16 + 32 * (s / 2);
  for (int j = 0; j < 32; j++) q[j] = (int8_t)(codes[j] >> 4 * (s % 2) & 15);
  mtx_k_scales_get(b + 4, s, MTX_F16_AT(b, 0), MTX_F16_AT(b, 2), scale2, min2);
}

MTX_DECODE_BY_UNPACK(q4_k)

#endif
