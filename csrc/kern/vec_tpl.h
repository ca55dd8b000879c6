// SPDX-License-Identifier: MIT
// The body of every tier's vec.c: included after the tier's lanes.h.
//
// Written only in lanes operations that round once, so that each tier gives the
// same bits. The last, short vector of a row is loaded with zeros behind it.
#ifndef MTX_KERN_VEC_TPL_H
#define MTX_KERN_VEC_TPL_H

#include <stddef.h>

#include "kern/lane_math.h"
#include "kern/vec.h"

// Runs BODY for every vector of a row: i is the first element, m (1..16) how many count.
#define VEC_EACH(n)                                  \
  for (int64_t i = 0, m = 0; i < (n); i += 16)       \
    if ((m = (n) - i < 16 ? (n) - i : 16), 1)

LANES_INLINE vf ld(const float *p, int64_t m) { return m == 16 ? vf_load(p) : vf_load_n(p, (int)m); }
LANES_INLINE void st(float *p, vf a, int64_t m) {
  if (m == 16) vf_store(p, a);
  else vf_store_n(p, a, (int)m);
}

// ---- sums ---------------------------------------------------------------------

// 64 partial sums of TERM(vector at i), combined pairwise.
#define VEC_SUM(n, TERM)                                              \
  vf acc[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};           \
  int64_t i = 0;                                                      \
  for (; i + 64 <= (n); i += 64) {                                    \
    acc[0] = TERM(i, 16, acc[0]);                                     \
    acc[1] = TERM(i + 16, 16, acc[1]);                                \
    acc[2] = TERM(i + 32, 16, acc[2]);                                \
    acc[3] = TERM(i + 48, 16, acc[3]);                                \
  }                                                                   \
  for (int j = 0; i < (n); i += 16, j++)                              \
    acc[j] = TERM(i, ((n) - i < 16 ? (n) - i : 16), acc[j]);          \
  return lanes_sum(vf_add(vf_add(acc[0], acc[1]), vf_add(acc[2], acc[3])))

static float vec_dot(const float *a, const float *b, int64_t n) {
#define TERM(i, m, acc) vf_fma(ld(a + (i), (m)), ld(b + (i), (m)), acc)
  VEC_SUM(n, TERM);
#undef TERM
}

static float vec_sum(const float *x, int64_t n) {
#define TERM(i, m, acc) vf_add(acc, ld(x + (i), (m)))
  VEC_SUM(n, TERM);
#undef TERM
}

// sum((x - mean)^2); the lanes behind a short vector must stay zero, so they are masked.
static float vec_sum_sq_diff(const float *x, float mean, int64_t n) {
  float tail[16];
  int64_t full = n & ~(int64_t)15;
  for (int64_t i = full; i < n; i++) tail[i - full] = x[i] - mean;
  vf mu = vf_set1(mean);
#define DIFF(i, m) ((m) == 16 ? vf_sub(vf_load(x + (i)), mu) : vf_load_n(tail, (int)(m)))
#define TERM(i, m, acc) vf_fma(DIFF(i, m), DIFF(i, m), acc)
  VEC_SUM(n, TERM);
#undef TERM
#undef DIFF
}

static float vec_max(const float *x, int64_t n) {
  vf inf = vf_set1(-INFINITY), m = inf, bad = vf_zero();
  float p[16], q[16], r = -INFINITY;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    vf v = vf_load(x + i);
    m = vf_max(v, m);
    bad = vf_sel_nan(v, v, bad);
  }
  vf_store(p, m);
  vf_store(q, bad);
  for (int j = 0; j < 16; j++) {
    if (q[j] != q[j]) return NAN;
    r = p[j] > r ? p[j] : r;
  }
  for (; i < n; i++) {
    if (x[i] != x[i]) return NAN;
    r = x[i] > r ? x[i] : r;
  }
  return r;
}

// ---- element by element -------------------------------------------------------

static void vec_add(const float *a, const float *b, float *y, int64_t n) {
  VEC_EACH(n) st(y + i, vf_add(ld(a + i, m), ld(b + i, m)), m);
}

static void vec_sub(const float *a, const float *b, float *y, int64_t n) {
  VEC_EACH(n) st(y + i, vf_sub(ld(a + i, m), ld(b + i, m)), m);
}

static void vec_mul(const float *a, const float *b, float *y, int64_t n) {
  VEC_EACH(n) st(y + i, vf_mul(ld(a + i, m), ld(b + i, m)), m);
}

