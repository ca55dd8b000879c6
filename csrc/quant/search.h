// SPDX-License-Identifier: MIT
// Encoders that search: the scales with the smallest (weighted) squared error of a block.
//
// One row encoder a type, reached through mtx_qtype.search; files that make model files call them, nothing that
// runs a model does. They are byte-equal to ggml (formulas: ggml-quants.c of ggml 0.25; checked by tests/golden/quant
// and tests/golden/quantised), so every float step here has its order: no sum may be regrouped, no multiply-add fused.
//
//   void mtx_search_T(const float *x, uint8_t *row, int64_t n, const float *importance)
//
// x: one row of n floats, all finite; row: where its blocks go; importance: n weights of the columns, not negative, or NULL. The
// codebook types build tables when first used and leave the row as it is when there is no memory for them:
// mtx_search_ready says it before.
#ifndef MTX_QUANT_SEARCH_H
#define MTX_QUANT_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "quant/half.h"

typedef void mtx_search_row(const float *x, uint8_t *row, int64_t n, const float *importance);

mtx_search_row mtx_search_q4_0, mtx_search_q4_1, mtx_search_q5_0, mtx_search_q5_1;              // search_simple.c
mtx_search_row mtx_search_q2_k, mtx_search_q3_k, mtx_search_q4_k, mtx_search_q5_k, mtx_search_q6_k;  // search_k.c
mtx_search_row mtx_search_iq4_nl, mtx_search_iq4_xs;                                             // search_iq4.c
mtx_search_row mtx_search_iq2_xxs, mtx_search_iq2_xs, mtx_search_iq2_s, mtx_search_iq3_xxs, mtx_search_iq3_s;  // search_codebook.c
mtx_search_row mtx_search_iq1_s, mtx_search_iq1_m;                                               // search_iq1.c

// Builds what the type's encoder needs (ggml's type id); false: no memory. From any thread.
bool mtx_search_ready(uint32_t type);  // search_grid.c

// ---------------------------------------------------------------- pieces (search.c)

// Nearest integer, halves to even, |v| < 2^22. Anything else gives some integer of at most 2^22, the same everywhere.
static inline int mtx_search_nearest(float v) {
  return (int)(mtx_f32_bits(v + 12582912.0f) & 0x007FFFFFu) - 0x00400000;
}

static inline int mtx_search_clamp(int v, int lo, int hi) { return v < lo ? lo : v > hi ? hi : v; }

// Below this a run counts as zeros.
#define MTX_SEARCH_ZERO 1e-15f

// Sum of squares, in order.
float mtx_search_squares(const float *x, int64_t n);

// weight[j] = importance[j] sqrt(sigma2 + x[j]^2): a column that matters, and large elements more.
void mtx_search_weights(const float *x, const float *importance, float sigma2, int n, float *weight);

// x ~ scale (code - limit), code in [0, 2 limit). weight NULL: x^2. Returns the scale. Zeros give code 0 and scale 0.
float mtx_search_symmetric(const float *x, const float *weight, int n, int limit, uint8_t *code);

// The same from one start, each element then improved in turn; weight x^2, n <= 32.
float mtx_search_in_turn(const float *x, int n, int limit, uint8_t *code);

// How the scales near the obvious one are tried: (top + first + step i) / range, i = 0..n.
typedef struct { float first, step; int n; bool absolute; } mtx_search_steps;
extern const mtx_search_steps mtx_search_fine;  // with importance

// x ~ scale code - *offset, code in [0, top], *offset >= 0. Returns the scale. n <= 32.
float mtx_search_affine(const float *x, const float *weight, int n, int top, const mtx_search_steps *steps, uint8_t *code,
                        float *offset);

// x ~ scale code for x >= 0, code in [0, top], n <= 32. Returns the scale.
float mtx_search_positive(const float *x, const float *weight, int n, int top, uint8_t *code);

#endif
