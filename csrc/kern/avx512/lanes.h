// SPDX-License-Identifier: MIT
// Sixteen float lanes in one AVX-512 register (meaning: scalar/lanes.h).
#ifndef MTX_KERN_AVX512_LANES_H
#define MTX_KERN_AVX512_LANES_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "quant/half.h"

#define LANES_INLINE static inline __attribute__((always_inline, unused))

typedef __m512 vf;

LANES_INLINE vf vf_set1(float x) { return _mm512_set1_ps(x); }
LANES_INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
LANES_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
LANES_INLINE void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
LANES_INLINE vf vf_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p); }
LANES_INLINE void vf_store_n(float *p, vf a, int n) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a); }

LANES_INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
LANES_INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
LANES_INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
LANES_INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
LANES_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
LANES_INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
LANES_INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
LANES_INLINE vf vf_abs(vf a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a); }
LANES_INLINE vf vf_neg(vf a) { return _mm512_xor_ps(_mm512_set1_ps(-0.0f), a); }
LANES_INLINE vf vf_copysign(vf a, vf s) { return _mm512_or_ps(vf_abs(a), _mm512_and_ps(_mm512_set1_ps(-0.0f), s)); }
LANES_INLINE vf vf_rint(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
LANES_INLINE vf vf_sel_lt(vf a, vf b, vf x, vf y) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x); }
LANES_INLINE vf vf_sel_nan(vf a, vf x, vf y) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), y, x); }
LANES_INLINE vf vf_ldexp(vf a, vf n) { return _mm512_scalef_ps(a, n); }

LANES_INLINE vf vf_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
LANES_INLINE vf vf_load_bf16(const uint16_t *p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16));
}
LANES_INLINE void vf_store_f16(uint16_t *p, vf a) {
  _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
LANES_INLINE void vf_store_bf16(uint16_t *p, vf a) {
  __m512i u = _mm512_castps_si512(a), top = _mm512_srli_epi32(u, 16);
  __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
  __m512i r = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7FFF)), odd), 16);
  r = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), top, _mm512_set1_epi32(0x40));
  _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(r));
}

#endif
