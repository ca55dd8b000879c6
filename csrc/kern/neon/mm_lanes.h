// SPDX-License-Identifier: MIT
// What matmul_tpl.h needs, 4 rows in one NEON register. The dot product is in dot_sdot.h or dot_mull.h.
#ifndef MTX_KERN_NEON_MM_LANES_H
#define MTX_KERN_NEON_MM_LANES_H

#include "lanes.h"

enum { MM_VL = 4, MM_FC = 5 };
#define MM_NC 8
#define MM_SIGNED 1

typedef float32x4_t mf;
typedef int32x4_t mi;
typedef uint8x16_t mb;

LANES_INLINE mf mf_zero(void) { return vdupq_n_f32(0.0f); }
LANES_INLINE mf mf_set1(float x) { return vdupq_n_f32(x); }
LANES_INLINE mf mf_load(const float *p) { return vld1q_f32(p); }
LANES_INLINE void mf_store(float *p, mf a) { vst1q_f32(p, a); }
LANES_INLINE mf mf_add(mf a, mf b) { return vaddq_f32(a, b); }
LANES_INLINE mf mf_mul(mf a, mf b) { return vmulq_f32(a, b); }
LANES_INLINE mf mf_fma(mf a, mf b, mf c) { return vfmaq_f32(c, a, b); }
LANES_INLINE mf mf_neg(mf a) { return vnegq_f32(a); }
LANES_INLINE mf mf_cvt(mi a) { return vcvtq_f32_s32(a); }
LANES_INLINE mf mf_f16(const uint8_t *p) { return q_f16((const void *)p); }
LANES_INLINE mf mf_bf16(const uint8_t *p) { return q_bf16((const void *)p); }
LANES_INLINE uint8x8_t four_bytes(const uint8_t *p) {
  uint32_t u;
  memcpy(&u, p, 4);
  return vreinterpret_u8_u32(vdup_n_u32(u));
}
LANES_INLINE mi mi_u8(const uint8_t *p) { return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(four_bytes(p))))); }
LANES_INLINE mf mf_u8(const uint8_t *p) { return vcvtq_f32_s32(mi_u8(p)); }
LANES_INLINE mf mf_i8(const uint8_t *p) {
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(four_bytes(p))))));
}
LANES_INLINE mf mf_e8m0_half(const uint8_t *p) {
  mi e = mi_u8(p), normal = vshlq_n_s32(vsubq_s32(e, vdupq_n_s32(1)), 23);
  mi small = vshlq_s32(vdupq_n_s32(0x00200000), e);
  return vreinterpretq_f32_s32(vbslq_s32(vcltq_s32(e, vdupq_n_s32(2)), small, normal));
}

LANES_INLINE mi mi_set1(int32_t x) { return vdupq_n_s32(x); }
LANES_INLINE mi mi_shl(mi a, const int n) { return vshlq_s32(a, vdupq_n_s32(n)); }

LANES_INLINE mb mb_load(const uint8_t *p) { return vld1q_u8(p); }
LANES_INLINE mb mb_low(mb a) { return vandq_u8(a, vdupq_n_u8(15)); }
LANES_INLINE mb mb_high(mb a) { return vshrq_n_u8(a, 4); }
LANES_INLINE mb mb_flip(mb a) { return veorq_u8(a, vdupq_n_u8(0x80)); }
LANES_INLINE mb mb_or_shl(mb a, mb h, const int n, const int mask) {
  return vorrq_u8(a, vandq_u8(vshlq_u8(h, vdupq_n_s8((int8_t)n)), vdupq_n_u8((uint8_t)mask)));
}
LANES_INLINE mb mb_or_shr(mb a, mb h, const int n, const int mask) {
  return vorrq_u8(a, vandq_u8(vshlq_u8(h, vdupq_n_s8((int8_t)-n)), vdupq_n_u8((uint8_t)mask)));
}
LANES_INLINE mb mb_lut(mb a, const uint8_t *table) { return vqtbl1q_u8(vld1q_u8(table), a); }

LANES_INLINE uint32x4_t q_abs_bits(float32x4_t x) { return vreinterpretq_u32_f32(vabsq_f32(x)); }
LANES_INLINE uint32_t vf_absmax_bits(vf x, vf y) {
  uint32x4_t m = vdupq_n_u32(0);
  for (int i = 0; i < 4; i++) m = vmaxq_u32(m, vmaxq_u32(q_abs_bits(x.v[i]), q_abs_bits(y.v[i])));
  return vmaxvq_u32(m);
}
LANES_INLINE int32_t vf_quantise(int8_t *q, vf x) {
  int32x4_t a = vcvtnq_s32_f32(x.v[0]), b = vcvtnq_s32_f32(x.v[1]), c = vcvtnq_s32_f32(x.v[2]), d = vcvtnq_s32_f32(x.v[3]);
  int16x8_t lo = vcombine_s16(vmovn_s32(a), vmovn_s32(b)), hi = vcombine_s16(vmovn_s32(c), vmovn_s32(d));
  vst1q_s8(q, vcombine_s8(vmovn_s16(lo), vmovn_s16(hi)));
  return vaddvq_s32(vaddq_s32(vaddq_s32(a, b), vaddq_s32(c, d)));
}

#endif
