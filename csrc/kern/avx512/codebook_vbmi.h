// SPDX-License-Identifier: MIT
// Unpacking of the IQ1, IQ2 and IQ3 kinds by byte permutations (AVX-512 VBMI), no memory look-ups.
//
// A grid lives in registers as ranks (codebooks.h): 64 indices are looked up at
// once in tables of 128 bytes, halves chosen by the upper index bits. The result
// has in each 64-bit word the ranks of two lanes, and so has the 64-bit word of
// signs, so one VPMULTISHIFTQB each puts rank and sign of an element into its
// byte, and VPERMB turns the two into the biased weight.
#ifndef MTX_KERN_AVX512_CODEBOOK_VBMI_H
#define MTX_KERN_AVX512_CODEBOOK_VBMI_H

#include "mm_grid.h"

#include "kern/matmul.h"
#include "kern/sign_masks.h"
#include "quant/codebooks.h"

#define MM_OWN_CODEBOOKS

// The constants below are made from loop counters; a loop that stays a loop would make them each time.
#define MM_UNROLL _Pragma("GCC unroll 8")

// Bit masks of 64 indices: bit 7 of the index byte, then the bits above it.
typedef struct { __mmask64 bit[4]; } vbmi_upper;

LANES_INLINE mb vbmi_128(const uint8_t *t, mb index) { return _mm512_permutex2var_epi8(mb_load(t), index, mb_load(t + 64)); }
LANES_INLINE mb vbmi_256(const uint8_t *t, mb index, const vbmi_upper *u) {
  return _mm512_mask_blend_epi8(u->bit[0], vbmi_128(t, index), vbmi_128(t + 128, index));
}
LANES_INLINE mb vbmi_512(const uint8_t *t, mb index, const vbmi_upper *u) {
  return _mm512_mask_blend_epi8(u->bit[1], vbmi_256(t, index, u), vbmi_256(t + 256, index, u));
}
LANES_INLINE mb vbmi_1024(const uint8_t *t, mb index, const vbmi_upper *u) {
  return _mm512_mask_blend_epi8(u->bit[2], vbmi_512(t, index, u), vbmi_512(t + 512, index, u));
}
LANES_INLINE mb vbmi_2048(const uint8_t *t, mb index, const vbmi_upper *u) {
  return _mm512_mask_blend_epi8(u->bit[3], vbmi_1024(t, index, u), vbmi_1024(t + 1024, index, u));
}
LANES_INLINE mb vbmi_lookup(const uint8_t *t, const int entries, mb index, const vbmi_upper *u) {
  switch (entries) {
    case 256: return vbmi_256(t, index, u);
    case 512: return vbmi_512(t, index, u);
    case 1024: return vbmi_1024(t, index, u);
    default: return vbmi_2048(t, index, u);
  }
}

// Bit numbers for VPMULTISHIFTQB: bytes of elements 0..3 of the even, then the odd lane, as numbers
// even + step * element and odd + step * element (modulo 64).
LANES_INLINE mb vbmi_bits(const int even, const int odd, const int step) {
  uint64_t c = 0;
MM_UNROLL
  for (int e = 0; e < 4; e++) c |= (uint64_t)((even + step * e) & 63) << 8 * e | (uint64_t)((odd + step * e) & 63) << (32 + 8 * e);
  return _mm512_set1_epi64((int64_t)c);
}

// In lane words, bit `at + step * g` of the lane for its index g of 0..3, as a mask in index order.
LANES_INLINE __mmask64 vbmi_index_bit(mi words, const int at, const int step) {
  uint64_t c = 0;
MM_UNROLL
  for (int g = 0; g < 4; g++) c |= (uint64_t)(at + step * g) << 16 * g | (uint64_t)(32 + at + step * g) << (16 * g + 8);
  return _mm512_test_epi8_mask(_mm512_multishift_epi64_epi8(_mm512_set1_epi64((int64_t)c), words), _mm512_set1_epi8(1));
}

// Two rank bits and, above them, bit `sign` + sign_step * element of the lane's word -> values[8].
LANES_INLINE mb vbmi_elements2(mb ranks, const int g, mi words, const int sign, const int sign_step, uint64_t values) {
  mb r = _mm512_multishift_epi64_epi8(vbmi_bits(16 * g, 16 * g + 8, 2), ranks);
  mb s = _mm512_multishift_epi64_epi8(vbmi_bits(sign - 2, sign + 30, sign_step), words);
  // Bits 0, 1 of r, the others of s; VPERMB takes six bits of them, and the table repeats after three.
  mb both = _mm512_ternarylogic_epi32(r, s, _mm512_set1_epi8(3), 0xE4);
  return _mm512_permutexvar_epi8(both, _mm512_set1_epi64((int64_t)values));
}

