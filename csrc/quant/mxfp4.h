// SPDX-License-Identifier: MIT
// MXFP4: 32 elements of E2M1, one power-of-two scale (OCP Microscaling Formats 1.0).
//
// Block: E8M0 exponent, 16 bytes of codes (element j low, j + 16 high). The table holds doubled
// values, so the scale is half of 2^(e - 127). e = 255 is not a NaN here, but 2^127.
#ifndef MTX_QUANT_MXFP4_H
#define MTX_QUANT_MXFP4_H

#include "quant/codebooks.h"
#include "quant/unpack.h"

// 2^(e - 128); the smallest two are subnormal.
static inline float mtx_mxfp4_scale(uint8_t e) {
  return mtx_f32_from_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

static inline void mxfp4_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 17 * i;
  mtx_unpack_nibbles(b + 1, q);
  for (int j = 0; j < 32; j++) q[j] = mtx_e2m1_values[q[j]];
  mtx_unpack_scale(scale2, min2, mtx_mxfp4_scale(b[0]));
}

MTX_DECODE_BY_UNPACK(mxfp4)

#endif
