// SPDX-License-Identifier: MIT
// What matmul_tpl.h needs, 16 rows in one AVX-512 register. The dot product is in dot_vnni.h or dot_bw.h.
#ifndef MTX_KERN_AVX512_MM_LANES_H
#define MTX_KERN_AVX512_MM_LANES_H

#include "lanes.h"

enum { MM_VL = 16, MM_FC = 6 };
#define MM_NC 8

typedef __m512 mf;
typedef __m512i mi;
typedef __m512i mb;

LANES_INLINE mf mf_zero(void) { return _mm512_setzero_ps(); }
LANES_INLINE mf mf_set1(float x) { return _mm512_set1_ps(x); }
LANES_INLINE mf mf_load(const float *p) { return _mm512_loadu_ps(p); }
LANES_INLINE void mf_store(float *p, mf a) { _mm512_storeu_ps(p, a); }
LANES_INLINE mf mf_add(mf a, mf b) { return _mm512_add_ps(a, b); }
LANES_INLINE mf mf_mul(mf a, mf b) { return _mm512_mul_ps(a, b); }
LANES_INLINE mf mf_fma(mf a, mf b, mf c) { return _mm512_fmadd_ps(a, b, c); }
LANES_INLINE mf mf_neg(mf a) { return vf_neg(a); }
LANES_INLINE mf mf_cvt(mi a) { return _mm512_cvtepi32_ps(a); }
LANES_INLINE mf mf_f16(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
LANES_INLINE mf mf_bf16(const uint8_t *p) { return vf_load_bf16((const void *)p); }
LANES_INLINE mi mi_u8(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p)); }
LANES_INLINE mf mf_u8(const uint8_t *p) { return _mm512_cvtepi32_ps(mi_u8(p)); }
LANES_INLINE mf mf_i8(const uint8_t *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p))); }
LANES_INLINE mf mf_e8m0_half(const uint8_t *p) {
  mi e = mi_u8(p), normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
  __mmask16 small = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
  return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, small, _mm512_set1_epi32(0x00200000), e));
}

LANES_INLINE mi mi_set1(int32_t x) { return _mm512_set1_epi32(x); }
LANES_INLINE mi mi_shl(mi a, const int n) { return _mm512_slli_epi32(a, (unsigned)n); }

LANES_INLINE mb mb_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
LANES_INLINE mb mb_low(mb a) { return _mm512_and_si512(a, _mm512_set1_epi8(15)); }
LANES_INLINE mb mb_high(mb a) { return _mm512_and_si512(_mm512_srli_epi16(a, 4), _mm512_set1_epi8(15)); }
LANES_INLINE mb mb_flip(mb a) { return _mm512_xor_si512(a, _mm512_set1_epi8(-128)); }
// a | (h & mask) in one step: truth table 0xF8.
LANES_INLINE mb mb_or_shl(mb a, mb h, const int n, const int mask) {
  return _mm512_ternarylogic_epi32(a, _mm512_slli_epi16(h, (unsigned)n), _mm512_set1_epi8((char)mask), 0xF8);
}
LANES_INLINE mb mb_or_shr(mb a, mb h, const int n, const int mask) {
  return _mm512_ternarylogic_epi32(a, _mm512_srli_epi16(h, (unsigned)n), _mm512_set1_epi8((char)mask), 0xF8);
}
LANES_INLINE mb mb_lut(mb a, const uint8_t *table) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table)), a);
}

LANES_INLINE uint32_t vf_absmax_bits(vf a, vf b) {
  __m512i m = _mm512_max_epu32(_mm512_castps_si512(vf_abs(a)), _mm512_castps_si512(vf_abs(b)));
  return _mm512_reduce_max_epu32(m);
}
LANES_INLINE int32_t vf_quantise(int8_t *q, vf a) {
  __m512i i = _mm512_cvtps_epi32(a);
  _mm_storeu_si128((void *)q, _mm512_cvtepi32_epi8(i));
  return _mm512_reduce_add_epi32(i);
}

#endif
