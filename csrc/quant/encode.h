// SPDX-License-Identifier: MIT
// Pieces of the encoders: extremes of a block, rounding, code packing.
//
// The types that ggml quantises without a search are encoded byte for byte like
// it (source of the rules: ggml-quants.c of ggml 0.25, checked by
// tests/golden/quant). Where ggml converts an infinity or NaN to an integer,
// which C leaves undefined, mtx takes 0.
#ifndef MTX_QUANT_ENCODE_H
#define MTX_QUANT_ENCODE_H

#include <math.h>

#include "quant/half.h"

static inline float mtx_encode_amax(const float *x, int n) {
  float amax = 0.0f;
  for (int j = 0; j < n; j++) amax = fabsf(x[j]) > amax ? fabsf(x[j]) : amax;
  return amax;
}

// The first element of largest magnitude, with its sign.
static inline float mtx_encode_peak(const float *x, int n) {
  float amax = 0.0f, peak = 0.0f;
  for (int j = 0; j < n; j++) {
    if (fabsf(x[j]) > amax) {
      amax = fabsf(x[j]);
      peak = x[j];
    }
  }
  return peak;
}

static inline void mtx_encode_range(const float *x, int n, float *min, float *max) {
  *min = *max = x[0];
  for (int j = 1; j < n; j++) {
    if (x[j] < *min) *min = x[j];
    if (x[j] > *max) *max = x[j];
  }
}

// 1 / d; 0 where d is zero or so small that the quotient overflows.
static inline float mtx_encode_reciprocal(float d) {
  float r = d != 0.0f ? 1.0f / d : 0.0f;
  return isfinite(r) ? r : 0.0f;
}

// Integer part of v (towards zero) limited to [lo, hi]; 0 for NaN.
static inline int mtx_encode_int(float v, int lo, int hi) {
  if (!(v >= (float)lo)) return v < (float)lo ? lo : 0;
  return v >= (float)hi ? hi : (int)v;
}

// Nearest integer, halves away from zero.
static inline int mtx_encode_round(float v, int lo, int hi) { return mtx_encode_int(roundf(v), lo, hi); }

// 2 n codes below 16: element j in the low half of byte j, element j + n in the high half.
static inline void mtx_encode_nibbles(const uint8_t *code, int n, uint8_t *dst) {
  for (int j = 0; j < n; j++) dst[j] = (uint8_t)((code[j] & 15) | (code[j + n] & 15) << 4);
}

// Bit 4 of 32 codes as a little-endian u32.
static inline void mtx_encode_fifth_bits(const uint8_t *code, uint8_t *dst) {
  for (int k = 0; k < 4; k++) {
    int bits = 0;
    for (int j = 0; j < 8; j++) bits |= (code[8 * k + j] >> 4 & 1) << j;
    dst[k] = (uint8_t)bits;
  }
}

// E2M1 code whose value times `scale` is nearest to v (the first of equals); `values16` are the
// values of the codes.
static inline uint8_t mtx_encode_e2m1(float v, float scale, const int8_t *values16) {
  int best = 0;
  float best_error = fabsf((float)values16[0] * scale - v);
  for (int k = 1; k < 16; k++) {
    float error = fabsf((float)values16[k] * scale - v);
    if (error < best_error) {
      best_error = error;
      best = k;
    }
  }
  return (uint8_t)best;
}

// Defines T_encode from `void T_encode_block(const float *x, uint8_t *block)`.
#define MTX_ENCODE_BY_BLOCK(T, elements, bytes)                             \
  static inline void T##_encode(const float *src, void *dst, int64_t n) {   \
    uint8_t *block = dst;                                                   \
    for (int64_t i = 0; i < n; i += (elements)) {                           \
      T##_encode_block(src + i, block);                                     \
      block += (bytes);                                                     \
    }                                                                       \
  }

#endif
