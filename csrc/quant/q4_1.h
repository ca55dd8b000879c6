// SPDX-License-Identifier: MIT
// Q4_1: 32 elements, 4 bits, scale and offset.
//
// Block: f16 d, f16 m, 16 bytes of codes (element j low, j + 16 high). w = d code + m.
#ifndef MTX_QUANT_Q4_1_H
#define MTX_QUANT_Q4_1_H

#include "quant/encode.h"
#include "quant/unpack.h"

static inline void q4_1_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 20 * i;
  mtx_unpack_nibbles(b + 4, q);
  scale2[0] = scale2[1] = MTX_F16_AT(b, 0);
  min2[0] = min2[1] = MTX_F16_AT(b, 2);
}

MTX_DECODE_BY_UNPACK(q4_1)

static inline void q4_1_encode_block(const float *x, uint8_t *b) {
  float min, max;
  mtx_encode_range(x, 32, &min, &max);
  float d = (max - min) / 15.0f, id = mtx_encode_reciprocal(d);
  uint8_t code[32];
  for (int j = 0; j < 32; j++) code[j] = (uint8_t)mtx_encode_int((x[j] - min) * id + 0.5f, 0, 15);
  mtx_store_u16(b, mtx_f32_to_f16(d));
  mtx_store_u16(b + 2, mtx_f32_to_f16(min));
  mtx_encode_nibbles(code, 16, b + 4);
}

MTX_ENCODE_BY_BLOCK(q4_1, 32, 20)

#endif
