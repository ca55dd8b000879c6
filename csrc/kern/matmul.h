// SPDX-License-Identifier: MIT
// Inside of kern.h: packed layouts, the activation block, and what a tier provides.
//
// A group holds 16 rows (lanes): chunks of blocks of 32 (mtx_chunk; the last may be shorter),
// each the super-block's scales, the scales of its blocks, the quants of its blocks.
// So it is one stream for the CPU's prefetcher: with quants and scales apart, one column
// ran at 60% of the speed, and prefetch instructions only slowed it down.
// A vector of 64 bytes holds 4 neighbouring elements of k of each of 16 rows;
// "vector v" of a block is elements 4v..4v+3, v = 0..7.
//
//   part            bytes per block and group
//   nibbles         256: byte vector j = vector j in the low, vector j + 4 in the high half
//   one high bit     64: bit v of a byte = fifth bit of that byte of vector v
//   two high bits   128: bits 2(v mod 4) of byte vector v / 4
//   bytes           512: vector v, biased by 128
//   scales          f16[16] each for types of 32, u8/i8[16] each below a super-block,
//                   whose own f16[16] stand before them
//
// The float steps of one block of 32, for every type and tier (dx, n: activation):
//   t = d_lo * (float)dot(q_lo, x_lo); t = fma(d_hi, (float)dot(q_hi, x_hi), t)   two scales per block
//   t = d * (float)dot(q, x)                                                      one scale
//   t = fma(-m, (float)n, t) for each minimum (n = -sum of the activation's integers)
//   acc = fma(t, dx, acc)
// where q is the signed integer, d = d_super * sub-scale (one rounding), m likewise.
#ifndef MTX_KERN_MATMUL_H
#define MTX_KERN_MATMUL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kern/kern.h"

// One block of an activation column, MTX_ACT_Q8. d = absmax / 127, q = nearest(x * (127 / absmax)),
// |q| <= 127. absmax < 2^-118: all zero. A NaN or infinity in the block: d = NaN, q = 0.
typedef struct mtx_q8 {
  int8_t q[32];
  float d;
  int32_t n, n_lo, n_hi;  // -sum(q) of all, of the first 16, of the last 16
} mtx_q8;

typedef enum {
  MTX_PACK_NONE,
  MTX_PACK_F32, MTX_PACK_F16, MTX_PACK_BF16,
  MTX_PACK_Q4_0, MTX_PACK_Q4_1, MTX_PACK_Q5_0, MTX_PACK_Q5_1, MTX_PACK_Q8_0,
  MTX_PACK_Q4_K, MTX_PACK_Q5_K, MTX_PACK_Q6_K,
  MTX_PACK_IQ4_NL, MTX_PACK_IQ4_XS, MTX_PACK_MXFP4,
  MTX_PACK_Q2_K, MTX_PACK_Q3_K, MTX_PACK_TQ2_0, MTX_PACK_Q2_0, MTX_PACK_Q1_0, MTX_PACK_NVFP4,
  MTX_PACK_IQ2_XXS, MTX_PACK_IQ2_XS, MTX_PACK_IQ2_S, MTX_PACK_IQ3_XXS, MTX_PACK_IQ3_S, MTX_PACK_IQ1_S, MTX_PACK_IQ1_M,
  MTX_PACK_ROWS,  // file layout, 16 rows one after the other: unpacked into a tile on use
  MTX_PACK_TILE,  // that tile: bytes, then f32 d_lo[16], d_hi[16], m_lo[16], m_hi[16] per block
  MTX_PACK_N,
} mtx_pack;

typedef struct mtx_pack_layout {
  uint32_t type_id;
  uint16_t q_bytes, s_bytes, ss_bytes;  // per block of 32, per block of 32, per super-block: of 16 rows
  uint16_t file_block_bytes, blocks;    // one block in the file, and how many blocks of 32 it holds
  // One file block of one row <-> its lane; q, s, ss: the parts of its first block of 32.
  void (*put)(const uint8_t *blk, int lane, uint8_t *q, uint8_t *s, uint8_t *ss);
  void (*get)(uint8_t *blk, int lane, const uint8_t *q, const uint8_t *s, const uint8_t *ss);
} mtx_pack_layout;

// NULL for kinds without a layout of their own.
const mtx_pack_layout *mtx_pack_layout_get(mtx_pack p);
const mtx_pack_layout *mtx_pack_rare_layout_get(mtx_pack p);  // the part of that table in pack_rare.c

// Blocks of 32 in a chunk: one super-block (of `blocks` blocks); without one 8, so that quants are
// aligned, or 1 where whole cache lines of scales keep them so anyway.
static inline int64_t mtx_chunk(int s_bytes, int ss_bytes, int blocks) {
  return ss_bytes ? blocks : s_bytes % 64 ? 8 : 1;
}

enum { MTX_TILE_Q_BYTES = 512, MTX_TILE_S_BYTES = 256 };

// Groups [0, n_groups) from `data` on; acc_only: sums go to y[c * 16 + lane], after starting from it (spilled sums).
typedef struct mtx_mm_args {
  const uint8_t *data;   // first group
  size_t group_bytes;
  int64_t n_groups, k;   // elements of k in a group
  const uint8_t *act;
  size_t act_stride;
  int64_t n_cols;
  float *y;              // of the first group's first row
  int64_t ldy;
  int64_t n_rows;        // rows that exist from the first group on
  bool accumulate;       // add the finished sum to y
  bool resume;           // the sum starts from y instead of zero
} mtx_mm_args;

typedef void (*mtx_mm_fn)(const mtx_mm_args *a);

typedef struct mtx_mm_ops {
  mtx_mm_fn fn[MTX_PACK_N];  // NULL: the tier below serves this kind
  void (*encode)(const float *x, int64_t n_blocks, mtx_q8 *dst);
} mtx_mm_ops;

#endif
