// SPDX-License-Identifier: MIT
// Attention kernels of the NEON tier: the shared body in this folder's lanes.
#include "lanes.h"

#define ATTN_ROWS 2
#define ATTN_VARIANTS \
  SCORES(1) VALUES(1, 4) \
  SCORES(2) VALUES(2, 2) \
  static const scores_fn scores_of[] = {scores_1, scores_2}; \
  static const values_fn values_of[] = {values_1, values_2}; \
  static const scores_f16_fn scores_f16_of[] = {scores_f16_1, scores_f16_2}; \
  static const values_f16_fn values_f16_of[] = {values_f16_1, values_f16_2};
#include "kern/attn_tpl.h"

const mtx_attn_kernels mtx_attn_neon = {tile, store};
