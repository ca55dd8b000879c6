// SPDX-License-Identifier: MIT
// What matmul_tpl.h needs of a tier, in plain C: MM_VL rows, their bytes and integers.
#ifndef MTX_KERN_SCALAR_MM_LANES_H
#define MTX_KERN_SCALAR_MM_LANES_H

#include "lanes.h"

enum { MM_VL = 16, MM_FC = 2 };
#define MM_NC 4        // most columns per unpacked block (4 or 8)
#define MM_SIGNED 1    // full bytes are multiplied as signed ones
#define MM_TOGETHER 1  // columns whose dots advance together, one vector after the other

typedef vf mf;
typedef struct { int32_t v[16]; } mi;
typedef struct { uint8_t v[64]; } mb;
#define LANES_BYTES for (int i = 0; i < 64; i++)

LANES_INLINE mf mf_zero(void) { return vf_zero(); }
LANES_INLINE mf mf_set1(float x) { return vf_set1(x); }
LANES_INLINE mf mf_load(const float *p) { return vf_load(p); }
LANES_INLINE void mf_store(float *p, mf a) { vf_store(p, a); }
LANES_INLINE mf mf_add(mf a, mf b) { return vf_add(a, b); }
LANES_INLINE mf mf_mul(mf a, mf b) { return vf_mul(a, b); }
LANES_INLINE mf mf_fma(mf a, mf b, mf c) { return vf_fma(a, b, c); }
LANES_INLINE mf mf_neg(mf a) { return vf_neg(a); }
LANES_INLINE mf mf_cvt(mi a) { mf r; LANES_EACH r.v[lane] = (float)a.v[lane]; return r; }
LANES_INLINE mf mf_f16(const uint8_t *p) { mf r; LANES_EACH r.v[lane] = mtx_f16_to_f32(mtx_load_u16(p + 2 * lane)); return r; }
LANES_INLINE mf mf_bf16(const uint8_t *p) { mf r; LANES_EACH r.v[lane] = mtx_bf16_to_f32(mtx_load_u16(p + 2 * lane)); return r; }
LANES_INLINE mf mf_u8(const uint8_t *p) { mf r; LANES_EACH r.v[lane] = p[lane]; return r; }
LANES_INLINE mf mf_i8(const uint8_t *p) { mf r; LANES_EACH r.v[lane] = (int8_t)p[lane]; return r; }
// 2^(e - 128): half of the value of an E8M0 byte; e = 0 and 1 are subnormal.
LANES_INLINE mf mf_e8m0_half(const uint8_t *p) {
  mf r;
  LANES_EACH r.v[lane] = mtx_f32_from_bits(p[lane] < 2 ? 0x00200000u << p[lane] : (uint32_t)(p[lane] - 1) << 23);
  return r;
}

LANES_INLINE mi mi_set1(int32_t x) { mi r; LANES_EACH r.v[lane] = x; return r; }
LANES_INLINE mi mi_shl(mi a, int n) { LANES_EACH a.v[lane] = (int32_t)((uint32_t)a.v[lane] << n); return a; }

LANES_INLINE mb mb_load(const uint8_t *p) { mb r; memcpy(r.v, p, sizeof r.v); return r; }
LANES_INLINE mb mb_low(mb a) { LANES_BYTES a.v[i] &= 15; return a; }
LANES_INLINE mb mb_high(mb a) { LANES_BYTES a.v[i] >>= 4; return a; }
LANES_INLINE mb mb_flip(mb a) { LANES_BYTES a.v[i] ^= 0x80; return a; }
// a | (h shifted & mask)
LANES_INLINE mb mb_or_shl(mb a, mb h, int n, int mask) { LANES_BYTES a.v[i] |= (uint8_t)(h.v[i] << n & mask); return a; }
LANES_INLINE mb mb_or_shr(mb a, mb h, int n, int mask) { LANES_BYTES a.v[i] |= (uint8_t)(h.v[i] >> n & mask); return a; }
LANES_INLINE mb mb_lut(mb a, const uint8_t *table) { LANES_BYTES a.v[i] = table[a.v[i]]; return a; }

// start + sum over n vectors of 4-element products; bytes of `bits` < 8 bits are unsigned.
LANES_INLINE mi mm_dot(const mb *w, const int8_t *x, const int n, const int bits, mi start) {
  for (int v = 0; v < n; v++)
    LANES_EACH {
      const uint8_t *b = w[v].v + 4 * lane;
      int32_t s = 0;
      for (int t = 0; t < 4; t++) s += (bits == 8 ? (int8_t)b[t] : b[t]) * x[4 * v + t];
      start.v[lane] += s;
    }
  return start;
}

// Largest |x| of 32, as bits: NaN > infinity > every number.
LANES_INLINE uint32_t vf_absmax_bits(vf a, vf b) {
  uint32_t m = 0;
  LANES_EACH {
    uint32_t u = mtx_f32_bits(a.v[lane]) & 0x7FFFFFFFu, v = mtx_f32_bits(b.v[lane]) & 0x7FFFFFFFu;
    u = u > v ? u : v;
    m = m > u ? m : u;
  }
  return m;
}
// Nearest integers of |x| <= 127.x as bytes; returns their sum.
LANES_INLINE int32_t vf_quantise(int8_t *q, vf a) {
  int32_t s = 0;
  LANES_EACH s += q[lane] = (int8_t)nearbyintf(a.v[lane]);
  return s;
}

#endif
