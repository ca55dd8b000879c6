// SPDX-License-Identifier: MIT
// Kernels: the arithmetic of a step, chosen for this CPU at start.
//
// Decision 6 of the design rests here: one output element is accumulated over k
// in one fixed order (lanes are output rows, blocks of k are walked in
// sequence), so a result does not depend on how many columns or threads share
// the call. All float steps are explicit fma / mul / add in the same order on
// every tier, so tiers agree bit for bit as well, except where a comment says
// otherwise.
#ifndef MTX_KERN_KERN_H
#define MTX_KERN_KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "quant/quant.h"

// CPU tiers, worst first. A tier implies the ones before it (on one ISA).
typedef enum { MTX_TIER_SCALAR = 0, MTX_TIER_AVX2, MTX_TIER_AVX512, MTX_TIER_AMX, MTX_TIER_NEON } mtx_tier;

const char *mtx_tier_name(mtx_tier t);             // "scalar", "avx2", ...
bool mtx_tier_available(mtx_tier t);               // CPU and operating system both allow it
// Picks the best available tier not above `cap` (MTX_TIER_AMX or MTX_TIER_NEON = no cap) for
// all later calls. Not thread-safe: call before any kernel runs. Returns the tier chosen.
mtx_tier mtx_kern_init(mtx_tier cap);
mtx_tier mtx_kern_tier(void);

// ---- matrix times columns -------------------------------------------------
// A weight [n_out, k] is packed in groups of MTX_GROUP output rows, one row a
// lane. The last group is padded with zero rows.
enum { MTX_GROUP = 16 };

typedef enum {
  MTX_ACT_F32,  // columns as they are: F32, F16, BF16 weights
  MTX_ACT_Q8,   // blocks of 32: int8, an f32 scale, sums (mtx_q8 in matmul.h; all quantised weights)
} mtx_act_format;

typedef struct mtx_weight {
  const mtx_qtype *type;
  int64_t n_out, k;
  mtx_act_format act;
  int pack;                // the packed layout (an mtx_pack of matmul.h)
  void *data;              // packed bytes, 64-byte aligned, owned by the caller
  size_t group_bytes;      // bytes of one packed group
} mtx_weight;

static inline int64_t mtx_weight_n_groups(const mtx_weight *w) { return (w->n_out + MTX_GROUP - 1) / MTX_GROUP; }

// Bytes that the packed form of a [n_out, k] matrix takes, or 0 when mtx cannot
// multiply by this type or k is no multiple of its block.
size_t mtx_weight_bytes(const mtx_qtype *type, int64_t n_out, int64_t k);
// Fills *w for packed bytes at `data` (mtx_weight_bytes of them). Packs nothing.
void mtx_weight_init(mtx_weight *w, const mtx_qtype *type, int64_t n_out, int64_t k, void *data);
// Packs groups [g0, g1) from `src`, the whole matrix in file layout. Threads may
// pack disjoint ranges at once.
void mtx_weight_pack(const mtx_weight *w, const void *src, int64_t g0, int64_t g1);
// Decodes row i of the packed weight to f32 (embedding look-up of a tied matrix, tests).
void mtx_weight_row(const mtx_weight *w, int64_t i, float *dst);

// Bytes of one activation column of k elements (a multiple of 64).
size_t mtx_act_bytes(mtx_act_format f, int64_t k);
// Encodes blocks [b0, b1) of 32 elements of x (k floats) into dst (one column).
void mtx_act_encode(mtx_act_format f, const float *x, int64_t k, int64_t b0, int64_t b1, void *dst);

// y[c * ldy + r] (+)= sum_k W[r, k] * x_c[k] for rows r of groups [g0, g1) and
// columns c in [0, n_cols). `act` holds the columns one after the other, act_stride bytes
// apart. When `accumulate`, the finished sum is added to y (one rounding). Every
// element's value is independent of g0, g1, n_cols.
void mtx_matmul(const mtx_weight *w, int64_t g0, int64_t g1, const void *act, size_t act_stride,
                int64_t n_cols, float *y, int64_t ldy, bool accumulate);

#endif
