// SPDX-License-Identifier: MIT
// MXFP4: 32 elements of E2M1, one power-of-two scale (OCP Microscaling Formats 1.0).
//
// Block: E8M0 exponent, 16 bytes of codes (element j low, j + 16 high). The table holds doubled
// values, so the scale is half of 2^(e - 127). e = 255 is not a NaN here, but 2^127.
#ifndef MTX_QUANT_MXFP4_H
#define MTX_QUANT_MXFP4_H

#include "quant/codebooks.h"
#include "quant/encode.h"
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

static inline void mxfp4_encode_block(const float *x, uint8_t *b) {
  float amax = mtx_encode_amax(x, 32);
  b[0] = amax > 0.0f ? (uint8_t)mtx_encode_int(floorf(log2f(amax)) - 2.0f + 127.0f, 0, 254) : 0;
  float scale = mtx_mxfp4_scale(b[0]);
  uint8_t code[32];
  for (int j = 0; j < 32; j++) code[j] = mtx_encode_e2m1(x[j], scale, mtx_e2m1_values);
  mtx_encode_nibbles(code, 16, b + 1);
}

MTX_ENCODE_BY_BLOCK(mxfp4, 32, 17)

#endif
