// SPDX-License-Identifier: MIT
// File blocks of one row <-> its lane of a packed group (layouts: matmul.h).
//
// Only a re-ordering of bits: `get` gives back the bytes of the file, so a packed
// matrix can still be decoded exactly.
#include <string.h>

#include "kern/matmul.h"
#include "kern/pack_words.h"

// ---- blocks of 32: f16 scale [f16 minimum] [32 high bits] 16 bytes of nibbles -----
// The file's byte j holds elements j and j + 16: the packed order already.

static void put_nibbles(const uint8_t *src, int lane, uint8_t *q) {
  for (int v = 0; v < 4; v++) wr(at(q, v, lane), rd(src + 4 * v));
}
static void get_nibbles(uint8_t *dst, int lane, const uint8_t *q) {
  for (int v = 0; v < 4; v++) wr(dst + 4 * v, rd(cat(q, v, lane)));
}

static void put_q4_0(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  copy2(s + 2 * lane, blk);
  put_nibbles(blk + 2, lane, q);
}
static void get_q4_0(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  copy2(blk, s + 2 * lane);
  get_nibbles(blk + 2, lane, q);
}

static void put_q4_1(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  copy2(s + 2 * lane, blk);
  copy2(s + 32 + 2 * lane, blk + 2);
  put_nibbles(blk + 4, lane, q);
}
static void get_q4_1(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  copy2(blk, s + 2 * lane);
  copy2(blk + 2, s + 32 + 2 * lane);
  get_nibbles(blk + 4, lane, q);
}

static void put_q5_0(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  copy2(s + 2 * lane, blk);
  wr(at(q, 4, lane), bits_put(rd(blk + 2)));
  put_nibbles(blk + 6, lane, q);
}
static void get_q5_0(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  copy2(blk, s + 2 * lane);
  wr(blk + 2, bits_get(rd(cat(q, 4, lane))));
  get_nibbles(blk + 6, lane, q);
}

static void put_q5_1(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  copy2(s + 2 * lane, blk);
  copy2(s + 32 + 2 * lane, blk + 2);
  wr(at(q, 4, lane), bits_put(rd(blk + 4)));
  put_nibbles(blk + 8, lane, q);
}
static void get_q5_1(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  copy2(blk, s + 2 * lane);
  copy2(blk + 2, s + 32 + 2 * lane);
  wr(blk + 4, bits_get(rd(cat(q, 4, lane))));
  get_nibbles(blk + 8, lane, q);
}

static void put_q8_0(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  copy2(s + 2 * lane, blk);
  for (int v = 0; v < 8; v++) wr(at(q, v, lane), rd(blk + 2 + 4 * v) ^ 0x80808080u);
}
static void get_q8_0(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  copy2(blk, s + 2 * lane);
  for (int v = 0; v < 8; v++) wr(blk + 2 + 4 * v, rd(cat(q, v, lane)) ^ 0x80808080u);
}

static void put_mxfp4(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  s[lane] = blk[0];
  put_nibbles(blk + 1, lane, q);
}
static void get_mxfp4(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  blk[0] = s[lane];
  get_nibbles(blk + 1, lane, q);
}

// ---- super-blocks of 256 -------------------------------------------------------
// Q4_K, Q5_K: 32 bytes hold block 2i in their low and block 2i + 1 in their high halves.

static void put_pair(const uint8_t *src, int hi, int lane, uint8_t *q) {
  for (int v = 0; v < 4; v++) {
    uint32_t a = rd(src + 4 * v) >> 4 * hi & 0x0F0F0F0Fu, b = rd(src + 16 + 4 * v) >> 4 * hi & 0x0F0F0F0Fu;
    wr(at(q, v, lane), a | b << 4);
  }
}
// Adds to bytes that start as zeros.
static void get_pair(uint8_t *dst, int hi, int lane, const uint8_t *q) {
  for (int v = 0; v < 4; v++) {
    uint32_t w = rd(cat(q, v, lane));
    wr(dst + 4 * v, rd(dst + 4 * v) | (w & 0x0F0F0F0Fu) << 4 * hi);
    wr(dst + 16 + 4 * v, rd(dst + 16 + 4 * v) | (w >> 4 & 0x0F0F0F0Fu) << 4 * hi);
  }
}

