// SPDX-License-Identifier: MIT
// Matrix products for NEON without SDOT.
#include "dot_mull.h"
#include "mm_grid.h"

#include "kern/matmul_tpl.h"
#include "kern/tiers.h"

MM_INT_TYPES(MM_DEFINE)
MM_FLOAT_TYPES(MM_DEFINE)

const mtx_mm_ops mtx_mm_neon = {
  .fn = { MM_INT_TYPES(MM_ENTRY) MM_FLOAT_TYPES(MM_ENTRY) },
  .encode = mm_encode,
};
