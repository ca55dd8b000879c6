// SPDX-License-Identifier: MIT
// TQ1_0: 256 ternary elements, five to a byte, one scale.
//
// Block: 48 bytes of five digits each, 4 bytes of four digits each, f16 d. A byte is the fraction
// digits/3^5 of 256, rounded up: times 3^n, modulo 256, its top base-3 digit is digit n. Bytes 0..31
// hold runs 0..4 of 32 elements, bytes 32..47 five runs of 16, bytes 48..51 four runs of 4.
// w = d (digit - 1).
#ifndef MTX_QUANT_TQ1_0_H
#define MTX_QUANT_TQ1_0_H

#include "quant/encode.h"
#include "quant/unpack.h"

// Digit n of a byte, less one; pow3 is 3^n.
static inline int8_t mtx_tq1_0_digit(uint8_t byte, uint8_t pow3) {
  return (int8_t)(((uint8_t)(byte * pow3) * 3 >> 8) - 1);
}

static inline void tq1_0_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 54 * (i / 8);
  int s = (int)(i % 8);
  static const uint8_t pow3[5] = {1, 3, 9, 27, 81};
  if (s < 5) {
    for (int j = 0; j < 32; j++) q[j] = mtx_tq1_0_digit(b[j], pow3[s]);
  } else {
    int n = 2 * (s - 5);
    for (int j = 0; j < 16; j++) q[j] = mtx_tq1_0_digit(b[32 + j], pow3[n]);
    for (int j = 0; j < 16; j++)
      q[16 + j] = s < 7 ? mtx_tq1_0_digit(b[32 + j], pow3[n + 1]) : mtx_tq1_0_digit(b[48 + j % 4], pow3[j / 4]);
  }
  mtx_unpack_scale(scale2, min2, MTX_F16_AT(b, 52));
}

MTX_DECODE_BY_UNPACK(tq1_0)

// n digits, `stride` apart, as a byte; a missing fifth digit counts as 0.
static inline uint8_t mtx_tq1_0_pack(const uint8_t *digit, int stride, int n) {
  int v = 0;
  for (int k = 0; k < 5; k++) v = 3 * v + (k < n ? digit[k * stride] : 0);
  return (uint8_t)((v * 256 + 242) / 243);
}

static inline void tq1_0_encode_block(const float *x, uint8_t *b) {
  float d = mtx_encode_amax(x, 256), id = mtx_encode_reciprocal(d);
  uint8_t digit[256];
  for (int j = 0; j < 256; j++) digit[j] = (uint8_t)(mtx_encode_round(x[j] * id, -1, 1) + 1);
  for (int j = 0; j < 32; j++) b[j] = mtx_tq1_0_pack(digit + j, 32, 5);
  for (int j = 0; j < 16; j++) b[32 + j] = mtx_tq1_0_pack(digit + 160 + j, 16, 5);
  for (int j = 0; j < 4; j++) b[48 + j] = mtx_tq1_0_pack(digit + 240 + j, 4, 4);
  mtx_store_u16(b + 52, mtx_f32_to_f16(d));
}

MTX_ENCODE_BY_BLOCK(tq1_0, 256, 54)

#endif
