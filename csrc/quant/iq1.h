// SPDX-License-Identifier: MIT
// One group of eight elements of IQ1_S and IQ1_M: a ternary grid entry plus or minus 1/8.
//
// The integers are eighths, so that grid and offset are one small integer (|q| <= 9) and the sum needs
// no second term. Dividing the scale by eight is exact: it is a product of a half float and 1..15.
#ifndef MTX_QUANT_IQ1_H
#define MTX_QUANT_IQ1_H

#include "quant/codebooks.h"
#include "quant/unpack.h"

static inline void mtx_iq1_group(uint32_t entry, int minus, int8_t *q) {
  int delta = minus ? -1 : 1;
  for (int j = 0; j < 8; j++) q[j] = (int8_t)(mtx_iq1_grid8[entry][j] + delta);
}

#endif
