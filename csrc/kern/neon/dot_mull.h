// SPDX-License-Identifier: MIT
// Integer dots for CPUs without SDOT: 16-bit products, added in pairs (2 * 128 * 127 < 2^15), then in 32 bits.
#ifndef MTX_KERN_NEON_DOT_MULL_H
#define MTX_KERN_NEON_DOT_MULL_H

#include "mm_lanes.h"

#define MM_TOGETHER 1

LANES_INLINE mi mm_dot(const mb *w, const int8_t *x, const int n, const int bits, mi start) {
  (void)bits;
  for (int v = 0; v < n; v++) {
    int32_t four;
    memcpy(&four, x + 4 * v, 4);
    int8x8_t xv = vreinterpret_s8_s32(vdup_n_s32(four));
    int8x16_t wv = vreinterpretq_s8_u8(w[v]);
    start = vpadalq_s16(start, vpaddq_s16(vmull_s8(vget_low_s8(wv), xv), vmull_s8(vget_high_s8(wv), xv)));
  }
  return start;
}

#endif
