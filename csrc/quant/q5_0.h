// SPDX-License-Identifier: MIT
// Q5_0: 32 elements, 5 bits, one scale.
//
// Block: f16 d, u32 of fifth bits (bit j of element j), 16 bytes of low codes (element j low,
// j + 16 high). w = d (code - 16).
#ifndef MTX_QUANT_Q5_0_H
#define MTX_QUANT_Q5_0_H

#include "quant/encode.h"
#include "quant/unpack.h"

static inline void q5_0_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 22 * i;
  mtx_unpack_nibbles(b + 6, q);
  mtx_unpack_or_bits(mtx_load_u32(b + 2), 4, q);
  for (int j = 0; j < 32; j++) q[j] = (int8_t)(q[j] - 16);
  mtx_unpack_scale(scale2, min2, MTX_F16_AT(b, 0));
}

MTX_DECODE_BY_UNPACK(q5_0)

static inline void q5_0_encode_block(const float *x, uint8_t *b) {
  float d = mtx_encode_peak(x, 32) / -16.0f, id = mtx_encode_reciprocal(d);
  uint8_t code[32];
  for (int j = 0; j < 32; j++) code[j] = (uint8_t)mtx_encode_int(x[j] * id + 16.5f, 0, 31);
  mtx_store_u16(b, mtx_f32_to_f16(d));
  mtx_encode_fifth_bits(code, b + 2);
  mtx_encode_nibbles(code, 16, b + 6);
}

MTX_ENCODE_BY_BLOCK(q5_0, 32, 22)

#endif
