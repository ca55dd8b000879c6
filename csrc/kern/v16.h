// SPDX-License-Identifier: MIT
// Sixteen float lanes on any ISA: what the shared kernel bodies (*_tpl.h) are
// written in. Chosen by the flags a folder is compiled with, so one body gives
// one kernel per tier. Every operation rounds the same on every tier: fma is one
// rounding everywhere, and exp is this file's polynomial, not the C library's.
#ifndef MTX_KERN_V16_H
#define MTX_KERN_V16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "quant/half.h"

#if defined(__AVX512F__)
#include <immintrin.h>

typedef __m512 v16;
static inline v16 v16_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v16_store(float *p, v16 a) { _mm512_storeu_ps(p, a); }
static inline v16 v16_set(float x) { return _mm512_set1_ps(x); }
static inline v16 v16_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
static inline v16 v16_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
static inline v16 v16_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
static inline v16 v16_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
static inline v16 v16_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
static inline v16 v16_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
static inline v16 v16_round(v16 a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
// 2^n for whole n in [-126, 127].
static inline v16 v16_pow2(v16 n) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23)); }
// lane < limit ? a : b, lanes counted from `base`
static inline v16 v16_below(v16 x, v16 limit, v16 a, v16 b) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, limit, _CMP_LT_OQ), b, a); }
static inline v16 v16_from_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
static inline void v16_to_f16(uint16_t *p, v16 a) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)); }
static inline v16 v16_from_bf16(const uint16_t *p) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16)); }
static inline v16 v16_from_i8(const int8_t *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p))); }

#elif defined(__AVX2__)
#include <immintrin.h>

