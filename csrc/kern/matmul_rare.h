// SPDX-License-Identifier: MIT
// The 1- to 3-bit and codebook kinds inside matmul_tpl.h: geometry, unpacking, scales.
//
// Their layouts are in pack_rare.c. Codebooks are unpacked by codebook_tpl.h, or by the
// tier's own mm_codebook_unpack (MM_OWN_CODEBOOKS).
#ifndef MTX_KERN_MATMUL_RARE_H
#define MTX_KERN_MATMUL_RARE_H

#include "quant/codebooks.h"

#ifndef MM_RARE_NC
#error "include the tier's mm_grid.h before matmul_tpl.h"
#endif
#ifndef MM_OWN_CODEBOOKS
#include "kern/codebook_tpl.h"
#endif

typedef struct {
  int q_bytes, s_bytes, ss_bytes, blocks, bias, bits;  // rare.def
  bool two_scales;
} mm_rare_kind;

LANES_INLINE mm_rare_kind mm_rare(const mtx_pack p) {
  switch (p) {
#define X(KIND, kind, id, q, s, ss, file_bytes, blocks, bias, bits, two_scales) \
  case MTX_PACK_##KIND: return (mm_rare_kind){q, s, ss, blocks, bias, bits, two_scales};
#include "kern/rare.def"
#undef X
    default: return (mm_rare_kind){0, 0, 0, 1, -1, 8, false};
  }
}

LANES_INLINE bool mm_is_rare(const mtx_pack p) { return mm_rare(p).q_bytes != 0; }

// E2M1's doubled values, biased by 16.
static const uint8_t mm_lut_e2m1_16[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};

// Two-bit vectors at q (moved on to the first lane).
LANES_INLINE void mm_pairs(const uint8_t *q, mb w[8]) {
  for (int g = 0; g < 2; g++) {
    mb b = mb_load(q + 64 * g);
    for (int v = 0; v < 4; v++) w[4 * g + v] = mb_or_shr(mb_zero(), b, 2 * v, 0x03);
  }
}

enum { MM_RARE_AHEAD = 2048 };  // bytes

// q, s: start of the block; l: first lane.
LANES_INLINE void mm_rare_unpack(const mtx_pack p, const uint8_t *q, const uint8_t *s, int l, mb w[8]) {
  switch (p) {
    case MTX_PACK_Q2_K: case MTX_PACK_TQ2_0: case MTX_PACK_Q2_0: mm_pairs(q + 4 * l, w); break;
    case MTX_PACK_Q3_K: {
      mm_pairs(q + 4 * l, w);
      mb h = mb_load(q + 128 + 4 * l);
      w[0] = mb_or_shl(w[0], h, 2, 4);
      w[1] = mb_or_shl(w[1], h, 1, 4);
      w[2] = mb_or_shl(w[2], h, 0, 4);
      for (int v = 3; v < 8; v++) w[v] = mb_or_shr(w[v], h, v - 2, 4);
      break;
    }
    case MTX_PACK_Q1_0: {
      mb b = mb_load(q + 4 * l);
      w[0] = mb_or_shl(mb_zero(), b, 1, 2);
      for (int v = 1; v < 8; v++) w[v] = mb_or_shr(mb_zero(), b, v - 1, 2);
      break;
    }
    case MTX_PACK_NVFP4:
      for (int v = 0; v < 4; v++) {
        mb b = mb_load(q + 64 * v + 4 * l);
        w[v] = mb_lut(mb_low(b), mm_lut_e2m1_16);
        w[v + 4] = mb_lut(mb_high(b), mm_lut_e2m1_16);
      }
      break;
    default:
      // A block takes long enough here for the CPU's own prefetcher to fall behind: 1.3 to 1.8 times the
      // speed of one column.
      __builtin_prefetch(s + MM_RARE_AHEAD);
      for (int at = 0; at < mm_rare(p).q_bytes; at += 64) __builtin_prefetch(q + at + MM_RARE_AHEAD);
      mm_codebook_unpack(p, q, s, l, w);
      break;
  }
}

