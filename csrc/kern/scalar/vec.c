// SPDX-License-Identifier: MIT
// Row kernels in plain C: the reference of all tiers.
#include "lanes.h"

#include "kern/tiers.h"
#include "kern/vec_tpl.h"

const mtx_vec_ops mtx_vec_scalar = VEC_OPS_INIT;
