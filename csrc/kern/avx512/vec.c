// SPDX-License-Identifier: MIT
// Row kernels for AVX-512.
#include "lanes.h"

#include "kern/tiers.h"
#include "kern/vec_tpl.h"

const mtx_vec_ops mtx_vec_avx512 = VEC_OPS_INIT;
