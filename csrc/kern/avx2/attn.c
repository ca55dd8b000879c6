// SPDX-License-Identifier: MIT
// Attention kernels of the avx2 tier: the shared body under this folder's flags.
#define ATTN_ROWS 4
#define SCORES_FULL scores_4
#define VALUES_FULL values_4
#include "kern/attn_tpl.h"

const mtx_attn_kernels mtx_attn_avx2 = {tile, store};
