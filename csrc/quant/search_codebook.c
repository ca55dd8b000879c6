// SPDX-License-Identifier: MIT
// IQ2_XXS .. IQ3_S: a scale for each run, a grid entry for each 8 or 4 elements, signs apart. See search.h.
//
// Not ggml's bytes in one case: its IQ3_S puts what follows a run of 32 zeros into that run's place, so that the block decodes to
// something else. Here everything stands where it is read.
#include <float.h>
#include <math.h>
#include <string.h>

#include "quant/encode.h"
#include "quant/search.h"
#include "quant/search_grid.h"

enum { BLOCK = 256, MAX_RUN = 32, MAX_GROUPS = 8, MAX_RUNS = 16 };

typedef enum { ONES, SQUARES, SOFT_SQUARES } plain_weights;
typedef enum { REDO_OFF_GRID, REDO_ALL_IF_ONE, REDO_ALL } redo;

typedef struct {
  mtx_grid_id grid;
  int bytes;             // of a block
  int run;               // elements with one scale
  bool even_signs;       // the eighth sign of a group makes their number even
  int steps;             // scales tried on each side of the obvious one,
  float step;            // so far apart
  float fudge, zero;     // of the block's scale; below this a run counts as zeros
  float sigma;           // how much the block's mean square counts in a weight
  plain_weights plain;   // without importance
  redo redo;             // groups that are placed again for the scale found
  bool from_fit;         // the obvious scale comes from a search without grid
  bool zeros_are_bare;   // a block of scale 0 has no codes
} type;

typedef struct {
  float scale;
  int entry[MAX_GROUPS];
  uint8_t sign[4];       // a mask for each 8 elements
} found;

// Sums of the fit x ~ scale (2 level + 1).
typedef struct { float qx, qq; } fit;

static fit fit_levels(const float *x, const float *weight, const uint8_t *level, int n) {
  fit f = {0.0f, 0.0f};
  for (int j = 0; j < n; j++) {
    float q = (float)(2 * level[j] + 1);
    f.qx += weight[j] * x[j] * q;
    f.qq += weight[j] * q * q;
  }
  return f;
}

// Of the entries near a point the one with the least error.
static int nearest_entry(const mtx_search_grid *g, const uint16_t *list, const float *x, const float *root, float scale) {
  float best = FLT_MAX;
  int entry = list[1];
  for (int i = 1; i <= list[0]; i++) {
    const uint8_t *level = g->level + list[i] * g->dims;
    float sum = 0.0f;
    for (int j = 0; j < g->dims; j++) {
      float error = scale * (float)(2 * level[j] + 1) - x[j];
      sum += root[j] * error * error;
    }
    if (sum < best) best = sum, entry = list[i];
  }
  return entry;
}

// Places one group: its levels at 1 / inverse, or the best entry near them. Returns the entry; *exact: no neighbour was needed.
static int place(const mtx_search_grid *g, const float *x, const float *root, float inverse, float scale, uint8_t *level, bool *exact) {
  int top = g->dims == 8 ? 2 : 7;
  for (int j = 0; j < g->dims; j++) level[j] = (uint8_t)mtx_search_clamp(mtx_search_nearest(0.5f * (inverse * x[j] - 1.0f)), 0, top);
  int at = g->at[mtx_search_point(g, level)];
  *exact = at >= 0;
  if (at < 0) at = nearest_entry(g, g->list - 1 - at, x, root, scale);
  memcpy(level, g->level + at * g->dims, (size_t)g->dims);
  return at;
}

// Magnitudes, and a mask of the signs. With an even number of signs the cheapest element may have the wrong one.
static uint8_t split_signs(const type *t, const float *x, const float *weight, float *magnitude) {
  int mask = 0, cheapest = 0;
  float least = weight[0] * x[0] * x[0];
  for (int j = 0; j < 8; j++) {
    bool minus = !(x[j] >= 0.0f);
    magnitude[j] = minus ? -x[j] : x[j];
    mask |= minus << j;
    float cost = weight[j] * x[j] * x[j];
    if (cost < least) least = cost, cheapest = j;
  }
  if (t->even_signs && __builtin_popcount((unsigned)mask) % 2) {
    magnitude[cheapest] = -magnitude[cheapest];
    mask ^= 1 << cheapest;
  }
  return (uint8_t)(t->even_signs ? mask & 127 : mask);
}