// Ranks of IQ3: elements 0, 1 in byte plane a, 2, 3 in b, and the sign above three bits -> values[16].
LANES_INLINE mb vbmi_elements3(mb a, mb b, const int v, mi words, const int sign, mb values) {
  mb bits = vbmi_bits(16 * v, 16 * v + 8, 4);
  mb r = _mm512_multishift_epi64_epi8(bits, a);
  r = _mm512_mask_multishift_epi64_epi8(r, 0xCCCCCCCCCCCCCCCCu, _mm512_sub_epi8(bits, _mm512_set1_epi8(8)), b);
  mb s = _mm512_multishift_epi64_epi8(vbmi_bits(sign - 3, sign + 29, 1), words);
  mb both = _mm512_ternarylogic_epi32(r, s, _mm512_set1_epi8(7), 0xE4);
  return _mm512_permutexvar_epi8(both, values);
}

// Bytes by rank (bits 0, 1) and sign (bit 2), lowest byte first: 64 + and - 8, 25, 43; 16 + and - 1
// beside -8, 0, 8.
#define VBMI_IQ2_VALUES 0x40152738406B5948u
#define VBMI_IQ1_VALUES 0x10170F0710191109u

LANES_INLINE void vbmi_iq2(const uint8_t *ranks, const int entries, mb index, const vbmi_upper *u, mi signs, mb w[8]) {
  mb r[2] = {vbmi_lookup(ranks, entries, index, u), vbmi_lookup(ranks + entries, entries, index, u)};
MM_UNROLL
  for (int v = 0; v < 8; v++) w[v] = vbmi_elements2(r[v % 2], v / 2, signs, 4 * v, 1, VBMI_IQ2_VALUES);
}

// ninth: bits of index v = 0..7 in lane words (IQ3_S), or zeros.
LANES_INLINE void vbmi_iq3(const uint8_t *ranks, const int entries, const uint8_t *q, mi ninth, mi signs, __m128i values, mb w[8]) {
MM_UNROLL
  for (int half = 0; half < 2; half++) {
    mb index = mb_load(q + 64 * half);
    vbmi_upper u = {{_mm512_movepi8_mask(index)}};
    if (entries > 256) u.bit[1] = vbmi_index_bit(ninth, 4 * half, 1);
    mb a = vbmi_lookup(ranks, entries, index, &u), b = vbmi_lookup(ranks + entries, entries, index, &u);
MM_UNROLL
    for (int v = 0; v < 4; v++)
      w[4 * half + v] = vbmi_elements3(a, b, v, signs, 4 * (4 * half + v), _mm512_broadcast_i32x4(values));
  }
}

LANES_INLINE void mm_codebook_unpack(const mtx_pack p, const uint8_t *q, const uint8_t *s, int l, mb w[8]) {
  (void)l;
  mb index = mb_load(q);
  vbmi_upper u = {{_mm512_movepi8_mask(index)}};
  switch (p) {
    case MTX_PACK_IQ2_XXS: vbmi_iq2(mtx_iq2_xxs_ranks[0], 256, index, &u, mm_sign_masks(mi_load(s)), w); break;
    case MTX_PACK_IQ2_XS: {
      mi word = mi_load(s);
      u.bit[1] = vbmi_index_bit(word, 28, 1);
      vbmi_iq2(mtx_iq2_xs_ranks[0], 512, index, &u, mm_sign_masks(word), w);
      break;
    }
    case MTX_PACK_IQ2_S: {
      mi high = mi_u8(s + 64);
      u.bit[1] = vbmi_index_bit(high, 0, 2);
      u.bit[2] = vbmi_index_bit(high, 1, 2);
      vbmi_iq2(mtx_iq2_s_ranks[0], 1024, index, &u, mi_load(s), w);
      break;
    }
    case MTX_PACK_IQ3_XXS:
      vbmi_iq3(mtx_iq3_xxs_ranks[0], 256, q, mi_set1(0), mm_sign_masks(mi_load(s)),
               _mm_setr_epi8(68, 76, 84, 92, 100, 108, 116, 126, 60, 52, 44, 36, 28, 20, 12, 2), w);
      break;
    case MTX_PACK_IQ3_S:
      vbmi_iq3(mtx_iq3_s_ranks[0], 512, q, mi_u8(s + 64), mi_load(s),
               _mm_setr_epi8(65, 67, 69, 71, 73, 75, 77, 79, 63, 61, 59, 57, 55, 53, 51, 49), w);
      break;
    case MTX_PACK_IQ1_S: case MTX_PACK_IQ1_M: {
      mi high = mi_u16(s);
      const int step = p == MTX_PACK_IQ1_S ? 3 : 4;
MM_UNROLL
      for (int bit = 0; bit < 3; bit++) u.bit[1 + bit] = vbmi_index_bit(high, bit, step);
      mb r[2] = {vbmi_lookup(mtx_iq1_ranks[0], 2048, index, &u), vbmi_lookup(mtx_iq1_ranks[1], 2048, index, &u)};
MM_UNROLL
      for (int v = 0; v < 8; v++)
        w[v] = vbmi_elements2(r[v % 2], v / 2, high, p == MTX_PACK_IQ1_S ? 15 : 4 * (v / 2) + 3, 0, VBMI_IQ1_VALUES);
      break;
    }
    default: break;
  }
}

#endif
