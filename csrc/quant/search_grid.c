// SPDX-License-Identifier: MIT
// The grids as searches need them: see search_grid.h.
#include "quant/search_grid.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "quant/codebooks.h"
#include "quant/search.h"

// `shells`: of a point that is no entry the entries at the so many smallest distances count as near (ggml's choice).
static const struct { const uint8_t *ranks; int n, dims, shells; } GRID[MTX_N_GRIDS] = {
  [MTX_GRID_IQ2_XXS] = {mtx_iq2_xxs_ranks[0], 256, 8, 2}, [MTX_GRID_IQ2_XS] = {mtx_iq2_xs_ranks[0], 512, 8, 2},
  [MTX_GRID_IQ2_S] = {mtx_iq2_s_ranks[0], 1024, 8, 1},    [MTX_GRID_IQ1] = {mtx_iq1_ranks[0], 2048, 8, 3},
  [MTX_GRID_IQ3_XXS] = {mtx_iq3_xxs_ranks[0], 256, 4, 2}, [MTX_GRID_IQ3_S] = {mtx_iq3_s_ranks[0], 512, 4, 3},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mtx_search_grid *made[MTX_N_GRIDS];

typedef struct { uint16_t *items; size_t n, cap; } list;

static bool push(list *l, uint16_t v) {
  if (l->n == l->cap) {
    size_t cap = l->cap ? 2 * l->cap : 1 << 14;
    uint16_t *items = realloc(l->items, cap * sizeof *items);
    if (!items) return false;
    l->items = items, l->cap = cap;
  }
  l->items[l->n++] = v;
  return true;
}

// Entries near the point `level`, nearest first, then by number: their count and themselves.
static bool push_near(const mtx_search_grid *g, const uint8_t *level, int shells, uint16_t *distance, list *l) {
  uint16_t count[512] = {0};
  for (int e = 0; e < g->n; e++) {
    int sum = 0;
    for (int j = 0; j < g->dims; j++) {
      int d = g->level[e * g->dims + j] - level[j];
      sum += d * d;
    }
    distance[e] = (uint16_t)sum;
    count[sum]++;
  }
  size_t head = l->n;
  bool ok = push(l, 0);
  for (int d = 0; d < 512 && shells > 0 && ok; d++) {
    if (!count[d]) continue;
    shells--;
    for (int e = 0; e < g->n && ok; e++)
      if (distance[e] == d) ok = push(l, (uint16_t)e);
  }
  if (ok) l->items[head] = (uint16_t)(l->n - head - 1);
  return ok;
}

static mtx_search_grid *make(mtx_grid_id id) {
  const uint8_t *ranks = GRID[id].ranks;
  int n = GRID[id].n, dims = GRID[id].dims, bits = dims == 8 ? 2 : 3, levels = dims == 8 ? 3 : 8, rank_bits = 8 / (dims / 2);
  int n_points = 1 << dims * bits;
  mtx_search_grid *g = calloc(1, sizeof *g);
  uint8_t *level = calloc((size_t)n * (size_t)dims, 1);
  int32_t *at = calloc((size_t)n_points, sizeof *at);
  uint16_t *distance = calloc((size_t)n, sizeof *distance);
  list l = {0};
  bool ok = g && level && at && distance;
  if (ok) {
    for (int e = 0; e < n; e++)
      for (int j = 0; j < dims; j++)
        level[e * dims + j] = (uint8_t)(ranks[(2 * j / dims) * n + e] >> rank_bits * (j % (dims / 2)) & ((1 << rank_bits) - 1));
    *g = (mtx_search_grid){.n = n, .dims = dims, .bits = bits, .level = level, .at = at};
    for (int e = 0; e < n; e++) at[mtx_search_point(g, level + e * dims)] = e + 1;
  }
  for (int p = 0; p < n_points && ok; p++) {
    uint8_t point[8];
    bool legal = true;
    for (int j = 0; j < dims; j++) {
      point[j] = (uint8_t)(p >> bits * j & ((1 << bits) - 1));
      legal = legal && point[j] < levels;
    }
    if (at[p]-- || !legal) continue;
    at[p] = -1 - (int32_t)l.n;
    ok = push_near(g, point, GRID[id].shells, distance, &l);
  }
  free(distance);
  if (ok) {
    g->list = l.items;
    return g;
  }
  free(g), free(level), free(at), free(l.items);
  return NULL;
}

const mtx_search_grid *mtx_search_grid_get(mtx_grid_id id) {
  pthread_mutex_lock(&lock);
  if (!made[id]) made[id] = make(id);
  const mtx_search_grid *g = made[id];
  pthread_mutex_unlock(&lock);
  return g;
}

bool mtx_search_ready(uint32_t type) {
  static const struct { uint32_t type; mtx_grid_id grid; } of[] = {
    {16, MTX_GRID_IQ2_XXS}, {17, MTX_GRID_IQ2_XS}, {18, MTX_GRID_IQ3_XXS}, {19, MTX_GRID_IQ1},
    {21, MTX_GRID_IQ3_S},   {22, MTX_GRID_IQ2_S},  {29, MTX_GRID_IQ1},
  };
  for (size_t i = 0; i < sizeof of / sizeof *of; i++)
    if (of[i].type == type) return mtx_search_grid_get(of[i].grid) != NULL;
  return true;
}
