// SPDX-License-Identifier: MIT
// The 1- to 3-bit and codebook kinds inside matmul_tpl.h: geometry, unpacking, scales.
//
// Their layouts are in pack_rare.c. Grids are looked up lane by lane: one scalar
// load an entry beats the gather instructions of the CPUs we measured (27 against
// 9 G weights/s for IQ2_XXS on Zen 4). Grid values with their signs are biased by
// 64, those of IQ1 by 16, so that every kind here multiplies as unsigned bytes
// below 128.
#ifndef MTX_KERN_MATMUL_RARE_H
#define MTX_KERN_MATMUL_RARE_H

#include "quant/codebooks.h"

#ifndef MM_RARE_NC
#error "include the tier's mm_grid.h before matmul_tpl.h"
#endif

typedef struct {
  int q_bytes, s_bytes, ss_bytes;  // as in pack_rare.c
  int blocks;                      // blocks of 32 to one ss
  int bias;                        // log2, -1: none
  int bits;                        // of the unpacked bytes, 4..7
  bool two_scales;
} mm_rare_kind;

LANES_INLINE mm_rare_kind mm_rare(const mtx_pack p) {
  switch (p) {
    case MTX_PACK_Q2_K: return (mm_rare_kind){128, 32, 64, 8, -1, 4, true};
    case MTX_PACK_Q3_K: return (mm_rare_kind){192, 32, 32, 8, 2, 4, true};
    case MTX_PACK_TQ2_0: return (mm_rare_kind){128, 0, 32, 8, 0, 4, false};
    case MTX_PACK_Q2_0: return (mm_rare_kind){128, 0, 32, 2, 0, 4, false};
    case MTX_PACK_Q1_0: return (mm_rare_kind){64, 0, 32, 4, 0, 4, false};
    case MTX_PACK_NVFP4: return (mm_rare_kind){256, 32, 0, 2, 4, 5, true};
    case MTX_PACK_IQ2_XXS: return (mm_rare_kind){64, 64, 32, 8, 6, 7, false};
    case MTX_PACK_IQ2_XS: return (mm_rare_kind){64, 80, 32, 8, 6, 7, true};
    case MTX_PACK_IQ2_S: return (mm_rare_kind){64, 96, 32, 8, 6, 7, true};
    case MTX_PACK_IQ3_XXS: return (mm_rare_kind){128, 64, 32, 8, 6, 7, false};
    case MTX_PACK_IQ3_S: return (mm_rare_kind){128, 96, 32, 8, 6, 7, false};
    case MTX_PACK_IQ1_S: return (mm_rare_kind){64, 32, 32, 8, 4, 5, false};
    case MTX_PACK_IQ1_M: return (mm_rare_kind){64, 48, 32, 8, 4, 5, true};
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

// Four 7-bit sign codes in the low 28 bits -> four sign masks, the eighth bit making the number of signs even.
LANES_INLINE mi mm_sign_masks(mi w) {
  mi s = mi_or(mi_or(mi_and(w, 0x0000007F), mi_and(mi_shl(w, 1), 0x00007F00)),
               mi_or(mi_and(mi_shl(w, 2), 0x007F0000), mi_and(mi_shl(w, 3), 0x7F000000)));
  mi x = mi_xor(s, mi_and(mi_shr(s, 4), 0x07070707));
  x = mi_xor(x, mi_and(mi_shr(x, 2), 0x03030303));
  x = mi_xor(x, mi_and(mi_shr(x, 1), 0x01010101));
  return mi_or(s, mi_shl(mi_and(x, 0x01010101), 7));
}

// 64 + or - each grid value; four (IQ2: grid entries of 8) or eight (IQ3: of 4) entries a lane.
LANES_INLINE void mm_apply_signs(mi signs, mb w[8]) {
  for (int v = 0; v < 8; v++) w[v] = mb_signed64(w[v], signs, v);
}

// Entry indices of more than 8 bits go through memory: they are addresses next.
typedef struct { _Alignas(64) uint32_t v[MM_VL]; } mm_index;
LANES_INLINE mm_index mm_index_of(mi i) {
  mm_index r;
  mi_store(r.v, i);
  return r;
}

// q, s: start of the block; l: first lane.
LANES_INLINE void mm_rare_unpack(const mtx_pack p, const uint8_t *q, const uint8_t *s, int l, mb w[8]) {
  const uint8_t *index = q + l;
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
    case MTX_PACK_IQ2_XXS:
      for (int g = 0; g < 4; g++) mb_grid8_u8(mtx_iq2_xxs_grid, index + 16 * g, &w[2 * g]);
      mm_apply_signs(mm_sign_masks(mi_load(s + 4 * l)), w);
      break;
    case MTX_PACK_IQ2_XS: {
      mi word = mi_load(s + 4 * l);
      for (int g = 0; g < 4; g++) {
        mm_index i = mm_index_of(mi_or(mi_u8(index + 16 * g), mi_and(mi_shr(word, 20 + g), 0x100)));
        mb_grid8_u32(mtx_iq2_xs_grid, i.v, &w[2 * g]);
      }
      mm_apply_signs(mm_sign_masks(word), w);
      break;
    }
    case MTX_PACK_IQ2_S: {
      mi high = mi_shl(mi_u8(s + 64 + l), 8);
      for (int g = 0; g < 4; g++) {
        mm_index i = mm_index_of(mi_or(mi_u8(index + 16 * g), mi_and(mi_shr(high, 2 * g), 0x300)));
        mb_grid8_u32(mtx_iq2_s_grid, i.v, &w[2 * g]);
      }
      mm_apply_signs(mi_load(s + 4 * l), w);
      break;
    }
    case MTX_PACK_IQ3_XXS:
      for (int v = 0; v < 8; v++) w[v] = mb_grid4_u8(mtx_iq3_xxs_grid, index + 16 * v);
      mm_apply_signs(mm_sign_masks(mi_load(s + 4 * l)), w);
      break;
    case MTX_PACK_IQ3_S: {
      mi high = mi_shl(mi_u8(s + 64 + l), 8);
      for (int v = 0; v < 8; v++) {
        mm_index i = mm_index_of(mi_or(mi_u8(index + 16 * v), mi_and(mi_shr(high, v), 0x100)));
        w[v] = mb_grid4_u32(mtx_iq3_s_grid, i.v);
      }
      mm_apply_signs(mi_load(s + 4 * l), w);
      break;
    }
    case MTX_PACK_IQ1_S: case MTX_PACK_IQ1_M: {
      mi high = mi_u16(s + 2 * l);
      for (int g = 0; g < 4; g++) {
        int shift = p == MTX_PACK_IQ1_S ? 3 * g : 4 * g;
        mm_index i = mm_index_of(mi_or(mi_u8(index + 16 * g), mi_and(mi_shl(mi_shr(high, shift), 8), 0x700)));
        // 16 + 1, or 16 - 1 where the offset's sign bit is set.
        mi minus = mi_and(mi_shr(high, p == MTX_PACK_IQ1_S ? 15 : 4 * g + 3), 1);
        mi offset = mi_sub(mi_set1(0x11111111), mi_and(mi_sub(mi_set1(0), minus), 0x02020202));
        mb_grid8_u32(mtx_iq1_grid8, i.v, &w[2 * g]);
        for (int v = 2 * g; v < 2 * g + 2; v++) w[v] = mb_add(w[v], mb_of(offset));
      }
      break;
    }
    default: break;
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

#define MM_RARE_TYPES(X) X(Q2_K) X(Q3_K) X(TQ2_0) X(Q2_0) X(Q1_0) X(NVFP4) \
  X(IQ2_XXS) X(IQ2_XS) X(IQ2_S) X(IQ3_XXS) X(IQ3_S) X(IQ1_S) X(IQ1_M)

#endif
