// SPDX-License-Identifier: MIT
// Q2_K: 256 elements, 2 bits; 4-bit scale and offset for each 16.
//
// Block: 16 bytes (low half scale, high half offset), 64 bytes of codes, f16 d, f16 dmin. A run of
// 32 code bytes holds four runs of 32 elements, two bits each. w = (d scale) code - dmin offset.
#ifndef MTX_QUANT_Q2_K_H
#define MTX_QUANT_Q2_K_H

#include "quant/unpack.h"

static inline void q2_k_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 84 * (i / 8);
  int s = (int)(i % 8);
  const uint8_t *codes = b + 16 + 32 * (s / 4);
  for (int j = 0; j < 32; j++) q[j] = (int8_t)(codes[j] >> 2 * (s % 4) & 3);
  float d = MTX_F16_AT(b, 80), dmin = MTX_F16_AT(b, 82);
  for (int h = 0; h < 2; h++) {
    uint8_t sc = b[2 * s + h];
    scale2[h] = d * (float)(sc & 15);
    min2[h] = -(dmin * (float)(sc >> 4));
  }
}

MTX_DECODE_BY_UNPACK(q2_k)

#endif
