// SPDX-License-Identifier: MIT
// Integer dots by SDOT: four products a lane, the activation taken from a quarter of a register.
#ifndef MTX_KERN_NEON_DOT_SDOT_H
#define MTX_KERN_NEON_DOT_SDOT_H

#include "mm_lanes.h"

#define MM_TOGETHER 1

// Weights below 128 are the same number signed or unsigned.
LANES_INLINE mi mm_dot(const mb *w, const int8_t *x, const int n, const int bits, mi start) {
  (void)bits;
  for (int v = 0; v < n; v += 4) {
    int8x16_t xv = vld1q_s8(x + 4 * v);
    start = vdotq_laneq_s32(start, vreinterpretq_s8_u8(w[v]), xv, 0);
    start = vdotq_laneq_s32(start, vreinterpretq_s8_u8(w[v + 1]), xv, 1);
    start = vdotq_laneq_s32(start, vreinterpretq_s8_u8(w[v + 2]), xv, 2);
    start = vdotq_laneq_s32(start, vreinterpretq_s8_u8(w[v + 3]), xv, 3);
  }
  return start;
}

#endif
