// SPDX-License-Identifier: MIT
// The 12 bytes of eight 6-bit scales and offsets that Q4_K and Q5_K share.
//
// Pairs 0..3: the low six bits of bytes 0..3 (scale) and 4..7 (offset). Pairs 4..7: four low bits in
// the halves of bytes 8..11, two high bits on top of bytes 0..7.
#ifndef MTX_QUANT_K_SCALES_H
#define MTX_QUANT_K_SCALES_H

#include "quant/unpack.h"

// w = (d scale) code - dmin offset for run s of 32 elements.
static inline void mtx_k_scales_get(const uint8_t *sc, int s, float d, float dmin, float *scale2, float *min2) {
  int scale = s < 4 ? sc[s] & 63 : (sc[s + 4] & 15) | sc[s - 4] >> 6 << 4;
  int offset = s < 4 ? sc[s + 4] & 63 : sc[s + 4] >> 4 | sc[s] >> 6 << 4;
  scale2[0] = scale2[1] = d * (float)scale;
  min2[0] = min2[1] = -(dmin * (float)offset);
}

// Eight scales and offsets below 64 -> the 12 bytes.
static inline void mtx_k_scales_put(const uint8_t *scale, const uint8_t *offset, uint8_t *sc) {
  for (int s = 0; s < 4; s++) {
    sc[s] = (uint8_t)(scale[s] | scale[s + 4] >> 4 << 6);
    sc[s + 4] = (uint8_t)(offset[s] | offset[s + 4] >> 4 << 6);
    sc[s + 8] = (uint8_t)((scale[s + 4] & 15) | (offset[s + 4] & 15) << 4);
  }
}

#endif
