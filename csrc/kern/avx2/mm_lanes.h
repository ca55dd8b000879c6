// SPDX-License-Identifier: MIT
// What matmul_tpl.h needs, 8 rows in one AVX2 register.
//
// VPMADDUBSW adds pairs of products in 16 bits and saturates, so sums are widened
// before they can: products of b-bit weights and |x| <= 127 allow 8, 4, 2 pairs for
// 4, 5, 6 bits. Full bytes use |w| and x with w's sign: 2 * 128 * 127 < 2^15.
#ifndef MTX_KERN_AVX2_MM_LANES_H
#define MTX_KERN_AVX2_MM_LANES_H

#include "lanes.h"

enum { MM_VL = 8, MM_FC = 3 };
#define MM_NC 4
#define MM_SIGNED 1
#define MM_TOGETHER 1

typedef __m256 mf;
typedef __m256i mi;
typedef __m256i mb;

LANES_INLINE mf mf_zero(void) { return _mm256_setzero_ps(); }
LANES_INLINE mf mf_set1(float x) { return _mm256_set1_ps(x); }
LANES_INLINE mf mf_load(const float *p) { return _mm256_loadu_ps(p); }
LANES_INLINE void mf_store(float *p, mf a) { _mm256_storeu_ps(p, a); }
LANES_INLINE mf mf_add(mf a, mf b) { return _mm256_add_ps(a, b); }
LANES_INLINE mf mf_mul(mf a, mf b) { return _mm256_mul_ps(a, b); }
LANES_INLINE mf mf_fma(mf a, mf b, mf c) { return _mm256_fmadd_ps(a, b, c); }
LANES_INLINE mf mf_neg(mf a) { return _mm256_xor_ps(_mm256_set1_ps(-0.0f), a); }
LANES_INLINE mf mf_cvt(mi a) { return _mm256_cvtepi32_ps(a); }
LANES_INLINE mf mf_f16(const uint8_t *p) { return ps_f16((const void *)p); }
LANES_INLINE mf mf_bf16(const uint8_t *p) { return ps_bf16((const void *)p); }
LANES_INLINE mi mi_u8(const uint8_t *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)); }
LANES_INLINE mf mf_u8(const uint8_t *p) { return _mm256_cvtepi32_ps(mi_u8(p)); }
LANES_INLINE mf mf_i8(const uint8_t *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p))); }
LANES_INLINE mf mf_e8m0_half(const uint8_t *p) {
  mi e = mi_u8(p), normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  mi small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

LANES_INLINE mi mi_set1(int32_t x) { return _mm256_set1_epi32(x); }
LANES_INLINE mi mi_shl(mi a, const int n) { return _mm256_slli_epi32(a, n); }

LANES_INLINE mb mb_load(const uint8_t *p) { return _mm256_loadu_si256((const void *)p); }
LANES_INLINE mb mb_low(mb a) { return _mm256_and_si256(a, _mm256_set1_epi8(15)); }
LANES_INLINE mb mb_high(mb a) { return _mm256_and_si256(_mm256_srli_epi16(a, 4), _mm256_set1_epi8(15)); }
LANES_INLINE mb mb_flip(mb a) { return _mm256_xor_si256(a, _mm256_set1_epi8(-128)); }
LANES_INLINE mb mb_or_shl(mb a, mb h, const int n, const int mask) {
  return _mm256_or_si256(a, _mm256_and_si256(_mm256_slli_epi16(h, n), _mm256_set1_epi8((char)mask)));
}
LANES_INLINE mb mb_or_shr(mb a, mb h, const int n, const int mask) {
  return _mm256_or_si256(a, _mm256_and_si256(_mm256_srli_epi16(h, n), _mm256_set1_epi8((char)mask)));
}
LANES_INLINE mb mb_lut(mb a, const uint8_t *table) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table)), a);
}

LANES_INLINE __m256i dot_pairs(mb w, const int8_t *x, const int bits) {
  int32_t four;
  memcpy(&four, x, 4);
  __m256i xv = _mm256_set1_epi32(four);
  if (bits < 8) return _mm256_maddubs_epi16(w, xv);
  return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(xv, w));
}
LANES_INLINE mi mm_dot(const mb *w, const int8_t *x, const int n, const int bits, mi start) {
  const int run = bits == 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1;
  for (int v = 0; v < n; v += run) {
    __m256i s = dot_pairs(w[v], x + 4 * v, bits);
    for (int j = 1; j < run && v + j < n; j++) s = _mm256_add_epi16(s, dot_pairs(w[v + j], x + 4 * (v + j), bits));
    start = _mm256_add_epi32(start, _mm256_madd_epi16(s, _mm256_set1_epi16(1)));
  }
  return start;
}

LANES_INLINE __m256i ps_abs_bits(__m256 x) { return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7FFFFFFF)); }
LANES_INLINE uint32_t vf_absmax_bits(vf x, vf y) {
  __m256i m = _mm256_max_epu32(_mm256_max_epu32(ps_abs_bits(x.a), ps_abs_bits(x.b)), _mm256_max_epu32(ps_abs_bits(y.a), ps_abs_bits(y.b)));
  __m128i h = _mm_max_epu32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  h = _mm_max_epu32(h, _mm_shuffle_epi32(h, 0x4E));
  h = _mm_max_epu32(h, _mm_shuffle_epi32(h, 0xB1));
  return (uint32_t)_mm_cvtsi128_si32(h);
}
LANES_INLINE int32_t vf_quantise(int8_t *q, vf x) {
  __m256i i = _mm256_cvtps_epi32(x.a), j = _mm256_cvtps_epi32(x.b), s = _mm256_add_epi32(i, j);
  __m256i h = _mm256_permute4x64_epi64(_mm256_packs_epi32(i, j), 0xD8);
  _mm_storeu_si128((void *)q, _mm_packs_epi16(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1)));
  __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
  t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4E));
  t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0xB1));
  return _mm_cvtsi128_si32(t);
}

#endif
