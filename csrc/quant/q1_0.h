// SPDX-License-Identifier: MIT
// Q1_0: 128 elements, one sign bit each, one scale.
//
// Block: f16 d, 16 bytes of bits, lowest first. w = d for a set bit, else -d.
#ifndef MTX_QUANT_Q1_0_H
#define MTX_QUANT_Q1_0_H

#include "quant/encode.h"
#include "quant/unpack.h"

static inline void q1_0_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 18 * (i / 4);
  int s = (int)(i % 4);
  uint32_t bits = mtx_load_u32(b + 2 + 4 * s);
  for (int j = 0; j < 32; j++) q[j] = (int8_t)((int)(bits >> j & 1u) * 2 - 1);
  mtx_unpack_scale(scale2, min2, MTX_F16_AT(b, 0));
}

MTX_DECODE_BY_UNPACK(q1_0)

static inline void q1_0_encode_block(const float *x, uint8_t *b) {
  float sum = 0.0f;
  for (int j = 0; j < 128; j++) sum += fabsf(x[j]);
  memset(b + 2, 0, 16);
  for (int j = 0; j < 128; j++) b[2 + j / 8] = (uint8_t)(b[2 + j / 8] | (x[j] >= 0.0f) << j % 8);
  mtx_store_u16(b, mtx_f32_to_f16(sum / 128.0f));
}

MTX_ENCODE_BY_BLOCK(q1_0, 128, 18)

#endif
