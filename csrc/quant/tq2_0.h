// SPDX-License-Identifier: MIT
// TQ2_0: 256 ternary elements, 2 bits, one scale.
//
// Block: 64 bytes of codes (a run of 32 bytes holds four runs of 32 elements, two bits each), f16 d.
// w = d (code - 1).
#ifndef MTX_QUANT_TQ2_0_H
#define MTX_QUANT_TQ2_0_H

#include "quant/encode.h"
#include "quant/unpack.h"

static inline void tq2_0_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 66 * (i / 8);
  int s = (int)(i % 8);
  const uint8_t *codes = b + 32 * (s / 4);
  for (int j = 0; j < 32; j++) q[j] = (int8_t)((codes[j] >> 2 * (s % 4) & 3) - 1);
  mtx_unpack_scale(scale2, min2, MTX_F16_AT(b, 64));
}

MTX_DECODE_BY_UNPACK(tq2_0)

static inline void tq2_0_encode_block(const float *x, uint8_t *b) {
  float d = mtx_encode_amax(x, 256), id = mtx_encode_reciprocal(d);
  memset(b, 0, 64);
  for (int j = 0; j < 256; j++) {
    int code = mtx_encode_round(x[j] * id, -1, 1) + 1, run = j / 32;
    uint8_t *at = b + 32 * (run / 4) + j % 32;
    *at = (uint8_t)(*at | code << 2 * (run % 4));
  }
  mtx_store_u16(b + 64, mtx_f32_to_f16(d));
}

MTX_ENCODE_BY_BLOCK(tq2_0, 256, 66)

#endif
