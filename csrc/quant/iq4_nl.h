// SPDX-License-Identifier: MIT
// IQ4_NL: 32 elements, 4-bit codes of a table of 16 values, one scale.
//
// Block: f16 d, 16 bytes of codes (element j low, j + 16 high). w = d value[code].
#ifndef MTX_QUANT_IQ4_NL_H
#define MTX_QUANT_IQ4_NL_H

#include "quant/codebooks.h"
#include "quant/unpack.h"

static inline void iq4_nl_unpack(const void *row, int64_t i, int8_t *q, float *scale2, float *min2) {
  const uint8_t *b = (const uint8_t *)row + 18 * i;
  mtx_unpack_nibbles(b + 2, q);
  for (int j = 0; j < 32; j++) q[j] = mtx_iq4_values[q[j]];
  mtx_unpack_scale(scale2, min2, MTX_F16_AT(b, 0));
}

MTX_DECODE_BY_UNPACK(iq4_nl)

#endif
