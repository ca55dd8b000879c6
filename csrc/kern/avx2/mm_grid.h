// SPDX-License-Identifier: MIT
// What matmul_rare.h needs of a tier, in AVX2: words of 8 lanes, grid look-ups, signs.
#ifndef MTX_KERN_AVX2_MM_GRID_H
#define MTX_KERN_AVX2_MM_GRID_H

#include "mm_lanes.h"

#define MM_RARE_NC 4  // most columns per unpacked block of matmul_rare.h's kinds

LANES_INLINE mi mi_load(const uint8_t *p) { return _mm256_loadu_si256((const void *)p); }
LANES_INLINE void mi_store(uint32_t *p, mi a) { _mm256_storeu_si256((void *)p, a); }
LANES_INLINE mi mi_u16(const uint8_t *p) { return _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)); }
LANES_INLINE mi mi_shr(mi a, const int n) { return _mm256_srli_epi32(a, n); }
LANES_INLINE mi mi_and(mi a, const int32_t m) { return _mm256_and_si256(a, _mm256_set1_epi32(m)); }
LANES_INLINE mi mi_or(mi a, mi b) { return _mm256_or_si256(a, b); }
LANES_INLINE mi mi_xor(mi a, mi b) { return _mm256_xor_si256(a, b); }
LANES_INLINE mi mi_sub(mi a, mi b) { return _mm256_sub_epi32(a, b); }
// Half of the value of bytes 0..0x7F as E4M3: with its exponent in a half float's, 2^-7 of that.
LANES_INLINE mf mf_e4m3_half(const uint8_t *p) {
  __m128i h = _mm_slli_epi16(_mm_cvtepu8_epi16(_mm_loadl_epi64((const void *)p)), 7);
  return _mm256_mul_ps(_mm256_cvtph_ps(h), _mm256_set1_ps(128.0f));
}

LANES_INLINE mb mb_zero(void) { return _mm256_setzero_si256(); }
LANES_INLINE mb mb_of(mi a) { return a; }
LANES_INLINE mb mb_add(mb a, mb b) { return _mm256_add_epi8(a, b); }
// 64 + a, or 64 - a where bit 4 (v mod 2) + byte of byte v / 2 of the lane's word is set.
LANES_INLINE mb mb_signed64(mb a, mi signs, const int v) {
  const __m256i copy = _mm256_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12,
                                        0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
  const __m256i bit = _mm256_set1_epi32(v % 2 ? (int32_t)0x80402010 : 0x08040201);
  __m256i s = _mm256_shuffle_epi8(signs, _mm256_add_epi8(copy, _mm256_set1_epi8((char)(v / 2))));
  __m256i minus = _mm256_cmpeq_epi8(_mm256_and_si256(s, bit), bit);
  __m256i negated = _mm256_sub_epi8(_mm256_xor_si256(a, minus), minus);
  return _mm256_add_epi8(negated, _mm256_set1_epi8(64));
}

// Index of entry `index` of lane i (places: pack_rare.c); high: its upper bits, lane by lane, or NULL.
#define MM_ENTRY_OF(i) (index[8 * ((i) / 2) + (i) % 2] | (high ? high[i] : 0u))

#define E(i) e[MM_ENTRY_OF(i)]
// The order of the loads makes both halves of the entries come out in lane order from one shuffle each.
LANES_INLINE void mb_grid8(const int8_t (*grid)[8], const uint8_t *index, const uint32_t *high, mb w[2]) {
  const long long *e = (const void *)grid;
  __m256 a = _mm256_castsi256_ps(_mm256_setr_epi64x(E(0), E(1), E(4), E(5)));
  __m256 b = _mm256_castsi256_ps(_mm256_setr_epi64x(E(2), E(3), E(6), E(7)));
  w[0] = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
  w[1] = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD));
}
LANES_INLINE mb mb_grid4(const int8_t (*grid)[4], const uint8_t *index, const uint32_t *high) {
  const int *e = (const void *)grid;
  return _mm256_setr_epi32(E(0), E(1), E(2), E(3), E(4), E(5), E(6), E(7));
}
#undef E

#endif
