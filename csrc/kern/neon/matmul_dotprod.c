// SPDX-License-Identifier: MIT
// Matrix products for NEON with SDOT: the quantised types.
#include "dot_sdot.h"
#include "mm_grid.h"

#include "kern/matmul_tpl.h"
#include "kern/tiers.h"

MM_INT_TYPES(MM_DEFINE)

const mtx_mm_ops mtx_mm_neon_dotprod = { .fn = { MM_INT_TYPES(MM_ENTRY) }, .encode = mm_encode };
