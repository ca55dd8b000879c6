// SPDX-License-Identifier: MIT
// How far outputs are from a reference: sum((ref - x)^2) / sum(ref^2), in double.
#ifndef MTX_TESTS_NMSE_H
#define MTX_TESTS_NMSE_H

#include <stddef.h>

static inline double nmse(const float *ref, const float *x, size_t n) {
  double num = 0, den = 0;
  for (size_t i = 0; i < n; i++) num += ((double)ref[i] - x[i]) * ((double)ref[i] - x[i]), den += (double)ref[i] * ref[i];
  return num / den;
}

#endif