typedef struct { __m256 lo, hi; } v16;
static inline v16 v16_load(const float *p) { return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void v16_store(float *p, v16 a) { _mm256_storeu_ps(p, a.lo); _mm256_storeu_ps(p + 8, a.hi); }
static inline v16 v16_set(float x) { return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline v16 v16_add(v16 a, v16 b) { return (v16){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
static inline v16 v16_sub(v16 a, v16 b) { return (v16){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
static inline v16 v16_mul(v16 a, v16 b) { return (v16){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
static inline v16 v16_div(v16 a, v16 b) { return (v16){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
static inline v16 v16_fma(v16 a, v16 b, v16 c) { return (v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
static inline v16 v16_max(v16 a, v16 b) { return (v16){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
static inline v16 v16_round(v16 a) {
  return (v16){_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
static inline __m256 v8_pow2(__m256 n) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23)); }
static inline v16 v16_pow2(v16 n) { return (v16){v8_pow2(n.lo), v8_pow2(n.hi)}; }
static inline v16 v16_below(v16 x, v16 limit, v16 a, v16 b) {
  return (v16){_mm256_blendv_ps(b.lo, a.lo, _mm256_cmp_ps(x.lo, limit.lo, _CMP_LT_OQ)), _mm256_blendv_ps(b.hi, a.hi, _mm256_cmp_ps(x.hi, limit.hi, _CMP_LT_OQ))};
}
static inline v16 v16_from_f16(const uint16_t *p) {
  return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
static inline void v16_to_f16(uint16_t *p, v16 a) {
  _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}
static inline __m256 v8_from_bf16(const uint16_t *p) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16)); }
static inline v16 v16_from_bf16(const uint16_t *p) { return (v16){v8_from_bf16(p), v8_from_bf16(p + 8)}; }
static inline __m256 v8_from_i8(const int8_t *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p))); }
static inline v16 v16_from_i8(const int8_t *p) { return (v16){v8_from_i8(p), v8_from_i8(p + 8)}; }

#else

typedef struct { float f[16]; } v16;
#define V16_EACH(expr) v16 r; for (int i = 0; i < 16; i++) r.f[i] = (expr); return r
static inline v16 v16_load(const float *p) { v16 r; memcpy(&r, p, sizeof r); return r; }
static inline void v16_store(float *p, v16 a) { memcpy(p, &a, sizeof a); }
static inline v16 v16_set(float x) { V16_EACH(x); }
static inline v16 v16_add(v16 a, v16 b) { V16_EACH(a.f[i] + b.f[i]); }
static inline v16 v16_sub(v16 a, v16 b) { V16_EACH(a.f[i] - b.f[i]); }
static inline v16 v16_mul(v16 a, v16 b) { V16_EACH(a.f[i] * b.f[i]); }
static inline v16 v16_div(v16 a, v16 b) { V16_EACH(a.f[i] / b.f[i]); }
static inline v16 v16_fma(v16 a, v16 b, v16 c) { V16_EACH(fmaf(a.f[i], b.f[i], c.f[i])); }
static inline v16 v16_max(v16 a, v16 b) { V16_EACH(a.f[i] > b.f[i] ? a.f[i] : b.f[i]); }  // b when either is NaN, as x86
static inline v16 v16_round(v16 a) { V16_EACH(nearbyintf(a.f[i])); }
static inline v16 v16_pow2(v16 n) {
  v16 r;
  for (int i = 0; i < 16; i++) {
    int32_t e = n.f[i] >= -126.0f && n.f[i] <= 127.0f ? (int32_t)n.f[i] : 0;
    uint32_t bits = (uint32_t)(e + 127) << 23;
    memcpy(&r.f[i], &bits, 4);
  }
  return r;
}
static inline v16 v16_below(v16 x, v16 limit, v16 a, v16 b) { V16_EACH(x.f[i] < limit.f[i] ? a.f[i] : b.f[i]); }
static inline v16 v16_from_f16(const uint16_t *p) { V16_EACH(mtx_f16_to_f32(p[i])); }
static inline void v16_to_f16(uint16_t *p, v16 a) { for (int i = 0; i < 16; i++) p[i] = mtx_f32_to_f16(a.f[i]); }
static inline v16 v16_from_bf16(const uint16_t *p) { V16_EACH(mtx_bf16_to_f32(p[i])); }
static inline v16 v16_from_i8(const int8_t *p) { V16_EACH((float)p[i]); }

#endif

static inline v16 v16_iota(float base) {
  float f[16];
  for (int i = 0; i < 16; i++) f[i] = base + (float)i;
  return v16_load(f);
}

// Sum and maximum of the lanes in one fixed tree: 16 -> 8 -> 4 -> 2 -> 1, lane i
// with lane i + half.
#if defined(__AVX512F__) || defined(__AVX2__)
#if defined(__AVX512F__)
static inline __m256 v16_low(v16 a) { return _mm512_castps512_ps256(a); }
static inline __m256 v16_high(v16 a) { return _mm512_extractf32x8_ps(a, 1); }
#else
static inline __m256 v16_low(v16 a) { return a.lo; }
static inline __m256 v16_high(v16 a) { return a.hi; }
#endif
static inline float v16_sum(v16 a) {
  __m256 x = _mm256_add_ps(v16_low(a), v16_high(a));
  __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_add_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
static inline float v16_hmax(v16 a) {
  __m256 x = _mm256_max_ps(v16_low(a), v16_high(a));
  __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_max_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}
#else
static inline float v16_sum(v16 a) {
  for (int w = 8; w; w >>= 1)
    for (int i = 0; i < w; i++) a.f[i] += a.f[i + w];
  return a.f[0];
}
static inline float v16_hmax(v16 a) {
  for (int w = 8; w; w >>= 1)
    for (int i = 0; i < w; i++) a.f[i] = a.f[i] > a.f[i + w] ? a.f[i] : a.f[i + w];
  return a.f[0];
}
#endif

// e^x, about 1 ulp: x = n ln2 + r, |r| <= ln2/2, degree-6 polynomial in r (Cephes
// expf's coefficients), times 2^n. Below -87 the result is exactly 0, above 88 it
// is that of 88; NaN gives NaN.
static inline v16 v16_exp(v16 x) {
  v16 hi = v16_below(v16_set(88.0f), x, v16_set(88.0f), x);
  v16 n = v16_round(v16_mul(hi, v16_set(1.44269504088896341f)));
  v16 r = v16_fma(n, v16_set(-0.693359375f), hi);
  r = v16_fma(n, v16_set(2.12194440e-4f), r);
  v16 p = v16_set(1.9875691500e-4f);
  p = v16_fma(p, r, v16_set(1.3981999507e-3f));
  p = v16_fma(p, r, v16_set(8.3334519073e-3f));
  p = v16_fma(p, r, v16_set(4.1665795894e-2f));
  p = v16_fma(p, r, v16_set(1.6666665459e-1f));
  p = v16_fma(p, r, v16_set(5.0000001201e-1f));
  p = v16_fma(v16_mul(r, r), p, v16_add(r, v16_set(1.0f)));
  v16 y = v16_mul(p, v16_pow2(v16_below(n, v16_set(-126.0f), v16_set(-126.0f), n)));
  return v16_below(x, v16_set(-87.0f), v16_set(0.0f), y);
}

#endif
