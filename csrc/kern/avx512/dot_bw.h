// SPDX-License-Identifier: MIT
// Integer dots by VPMADDUBSW, exact: its 16-bit sums saturate, so they are widened before they can.
//
// Products of b-bit weights and |x| <= 127: two of them stay below 2^15 up to 7
// bits, and so do 8, 4, 2 pairs of 4, 5, 6 bits. Full bytes use |w| and x with w's sign.
#ifndef MTX_KERN_AVX512_DOT_BW_H
#define MTX_KERN_AVX512_DOT_BW_H

#include "mm_lanes.h"

#define MM_SIGNED 1
#define MM_TOGETHER 1

LANES_INLINE __m512i dot_pairs(mb w, const int8_t *x, const int bits) {
  int32_t four;
  memcpy(&four, x, 4);
  __m512i xv = _mm512_set1_epi32(four);
  if (bits < 8) return _mm512_maddubs_epi16(w, xv);
  xv = _mm512_mask_sub_epi8(xv, _mm512_movepi8_mask(w), _mm512_setzero_si512(), xv);
  return _mm512_maddubs_epi16(_mm512_abs_epi8(w), xv);
}

LANES_INLINE mi mm_dot(const mb *w, const int8_t *x, const int n, const int bits, mi start) {
  const int run = bits == 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1;
  for (int v = 0; v < n; v += run) {
    __m512i s = dot_pairs(w[v], x + 4 * v, bits);
    for (int j = 1; j < run && v + j < n; j++) s = _mm512_add_epi16(s, dot_pairs(w[v + j], x + 4 * (v + j), bits));
    start = _mm512_add_epi32(start, _mm512_madd_epi16(s, _mm512_set1_epi16(1)));
  }
  return start;
}

#endif
