// SPDX-License-Identifier: MIT
// Q2_0: 64 elements, 2 bits, one scale.
//
// Block: f16 d, 16 bytes of four codes each, lowest first. w = d (code - 1).
#ifndef MTX_QUANT_Q2_0_H
#define MTX_QUANT_Q2_0_H

#include "quant/encode.h"
#include "quant/unpack.h"

static inline void q2_0_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 18 * (i / 2);
  int s = (int)(i % 2);
  const uint8_t *codes = b + 2 + 8 * s;
  for (int j = 0; j < 32; j++) q[j] = (int8_t)((codes[j / 4] >> 2 * (j % 4) & 3) - 1);
  mtx_unpack_scale(scale2, min2, MTX_F16_AT(b, 0));
}

MTX_DECODE_BY_UNPACK(q2_0)

static inline void q2_0_encode_block(const float *x, uint8_t *b) {
  float d = mtx_encode_amax(x, 64), id = mtx_encode_reciprocal(d);
  memset(b + 2, 0, 16);
  for (int j = 0; j < 64; j++)
    b[2 + j / 4] = (uint8_t)(b[2 + j / 4] | (mtx_encode_round(x[j] * id, -1, 2) + 1) << 2 * (j % 4));
  mtx_store_u16(b, mtx_f32_to_f16(d));
}

MTX_ENCODE_BY_BLOCK(q2_0, 64, 18)

#endif