static void vec_scale(const float *x, float s, float *y, int64_t n) {
  vf vs = vf_set1(s);
  VEC_EACH(n) st(y + i, vf_mul(ld(x + i, m), vs), m);
}

static void vec_add_scaled(const float *x, float s, float *y, int64_t n) {
  vf vs = vf_set1(s);
  VEC_EACH(n) st(y + i, vf_fma(vs, ld(x + i, m), ld(y + i, m)), m);
}

static void vec_affine(const float *x, float s, float b, float *y, int64_t n) {
  vf vs = vf_set1(s), vb = vf_set1(b);
  VEC_EACH(n) st(y + i, vf_fma(vs, ld(x + i, m), vb), m);
}

static void vec_clamp(const float *x, float lo, float hi, float *y, int64_t n) {
  vf vlo = vf_set1(lo), vhi = vf_set1(hi);
  VEC_EACH(n) st(y + i, vf_min(vhi, vf_max(vlo, ld(x + i, m))), m);
}

static void vec_softcap(const float *x, float cap, float *y, int64_t n) {
  vf vc = vf_set1(cap);
  VEC_EACH(n) st(y + i, vf_mul(vc, v_tanh(vf_div(ld(x + i, m), vc))), m);
}

static float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

// `f` is a constant in every call, so each loop holds one function.
LANES_INLINE void unary_rows(const mtx_unary f, const float *x, float *y, int64_t n) {
  VEC_EACH(n) st(y + i, v_unary(f, ld(x + i, m)), m);
}

LANES_INLINE void glu_rows(const mtx_unary f, const float *g, const float *u, float *y, int64_t n) {
  VEC_EACH(n) st(y + i, vf_mul(v_unary(f, ld(g + i, m)), ld(u + i, m)), m);
}

#define VEC_UNARY_CASES(CALL)                                    \
  case MTX_UNARY_EXP: CALL(MTX_UNARY_EXP); break;                \
  case MTX_UNARY_SILU: CALL(MTX_UNARY_SILU); break;              \
  case MTX_UNARY_GELU: CALL(MTX_UNARY_GELU); break;              \
  case MTX_UNARY_GELU_ERF: CALL(MTX_UNARY_GELU_ERF); break;      \
  case MTX_UNARY_GELU_QUICK: CALL(MTX_UNARY_GELU_QUICK); break;  \
  case MTX_UNARY_TANH: CALL(MTX_UNARY_TANH); break;              \
  case MTX_UNARY_SIGMOID: CALL(MTX_UNARY_SIGMOID); break;        \
  case MTX_UNARY_RELU: CALL(MTX_UNARY_RELU); break;              \
  case MTX_UNARY_RELU2: CALL(MTX_UNARY_RELU2); break;            \
  case MTX_UNARY_SQR: CALL(MTX_UNARY_SQR); break;                \
  default: CALL(MTX_UNARY_NONE); break;

static void vec_unary(mtx_unary f, const float *x, float *y, int64_t n) {
#define CALL(F) unary_rows(F, x, y, n)
  switch (f) {
    case MTX_UNARY_SOFTPLUS:
      for (int64_t i = 0; i < n; i++) y[i] = softplus(x[i]);
      break;
    VEC_UNARY_CASES(CALL)
  }
#undef CALL
}

static void vec_glu(mtx_unary f, const float *g, const float *u, float *y, int64_t n) {
#define CALL(F) glu_rows(F, g, u, y, n)
  switch (f) {
    case MTX_UNARY_SOFTPLUS:
      for (int64_t i = 0; i < n; i++) y[i] = softplus(g[i]) * u[i];
      break;
    VEC_UNARY_CASES(CALL)
  }
#undef CALL
}

// ---- rows -----------------------------------------------------------------------

static void vec_rmsnorm(const float *x, const float *w, float eps, float *y, int64_t n) {
  float s = 1.0f / sqrtf(vec_dot(x, x, n) / (float)n + eps);
  vf vs = vf_set1(s);
  if (!w) {
    vec_scale(x, s, y, n);
    return;
  }
  VEC_EACH(n) st(y + i, vf_mul(vf_mul(ld(x + i, m), vs), ld(w + i, m)), m);
}

