// SPDX-License-Identifier: MIT
// Unpacking of the IQ1, IQ2 and IQ3 kinds by table look-up, lane by lane.
//
// One scalar load an entry beats the gather instructions of the CPU we measured
// (27 against 9 G weights/s for IQ2_XXS on Zen 4). Grid values with their signs
// are biased by 64, those of IQ1 by 16, so that they multiply as unsigned bytes.
#ifndef MTX_KERN_CODEBOOK_TPL_H
#define MTX_KERN_CODEBOOK_TPL_H

#include "kern/matmul.h"
#include "kern/sign_masks.h"
#include "quant/codebooks.h"

// 64 + or - each grid value.
LANES_INLINE void mm_apply_signs(mi signs, mb w[8]) {
  for (int v = 0; v < 8; v++) w[v] = mb_signed64(w[v], signs, v);
}

// The bits of an entry's index above its byte; through memory, for they are part of an address next.
typedef struct { _Alignas(64) uint32_t v[MM_VL]; } mm_high;
LANES_INLINE mm_high mm_high_of(mi bits) {
  mm_high r;
  mi_store(r.v, bits);
  return r;
}

// q, s: start of the block; l: first lane.
LANES_INLINE void mm_codebook_unpack(const mtx_pack p, const uint8_t *q, const uint8_t *s, int l, mb w[8]) {
  const uint8_t *index = q + 4 * l;  // entry g of a lane: pack_rare.c
  switch (p) {
    case MTX_PACK_IQ2_XXS:
      for (int g = 0; g < 4; g++) mb_grid8(mtx_iq2_xxs_grid, index + 2 * g, NULL, &w[2 * g]);
      mm_apply_signs(mm_sign_masks(mi_load(s + 4 * l)), w);
      break;
    case MTX_PACK_IQ2_XS: {
      mi word = mi_load(s + 4 * l);
      for (int g = 0; g < 4; g++) {
        mm_high h = mm_high_of(mi_and(mi_shr(word, 20 + g), 0x100));
        mb_grid8(mtx_iq2_xs_grid, index + 2 * g, h.v, &w[2 * g]);
      }
      mm_apply_signs(mm_sign_masks(word), w);
      break;
    }
    case MTX_PACK_IQ2_S: {
      mi high = mi_shl(mi_u8(s + 64 + l), 8);
      for (int g = 0; g < 4; g++) {
        mm_high h = mm_high_of(mi_and(mi_shr(high, 2 * g), 0x300));
        mb_grid8(mtx_iq2_s_grid, index + 2 * g, h.v, &w[2 * g]);
      }
      mm_apply_signs(mi_load(s + 4 * l), w);
      break;
    }
    case MTX_PACK_IQ3_XXS:
      for (int v = 0; v < 8; v++) w[v] = mb_grid4(mtx_iq3_xxs_grid, index + 64 * (v / 4) + 2 * (v % 4), NULL);
      mm_apply_signs(mm_sign_masks(mi_load(s + 4 * l)), w);
      break;
    case MTX_PACK_IQ3_S: {
      mi high = mi_shl(mi_u8(s + 64 + l), 8);
      for (int v = 0; v < 8; v++) {
        mm_high h = mm_high_of(mi_and(mi_shr(high, v), 0x100));
        w[v] = mb_grid4(mtx_iq3_s_grid, index + 64 * (v / 4) + 2 * (v % 4), h.v);
      }
      mm_apply_signs(mi_load(s + 4 * l), w);
      break;
    }
    case MTX_PACK_IQ1_S: case MTX_PACK_IQ1_M: {
      mi high = mi_u16(s + 2 * l);
      for (int g = 0; g < 4; g++) {
        int shift = p == MTX_PACK_IQ1_S ? 3 * g : 4 * g;
        mm_high h = mm_high_of(mi_and(mi_shl(mi_shr(high, shift), 8), 0x700));
        // 16 + 1, or 16 - 1 where the offset's sign bit is set.
        mi minus = mi_and(mi_shr(high, p == MTX_PACK_IQ1_S ? 15 : 4 * g + 3), 1);
        mi offset = mi_sub(mi_set1(0x11111111), mi_and(mi_sub(mi_set1(0), minus), 0x02020202));
        mb_grid8(mtx_iq1_grid8, index + 2 * g, h.v, &w[2 * g]);
        for (int v = 2 * g; v < 2 * g + 2; v++) w[v] = mb_add(w[v], mb_of(offset));
      }
      break;
    }
    default: break;
  }
}

#endif
