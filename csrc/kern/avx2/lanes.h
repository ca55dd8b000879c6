// SPDX-License-Identifier: MIT
// Sixteen float lanes in two AVX registers (meaning: scalar/lanes.h).
#ifndef MTX_KERN_AVX2_LANES_H
#define MTX_KERN_AVX2_LANES_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "quant/half.h"

#define LANES_INLINE static inline __attribute__((always_inline, unused))

typedef struct { __m256 a, b; } vf;
#define VF(A, B) ((vf){A, B})

LANES_INLINE vf vf_set1(float x) { return VF(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
LANES_INLINE vf vf_zero(void) { return VF(_mm256_setzero_ps(), _mm256_setzero_ps()); }
LANES_INLINE vf vf_load(const float *p) { return VF(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
LANES_INLINE void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x.a); _mm256_storeu_ps(p + 8, x.b); }
LANES_INLINE vf vf_load_n(const float *p, int n) {
  float t[16] = {0};
  memcpy(t, p, sizeof(float) * (size_t)n);
  return vf_load(t);
}
LANES_INLINE void vf_store_n(float *p, vf x, int n) {
  float t[16];
  vf_store(t, x);
  memcpy(p, t, sizeof(float) * (size_t)n);
}

LANES_INLINE vf vf_add(vf x, vf y) { return VF(_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)); }
LANES_INLINE vf vf_sub(vf x, vf y) { return VF(_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)); }
LANES_INLINE vf vf_mul(vf x, vf y) { return VF(_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)); }
LANES_INLINE vf vf_div(vf x, vf y) { return VF(_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)); }
LANES_INLINE vf vf_fma(vf x, vf y, vf z) { return VF(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)); }
LANES_INLINE vf vf_max(vf x, vf y) { return VF(_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)); }
LANES_INLINE vf vf_min(vf x, vf y) { return VF(_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)); }
LANES_INLINE vf vf_abs(vf x) {
  __m256 m = _mm256_set1_ps(-0.0f);
  return VF(_mm256_andnot_ps(m, x.a), _mm256_andnot_ps(m, x.b));
}
LANES_INLINE vf vf_neg(vf x) {
  __m256 m = _mm256_set1_ps(-0.0f);
  return VF(_mm256_xor_ps(m, x.a), _mm256_xor_ps(m, x.b));
}
LANES_INLINE __m256 ps_copysign(__m256 x, __m256 s) {
  __m256 m = _mm256_set1_ps(-0.0f);
  return _mm256_or_ps(_mm256_andnot_ps(m, x), _mm256_and_ps(m, s));
}
LANES_INLINE vf vf_copysign(vf x, vf s) { return VF(ps_copysign(x.a, s.a), ps_copysign(x.b, s.b)); }
LANES_INLINE __m256 ps_rint(__m256 x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
LANES_INLINE vf vf_rint(vf x) { return VF(ps_rint(x.a), ps_rint(x.b)); }
LANES_INLINE vf vf_sel_lt(vf p, vf q, vf x, vf y) {
  return VF(_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(p.a, q.a, _CMP_LT_OQ)), _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(p.b, q.b, _CMP_LT_OQ)));
}
LANES_INLINE vf vf_sel_nan(vf p, vf x, vf y) {
  return VF(_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(p.a, p.a, _CMP_UNORD_Q)), _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(p.b, p.b, _CMP_UNORD_Q)));
}
LANES_INLINE __m256 ps_ldexp(__m256 x, __m256 n) {
  __m256i e = _mm256_cvtps_epi32(n), e1 = _mm256_srai_epi32(e, 1), e2 = _mm256_sub_epi32(e, e1), bias = _mm256_set1_epi32(127);
  x = _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e1, bias), 23)));
  return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e2, bias), 23)));
}
LANES_INLINE vf vf_ldexp(vf x, vf n) { return VF(ps_ldexp(x.a, n.a), ps_ldexp(x.b, n.b)); }

LANES_INLINE __m256 ps_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }
LANES_INLINE __m256 ps_bf16(const uint16_t *p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), 16));
}
LANES_INLINE vf vf_load_f16(const uint16_t *p) { return VF(ps_f16(p), ps_f16(p + 8)); }
LANES_INLINE vf vf_load_bf16(const uint16_t *p) { return VF(ps_bf16(p), ps_bf16(p + 8)); }
LANES_INLINE void vf_store_f16(uint16_t *p, vf x) {
  _mm_storeu_si128((void *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  _mm_storeu_si128((void *)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
LANES_INLINE __m256i ps_to_bf16(__m256 x) {
  __m256i u = _mm256_castps_si256(x), top = _mm256_srli_epi32(u, 16), odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
  __m256i r = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7FFF)), odd), 16);
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(r, _mm256_or_si256(top, _mm256_set1_epi32(0x40)), nan);
}
LANES_INLINE void vf_store_bf16(uint16_t *p, vf x) {
  __m256i both = _mm256_packus_epi32(ps_to_bf16(x.a), ps_to_bf16(x.b));
  _mm256_storeu_si256((void *)p, _mm256_permute4x64_epi64(both, 0xD8));
}

#endif
