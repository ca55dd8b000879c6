// SPDX-License-Identifier: MIT
// Attention kernels of the avx512 tier: the shared body under this folder's flags.
#define ATTN_ROWS 8
#define SCORES_FULL scores_8
#define VALUES_FULL values_8
#include "kern/attn_tpl.h"

const mtx_attn_kernels mtx_attn_avx512 = {tile, store};
