// SPDX-License-Identifier: MIT
// IQ1_S: 256 elements, groups of eight from a ternary grid of 2048, 3-bit scale for each 32.
//
// Block: f16 d, 32 low grid bytes, 8 u16: for each 32 elements four triples of high grid bits, the
// scale (3 bits), and the sign of the offset. w = d (2 scale + 1) (grid +- 1/8).
#ifndef MTX_QUANT_IQ1_S_H
#define MTX_QUANT_IQ1_S_H

#include "quant/iq1.h"

static inline void iq1_s_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 50 * (i / 8);
  int s = (int)(i % 8);
  uint32_t high = mtx_load_u16(b + 34 + 2 * s);
  for (int g = 0; g < 4; g++) mtx_iq1_group(b[2 + 4 * s + g] | (high >> 3 * g & 7) << 8, high >> 15, q + 8 * g);
  mtx_unpack_scale(scale2, min2, MTX_F16_AT(b, 0) * (float)(2 * (high >> 12 & 7) + 1) * 0.125f);
}

MTX_DECODE_BY_UNPACK(iq1_s)

#endif
