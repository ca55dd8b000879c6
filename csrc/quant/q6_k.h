// SPDX-License-Identifier: MIT
// Q6_K: 256 elements, 6 bits, 8-bit scale for each 16.
//
// Block: 128 bytes of low codes, 64 bytes of high bit pairs, 16 signed scales, f16 d. Each half of
// 128 elements: runs 0, 1 are the low halves of its 64 low bytes, runs 2, 3 the high ones; its 32
// high bytes hold two bits of each of the four runs. w = (d scale) (code - 32).
#ifndef MTX_QUANT_Q6_K_H
#define MTX_QUANT_Q6_K_H

#include "quant/unpack.h"

static inline void q6_k_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 210 * (i / 8);
  int s = (int)(i % 8);
  int half = s / 4, run = s % 4;
  const uint8_t *low = b + 64 * half + 32 * (run % 2), *high = b + 128 + 32 * half;
  for (int j = 0; j < 32; j++) q[j] = (int8_t)(((low[j] >> 4 * (run / 2) & 15) | (high[j] >> 2 * run & 3) << 4) - 32);
  float d = MTX_F16_AT(b, 208);
  for (int h = 0; h < 2; h++) scale2[h] = d * (float)(int8_t)b[192 + 2 * s + h];
  min2[0] = min2[1] = 0.0f;
}

MTX_DECODE_BY_UNPACK(q6_k)

#endif
