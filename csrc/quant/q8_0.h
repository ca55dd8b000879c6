// SPDX-License-Identifier: MIT
// Q8_0: 32 elements, 8 bits, one scale.
//
// Block: f16 d, 32 signed bytes. w = d q.
#ifndef MTX_QUANT_Q8_0_H
#define MTX_QUANT_Q8_0_H

#include "quant/encode.h"
#include "quant/unpack.h"

static inline void q8_0_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 34 * i;
  memcpy(q, b + 2, 32);
  mtx_unpack_scale(scale2, min2, MTX_F16_AT(b, 0));
}

MTX_DECODE_BY_UNPACK(q8_0)

static inline void q8_0_encode_block(const float *x, uint8_t *b) {
  float d = mtx_encode_amax(x, 32) / 127.0f, id = mtx_encode_reciprocal(d);
  for (int j = 0; j < 32; j++) b[2 + j] = (uint8_t)mtx_encode_round(x[j] * id, -127, 127);
  mtx_store_u16(b, mtx_f32_to_f16(d));
}

MTX_ENCODE_BY_BLOCK(q8_0, 32, 34)

#endif
