// SPDX-License-Identifier: MIT
// What matmul_rare.h needs of a tier, in plain C: words of lanes, grid look-ups, signs.
#ifndef MTX_KERN_SCALAR_MM_GRID_H
#define MTX_KERN_SCALAR_MM_GRID_H

#include "mm_lanes.h"

#define MM_RARE_NC 1  // most columns per unpacked block of matmul_rare.h's kinds

LANES_INLINE mi mi_load(const uint8_t *p) { mi r; memcpy(r.v, p, sizeof r.v); return r; }
LANES_INLINE void mi_store(uint32_t *p, mi a) { memcpy(p, a.v, sizeof a.v); }
LANES_INLINE mi mi_u8(const uint8_t *p) { mi r; LANES_EACH r.v[lane] = p[lane]; return r; }
LANES_INLINE mi mi_u16(const uint8_t *p) { mi r; LANES_EACH r.v[lane] = mtx_load_u16(p + 2 * lane); return r; }
LANES_INLINE mi mi_shr(mi a, int n) { LANES_EACH a.v[lane] = (int32_t)((uint32_t)a.v[lane] >> n); return a; }
LANES_INLINE mi mi_and(mi a, int32_t m) { LANES_EACH a.v[lane] &= m; return a; }
LANES_INLINE mi mi_or(mi a, mi b) { LANES_EACH a.v[lane] |= b.v[lane]; return a; }
LANES_INLINE mi mi_xor(mi a, mi b) { LANES_EACH a.v[lane] ^= b.v[lane]; return a; }
LANES_INLINE mi mi_sub(mi a, mi b) { LANES_EACH a.v[lane] = (int32_t)((uint32_t)a.v[lane] - (uint32_t)b.v[lane]); return a; }
// Half of the value of bytes 0..0x7F as E4M3: with its exponent in a half float's, 2^-7 of that.
LANES_INLINE mf mf_e4m3_half(const uint8_t *p) {
  mf r;
  LANES_EACH r.v[lane] = mtx_f16_to_f32((uint16_t)(p[lane] << 7)) * 128.0f;
  return r;
}

LANES_INLINE mb mb_zero(void) { mb r; memset(r.v, 0, sizeof r.v); return r; }
LANES_INLINE mb mb_of(mi a) { mb r; memcpy(r.v, a.v, sizeof r.v); return r; }
LANES_INLINE mb mb_add(mb a, mb b) { LANES_BYTES a.v[i] = (uint8_t)(a.v[i] + b.v[i]); return a; }
// 64 + a, or 64 - a where bit 4 (v mod 2) + byte of byte v / 2 of the lane's word is set.
LANES_INLINE mb mb_signed64(mb a, mi signs, int v) {
  LANES_BYTES a.v[i] = (uint8_t)((uint32_t)signs.v[i / 4] >> (4 * v + i % 4) & 1 ? 64 - a.v[i] : 64 + a.v[i]);
  return a;
}

// Index of entry `index` of lane i (places: pack_rare.c); high: its upper bits, lane by lane, or NULL.
#define MM_ENTRY_OF(i) (index[8 * ((i) / 2) + (i) % 2] | (high ? high[i] : 0u))

// Grids of 8 elements: elements 0..3 to w[0], 4..7 to w[1]; of 4 elements: one vector.
LANES_INLINE void mb_grid8(const int8_t (*grid)[8], const uint8_t *index, const uint32_t *high, mb w[2]) {
  LANES_EACH {
    memcpy(w[0].v + 4 * lane, grid[MM_ENTRY_OF(lane)], 4);
    memcpy(w[1].v + 4 * lane, grid[MM_ENTRY_OF(lane)] + 4, 4);
  }
}
LANES_INLINE mb mb_grid4(const int8_t (*grid)[4], const uint8_t *index, const uint32_t *high) {
  mb r;
  LANES_EACH memcpy(r.v + 4 * lane, grid[MM_ENTRY_OF(lane)], 4);
  return r;
}

#endif