// False for a run of zeros.
static bool search_run(const type *t, const mtx_search_grid *g, const float *x, const float *weight, found *out) {
  float root[MAX_RUN], magnitude[MAX_RUN], max, min;
  uint8_t level[MAX_RUN] = {0}, other[MAX_RUN];
  int n_groups = t->run / g->dims, top = g->dims == 8 ? 3 : 8, entry[MAX_GROUPS];
  bool exact[MAX_GROUPS], other_exact[MAX_GROUPS];
  *out = (found){0};
  for (int j = 0; j < t->run; j++) root[j] = sqrtf(weight[j]);
  for (int k = 0; k < t->run / 8; k++) out->sign[k] = split_signs(t, x + 8 * k, weight + 8 * k, magnitude + 8 * k);
  mtx_encode_range(magnitude, t->run, &min, &max);
  if (max < t->zero || max == 0.0f) return false;
  float scale = max / (float)(2 * top - 1), best = 0.0f;
  if (t->from_fit) {
    scale = mtx_search_positive(magnitude, weight, t->run, top + 1, level);
    max = scale * (float)top;
    if (max <= 0.0f) return false;
    memset(level, 0, sizeof level);
  }
  for (int k = 0; k < n_groups; k++) {
    exact[k] = t->redo == REDO_OFF_GRID;
    out->entry[k] = 0;
  }
  for (int step = -t->steps; step <= t->steps; step++) {
    float inverse = ((float)(2 * top - 1) + (float)step * t->step) / max, other_scale = 1.0f / inverse;
    for (int k = 0; k < n_groups; k++) {
      int i = g->dims * k;
      entry[k] = place(g, magnitude + i, root + i, inverse, other_scale, other + i, &other_exact[k]);
    }
    fit f = fit_levels(magnitude, weight, other, t->run);
    if (!(f.qq > 0.0f && f.qx * f.qx > best * f.qq)) continue;
    scale = f.qx / f.qq;
    best = scale * f.qx;
    memcpy(level, other, sizeof level);
    memcpy(out->entry, entry, sizeof entry);
    memcpy(exact, other_exact, sizeof exact);
  }
  bool all_exact = t->redo != REDO_ALL;
  for (int k = 0; k < n_groups; k++) all_exact = all_exact && exact[k];
  if (!all_exact && scale > 0.0f) {
    for (int k = 0; k < n_groups; k++) {
      int i = g->dims * k;
      if (t->redo == REDO_OFF_GRID && exact[k]) continue;
      out->entry[k] = place(g, magnitude + i, root + i, 1.0f / scale, scale, level + i, &exact[k]);
    }
    fit f = fit_levels(magnitude, weight, level, t->run);
    if (f.qq > 0.0f) scale = f.qx / f.qq;
  }
  if (scale < 0.0f) {
    scale = -scale;
    for (int k = 0; k < t->run / 8; k++) out->sign[k] = (uint8_t)(~out->sign[k] & (t->even_signs ? 127 : 255));
  }
  out->scale = scale;
  return true;
}

typedef void put_run(uint8_t *block, int r, const found *f, int scale);

static void run_weights(const type *t, const float *x, const float *importance, float sigma2, float *weight) {
  static const float ones[MAX_RUN] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  if (importance || t->plain == ONES) {
    mtx_search_weights(x, importance ? importance : ones, sigma2, t->run, weight);
    return;
  }
  float soft = t->plain == SOFT_SQUARES ? 0.25f * sigma2 : 0.0f;
  for (int j = 0; j < t->run; j++) weight[j] = soft + x[j] * x[j];
}

static void encode_block(const type *t, const mtx_search_grid *g, put_run *put, const float *x, const float *importance, uint8_t *block) {
  found runs[MAX_RUNS];
  float weight[MAX_RUN], max = 0.0f, sigma2 = t->sigma * mtx_search_squares(x, BLOCK) / (float)BLOCK;
  int n_runs = BLOCK / t->run;
  for (int r = 0; r < n_runs; r++) {
    const float *run = x + t->run * r;
    run_weights(t, run, importance ? importance + t->run * r : NULL, sigma2, weight);
    if (!search_run(t, g, run, weight, &runs[r])) runs[r] = (found){0};
    if (runs[r].scale > max) max = runs[r].scale;
  }
  memset(block, 0, (size_t)t->bytes);
  if (max == 0.0f && t->zeros_are_bare) return;
  float d = max / 31.0f, inverse = 1.0f / d;
  mtx_store_u16(block, mtx_f32_to_f16(d * t->fudge));
  for (int r = 0; r < n_runs; r++)
    put(block, r, &runs[r], max > 0.0f ? mtx_search_clamp(mtx_search_nearest(0.5f * (inverse * runs[r].scale - 1.0f)), 0, 15) : 0);
}

