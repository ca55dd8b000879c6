// SPDX-License-Identifier: MIT
// IQ3_S: 256 elements, groups of four from a grid of 512, 4-bit scale for each 32.
//
// Block: f16 d, 64 low grid bytes, 8 bytes of ninth grid bits, 32 sign masks, 4 bytes of scales, low
// half first. w = d (2 scale + 1) x grid x sign.
#ifndef MTX_QUANT_IQ3_S_H
#define MTX_QUANT_IQ3_S_H

#include "quant/codebooks.h"
#include "quant/unpack.h"

static inline void iq3_s_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 110 * (i / 8);
  int s = (int)(i % 8);
  const uint8_t *codes = b + 2 + 8 * s;
  uint32_t high = b[66 + s];
  for (int g = 0; g < 4; g++) {
    int8_t grid[8];
    memcpy(grid, mtx_iq3_s_grid[codes[2 * g] | (high >> 2 * g & 1) << 8], 4);
    memcpy(grid + 4, mtx_iq3_s_grid[codes[2 * g + 1] | (high >> (2 * g + 1) & 1) << 8], 4);
    mtx_grid_signed8(grid, b[74 + 4 * s + g], q + 8 * g);
  }
  int scale = b[106 + s / 2] >> 4 * (s % 2) & 15;
  mtx_unpack_scale(scale2, min2, MTX_F16_AT(b, 0) * (float)(1 + 2 * scale));
}

MTX_DECODE_BY_UNPACK(iq3_s)

#endif
