// SPDX-License-Identifier: MIT
// Q3_K: 256 elements, 3 bits, 6-bit scale for each 16.
//
// Block: 32 bytes of third bits (bit s of byte j: element j of run s), 64 bytes of low codes as in
// Q2_K, 12 bytes of scales, f16 d. Scale g: low four bits in halves of bytes 0..7, high two in
// bytes 8..11. w = d (scale - 32) (code - 4).
#ifndef MTX_QUANT_Q3_K_H
#define MTX_QUANT_Q3_K_H

#include "quant/unpack.h"

static inline void q3_k_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 110 * (i / 8);
  int s = (int)(i % 8);
  const uint8_t *codes = b + 32 + 32 * (s / 4);
  for (int j = 0; j < 32; j++) q[j] = (int8_t)((codes[j] >> 2 * (s % 4) & 3) + (b[j] >> s & 1) * 4 - 4);
  float d = MTX_F16_AT(b, 108);
  for (int h = 0; h < 2; h++) {
    int g = 2 * s + h;
    int sc = (b[96 + g % 8] >> 4 * (g / 8) & 15) | (b[104 + g % 4] >> 2 * (g / 4) & 3) << 4;
    scale2[h] = d * (float)(sc - 32);
  }
  min2[0] = min2[1] = 0.0f;
}

MTX_DECODE_BY_UNPACK(q3_k)

#endif
