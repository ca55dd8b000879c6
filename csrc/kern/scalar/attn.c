// SPDX-License-Identifier: MIT
// Attention kernels of the scalar tier: the shared body under this folder's flags.
#include "lanes.h"

#define ATTN_ROWS 1
#define ATTN_VARIANTS \
  SCORES(1) VALUES(1, 1) \
  static const scores_fn scores_of[] = {scores_1}; \
  static const values_fn values_of[] = {values_1}; \
  static const scores_f16_fn scores_f16_of[] = {scores_f16_1}; \
  static const values_f16_fn values_f16_of[] = {values_f16_1};
#include "kern/attn_tpl.h"

const mtx_attn_kernels mtx_attn_scalar = {tile, store};
