// SPDX-License-Identifier: MIT
// Matrix products in plain C: the reference of all tiers.
#include "mm_grid.h"

#include "kern/matmul_tpl.h"
#include "kern/tiers.h"

MM_INT_TYPES(MM_DEFINE)
MM_FLOAT_TYPES(MM_DEFINE)

const mtx_mm_ops mtx_mm_scalar = {
  .fn = { MM_INT_TYPES(MM_ENTRY) MM_FLOAT_TYPES(MM_ENTRY) },
  .encode = mm_encode,
};
