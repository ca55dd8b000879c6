// SPDX-License-Identifier: MIT
// Matrix products for AVX2.
#include "mm_grid.h"

#include "kern/matmul_tpl.h"
#include "kern/tiers.h"

MM_INT_TYPES(MM_DEFINE)
MM_FLOAT_TYPES(MM_DEFINE)

const mtx_mm_ops mtx_mm_avx2 = {
  .fn = { MM_INT_TYPES(MM_ENTRY) MM_FLOAT_TYPES(MM_ENTRY) },
  .encode = mm_encode,
};
