// SPDX-License-Identifier: MIT
// Matrix products for AVX-512 with VNNI: the quantised types.
#include "dot_vnni.h"
#include "mm_grid.h"

#include "kern/matmul_tpl.h"
#include "kern/tiers.h"

MM_INT_TYPES(MM_DEFINE)

const mtx_mm_ops mtx_mm_avx512_vnni = { .fn = { MM_INT_TYPES(MM_ENTRY) }, .encode = mm_encode };