// d (n + 1/2) / 2^k: the scale of IQ2 (k = 2) and IQ3_XXS (k = 1).
LANES_INLINE mf mm_half_scale(mf d, mi n, float factor) {
  return mf_mul(mf_mul(d, mf_add(mf_set1(0.5f), mf_cvt(n))), mf_set1(factor));
}

// d (2 n + 1) factor: IQ3_S (1), IQ1 (1/8).
LANES_INLINE mf mm_odd_scale(mf d, mi n, float factor) {
  return mf_mul(mf_mul(d, mf_cvt(mi_or(mi_shl(n, 1), mi_set1(1)))), mf_set1(factor));
}

typedef struct { mf d, d_hi, m, m_hi; } mm_scales;

LANES_INLINE mm_scales mm_rare_scales(const mtx_pack p, const uint8_t *s, const uint8_t *ss, int l) {
  mm_scales r;
  r.d_hi = r.m = r.m_hi = mf_zero();
  mf d = p == MTX_PACK_NVFP4 ? mf_zero() : mf_f16(ss + 2 * l);
  switch (p) {
    case MTX_PACK_Q2_K: {
      mi lo = mi_u8(s + l), hi = mi_u8(s + 16 + l);
      mf m = mf_f16(ss + 32 + 2 * l);
      r.d = mf_mul(d, mf_cvt(mi_and(lo, 15)));
      r.d_hi = mf_mul(d, mf_cvt(mi_and(hi, 15)));
      r.m = mf_mul(m, mf_cvt(mi_shr(lo, 4)));
      r.m_hi = mf_mul(m, mf_cvt(mi_shr(hi, 4)));
      break;
    }
    case MTX_PACK_Q3_K:
      r.d = mf_mul(d, mf_i8(s + l));
      r.d_hi = mf_mul(d, mf_i8(s + 16 + l));
      break;
    case MTX_PACK_NVFP4:
      r.d = mf_e4m3_half(s + l);
      r.d_hi = mf_e4m3_half(s + 16 + l);
      break;
    case MTX_PACK_IQ2_XXS: r.d = mm_half_scale(d, mi_shr(mi_load(s + 4 * l), 28), 0.25f); break;
    case MTX_PACK_IQ3_XXS: r.d = mm_half_scale(d, mi_shr(mi_load(s + 4 * l), 28), 0.5f); break;
    case MTX_PACK_IQ2_XS: case MTX_PACK_IQ2_S: {
      mi n = mi_u8(s + (p == MTX_PACK_IQ2_XS ? 64 : 80) + l);
      r.d = mm_half_scale(d, mi_and(n, 15), 0.25f);
      r.d_hi = mm_half_scale(d, mi_shr(n, 4), 0.25f);
      break;
    }
    case MTX_PACK_IQ3_S: r.d = mm_odd_scale(d, mi_u8(s + 80 + l), 1.0f); break;
    case MTX_PACK_IQ1_S: r.d = mm_odd_scale(d, mi_and(mi_shr(mi_u16(s + 2 * l), 12), 7), 0.125f); break;
    case MTX_PACK_IQ1_M: {
      mi n = mi_u8(s + 32 + l);
      r.d = mm_odd_scale(d, mi_and(n, 7), 0.125f);
      r.d_hi = mm_odd_scale(d, mi_shr(n, 3), 0.125f);
      break;
    }
    default: r.d = d; break;
  }
  return r;
}

#define MM_CODEBOOK_TYPES(X) X(IQ2_XXS) X(IQ2_XS) X(IQ2_S) X(IQ3_XXS) X(IQ3_S) X(IQ1_S) X(IQ1_M)
#define MM_RARE_TYPES(X) X(Q2_K) X(Q3_K) X(TQ2_0) X(Q2_0) X(Q1_0) X(NVFP4) MM_CODEBOOK_TYPES(X)

#endif