// The 12 bytes of eight 6-bit scales and minimums: the first four whole in bytes 0..3 and
// 4..7; of the last four the low halves in bytes 8..11, the upper bits atop bytes 0..7.
static void put_k_scales(const uint8_t *src, int lane, uint8_t *s) {
  for (int j = 0; j < 8; j++, s += 32) {
    s[lane] = (uint8_t)(j < 4 ? src[j] & 63 : (src[j + 4] & 15) | src[j - 4] >> 6 << 4);
    s[16 + lane] = (uint8_t)(j < 4 ? src[j + 4] & 63 : src[j + 4] >> 4 | src[j] >> 6 << 4);
  }
}
static void get_k_scales(uint8_t *dst, int lane, const uint8_t *s) {
  for (int j = 0; j < 4; j++) {
    uint8_t sc = s[32 * j + lane], m = s[32 * j + 16 + lane];
    uint8_t sc4 = s[32 * (j + 4) + lane], m4 = s[32 * (j + 4) + 16 + lane];
    dst[j] = (uint8_t)(sc | sc4 >> 4 << 6);
    dst[j + 4] = (uint8_t)(m | m4 >> 4 << 6);
    dst[j + 8] = (uint8_t)((sc4 & 15) | m4 << 4);
  }
}

static void put_q4_k(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  copy2(ss + 2 * lane, blk);
  copy2(ss + 32 + 2 * lane, blk + 2);
  put_k_scales(blk + 4, lane, s);
  for (int b = 0; b < 8; b++) put_pair(blk + 16 + 32 * (b / 2), b & 1, lane, q + 256 * b);
}
static void get_q4_k(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  memset(blk, 0, 144);
  copy2(blk, ss + 2 * lane);
  copy2(blk + 2, ss + 32 + 2 * lane);
  get_k_scales(blk + 4, lane, s);
  for (int b = 0; b < 8; b++) get_pair(blk + 16 + 32 * (b / 2), b & 1, lane, q + 256 * b);
}

// Q5_K: bit b of qh[j] is the fifth bit of element j of block b.
static void put_q5_k(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  copy2(ss + 2 * lane, blk);
  copy2(ss + 32 + 2 * lane, blk + 2);
  put_k_scales(blk + 4, lane, s);
  for (int b = 0; b < 8; b++) {
    put_pair(blk + 48 + 32 * (b / 2), b & 1, lane, q + 320 * b);
    wr(at(q + 320 * b, 4, lane), plane_put(blk + 16, b));
  }
}
static void get_q5_k(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  memset(blk, 0, 176);
  copy2(blk, ss + 2 * lane);
  copy2(blk + 2, ss + 32 + 2 * lane);
  get_k_scales(blk + 4, lane, s);
  for (int b = 0; b < 8; b++) {
    plane_get(blk + 16, b, rd(cat(q + 320 * b, 4, lane)));
    get_pair(blk + 48 + 32 * (b / 2), b & 1, lane, q + 320 * b);
  }
}

