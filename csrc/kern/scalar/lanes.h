// SPDX-License-Identifier: MIT
// Sixteen float lanes in plain C: the meaning of every operation of lanes.h.
//
// Each tier has a lanes.h with the same names, and the templates (vec_tpl.h,
// matmul_tpl.h) see nothing else, so all tiers take the same rounding steps.
// fmaf is a call into libm here: one rounding, slow on CPUs without the instruction.
#ifndef MTX_KERN_SCALAR_LANES_H
#define MTX_KERN_SCALAR_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "quant/half.h"

#define LANES_INLINE static inline __attribute__((always_inline, unused))
#define LANES_EACH for (int lane = 0; lane < 16; lane++)

typedef struct { float v[16]; } vf;

LANES_INLINE vf vf_set1(float x) { vf r; LANES_EACH r.v[lane] = x; return r; }
LANES_INLINE vf vf_zero(void) { return vf_set1(0.0f); }
LANES_INLINE vf vf_load(const float *p) { vf r; memcpy(r.v, p, sizeof r.v); return r; }
LANES_INLINE void vf_store(float *p, vf a) { memcpy(p, a.v, sizeof a.v); }
// The first n lanes (0..16); the others are zero, or left alone in memory.
LANES_INLINE vf vf_load_n(const float *p, int n) { vf r = vf_zero(); memcpy(r.v, p, sizeof(float) * (size_t)n); return r; }
LANES_INLINE void vf_store_n(float *p, vf a, int n) { memcpy(p, a.v, sizeof(float) * (size_t)n); }

LANES_INLINE vf vf_add(vf a, vf b) { LANES_EACH a.v[lane] += b.v[lane]; return a; }
LANES_INLINE vf vf_sub(vf a, vf b) { LANES_EACH a.v[lane] -= b.v[lane]; return a; }
LANES_INLINE vf vf_mul(vf a, vf b) { LANES_EACH a.v[lane] *= b.v[lane]; return a; }
LANES_INLINE vf vf_div(vf a, vf b) { LANES_EACH a.v[lane] /= b.v[lane]; return a; }
LANES_INLINE vf vf_fma(vf a, vf b, vf c) { LANES_EACH a.v[lane] = fmaf(a.v[lane], b.v[lane], c.v[lane]); return a; }
// a > b ? a : b and a < b ? a : b: a NaN in a gives b, a NaN in b stays.
LANES_INLINE vf vf_max(vf a, vf b) { LANES_EACH a.v[lane] = a.v[lane] > b.v[lane] ? a.v[lane] : b.v[lane]; return a; }
LANES_INLINE vf vf_min(vf a, vf b) { LANES_EACH a.v[lane] = a.v[lane] < b.v[lane] ? a.v[lane] : b.v[lane]; return a; }
LANES_INLINE vf vf_abs(vf a) { LANES_EACH a.v[lane] = fabsf(a.v[lane]); return a; }
LANES_INLINE vf vf_neg(vf a) { LANES_EACH a.v[lane] = -a.v[lane]; return a; }
LANES_INLINE vf vf_copysign(vf a, vf s) { LANES_EACH a.v[lane] = copysignf(a.v[lane], s.v[lane]); return a; }
LANES_INLINE vf vf_rint(vf a) { LANES_EACH a.v[lane] = rintf(a.v[lane]); return a; }
// a < b ? x : y
LANES_INLINE vf vf_sel_lt(vf a, vf b, vf x, vf y) { LANES_EACH x.v[lane] = a.v[lane] < b.v[lane] ? x.v[lane] : y.v[lane]; return x; }
// a is NaN ? x : y
LANES_INLINE vf vf_sel_nan(vf a, vf x, vf y) { LANES_EACH x.v[lane] = a.v[lane] != a.v[lane] ? x.v[lane] : y.v[lane]; return x; }

// a * 2^n for whole n in [-252, 254] and normal a: two exact-power factors, rounded once.
LANES_INLINE vf vf_ldexp(vf a, vf n) {
  LANES_EACH {
    int32_t e = n.v[lane] == n.v[lane] ? (int32_t)n.v[lane] : 0, e1 = e >> 1, e2 = e - e1;
    a.v[lane] *= mtx_f32_from_bits((uint32_t)(e1 + 127) << 23);
    a.v[lane] *= mtx_f32_from_bits((uint32_t)(e2 + 127) << 23);
  }
  return a;
}

LANES_INLINE vf vf_load_f16(const uint16_t *p) { vf r; LANES_EACH r.v[lane] = mtx_f16_to_f32(p[lane]); return r; }
LANES_INLINE vf vf_load_bf16(const uint16_t *p) { vf r; LANES_EACH r.v[lane] = mtx_bf16_to_f32(p[lane]); return r; }
LANES_INLINE void vf_store_f16(uint16_t *p, vf a) { LANES_EACH p[lane] = mtx_f32_to_f16(a.v[lane]); }
LANES_INLINE void vf_store_bf16(uint16_t *p, vf a) { LANES_EACH p[lane] = mtx_f32_to_bf16(a.v[lane]); }

#endif
