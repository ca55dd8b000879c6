// SPDX-License-Identifier: MIT
// Q8_0: 32 elements, 8 bits, one scale.
//
// Block: f16 d, 32 signed bytes. w = d q.
#ifndef MTX_QUANT_Q8_0_H
#define MTX_QUANT_Q8_0_H

#include "quant/unpack.h"

static inline void q8_0_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 34 * i;
  memcpy(q, b + 2, 32);
  mtx_unpack_scale(scale2, min2, MTX_F16_AT(b, 0));
}

MTX_DECODE_BY_UNPACK(q8_0)

#endif
