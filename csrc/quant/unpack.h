// SPDX-License-Identifier: MIT
// What every quantised type has in common: 32 weights as small integers with scales.
//
// A type's header defines, from its byte layout,
//
//   void T_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2)
//
// which writes the 32 integers q of elements [32 i, 32 i + 32) of a row, and for
// each half h of 16 elements a scale and an offset, such that
//
//   weight[32 i + j] = scale2[j / 16] * q[j] + min2[j / 16]
//
// with one rounding a step is ggml's value bit for bit (the sign of a zero is
// free). min2 is 0 for types without has_min. The row is at any address. Every
// bit pattern of the row is legal input: codes are masked before they index.
// q is -127..127; only Q8_0, Q8_1
// and Q8_K may hold -128. This is all that decoding and a multiplication by any type need.
#ifndef MTX_QUANT_UNPACK_H
#define MTX_QUANT_UNPACK_H

#include "quant/half.h"

#define MTX_INLINE static inline __attribute__((always_inline))

// Half float at byte `at` of a block.
#define MTX_F16_AT(block, at) mtx_f16_to_f32(mtx_load_u16((block) + (at)))

static inline uint32_t mtx_load_u32(const void *p) {
  const uint8_t *b = p;
  return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline void mtx_unpack_scale(float *scale2, float *min2, float scale) {
  scale2[0] = scale2[1] = scale;
  min2[0] = min2[1] = 0.0f;
}

// 16 bytes -> 32 4-bit codes: the low halves, then the high halves.
static inline void mtx_unpack_nibbles(const uint8_t *src, int8_t *q) {
  for (int j = 0; j < 16; j++) {
    q[j] = (int8_t)(src[j] & 15);
    q[j + 16] = (int8_t)(src[j] >> 4);
  }
}

// Bit j of `bits` moved to bit `to` of q[j]; the other bits of q are kept.
static inline void mtx_unpack_or_bits(uint32_t bits, int to, int8_t *q) {
  for (int j = 0; j < 32; j++) q[j] = (int8_t)(q[j] | (int)(bits >> j & 1u) << to);
}

typedef void mtx_unpack_fn(const void *row, int64_t i, int8_t *q, float *scale2, float *min2);

MTX_INLINE void mtx_unpack_decode(mtx_unpack_fn *unpack, const void *src, float *dst, int64_t n) {
  int8_t q[32];
  float scale[2], min[2];
  for (int64_t i = 0; i < n / 32; i++, dst += 32) {
    unpack(src, i, q, scale, min);
    for (int j = 0; j < 32; j++) {
      float product = scale[j / 16] * (float)q[j];
      dst[j] = product + min[j / 16];
    }
  }
}

// Defines T_decode from T_unpack.
#define MTX_DECODE_BY_UNPACK(T) \
  static inline void T##_decode(const void *src, float *dst, int64_t n) { mtx_unpack_decode(T##_unpack, src, dst, n); }

#endif
