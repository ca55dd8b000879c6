// SPDX-License-Identifier: MIT
// Integer dots by VPDPBUSD: unsigned weight bytes, signed activation bytes, no saturation.
#ifndef MTX_KERN_AVX512_DOT_VNNI_H
#define MTX_KERN_AVX512_DOT_VNNI_H

#include "mm_lanes.h"

#define MM_SIGNED 0
#define MM_TOGETHER 4  // a dot is a chain of 4 cycles a step: with four side by side few steps stand in the scheduler waiting

LANES_INLINE mi mm_dot(const mb *w, const int8_t *x, const int n, const int bits, mi start) {
  (void)bits;
  for (int v = 0; v < n; v++) {
    int32_t four;
    memcpy(&four, x + 4 * v, 4);
    start = _mm512_dpbusd_epi32(start, w[v], _mm512_set1_epi32(four));
  }
  return start;
}

#endif
