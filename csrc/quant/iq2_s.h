// SPDX-License-Identifier: MIT
// IQ2_S: 256 elements, groups of eight from a grid of 1024, 4-bit scale for each 16.
//
// Block: f16 d, 32 low grid bytes, 32 sign masks, 8 bytes of high grid bit pairs, 8 bytes of scales,
// low half first. w = d (scale + 1/2) / 4 x grid x sign.
#ifndef MTX_QUANT_IQ2_S_H
#define MTX_QUANT_IQ2_S_H

#include "quant/codebooks.h"
#include "quant/unpack.h"

static inline void iq2_s_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 82 * (i / 8);
  int s = (int)(i % 8);
  uint32_t high = b[66 + s];
  for (int g = 0; g < 4; g++) {
    uint32_t entry = b[2 + 4 * s + g] | (high >> 2 * g & 3) << 8;
    mtx_grid_signed8(mtx_iq2_s_grid[entry], b[34 + 4 * s + g], q + 8 * g);
  }
  float d = MTX_F16_AT(b, 0);
  for (int h = 0; h < 2; h++) scale2[h] = d * (0.5f + (float)(b[74 + s] >> 4 * h & 15)) * 0.25f;
  min2[0] = min2[1] = 0.0f;
}

MTX_DECODE_BY_UNPACK(iq2_s)

#endif
