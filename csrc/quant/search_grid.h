// SPDX-License-Identifier: MIT
// Looking for grid entries near a point: for the encoders of IQ1, IQ2 and IQ3.
//
// A point is 8 elements of 3 levels or 4 elements of 8, packed with the first element lowest, two or three bits each.
#ifndef MTX_QUANT_SEARCH_GRID_H
#define MTX_QUANT_SEARCH_GRID_H

#include <stdint.h>

#include "base/err.h"

typedef enum { MTX_GRID_IQ2_XXS, MTX_GRID_IQ2_XS, MTX_GRID_IQ2_S, MTX_GRID_IQ1, MTX_GRID_IQ3_XXS, MTX_GRID_IQ3_S, MTX_N_GRIDS } mtx_grid_id;

typedef struct {
  int n;                // entries
  int dims, bits;       // elements of a point and bits of one
  const uint8_t *level; // [n][dims]: the entries
  const int32_t *at;    // [1 << dims * bits]: the entry at a point, or -1 - i: its nearest entries are list[i + 1 ..], list[i] many
  const uint16_t *list;
} mtx_search_grid;

// Built when first asked for and kept (2 MB the largest); threads may ask at once. NULL when there is no memory.
const mtx_search_grid *mtx_search_grid_get(mtx_grid_id id);

static inline unsigned mtx_search_point(const mtx_search_grid *g, const uint8_t *level) {
  unsigned p = 0;
  for (int j = 0; j < g->dims; j++) p |= (unsigned)level[j] << g->bits * j;
  return p;
}

#endif
