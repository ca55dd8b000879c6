// SPDX-License-Identifier: MIT
// Sixteen float lanes in four NEON registers (meaning: scalar/lanes.h).
#ifndef MTX_KERN_NEON_LANES_H
#define MTX_KERN_NEON_LANES_H

#include <arm_neon.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "quant/half.h"

#define LANES_INLINE static inline __attribute__((always_inline, unused))

typedef struct { float32x4_t v[4]; } vf;
#define VF_EACH(EXPR)                                \
  vf r;                                              \
  for (int i = 0; i < 4; i++) r.v[i] = (EXPR);       \
  return r

LANES_INLINE vf vf_set1(float x) { VF_EACH(vdupq_n_f32(x)); }
LANES_INLINE vf vf_zero(void) { return vf_set1(0.0f); }
LANES_INLINE vf vf_load(const float *p) { VF_EACH(vld1q_f32(p + 4 * i)); }
LANES_INLINE void vf_store(float *p, vf x) {
  for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, x.v[i]);
}
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

LANES_INLINE vf vf_add(vf x, vf y) { VF_EACH(vaddq_f32(x.v[i], y.v[i])); }
LANES_INLINE vf vf_sub(vf x, vf y) { VF_EACH(vsubq_f32(x.v[i], y.v[i])); }
LANES_INLINE vf vf_mul(vf x, vf y) { VF_EACH(vmulq_f32(x.v[i], y.v[i])); }
LANES_INLINE vf vf_div(vf x, vf y) { VF_EACH(vdivq_f32(x.v[i], y.v[i])); }
LANES_INLINE vf vf_fma(vf x, vf y, vf z) { VF_EACH(vfmaq_f32(z.v[i], x.v[i], y.v[i])); }
// FMAX and FMIN treat NaN another way than x86: compare and select.
LANES_INLINE vf vf_max(vf x, vf y) { VF_EACH(vbslq_f32(vcgtq_f32(x.v[i], y.v[i]), x.v[i], y.v[i])); }
LANES_INLINE vf vf_min(vf x, vf y) { VF_EACH(vbslq_f32(vcltq_f32(x.v[i], y.v[i]), x.v[i], y.v[i])); }
LANES_INLINE vf vf_abs(vf x) { VF_EACH(vabsq_f32(x.v[i])); }
LANES_INLINE vf vf_neg(vf x) { VF_EACH(vnegq_f32(x.v[i])); }
LANES_INLINE vf vf_copysign(vf x, vf s) { VF_EACH(vbslq_f32(vdupq_n_u32(0x80000000u), s.v[i], x.v[i])); }
LANES_INLINE vf vf_rint(vf x) { VF_EACH(vrndnq_f32(x.v[i])); }
LANES_INLINE vf vf_sel_lt(vf a, vf b, vf x, vf y) { VF_EACH(vbslq_f32(vcltq_f32(a.v[i], b.v[i]), x.v[i], y.v[i])); }
LANES_INLINE vf vf_sel_nan(vf a, vf x, vf y) { VF_EACH(vbslq_f32(vceqq_f32(a.v[i], a.v[i]), y.v[i], x.v[i])); }
LANES_INLINE float32x4_t q_pow2(int32x4_t e) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(e, vdupq_n_s32(127)), 23)); }
LANES_INLINE float32x4_t q_ldexp(float32x4_t x, float32x4_t n) {
  int32x4_t e = vcvtnq_s32_f32(n), e1 = vshrq_n_s32(e, 1);
  return vmulq_f32(vmulq_f32(x, q_pow2(e1)), q_pow2(vsubq_s32(e, e1)));
}
LANES_INLINE vf vf_ldexp(vf x, vf n) { VF_EACH(q_ldexp(x.v[i], n.v[i])); }

LANES_INLINE float32x4_t q_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
LANES_INLINE float32x4_t q_bf16(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
LANES_INLINE vf vf_load_f16(const uint16_t *p) { VF_EACH(q_f16(p + 4 * i)); }
LANES_INLINE vf vf_load_bf16(const uint16_t *p) { VF_EACH(q_bf16(p + 4 * i)); }
LANES_INLINE void vf_store_f16(uint16_t *p, vf x) {
  for (int i = 0; i < 4; i++) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.v[i])));
}
LANES_INLINE uint16x4_t q_to_bf16(float32x4_t x) {
  uint32x4_t u = vreinterpretq_u32_f32(x), top = vshrq_n_u32(u, 16), odd = vandq_u32(top, vdupq_n_u32(1));
  uint32x4_t r = vshrq_n_u32(vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7FFF)), odd), 16);
  return vmovn_u32(vbslq_u32(vceqq_f32(x, x), r, vorrq_u32(top, vdupq_n_u32(0x40))));
}
LANES_INLINE void vf_store_bf16(uint16_t *p, vf x) {
  for (int i = 0; i < 4; i++) vst1_u16(p + 4 * i, q_to_bf16(x.v[i]));
}

#endif
