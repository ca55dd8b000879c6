// SPDX-License-Identifier: MIT
// Q8_K: 256 elements, 8 bits, one f32 scale; an activation format, rarely in a file.
//
// Block: f32 d, 256 signed bytes, 16 sums of 16 elements as i16 (not needed to decode). w = d q.
#ifndef MTX_QUANT_Q8_K_H
#define MTX_QUANT_Q8_K_H

#include "quant/encode.h"
#include "quant/unpack.h"

static inline void q8_k_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 292 * (i / 8);
  int s = (int)(i % 8);
  memcpy(q, b + 4 + 32 * s, 32);
  mtx_unpack_scale(scale2, min2, mtx_f32_from_bits(mtx_load_u32(b)));
}

MTX_DECODE_BY_UNPACK(q8_k)

static inline void q8_k_encode_block(const float *x, uint8_t *b) {
  float peak = mtx_encode_peak(x, 256), iscale = peak != 0.0f ? -127.0f / peak : 0.0f;
  if (!isfinite(iscale)) iscale = 0.0f;
  int sums[16] = {0};
  for (int j = 0; j < 256; j++) {
    int q = mtx_encode_int(rintf(x[j] * iscale), -127, 127);
    b[4 + j] = (uint8_t)q;
    sums[j / 16] += q;
  }
  uint32_t d = mtx_f32_bits(mtx_encode_reciprocal(iscale));
  for (int k = 0; k < 4; k++) b[k] = (uint8_t)(d >> 8 * k);
  for (int g = 0; g < 16; g++) mtx_store_u16(b + 260 + 2 * g, (uint16_t)sums[g]);
}

MTX_ENCODE_BY_BLOCK(q8_k, 256, 292)

#endif
