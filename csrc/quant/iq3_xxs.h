// SPDX-License-Identifier: MIT
// IQ3_XXS: 256 elements, groups of four from a grid of 256, 4-bit scale for each 32.
//
// Block: f16 d, 64 grid bytes, and for each 32 elements a u32 of four 7-bit sign codes and, on top,
// the scale. w = d (scale + 1/2) / 2 x grid x sign.
#ifndef MTX_QUANT_IQ3_XXS_H
#define MTX_QUANT_IQ3_XXS_H

#include "quant/codebooks.h"
#include "quant/unpack.h"

static inline void iq3_xxs_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 98 * (i / 8);
  int s = (int)(i % 8);
  const uint8_t *codes = b + 2 + 8 * s;
  uint32_t signs = mtx_load_u32(b + 66 + 4 * s);
  for (int g = 0; g < 4; g++) {
    int8_t grid[8];
    memcpy(grid, mtx_iq3_xxs_grid[codes[2 * g]], 4);
    memcpy(grid + 4, mtx_iq3_xxs_grid[codes[2 * g + 1]], 4);
    mtx_grid_signed8(grid, mtx_sign_masks[signs >> 7 * g & 127], q + 8 * g);
  }
  mtx_unpack_scale(scale2, min2, MTX_F16_AT(b, 0) * (0.5f + (float)(signs >> 28)) * 0.5f);
}

MTX_DECODE_BY_UNPACK(iq3_xxs)

#endif
