// SPDX-License-Identifier: MIT
// Matrix products for AVX-512 without VNNI.
#include "dot_bw.h"
#include "mm_grid.h"

#include "kern/matmul_tpl.h"
#include "kern/tiers.h"

MM_INT_TYPES(MM_DEFINE)
MM_FLOAT_TYPES(MM_DEFINE)

const mtx_mm_ops mtx_mm_avx512 = {
  .fn = { MM_INT_TYPES(MM_ENTRY) MM_FLOAT_TYPES(MM_ENTRY) },
  .encode = mm_encode,
};
