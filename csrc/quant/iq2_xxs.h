// SPDX-License-Identifier: MIT
// IQ2_XXS: 256 elements, groups of eight from a grid of 256, 4-bit scale for each 32.
//
// Block: f16 d; for each 32 elements four grid bytes and a u32 of four 7-bit sign codes and, on top,
// the scale. w = d (scale + 1/2) / 4 x grid x sign.
#ifndef MTX_QUANT_IQ2_XXS_H
#define MTX_QUANT_IQ2_XXS_H

#include "quant/codebooks.h"
#include "quant/unpack.h"

static inline void iq2_xxs_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 66 * (i / 8);
  int s = (int)(i % 8);
  const uint8_t *codes = b + 2 + 8 * s;
  uint32_t signs = mtx_load_u32(codes + 4);
  for (int g = 0; g < 4; g++)
    mtx_grid_signed8(mtx_iq2_xxs_grid[codes[g]], mtx_sign_masks[signs >> 7 * g & 127], q + 8 * g);
  mtx_unpack_scale(scale2, min2, MTX_F16_AT(b, 0) * (0.5f + (float)(signs >> 28)) * 0.25f);
}

MTX_DECODE_BY_UNPACK(iq2_xxs)

#endif
