// SPDX-License-Identifier: MIT
// Attention kernels of the avx512 tier: the shared body under this folder's flags.
#include "lanes.h"

#define ATTN_ROWS 8
#define ATTN_VARIANTS \
  SCORES(1) VALUES(1, 8) \
  SCORES(2) VALUES(2, 4) \
  SCORES(3) VALUES(3, 4) \
  SCORES(4) VALUES(4, 4) \
  SCORES(5) VALUES(5, 2) \
  SCORES(6) VALUES(6, 2) \
  SCORES(7) VALUES(7, 2) \
  SCORES(8) VALUES(8, 2) \
  static const scores_fn scores_of[] = {scores_1, scores_2, scores_3, scores_4, scores_5, scores_6, scores_7, scores_8}; \
  static const values_fn values_of[] = {values_1, values_2, values_3, values_4, values_5, values_6, values_7, values_8}; \
  static const scores_f16_fn scores_f16_of[] = {scores_f16_1, scores_f16_2, scores_f16_3, scores_f16_4, scores_f16_5, scores_f16_6, scores_f16_7, scores_f16_8}; \
  static const values_f16_fn values_f16_of[] = {values_f16_1, values_f16_2, values_f16_3, values_f16_4, values_f16_5, values_f16_6, values_f16_7, values_f16_8};
#include "kern/attn_tpl.h"

const mtx_attn_kernels mtx_attn_avx512 = {tile, store};