static void vec_layernorm(const float *x, const float *w, const float *b, float eps, float *y, int64_t n) {
  float mean = vec_sum(x, n) / (float)n;
  float s = 1.0f / sqrtf(vec_sum_sq_diff(x, mean, n) / (float)n + eps);
  vf vm = vf_set1(mean), vs = vf_set1(s), one = vf_set1(1.0f);
  VEC_EACH(n) {
    vf v = vf_mul(vf_sub(ld(x + i, m), vm), vs);
    st(y + i, vf_fma(v, w ? ld(w + i, m) : one, b ? ld(b + i, m) : vf_zero()), m);
  }
}

static void vec_l2norm(const float *x, float eps, float *y, int64_t n) {
  float norm = sqrtf(vec_dot(x, x, n));
  vec_scale(x, 1.0f / (norm < eps ? eps : norm), y, n);
}

static float vec_exp_sum(const float *x, float max, float *y, int64_t n) {
  if (max == -INFINITY) {
    memset(y, 0, sizeof *y * (size_t)n);
    return 0.0f;
  }
  vf vm = vf_set1(max), none = vf_set1(-104.0f);
  VEC_EACH(n) {
    vf d = vf_sub(ld(x + i, m), vm);
    st(y + i, vf_sel_lt(d, none, vf_zero(), v_exp(d)), m);
  }
  return vec_sum(y, n);
}

static void vec_softmax(const float *x, float s, float *y, int64_t n) {
  vec_scale(x, s, y, n);
  float sum = vec_exp_sum(y, vec_max(y, n), y, n);
  if (sum != 0.0f) vec_scale(y, 1.0f / sum, y, n);
}

static void rope_pair(float *a, float *b, float c, float s) {
  float x0 = *a, x1 = *b;
  *a = fmaf(x0, c, -(x1 * s));
  *b = fmaf(x0, s, x1 * c);
}

static void vec_rope(float *x, int n_heads, int64_t head_stride, int n_rot, const float *cos, const float *sin, int neox) {
  int half = n_rot / 2;
  for (int h = 0; h < n_heads; h++, x += head_stride) {
    if (!neox) {
      for (int i = 0; i < half; i++) rope_pair(x + 2 * i, x + 2 * i + 1, cos[i], sin[i]);
      continue;
    }
    VEC_EACH(half) {
      vf x0 = ld(x + i, m), x1 = ld(x + half + i, m), c = ld(cos + i, m), s = ld(sin + i, m);
      st(x + i, vf_fma(x0, c, vf_neg(vf_mul(x1, s))), m);
      st(x + half + i, vf_fma(x0, s, vf_mul(x1, c)), m);
    }
  }
}

// ---- 16-bit floats ----------------------------------------------------------------

#define VEC_CONVERT(NAME, SRC, DST, LOAD, STORE, ONE)                     \
  static void NAME(const SRC *x, DST *y, int64_t n) {                     \
    int64_t i = 0;                                                        \
    for (; i + 16 <= n; i += 16) STORE(y + i, LOAD(x + i));               \
    for (; i < n; i++) y[i] = ONE(x[i]);                                  \
  }
VEC_CONVERT(vec_to_f16, float, uint16_t, vf_load, vf_store_f16, mtx_f32_to_f16)
VEC_CONVERT(vec_from_f16, uint16_t, float, vf_load_f16, vf_store, mtx_f16_to_f32)
VEC_CONVERT(vec_to_bf16, float, uint16_t, vf_load, vf_store_bf16, mtx_f32_to_bf16)
VEC_CONVERT(vec_from_bf16, uint16_t, float, vf_load_bf16, vf_store, mtx_bf16_to_f32)

#define VEC_OPS_INIT {                                                          \
  .dot = vec_dot, .sum = vec_sum, .max = vec_max, .add = vec_add,               \
  .sub = vec_sub, .mul = vec_mul, .scale = vec_scale,                           \
  .add_scaled = vec_add_scaled, .affine = vec_affine, .clamp = vec_clamp,       \
  .softcap = vec_softcap, .unary = vec_unary, .glu = vec_glu,                   \
  .rmsnorm = vec_rmsnorm, .layernorm = vec_layernorm, .l2norm = vec_l2norm,     \
  .exp_sum = vec_exp_sum, .softmax = vec_softmax, .rope = vec_rope,             \
  .to_f16 = vec_to_f16, .from_f16 = vec_from_f16,                               \
  .to_bf16 = vec_to_bf16, .from_bf16 = vec_from_bf16 }

#endif
