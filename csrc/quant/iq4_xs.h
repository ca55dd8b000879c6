// SPDX-License-Identifier: MIT
// IQ4_XS: 256 elements, 4-bit codes of a table of 16 values, 6-bit scale for each 32.
//
// Block: f16 d, u16 of eight high bit pairs, 4 bytes of eight low scale halves, 128 bytes of codes (in
// each 16: element j low, j + 16 high). w = d (scale - 32) value[code].
#ifndef MTX_QUANT_IQ4_XS_H
#define MTX_QUANT_IQ4_XS_H

#include "quant/codebooks.h"
#include "quant/unpack.h"

static inline void iq4_xs_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 136 * (i / 8);
  int s = (int)(i % 8);
  mtx_unpack_nibbles(b + 8 + 16 * s, q);
  for (int j = 0; j < 32; j++) q[j] = mtx_iq4_values[q[j]];
  int scale = (b[4 + s / 2] >> 4 * (s % 2) & 15) | (mtx_load_u16(b + 2) >> 2 * s & 3) << 4;
  mtx_unpack_scale(scale2, min2, MTX_F16_AT(b, 0) * (float)(scale - 32));
}

MTX_DECODE_BY_UNPACK(iq4_xs)

#endif
