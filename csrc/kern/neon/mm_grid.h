// SPDX-License-Identifier: MIT
// What matmul_rare.h needs of a tier, in NEON: words of 4 lanes, grid look-ups, signs.
#ifndef MTX_KERN_NEON_MM_GRID_H
#define MTX_KERN_NEON_MM_GRID_H

#include "mm_lanes.h"

#define MM_RARE_NC 4  // most columns per unpacked block of matmul_rare.h's kinds

LANES_INLINE mi mi_load(const uint8_t *p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
LANES_INLINE void mi_store(uint32_t *p, mi a) { vst1q_u32(p, vreinterpretq_u32_s32(a)); }
LANES_INLINE mi mi_u16(const uint8_t *p) { return vreinterpretq_s32_u32(vmovl_u16(vreinterpret_u16_u8(vld1_u8(p)))); }
LANES_INLINE mi mi_shr(mi a, const int n) { return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-n))); }
LANES_INLINE mi mi_and(mi a, const int32_t m) { return vandq_s32(a, vdupq_n_s32(m)); }
LANES_INLINE mi mi_or(mi a, mi b) { return vorrq_s32(a, b); }
LANES_INLINE mi mi_xor(mi a, mi b) { return veorq_s32(a, b); }
LANES_INLINE mi mi_sub(mi a, mi b) { return vsubq_s32(a, b); }
// Half of the value of bytes 0..0x7F as E4M3: with its exponent in a half float's, 2^-7 of that.
LANES_INLINE mf mf_e4m3_half(const uint8_t *p) {
  uint16x4_t h = vshl_n_u16(vget_low_u16(vmovl_u8(four_bytes(p))), 7);
  return vmulq_f32(vcvt_f32_f16(vreinterpret_f16_u16(h)), vdupq_n_f32(128.0f));
}

LANES_INLINE mb mb_zero(void) { return vdupq_n_u8(0); }
LANES_INLINE mb mb_of(mi a) { return vreinterpretq_u8_s32(a); }
LANES_INLINE mb mb_add(mb a, mb b) { return vaddq_u8(a, b); }
// 64 + a, or 64 - a where bit 4 (v mod 2) + byte of byte v / 2 of the lane's word is set.
LANES_INLINE mb mb_signed64(mb a, mi signs, const int v) {
  static const uint8_t copy[16] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12};
  uint8x16_t s = vqtbl1q_u8(vreinterpretq_u8_s32(signs), vaddq_u8(vld1q_u8(copy), vdupq_n_u8((uint8_t)(v / 2))));
  uint8x16_t minus = vtstq_u8(s, vreinterpretq_u8_u32(vdupq_n_u32(v % 2 ? 0x80402010u : 0x08040201u)));
  return vbslq_u8(minus, vsubq_u8(vdupq_n_u8(64), a), vaddq_u8(vdupq_n_u8(64), a));
}

LANES_INLINE uint32x4_t grid_words(const int8_t *e0, const int8_t *e1, const int8_t *e2, const int8_t *e3) {
  uint32_t w[4];
  memcpy(&w[0], e0, 4);
  memcpy(&w[1], e1, 4);
  memcpy(&w[2], e2, 4);
  memcpy(&w[3], e3, 4);
  return vld1q_u32(w);
}
// Index of entry `index` of lane i (places: pack_rare.c); high: its upper bits, lane by lane, or NULL.
#define MM_ENTRY_OF(i) (index[8 * ((i) / 2) + (i) % 2] | (high ? high[i] : 0u))

// Grids of 8 elements: elements 0..3 to w[0], 4..7 to w[1]; of 4 elements: one vector.
LANES_INLINE void mb_grid8(const int8_t (*grid)[8], const uint8_t *index, const uint32_t *high, mb w[2]) {
  const int8_t *e0 = grid[MM_ENTRY_OF(0)], *e1 = grid[MM_ENTRY_OF(1)], *e2 = grid[MM_ENTRY_OF(2)], *e3 = grid[MM_ENTRY_OF(3)];
  for (int h = 0; h < 2; h++) w[h] = vreinterpretq_u8_u32(grid_words(e0 + 4 * h, e1 + 4 * h, e2 + 4 * h, e3 + 4 * h));
}
LANES_INLINE mb mb_grid4(const int8_t (*grid)[4], const uint8_t *index, const uint32_t *high) {
  return vreinterpretq_u8_u32(grid_words(grid[MM_ENTRY_OF(0)], grid[MM_ENTRY_OF(1)], grid[MM_ENTRY_OF(2)], grid[MM_ENTRY_OF(3)]));
}

#endif
