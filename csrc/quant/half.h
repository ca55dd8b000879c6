// SPDX-License-Identifier: MIT
// Conversions between f32 and the 16-bit floats, in plain C.
//
// Integer steps only where rounding matters, so the result is the same on every
// CPU: nearest, ties to even. NaN stays NaN (quiet); its payload is not kept.
// They assume that the float environment is the default one (round to nearest,
// subnormals kept).
#ifndef MTX_QUANT_HALF_H
#define MTX_QUANT_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t mtx_f32_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

static inline float mtx_f32_from_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

// A little-endian 16-bit field at any address (the bytes of a file).
static inline uint16_t mtx_load_u16(const void *p) {
  const uint8_t *b = p;
  return (uint16_t)(b[0] | b[1] << 8);
}

static inline void mtx_store_u16(void *p, uint16_t v) {
  uint8_t *b = p;
  b[0] = (uint8_t)v;
  b[1] = (uint8_t)(v >> 8);
}

// IEEE 754 binary16 -> binary32, exact.
static inline float mtx_f16_to_f32(uint16_t h) {
  uint32_t em = h & 0x7FFFu;
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
  uint32_t rebias = em >= 0x7C00u ? 224u << 23 : 112u << 23;  // 127 - 15; infinity and NaN go to 255
  uint32_t normal = (em << 13) + rebias;
  uint32_t subnormal = mtx_f32_bits((float)(int32_t)em * 0x1p-24f);
  return mtx_f32_from_bits(sign | (em < 0x0400u ? subnormal : normal));
}

static inline uint16_t mtx_f32_to_f16(float f) {
  uint32_t u = mtx_f32_bits(f);
  uint32_t sign = (u >> 16) & 0x8000u;
  uint32_t a = u & 0x7FFFFFFFu;
  uint32_t r;
  if (a > 0x7F800000u) {
    r = 0x7E00u;
  } else if (a >= 0x477FF000u) {  // 65520, half way past the largest half
    r = 0x7C00u;
  } else if (a < 0x38800000u) {
    // Below 2^-14 a half counts in steps of 2^-24, the step of an f32 in [0.5, 1): the addition rounds.
    r = mtx_f32_bits(mtx_f32_from_bits(a) + 0.5f) - 0x3F000000u;
  } else {
    r = (a - (112u << 23) + 0x0FFFu + ((a >> 13) & 1u)) >> 13;
  }
  return (uint16_t)(sign | r);
}

static inline float mtx_bf16_to_f32(uint16_t b) { return mtx_f32_from_bits((uint32_t)b << 16); }

static inline uint16_t mtx_f32_to_bf16(float f) {
  uint32_t u = mtx_f32_bits(f);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)((u >> 16) | 0x0040u);
  return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

#endif
