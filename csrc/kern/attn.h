// SPDX-License-Identifier: MIT
// Attention over pages: one KV head of one sequence, a tile of query rows.
//
// Lanes are tokens in q.k and value floats in p.v, so nothing is summed across
// lanes but the softmax's denominator (one fixed tree per page). A query walks its
// pages in order with one online softmax (Milakov & Gimelshein 2018); what it
// computes depends on its own position only, never on the tile it sits in.
#ifndef MTX_KERN_ATTN_H
#define MTX_KERN_ATTN_H

#include <stddef.h>
#include <stdint.h>

#include "kv/kv.h"

typedef struct mtx_attn_query {
  const float *q;        // dk floats
  float *out;            // dv floats
  int64_t begin, end;    // tokens [begin, end) are seen; begin < end
  int64_t pos;           // own position, for ALiBi
  float slope;           // ALiBi slope, 0 = none
  float sink;            // extra logit; -INFINITY = none
} mtx_attn_query;

typedef struct mtx_attn_tile {
  mtx_kv_type type;
  int dk, dv;
  float scale, softcap;  // softcap 0 = off
  uint8_t *const *pages; // page table of the sequence in this layer's group
  size_t k_off, v_off;   // bytes from a page's start to this head's K and V
  const uint8_t *then;   // a page that will be read when this tile is done, moved by what its head is on; NULL: unknown
  int n;                 // queries
  const mtx_attn_query *query;
  float *scratch;        // mtx_attn_scratch_floats(dk, dv, n) floats, 64-byte aligned
} mtx_attn_tile;

enum { MTX_ATTN_MAX_TILE = 64 };
size_t mtx_attn_scratch_floats(int dk, int dv, int n);

// Where token `slot` of a page stores key and value of one head.
typedef struct mtx_attn_kernels {
  void (*tile)(const mtx_attn_tile *t);
  // Writes one head's key (dk) and value (dv) into slot 0..31 of its page parts.
  void (*store)(mtx_kv_type type, const float *k, const float *v, int dk, int dv, int slot, uint8_t *page_k, uint8_t *page_v);
} mtx_attn_kernels;

extern const mtx_attn_kernels mtx_attn_scalar, mtx_attn_avx2, mtx_attn_avx512, mtx_attn_neon;
const mtx_attn_kernels *mtx_attn_get(void);  // of the tier chosen by mtx_kern_init

#endif
