// SPDX-License-Identifier: MIT
// The fixed tables of the IQ, MXFP4 and NVFP4 types (defined in codebooks.c).
//
// One byte an element, in element order: a look-up is one 4- or 8-byte load.
#ifndef MTX_QUANT_CODEBOOKS_H
#define MTX_QUANT_CODEBOOKS_H

#include <stdint.h>
#include <string.h>

#define MTX_ALIGNED(n) __attribute__((aligned(n)))

// IQ4_NL, IQ4_XS: value of each 4-bit code.
extern const int8_t mtx_iq4_values[16] MTX_ALIGNED(16);
// MXFP4, NVFP4: twice the E2M1 value of each 4-bit code.
extern const int8_t mtx_e2m1_values[16] MTX_ALIGNED(16);

// 7-bit sign code -> sign mask: bit j set means that element j is negative. The eighth bit makes
// the number of signs even.
extern const uint8_t mtx_sign_masks[128] MTX_ALIGNED(64);
// Sign mask -> -1 for each negative element, else 0.
extern const int8_t mtx_sign_bytes[256][8] MTX_ALIGNED(64);

extern const int8_t mtx_iq2_xxs_grid[256][8] MTX_ALIGNED(64);
extern const int8_t mtx_iq2_xs_grid[512][8] MTX_ALIGNED(64);
extern const int8_t mtx_iq2_s_grid[1024][8] MTX_ALIGNED(64);
extern const int8_t mtx_iq3_xxs_grid[256][4] MTX_ALIGNED(64);
extern const int8_t mtx_iq3_s_grid[512][4] MTX_ALIGNED(64);
// IQ1_S, IQ1_M: eight times the value, so that the offset of 1/8 becomes an integer.
extern const int8_t mtx_iq1_grid8[2048][8] MTX_ALIGNED(64);

// The same grids, an element as the rank of its value among the grid's values. Of each entry, byte
// [0] holds the first half of its elements, byte [1] the second, two bits (IQ1, IQ2) or four (IQ3)
// an element, the first lowest. Values by rank: 8, 25, 43 (IQ2); 4, 12, 20, 28, 36, 44, 52, 62
// (IQ3_XXS); 1, 3, .. 15 (IQ3_S); -1, 0, 1 (IQ1).
extern const uint8_t mtx_iq2_xxs_ranks[2][256] MTX_ALIGNED(64);
extern const uint8_t mtx_iq2_xs_ranks[2][512] MTX_ALIGNED(64);
extern const uint8_t mtx_iq2_s_ranks[2][1024] MTX_ALIGNED(64);
extern const uint8_t mtx_iq3_xxs_ranks[2][256] MTX_ALIGNED(64);
extern const uint8_t mtx_iq3_s_ranks[2][512] MTX_ALIGNED(64);
extern const uint8_t mtx_iq1_ranks[2][2048] MTX_ALIGNED(64);

// Eight grid entries with the signs of a mask. The entries are 1..127, so the two's complement of
// each byte needs no carry into the next and the whole word is done at once.
static inline void mtx_grid_signed8(const int8_t *grid8, uint8_t signs, int8_t *q) {
  uint64_t x, m;
  memcpy(&x, grid8, 8);
  memcpy(&m, mtx_sign_bytes[signs], 8);
  x = (x ^ m) + (m & 0x0101010101010101u);
  memcpy(q, &x, 8);
}

#endif
