// SPDX-License-Identifier: MIT
// IQ1_M: 256 elements, groups of eight from a ternary grid of 2048, 3-bit scale for each 16.
//
// Block: 32 low grid bytes, 16 bytes (per half: three high grid bits and the sign of the offset), 4 u16
// of four scales each, whose top four bits together are the f16 d. w = d (2 scale + 1) (grid +- 1/8).
#ifndef MTX_QUANT_IQ1_M_H
#define MTX_QUANT_IQ1_M_H

#include "quant/iq1.h"

static inline void iq1_m_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 56 * (i / 8);
  int s = (int)(i % 8);
  for (int g = 0; g < 4; g++) {
    uint32_t high = b[32 + 2 * s + g / 2] >> 4 * (g % 2);
    mtx_iq1_group(b[4 * s + g] | (high & 7) << 8, high >> 3 & 1, q + 8 * g);
  }
  uint32_t bits = 0;
  for (int k = 0; k < 4; k++) bits |= (uint32_t)(b[49 + 2 * k] >> 4) << 4 * k;
  float d = mtx_f16_to_f32((uint16_t)bits);
  uint32_t scales = mtx_load_u16(b + 48 + 2 * (s / 2)) >> 6 * (s % 2);
  for (int h = 0; h < 2; h++) scale2[h] = d * (float)(2 * (scales >> 3 * h & 7) + 1) * 0.125f;
  min2[0] = min2[1] = 0.0f;
}

MTX_DECODE_BY_UNPACK(iq1_m)

#endif
