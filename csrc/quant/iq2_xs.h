// SPDX-License-Identifier: MIT
// IQ2_XS: 256 elements, groups of eight from a grid of 512, 4-bit scale for each 16.
//
// Block: f16 d; 32 u16 (nine bits of grid index, seven of sign code), 8 bytes of scales, low half
// first. w = d (scale + 1/2) / 4 x grid x sign.
#ifndef MTX_QUANT_IQ2_XS_H
#define MTX_QUANT_IQ2_XS_H

#include "quant/codebooks.h"
#include "quant/unpack.h"

static inline void iq2_xs_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 74 * (i / 8);
  int s = (int)(i % 8);
  for (int g = 0; g < 4; g++) {
    uint32_t code = mtx_load_u16(b + 2 + 8 * s + 2 * g);
    mtx_grid_signed8(mtx_iq2_xs_grid[code & 511], mtx_sign_masks[code >> 9], q + 8 * g);
  }
  float d = MTX_F16_AT(b, 0);
  for (int h = 0; h < 2; h++) scale2[h] = d * (0.5f + (float)(b[66 + s] >> 4 * h & 15)) * 0.25f;
  min2[0] = min2[1] = 0.0f;
}

MTX_DECODE_BY_UNPACK(iq2_xs)

#endif
