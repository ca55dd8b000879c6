// SPDX-License-Identifier: MIT
// Functions of one vector of sixteen lanes: exp, tanh, erf, activations, sums.
// Included by kernel bodies after their tier's lanes.h.
//
// Written only in lanes operations that round once, so that each tier gives the
// same bits. Polynomials: least squares at Chebyshev nodes, made for this file.
#ifndef MTX_KERN_LANE_MATH_H
#define MTX_KERN_LANE_MATH_H

#include "kern/vec.h"

// n = nearest whole x / ln 2; exp(x) = 2^n exp(r), |r| <= ln(2)/2, ln 2 in two parts.
LANES_INLINE vf v_exp(vf x) {
  x = vf_min(vf_set1(89.0f), vf_max(vf_set1(-105.0f), x));  // inf and 0 beyond; NaN passes
  vf n = vf_rint(vf_mul(x, vf_set1(0x1.715476p+0f)));
  vf r = vf_fma(n, vf_set1(-0x1.62e43p-1f), x);
  r = vf_fma(n, vf_set1(0x1.05c61p-29f), r);
  vf p = vf_set1(0x1.6d4926p-10f);
  p = vf_fma(p, r, vf_set1(0x1.121072p-7f));
  p = vf_fma(p, r, vf_set1(0x1.5554e4p-5f));
  p = vf_fma(p, r, vf_set1(0x1.5554d8p-3f));
  p = vf_fma(p, r, vf_set1(0.5f));
  vf one = vf_set1(1.0f);
  return vf_ldexp(vf_add(one, vf_fma(vf_mul(r, r), p, r)), n);
}

LANES_INLINE vf v_sigmoid(vf x) {
  vf one = vf_set1(1.0f);
  return vf_div(one, vf_add(one, v_exp(vf_neg(x))));
}

// Odd polynomial below 0.625, 1 - 2 / (exp(2|x|) + 1) above.
LANES_INLINE vf v_tanh(vf x) {
  vf a = vf_abs(x), z = vf_mul(x, x), one = vf_set1(1.0f), two = vf_set1(2.0f);
  vf p = vf_set1(-0.00586415052f);
  p = vf_fma(p, z, vf_set1(0.0208296413f));
  p = vf_fma(p, z, vf_set1(-0.0538139701f));
  p = vf_fma(p, z, vf_set1(0.133325166f));
  p = vf_fma(p, z, vf_set1(-0.333333263f));
  vf small = vf_fma(vf_mul(x, z), p, x);
  vf large = vf_sub(one, vf_div(two, vf_add(v_exp(vf_mul(two, a)), one)));
  return vf_sel_lt(a, vf_set1(0.625f), small, vf_copysign(large, x));
}

// Odd polynomial below 1, 1 - exp(polynomial of log erfc) above.
LANES_INLINE vf v_erf(vf x) {
  vf a = vf_abs(x), z = vf_mul(x, x);
  vf p = vf_set1(7.88249711e-05f);
  p = vf_fma(p, z, vf_set1(-8.01885499e-04f));
  p = vf_fma(p, z, vf_set1(5.18931194e-03f));
  p = vf_fma(p, z, vf_set1(-2.68543283e-02f));
  p = vf_fma(p, z, vf_set1(0.112835975f));
  p = vf_fma(p, z, vf_set1(-0.376126269f));
  p = vf_fma(p, z, vf_set1(0.128379166f));
  vf small = vf_fma(x, p, x);
  vf t = vf_min(vf_set1(4.1f), a);  // erf(4.1) rounds to 1
  vf q = vf_set1(-5.04852398e-07f);
  q = vf_fma(q, t, vf_set1(-1.44418261e-05f));
  q = vf_fma(q, t, vf_set1(3.96845400e-04f));
  q = vf_fma(q, t, vf_set1(-4.05183196e-03f));
  q = vf_fma(q, t, vf_set1(2.48876036e-02f));
  q = vf_fma(q, t, vf_set1(-0.107996813f));
  q = vf_fma(q, t, vf_set1(-0.633559464f));
  q = vf_fma(q, t, vf_set1(-1.12942534f));
  q = vf_fma(q, t, vf_set1(1.58433089e-04f));
  vf large = vf_copysign(vf_sub(vf_set1(1.0f), v_exp(q)), x);
  return vf_sel_lt(a, vf_set1(1.0f), small, vf_sel_nan(x, x, large));
}

LANES_INLINE vf v_unary(const mtx_unary f, vf x) {
  switch (f) {
    case MTX_UNARY_EXP: return v_exp(x);
    case MTX_UNARY_SILU: return vf_div(x, vf_add(vf_set1(1.0f), v_exp(vf_neg(x))));
    case MTX_UNARY_GELU: {
      // -2 sqrt(2/pi) (x + 0.044715 x^3)
      vf u = vf_mul(x, vf_fma(vf_mul(x, x), vf_set1(-0.0713548163f), vf_set1(-1.59576912f)));
      return vf_div(x, vf_add(vf_set1(1.0f), v_exp(u)));
    }
    case MTX_UNARY_GELU_ERF: {
      vf h = vf_mul(vf_set1(0.5f), x);
      return vf_fma(h, v_erf(vf_mul(x, vf_set1(0.707106781f))), h);
    }
    case MTX_UNARY_GELU_QUICK:
      return vf_div(x, vf_add(vf_set1(1.0f), v_exp(vf_mul(x, vf_set1(-1.702f)))));
    case MTX_UNARY_TANH: return v_tanh(x);
    case MTX_UNARY_SIGMOID: return v_sigmoid(x);
    case MTX_UNARY_RELU: return vf_max(vf_zero(), x);
    case MTX_UNARY_RELU2: x = vf_max(vf_zero(), x); return vf_mul(x, x);
    case MTX_UNARY_SQR: return vf_mul(x, x);
    default: return x;
  }
}

// Lanes i and i + 8, then + 4, + 2, + 1.
LANES_INLINE float lanes_sum(vf a) {
  float p[16];
  vf_store(p, a);
  for (int w = 8; w; w >>= 1)
    for (int i = 0; i < w; i++) p[i] += p[i + w];
  return p[0];
}

// Largest lane; a NaN may or may not show.
LANES_INLINE float lanes_max(vf a) {
  float p[16];
  vf_store(p, a);
  for (int w = 8; w; w >>= 1)
    for (int i = 0; i < w; i++) p[i] = p[i] > p[i + w] ? p[i] : p[i + w];
  return p[0];
}

#endif
