// SPDX-License-Identifier: MIT
// The words of packed groups, for pack.c and pack_rare.c (layouts: matmul.h).
//
// Words of 4 bytes are handled at once: word v of a block is its elements 4v..4v+3, one
// byte each. plane_get and get_pairs add to bytes that start as zeros.
#ifndef MTX_KERN_PACK_WORDS_H
#define MTX_KERN_PACK_WORDS_H

#include <stdint.h>
#include <string.h>

#include "quant/half.h"

static inline uint32_t rd(const uint8_t *p) {
  uint32_t u;
  memcpy(&u, p, 4);
  return u;
}
static inline void wr(uint8_t *p, uint32_t u) { memcpy(p, &u, 4); }
static inline void copy2(uint8_t *dst, const uint8_t *src) { memcpy(dst, src, 2); }

// The lane's word of byte vector v.
static inline uint8_t *at(uint8_t *q, int v, int lane) { return q + 64 * v + 4 * lane; }
static inline const uint8_t *cat(const uint8_t *q, int v, int lane) { return q + 64 * v + 4 * lane; }

// ---- one-bit vectors: bit v of byte t = element 4v + t -------------------------

// A word of one bit per byte <-> 4 neighbouring bits.
static inline uint32_t spread4(uint32_t n) { return (n * 0x00204081u) & 0x01010101u; }
static inline uint32_t gather4(uint32_t w) { return ((w & 0x01010101u) * 0x10204080u) >> 28; }

// 32 bits in element order <-> their word.
static inline uint32_t bits_put(uint32_t bits) {
  uint32_t w = 0;
  for (int v = 0; v < 8; v++) w |= spread4(bits >> 4 * v & 15) << v;
  return w;
}
static inline uint32_t bits_get(uint32_t w) {
  uint32_t bits = 0;
  for (int v = 0; v < 8; v++) bits |= gather4(w >> v) << 4 * v;
  return bits;
}

// Bit `bit` of 32 neighbouring bytes <-> their word.
static inline uint32_t plane_put(const uint8_t *src, int bit) {
  uint32_t w = 0;
  for (int v = 0; v < 8; v++) w |= (rd(src + 4 * v) >> bit & 0x01010101u) << v;
  return w;
}
static inline void plane_get(uint8_t *dst, int bit, uint32_t w) {
  for (int v = 0; v < 8; v++) wr(dst + 4 * v, rd(dst + 4 * v) | (w >> v & 0x01010101u) << bit);
}

// ---- two-bit vectors: vector v in bits 2 (v mod 4) of byte vector v / 4 -------

// Two bits of 32 neighbouring bytes, from bit `shift` on.
static inline void put_pairs(const uint8_t *src, int shift, int lane, uint8_t *q) {
  for (int g = 0; g < 2; g++) {
    uint32_t w = 0;
    for (int v = 0; v < 4; v++) w |= (rd(src + 16 * g + 4 * v) >> shift & 0x03030303u) << 2 * v;
    wr(at(q, g, lane), w);
  }
}
static inline void get_pairs(uint8_t *dst, int shift, int lane, const uint8_t *q) {
  for (int v = 0; v < 8; v++) {
    uint32_t w = rd(cat(q, v / 4, lane)) >> 2 * (v % 4) & 0x03030303u;
    wr(dst + 4 * v, rd(dst + 4 * v) | w << shift);
  }
}

#endif
