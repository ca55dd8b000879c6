// SPDX-License-Identifier: MIT
// NVFP4: 64 elements of E2M1, an unsigned E4M3 scale for each 16.
//
// Block: 4 scales, 32 bytes of codes: of each 16 elements, 8 bytes hold element j low, j + 8 high. The
// table holds doubled values, so the scale is halved. The scale of the whole tensor is another tensor.
#ifndef MTX_QUANT_NVFP4_H
#define MTX_QUANT_NVFP4_H

#include "quant/codebooks.h"
#include "quant/encode.h"
#include "quant/unpack.h"

// Half of an E4M3 number without sign; 0x7F, its NaN, reads as zero, as in ggml.
static inline float mtx_nvfp4_scale(uint8_t x) {
  int exponent = x >> 3 & 15, mantissa = x & 7;
  if (x == 0x7F) return 0.0f;
  if (exponent == 0) return (float)mantissa * 0x1p-10f;
  return mtx_f32_from_bits((uint32_t)(exponent - 8 + 127) << 23 | (uint32_t)mantissa << 20);
}

static inline void nvfp4_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 36 * (i / 2);
  int s = (int)(i % 2);
  for (int h = 0; h < 2; h++) {
    const uint8_t *codes = b + 4 + 16 * s + 8 * h;
    for (int j = 0; j < 8; j++) {
      q[16 * h + j] = mtx_e2m1_values[codes[j] & 15];
      q[16 * h + 8 + j] = mtx_e2m1_values[codes[j] >> 4];
    }
    scale2[h] = mtx_nvfp4_scale(b[2 * s + h]);
  }
  min2[0] = min2[1] = 0.0f;
}

MTX_DECODE_BY_UNPACK(nvfp4)

// E4M3 code of v >= 0: halves round up, and past the largest finite value, 448, it stays there.
static inline uint8_t mtx_nvfp4_scale_code(float v) {
  if (!(v > 0.0f)) return 0;
  uint32_t bits = mtx_f32_bits(v);
  int exponent = (int)(bits >> 23) - 127 + 7;
  if (exponent <= 0) return (uint8_t)mtx_encode_int(v * 512.0f + 0.5f, 0, 7);
  uint32_t code = ((uint32_t)exponent << 3) + ((bits >> 20 & 7) + (bits >> 19 & 1));
  return code < 0x7E ? (uint8_t)code : 0x7E;
}

static inline void nvfp4_encode_block(const float *x, uint8_t *b) {
  for (int g = 0; g < 4; g++, x += 16) {
    b[g] = mtx_nvfp4_scale_code(mtx_encode_amax(x, 16) / 6.0f);
    float scale = mtx_nvfp4_scale(b[g]);
    uint8_t code[16];
    for (int j = 0; j < 16; j++) code[j] = mtx_encode_e2m1(x[j], scale, mtx_e2m1_values);
    mtx_encode_nibbles(code, 8, b + 4 + 8 * g);
  }
}

MTX_ENCODE_BY_BLOCK(nvfp4, 64, 36)

#endif
