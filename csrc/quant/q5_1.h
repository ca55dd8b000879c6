// SPDX-License-Identifier: MIT
// Q5_1: 32 elements, 5 bits, scale and offset.
//
// Block: f16 d, f16 m, u32 of fifth bits, 16 bytes of low codes, as in Q5_0. w = d code + m.
#ifndef MTX_QUANT_Q5_1_H
#define MTX_QUANT_Q5_1_H

#include "quant/encode.h"
#include "quant/unpack.h"

static inline void q5_1_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 24 * i;
  mtx_unpack_nibbles(b + 8, q);
  mtx_unpack_or_bits(mtx_load_u32(b + 4), 4, q);
  scale2[0] = scale2[1] = MTX_F16_AT(b, 0);
  min2[0] = min2[1] = MTX_F16_AT(b, 2);
}

MTX_DECODE_BY_UNPACK(q5_1)

static inline void q5_1_encode_block(const float *x, uint8_t *b) {
  float min, max;
  mtx_encode_range(x, 32, &min, &max);
  float d = (max - min) / 31.0f, id = mtx_encode_reciprocal(d);
  uint8_t code[32];
  for (int j = 0; j < 32; j++) code[j] = (uint8_t)mtx_encode_int((x[j] - min) * id + 0.5f, 0, 31);
  mtx_store_u16(b, mtx_f32_to_f16(d));
  mtx_store_u16(b + 2, mtx_f32_to_f16(min));
  mtx_encode_fifth_bits(code, b + 4);
  mtx_encode_nibbles(code, 16, b + 8);
}

MTX_ENCODE_BY_BLOCK(q5_1, 32, 24)

#endif
