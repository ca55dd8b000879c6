// SPDX-License-Identifier: MIT
// Matrix products for AVX-512 with VNNI and VBMI: the codebook types.
#include "dot_vnni.h"
#include "codebook_vbmi.h"

#include "kern/matmul_tpl.h"
#include "kern/tiers.h"

MM_CODEBOOK_TYPES(MM_DEFINE)

const mtx_mm_ops mtx_mm_avx512_vbmi = { .fn = { MM_CODEBOOK_TYPES(MM_ENTRY) }, .encode = mm_encode };
