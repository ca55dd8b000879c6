// SPDX-License-Identifier: MIT
// Kernels on rows of floats: norms, activations, rotary embedding.
//
// Every function is one template (vec_tpl.h) compiled per tier: the same steps
// in the same order, so results are the same bits on every tier (NaN payloads
// aside) and depend on the row alone. Sums run in 64 partial sums (element i
// goes to partial i mod 64, a short last vector counts as zeros), then one fixed
// tree. In-place use (y == x) is allowed everywhere; other overlap is not.
#ifndef MTX_KERN_VEC_H
#define MTX_KERN_VEC_H

#include <stdint.h>

// Element-wise functions. Accuracy against the exact value: exp, tanh, sigmoid
// within 2 ulp; the others follow from them.
typedef enum {
  MTX_UNARY_EXP,
  MTX_UNARY_SILU,        // x * sigmoid(x)
  MTX_UNARY_GELU,        // x * sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)): the "tanh" form
  MTX_UNARY_GELU_ERF,    // x/2 * (1 + erf(x / sqrt 2))
  MTX_UNARY_GELU_QUICK,  // x * sigmoid(1.702 x)
  MTX_UNARY_TANH,
  MTX_UNARY_SIGMOID,
  MTX_UNARY_RELU,        // NaN stays NaN
  MTX_UNARY_RELU2,       // relu(x)^2
  MTX_UNARY_SOFTPLUS,    // log(1 + exp(x)); libm, not fast
  MTX_UNARY_SQR,
  MTX_UNARY_NONE,        // copy
  MTX_UNARY_N,
} mtx_unary;

typedef struct mtx_vec_ops {
  float (*dot)(const float *a, const float *b, int64_t n);
  float (*sum)(const float *x, int64_t n);
  float (*max)(const float *x, int64_t n);                                // NaN if any is; -inf for n = 0

  void (*add)(const float *a, const float *b, float *y, int64_t n);       // y = a + b
  void (*sub)(const float *a, const float *b, float *y, int64_t n);       // y = a - b
  void (*mul)(const float *a, const float *b, float *y, int64_t n);       // y = a * b
  void (*scale)(const float *x, float s, float *y, int64_t n);            // y = s * x
  void (*add_scaled)(const float *x, float s, float *y, int64_t n);       // y = fma(s, x, y)
  void (*affine)(const float *x, float s, float b, float *y, int64_t n);  // y = fma(s, x, b)
  void (*clamp)(const float *x, float lo, float hi, float *y, int64_t n); // NaN stays NaN
  void (*softcap)(const float *x, float cap, float *y, int64_t n);        // y = cap * tanh(x / cap)

  void (*unary)(mtx_unary f, const float *x, float *y, int64_t n);        // y = f(x)
  void (*glu)(mtx_unary f, const float *g, const float *u, float *y, int64_t n);  // y = f(g) * u

  // y = x / sqrt(mean(x^2) + eps) * w. w NULL = ones.
  void (*rmsnorm)(const float *x, const float *w, float eps, float *y, int64_t n);
  // y = (x - mean) / sqrt(var + eps) * w + b. w, b NULL = ones, zeros.
  void (*layernorm)(const float *x, const float *w, const float *b, float eps, float *y, int64_t n);
  // y = x / max(sqrt(sum(x^2)), eps)
  void (*l2norm)(const float *x, float eps, float *y, int64_t n);
  // y = exp(x - max); returns the sum of y. Entries at -inf give 0 (all of them: y = 0, sum 0).
  float (*exp_sum)(const float *x, float max, float *y, int64_t n);
  // y = exp(s * x - max(s * x)) / sum. A row of -inf gives zeros.
  void (*softmax)(const float *x, float s, float *y, int64_t n);

  // Rotates n_heads heads of `head_stride` floats in place by angles given as cos[n_rot/2],
  // sin[n_rot/2]. Pair i is (x[i], x[i + n_rot/2]) when neox, else (x[2i], x[2i+1]).
  void (*rope)(float *x, int n_heads, int64_t head_stride, int n_rot, const float *cos, const float *sin, int neox);

  void (*to_f16)(const float *x, uint16_t *y, int64_t n);                 // nearest, ties to even
  void (*from_f16)(const uint16_t *x, float *y, int64_t n);
  void (*to_bf16)(const float *x, uint16_t *y, int64_t n);
  void (*from_bf16)(const uint16_t *x, float *y, int64_t n);
} mtx_vec_ops;

// The functions of the tier in use: scalar until mtx_kern_init has run.
extern mtx_vec_ops mtx_vec;

#endif
