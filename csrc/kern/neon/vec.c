// SPDX-License-Identifier: MIT
// Row kernels for NEON.
#include "lanes.h"

#include "kern/tiers.h"
#include "kern/vec_tpl.h"

const mtx_vec_ops mtx_vec_neon = VEC_OPS_INIT;
