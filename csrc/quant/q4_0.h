// SPDX-License-Identifier: MIT
// Q4_0: 32 elements, 4 bits, one scale.
//
// Block: f16 d, 16 bytes of codes (element j low, j + 16 high). w = d (code - 8).
#ifndef MTX_QUANT_Q4_0_H
#define MTX_QUANT_Q4_0_H

#include "quant/encode.h"
#include "quant/unpack.h"

static inline void q4_0_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 18 * i;
  mtx_unpack_nibbles(b + 2, q);
  for (int j = 0; j < 32; j++) q[j] = (int8_t)(q[j] - 8);
  mtx_unpack_scale(scale2, min2, MTX_F16_AT(b, 0));
}

MTX_DECODE_BY_UNPACK(q4_0)

static inline void q4_0_encode_block(const float *x, uint8_t *b) {
  float d = mtx_encode_peak(x, 32) / -8.0f, id = mtx_encode_reciprocal(d);
  uint8_t code[32];
  for (int j = 0; j < 32; j++) code[j] = (uint8_t)mtx_encode_int(x[j] * id + 8.5f, 0, 15);
  mtx_store_u16(b, mtx_f32_to_f16(d));
  mtx_encode_nibbles(code, 16, b + 2);
}

MTX_ENCODE_BY_BLOCK(q4_0, 32, 18)

#endif
