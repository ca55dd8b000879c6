// SPDX-License-Identifier: MIT
// Q8_1: Q8_0 with the sum of its block; an activation format, rarely in a file.
//
// Block: f16 d, f16 s (d times the sum of q; not needed to decode), 32 signed bytes. w = d q.
#ifndef MTX_QUANT_Q8_1_H
#define MTX_QUANT_Q8_1_H

#include "quant/encode.h"
#include "quant/unpack.h"

static inline void q8_1_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 36 * i;
  memcpy(q, b + 4, 32);
  mtx_unpack_scale(scale2, min2, MTX_F16_AT(b, 0));
}

MTX_DECODE_BY_UNPACK(q8_1)

static inline void q8_1_encode_block(const float *x, uint8_t *b) {
  float d = mtx_encode_amax(x, 32) / 127.0f, id = mtx_encode_reciprocal(d);
  int sum = 0;
  for (int j = 0; j < 32; j++) {
    int q = mtx_encode_round(x[j] * id, -127, 127);
    b[4 + j] = (uint8_t)q;
    sum += q;
  }
  mtx_store_u16(b, mtx_f32_to_f16(d));
  mtx_store_u16(b + 2, mtx_f32_to_f16((float)sum * d));
}

MTX_ENCODE_BY_BLOCK(q8_1, 32, 36)

#endif