// Q6_K: 128 elements share 64 bytes ql and 32 bytes qh; block b of the four has its nibbles in
// ql + 32 (b mod 2), low halves for b < 2, and bits 2b, 2b + 1 of qh. Then 16 scales, then d.
static void put_q6_k(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  copy2(ss + 2 * lane, blk + 208);
  for (int b = 0; b < 8; b++, q += 384, s += 32) {
    const uint8_t *ql = blk + 64 * (b / 4) + 32 * (b & 1), *qh = blk + 128 + 32 * (b / 4);
    s[lane] = blk[192 + 2 * b];
    s[16 + lane] = blk[193 + 2 * b];
    put_pair(ql, b >> 1 & 1, lane, q);
    put_pairs(qh, 2 * (b & 3), lane, q + 256);
  }
}
static void get_q6_k(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  memset(blk, 0, 210);
  copy2(blk + 208, ss + 2 * lane);
  for (int b = 0; b < 8; b++, q += 384, s += 32) {
    uint8_t *ql = blk + 64 * (b / 4) + 32 * (b & 1), *qh = blk + 128 + 32 * (b / 4);
    blk[192 + 2 * b] = s[lane];
    blk[193 + 2 * b] = s[16 + lane];
    get_pair(ql, b >> 1 & 1, lane, q);
    get_pairs(qh, 2 * (b & 3), lane, q + 256);
  }
}

// IQ4_XS: d, the scales' upper 2 bits (u16), their lower 4 bits (4 bytes), nibbles as in IQ4_NL. Scale = 6 bits - 32.
static void put_iq4_xs(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss) {
  unsigned high = mtx_load_u16(blk + 2);
  copy2(ss + 2 * lane, blk);
  for (int b = 0; b < 8; b++) {
    unsigned sc = (blk[4 + b / 2] >> 4 * (b & 1) & 15) | (high >> 2 * b & 3) << 4;
    s[16 * b + lane] = (uint8_t)(sc - 32);
    put_nibbles(blk + 8 + 16 * b, lane, q + 256 * b);
  }
}
static void get_iq4_xs(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss) {
  unsigned high = 0;
  memset(blk, 0, 8);
  copy2(blk, ss + 2 * lane);
  for (int b = 0; b < 8; b++) {
    unsigned sc = (s[16 * b + lane] + 32u) & 63;
    blk[4 + b / 2] |= (uint8_t)((sc & 15) << 4 * (b & 1));
    high |= sc >> 4 << 2 * b;
    get_nibbles(blk + 8 + 16 * b, lane, q + 256 * b);
  }
  mtx_store_u16(blk + 2, (uint16_t)high);
}

// Type ids: ggml.h. Sizes follow from the layouts of matmul.h.
static const mtx_pack_layout layouts[MTX_PACK_N] = {
  [MTX_PACK_Q4_0] = {2, 256, 32, 0, 18, 1, put_q4_0, get_q4_0},
  [MTX_PACK_Q4_1] = {3, 256, 64, 0, 20, 1, put_q4_1, get_q4_1},
  [MTX_PACK_Q5_0] = {6, 320, 32, 0, 22, 1, put_q5_0, get_q5_0},
  [MTX_PACK_Q5_1] = {7, 320, 64, 0, 24, 1, put_q5_1, get_q5_1},
  [MTX_PACK_Q8_0] = {8, 512, 32, 0, 34, 1, put_q8_0, get_q8_0},
  [MTX_PACK_Q4_K] = {12, 256, 32, 64, 144, 8, put_q4_k, get_q4_k},
  [MTX_PACK_Q5_K] = {13, 320, 32, 64, 176, 8, put_q5_k, get_q5_k},
  [MTX_PACK_Q6_K] = {14, 384, 32, 32, 210, 8, put_q6_k, get_q6_k},
  [MTX_PACK_IQ4_NL] = {20, 256, 32, 0, 18, 1, put_q4_0, get_q4_0},
  [MTX_PACK_IQ4_XS] = {23, 256, 16, 32, 136, 8, put_iq4_xs, get_iq4_xs},
  [MTX_PACK_MXFP4] = {39, 256, 16, 0, 17, 1, put_mxfp4, get_mxfp4},
};

const mtx_pack_layout *mtx_pack_layout_get(mtx_pack p) {
  return (unsigned)p < MTX_PACK_N && layouts[p].put ? &layouts[p] : mtx_pack_rare_layout_get(p);
}
