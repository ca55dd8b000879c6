// SPDX-License-Identifier: MIT
// What matmul_rare.h needs of a tier, in AVX-512: words of 16 lanes, grid look-ups, signs.
#ifndef MTX_KERN_AVX512_MM_GRID_H
#define MTX_KERN_AVX512_MM_GRID_H

#include "mm_lanes.h"

#define MM_RARE_NC 8  // most columns per unpacked block of matmul_rare.h's kinds

LANES_INLINE mi mi_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
LANES_INLINE void mi_store(uint32_t *p, mi a) { _mm512_storeu_si512(p, a); }
LANES_INLINE mi mi_u16(const uint8_t *p) { return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)); }
LANES_INLINE mi mi_shr(mi a, const int n) { return _mm512_srli_epi32(a, (unsigned)n); }
LANES_INLINE mi mi_and(mi a, const int32_t m) { return _mm512_and_si512(a, _mm512_set1_epi32(m)); }
LANES_INLINE mi mi_or(mi a, mi b) { return _mm512_or_si512(a, b); }
LANES_INLINE mi mi_xor(mi a, mi b) { return _mm512_xor_si512(a, b); }
LANES_INLINE mi mi_sub(mi a, mi b) { return _mm512_sub_epi32(a, b); }
// Half of the value of bytes 0..0x7F as E4M3: with its exponent in a half float's, 2^-7 of that.
LANES_INLINE mf mf_e4m3_half(const uint8_t *p) {
  __m256i h = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p)), 7);
  return _mm512_mul_ps(_mm512_cvtph_ps(h), _mm512_set1_ps(128.0f));
}

LANES_INLINE mb mb_zero(void) { return _mm512_setzero_si512(); }
LANES_INLINE mb mb_of(mi a) { return a; }
LANES_INLINE mb mb_add(mb a, mb b) { return _mm512_add_epi8(a, b); }
// 64 + a, or 64 - a where bit 4 (v mod 2) + byte of byte v / 2 of the lane's word is set.
LANES_INLINE mb mb_signed64(mb a, mi signs, const int v) {
  const __m512i copy = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
  __m512i s = _mm512_shuffle_epi8(signs, _mm512_add_epi8(copy, _mm512_set1_epi8((char)(v / 2))));
  __mmask64 minus = _mm512_test_epi8_mask(s, _mm512_set1_epi32(v % 2 ? (int32_t)0x80402010 : 0x08040201));
  const __m512i bias = _mm512_set1_epi8(64);
  return _mm512_mask_sub_epi8(_mm512_add_epi8(bias, a), minus, bias, a);
}

// Index of entry `index` of lane i (places: pack_rare.c); high: its upper bits, lane by lane, or NULL.
#define MM_ENTRY_OF(i) (index[8 * ((i) / 2) + (i) % 2] | (high ? high[i] : 0u))

#define E(i) e[MM_ENTRY_OF(i)]
// Small steps, for GCC would else fetch all addresses first and spill them. The order of the loads makes
// both halves of the entries come out in lane order from one shuffle each.
LANES_INLINE __m512 grid8_half(const long long *e, const uint8_t *index, const uint32_t *high, const int i) {
  __m256i a = _mm256_set_m128i(_mm_set_epi64x(E(i + 5), E(i + 4)), _mm_set_epi64x(E(i + 1), E(i)));
  __m256i b = _mm256_set_m128i(_mm_set_epi64x(E(i + 13), E(i + 12)), _mm_set_epi64x(E(i + 9), E(i + 8)));
  return _mm512_castsi512_ps(_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1));
}
LANES_INLINE void mb_grid8(const int8_t (*grid)[8], const uint8_t *index, const uint32_t *high, mb w[2]) {
  __m512 a = grid8_half((const void *)grid, index, high, 0), b = grid8_half((const void *)grid, index, high, 2);
  w[0] = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88));
  w[1] = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xDD));
}
LANES_INLINE __m128i grid4_quad(const int *e, const uint8_t *index, const uint32_t *high, const int i) {
  __m128i a = _mm_insert_epi32(_mm_cvtsi32_si128(E(i)), E(i + 1), 1);
  __m128i b = _mm_insert_epi32(_mm_cvtsi32_si128(E(i + 2)), E(i + 3), 1);
  return _mm_unpacklo_epi64(a, b);
}
LANES_INLINE mb mb_grid4(const int8_t (*grid)[4], const uint8_t *index, const uint32_t *high) {
  const int *e = (const void *)grid;
  __m256i a = _mm256_set_m128i(grid4_quad(e, index, high, 4), grid4_quad(e, index, high, 0));
  __m256i b = _mm256_set_m128i(grid4_quad(e, index, high, 12), grid4_quad(e, index, high, 8));
  return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}
#undef E

#endif
