// SPDX-License-Identifier: MIT
// exp and log from plain double arithmetic.
//
// The C library picks other code (and other last bits) on other processors; a
// seed must give the same tokens everywhere, so sampling uses these. Only
// additions and multiplications in a fixed order: the build contracts none of
// them. Error below 2 units in the last place.
#ifndef MTX_SAMPLE_REAL_H
#define MTX_SAMPLE_REAL_H

#include <stdint.h>
#include <string.h>

static inline double mtx_real_from_bits(uint64_t u) {
  double d;
  memcpy(&d, &u, sizeof d);
  return d;
}

// e^x for x <= 709; 0 below -700 (no branch, so that loops over it vectorise).
static inline double mtx_exp(double x) {
  double y = x < -700 ? -700 : x;
  const double shift = 0x1.8p52;                       // adding it rounds to an integer
  double kd = y * 0x1.71547652b82fep0 + shift;         // log2(e)
  uint64_t k;
  memcpy(&k, &kd, sizeof k);
  kd -= shift;
  double r = (y - kd * 0x1.62e42feep-1) - kd * 0x1.a39ef35793c76p-33;  // ln 2 in two parts
  double p = 1.0 / 6227020800.0;                       // Taylor: |r| <= 0.347, 13 terms
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r * r + r + 1.0;
  double scale = mtx_real_from_bits((k + 1023) << 52);
  double e = p * scale;
  return x < -700 ? 0.0 : e;
}

// Natural logarithm of a positive normal number.
static inline double mtx_log(double x) {
  uint64_t u;
  memcpy(&u, &x, sizeof u);
  int e = (int)(u >> 52) - 1023;
  double m = mtx_real_from_bits((u & 0xfffffffffffffu) | 0x3ff0000000000000u);
  if (m > 1.4142135623730951) m *= 0.5, e++;
  double f = (m - 1.0) / (m + 1.0), f2 = f * f, s = 0;  // log m = 2 artanh f, |f| <= 0.172
  for (int i = 21; i >= 3; i -= 2) s = (s + 1.0 / i) * f2;
  return (double)e * 0x1.62e42feep-1 + ((double)e * 0x1.a39ef35793c76p-33 + 2.0 * f * (1.0 + s));
}

static inline double mtx_pow(double x, double y) { return x <= 0 ? 0.0 : mtx_exp(y * mtx_log(x)); }

#endif