static void encode_row(const type *t, put_run *put, const float *x, uint8_t *row, int64_t n, const float *importance) {
  const mtx_search_grid *g = mtx_search_grid_get(t->grid);
  for (int64_t i = 0; g && i < n; i += BLOCK, row += t->bytes) encode_block(t, g, put, x + i, importance ? importance + i : NULL, row);
}

// ---------------------------------------------------------------- layouts, as in each type's header

static void put_u32(uint8_t *dst, uint32_t v) {
  mtx_store_u16(dst, (uint16_t)v);
  mtx_store_u16(dst + 2, (uint16_t)(v >> 16));
}

static uint32_t signs_and_scale(const found *f, int scale) {
  uint32_t v = (uint32_t)scale << 28;
  for (int k = 0; k < 4; k++) v |= (uint32_t)f->sign[k] << 7 * k;
  return v;
}

static void put_nibble(uint8_t *dst, int i, int v) { dst[i / 2] = (uint8_t)(dst[i / 2] | v << 4 * (i % 2)); }

static void put_iq2_xxs(uint8_t *b, int r, const found *f, int scale) {
  for (int k = 0; k < 4; k++) b[2 + 8 * r + k] = (uint8_t)f->entry[k];
  put_u32(b + 2 + 8 * r + 4, signs_and_scale(f, scale));
}

static void put_iq2_xs(uint8_t *b, int r, const found *f, int scale) {
  for (int k = 0; k < 2; k++) mtx_store_u16(b + 2 + 4 * r + 2 * k, (uint16_t)(f->entry[k] | f->sign[k] << 9));
  put_nibble(b + 66, r, scale);
}

static void put_iq2_s(uint8_t *b, int r, const found *f, int scale) {
  for (int k = 0; k < 2; k++) {
    int i = 2 * r + k;
    b[2 + i] = (uint8_t)f->entry[k];
    b[34 + i] = f->sign[k];
    b[66 + i / 4] = (uint8_t)(b[66 + i / 4] | f->entry[k] >> 8 << 2 * (i % 4));
  }
  put_nibble(b + 74, r, scale);
}

static void put_iq3_xxs(uint8_t *b, int r, const found *f, int scale) {
  for (int k = 0; k < 8; k++) b[2 + 8 * r + k] = (uint8_t)f->entry[k];
  put_u32(b + 66 + 4 * r, signs_and_scale(f, scale));
}

static void put_iq3_s(uint8_t *b, int r, const found *f, int scale) {
  for (int k = 0; k < 8; k++) {
    b[2 + 8 * r + k] = (uint8_t)f->entry[k];
    b[66 + r] = (uint8_t)(b[66 + r] | f->entry[k] >> 8 << k);
  }
  memcpy(b + 74 + 4 * r, f->sign, 4);
  put_nibble(b + 106, r, scale);
}

#define CODEBOOK(T, ...)                                                                   \
  void mtx_search_##T(const float *x, uint8_t *row, int64_t n, const float *importance) {  \
    static const type t = {__VA_ARGS__};                                                   \
    encode_row(&t, put_##T, x, row, n, importance);                                        \
  }

CODEBOOK(iq2_xxs, MTX_GRID_IQ2_XXS, 66, 32, true, 6, 0.1f, 1.0f, 1e-15f, 1.0f, ONES, REDO_ALL, true, true)
CODEBOOK(iq2_xs, MTX_GRID_IQ2_XS, 74, 16, true, 9, 0.1f, 1.0f, 1e-15f, 1.0f, ONES, REDO_OFF_GRID, false, true)
CODEBOOK(iq2_s, MTX_GRID_IQ2_S, 82, 16, false, 9, 0.1f, 0.9875f, 1e-8f, 2.0f, SOFT_SQUARES, REDO_OFF_GRID, false, false)
CODEBOOK(iq3_xxs, MTX_GRID_IQ3_XXS, 98, 32, true, 15, 0.2f, 1.0125f, 1e-8f, 2.0f, SQUARES, REDO_OFF_GRID, false, true)
CODEBOOK(iq3_s, MTX_GRID_IQ3_S, 110, 32, false, 9, 0.2f, 1.033f, 0.0f, 2.0f, SQUARES, REDO_ALL_IF_ONE, false, false)
