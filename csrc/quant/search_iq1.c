// SPDX-License-Identifier: MIT
// IQ1_S, IQ1_M: each element one of -1, 0, 1, shifted by 1/8 up or down. See search.h.
//
// Sorted by value, the elements of a run fall into three parts, so every pair of borders is tried with every shift; then each
// group of eight moves to the best grid entry near it.
#include <float.h>
#include <math.h>
#include <string.h>

#include "quant/encode.h"
#include "quant/search.h"
#include "quant/search_grid.h"

enum { BLOCK = 256, MAX_RUN = 32, MAX_RUNS = 16 };

// Values of the levels 0, 1, 2 with the shift up [0] and down [1].
static const float VALUE[2][3] = {{-0.875f, 0.125f, 1.125f}, {-1.125f, -0.125f, 0.875f}};

typedef struct {
  float scale;
  uint8_t shift[4];  // of each group of 8: 0 up, 1 down
  int entry[4];
} found;

// Order of the elements by value, equal ones as they stand.
static void sort_run(const float *x, int n, uint8_t *order) {
  for (int j = 0; j < n; j++) {
    int i = j;
    for (; i > 0 && x[order[i - 1]] > x[j]; i--) order[i] = order[i - 1];
    order[i] = (uint8_t)j;
  }
}

// Sums of a fit x ~ scale value, and the best of those tried.
typedef struct { float qx, qq; } fit;
typedef struct { float scale, score; int below, above, shifts; } best_split;

static void try_split(best_split *best, fit f, int below, int above, int shifts) {
  if (!(f.qq > 0.0f && f.qx * f.qx > best->score * f.qq)) return;
  float scale = f.qx / f.qq;
  *best = (best_split){scale, scale * f.qx, below, above, shifts};
}

// One shift for all 32. Elements order[0 .. below) have level 0, order[above ..] level 2; shifts is 0 or 1.
static best_split split_s(const float *x, const float *weight, const uint8_t *order) {
  float sx[MAX_RUN + 1] = {0}, sw[MAX_RUN + 1] = {0};
  for (int j = 0; j < 32; j++) {
    sx[j + 1] = sx[j] + weight[order[j]] * x[order[j]];
    sw[j + 1] = sw[j] + weight[order[j]];
  }
  best_split best = {0.0f, -FLT_MAX, -1, -1, 0};
  for (int a = 0; a <= 32; a++)
    for (int b = a; b <= 32; b++)
      for (int s = 0; s < 2; s++) {
        const float *v = VALUE[s];
        fit f = {(sx[a] - sx[0]) * v[0] + (sx[b] - sx[a]) * v[1] + (sx[32] - sx[b]) * v[2],
                 (sw[a] - sw[0]) * v[0] * v[0] + (sw[b] - sw[a]) * v[1] * v[1] + (sw[32] - sw[b]) * v[2] * v[2]};
        try_split(&best, f, a, b, s);
      }
  return best;
}

// A shift for each half of 16. Bit 1 of shifts is the first half's, bit 0 the second's.
static best_split split_m(const float *x, const float *weight, const uint8_t *order) {
  best_split best = {0.0f, -FLT_MAX, -1, -1, 0};
  for (int a = 0; a <= 16; a++)
    for (int b = a; b <= 16; b++) {
      fit f[4] = {{0.0f, 0.0f}};
      for (int j = 0; j < 16; j++) {
        int i = order[j], level = j < a ? 0 : j < b ? 1 : 2;
        for (int k = 0; k < 4; k++) {
          float v = VALUE[i < 8 ? k >> 1 : k & 1][level];
          f[k].qx += weight[i] * v * x[i];
          f[k].qq += weight[i] * v * v;
        }
      }
      for (int k = 0; k < 4; k++) try_split(&best, f[k], a, b, k);
    }
  return best;
}

static int nearest_entry(const mtx_search_grid *g, const uint16_t *list, const float *x, const float *weight, float scale, const float *value) {
  float best = FLT_MAX;
  int entry = list[1];
  for (int i = 1; i <= list[0]; i++) {
    const uint8_t *level = g->level + 8 * list[i];
    float sum = 0.0f;
    for (int j = 0; j < 8; j++) {
      float error = scale * value[level[j]] - x[j];
      sum += weight[j] * error * error;
    }
    if (sum < best) best = sum, entry = list[i];
  }
  return entry;
}

// Adds group k's fit with the values times `times`.
static void add_fit(const mtx_search_grid *g, const found *f, int k, const float *x, const float *weight, float times, fit *sum) {
  for (int j = 0; j < 8; j++) {
    float q = VALUE[f->shift[k]][g->level[8 * f->entry[k] + j]] * times;
    sum->qx += weight[8 * k + j] * q * x[8 * k + j];
    sum->qq += weight[8 * k + j] * q * q;
  }
}

static void search_run(const mtx_search_grid *g, const float *x, const float *weight, int n, float zero, found *out) {
  uint8_t order[MAX_RUN], level[MAX_RUN];
  *out = (found){0};
  if (mtx_encode_amax(x, n) < zero) return;
  sort_run(x, n, order);
  best_split best = n == 32 ? split_s(x, weight, order) : split_m(x, weight, order);
  if (best.below < 0) return;
  for (int j = 0; j < n; j++) level[order[j]] = j < best.below ? 0 : j < best.above ? 1 : 2;
  if (best.scale < 0.0f) {
    for (int j = 0; j < n; j++) level[j] = (uint8_t)(2 - level[j]);
    best.scale = -best.scale;
    best.shifts ^= n == 32 ? 1 : 3;
  }
  bool all_exact = true;
  for (int k = 0; k < n / 8; k++) {
    out->shift[k] = (uint8_t)(n == 32 || k == 1 ? best.shifts & 1 : best.shifts >> 1);
    int at = g->at[mtx_search_point(g, level + 8 * k)];
    all_exact = all_exact && at >= 0;
    out->entry[k] = at >= 0 ? at : nearest_entry(g, g->list - 1 - at, x + 8 * k, weight + 8 * k, best.scale, VALUE[out->shift[k]]);
  }
  fit f = {0.0f, 0.0f};
  for (int k = 0; k < n / 8 && !all_exact; k++) add_fit(g, out, k, x, weight, 1.0f, &f);
  out->scale = f.qx > 0.0f && f.qq > 0.0f ? f.qx / f.qq : best.scale;
}

static void run_weights(const float *x, const float *importance, float sigma2, int n, float *weight) {
  for (int j = 0; j < n; j++) {
    float spread = sqrtf(sigma2 + x[j] * x[j]);
    weight[j] = importance ? importance[j] * spread : n == 32 ? spread : x[j] * x[j];
  }
}

static int scale_code(float inverse, float scale) { return mtx_search_clamp(mtx_search_nearest(0.5f * (inverse * scale - 1.0f)), 0, 7); }

static float search_runs(const mtx_search_grid *g, const float *x, const float *importance, int n, float zero, found *runs) {
  float weight[MAX_RUN], max = 0.0f, sigma2 = 2.0f * mtx_search_squares(x, BLOCK) / (float)BLOCK;
  for (int i = 0; i < BLOCK; i += n) {
    run_weights(x + i, importance ? importance + i : NULL, sigma2, n, weight);
    search_run(g, x + i, weight, n, zero, &runs[i / n]);
    if (runs[i / n].scale > max) max = runs[i / n].scale;
  }
  return max;
}

static void encode_s(const mtx_search_grid *g, const float *x, const float *importance, uint8_t *b) {
  found runs[8];
  float d = search_runs(g, x, importance, 32, 1e-12f, runs) / 15.0f;
  mtx_store_u16(b, mtx_f32_to_f16(d * 1.125f));
  for (int r = 0; r < 8; r++) {
    int high = d > 0.0f ? scale_code(1.0f / d, runs[r].scale) << 12 | runs[r].shift[0] << 15 : 0;
    for (int k = 0; k < 4; k++) {
      b[2 + 4 * r + k] = (uint8_t)runs[r].entry[k];
      high |= runs[r].entry[k] >> 8 << 3 * k;
    }
    mtx_store_u16(b + 34 + 2 * r, (uint16_t)high);
  }
}

static void encode_m(const mtx_search_grid *g, const float *x, const float *importance, uint8_t *b) {
  found runs[MAX_RUNS];
  float max = search_runs(g, x, importance, 16, 1e-7f, runs), d = max / 15.0f, inverse = 1.0f / d, weight[16];
  float sigma2 = 2.0f * mtx_search_squares(x, BLOCK) / (float)BLOCK;
  unsigned scales[4] = {0};
  fit f = {0.0f, 0.0f};
  for (int r = 0; r < 16; r++) {
    for (int k = 0; k < 2; k++) b[2 * r + k] = (uint8_t)runs[r].entry[k];
    b[32 + r] = (uint8_t)(runs[r].entry[0] >> 8 | runs[r].entry[1] >> 8 << 4);
    if (max == 0.0f) continue;
    b[32 + r] = (uint8_t)(b[32 + r] | runs[r].shift[0] << 3 | runs[r].shift[1] << 7);
    int code = scale_code(inverse, runs[r].scale);
    scales[r / 4] |= (unsigned)code << 3 * (r % 4);
    run_weights(x + 16 * r, importance ? importance + 16 * r : NULL, sigma2, 16, weight);
    for (int k = 0; k < 2; k++) add_fit(g, &runs[r], k, x + 16 * r, weight, (float)(2 * code + 1), &f);
  }
  if (f.qq > 0.0f) d = f.qx / f.qq;
  uint16_t half = mtx_f32_to_f16(d * 1.1125f);
  for (int k = 0; k < 4; k++) mtx_store_u16(b + 48 + 2 * k, (uint16_t)(scales[k] | (max > 0.0f ? (half >> 4 * k & 15u) << 12 : 0u)));
}

void mtx_search_iq1_s(const float *x, uint8_t *row, int64_t n, const float *importance) {
  const mtx_search_grid *g = mtx_search_grid_get(MTX_GRID_IQ1);
  for (int64_t i = 0; g && i < n; i += BLOCK, row += 50) encode_s(g, x + i, importance ? importance + i : NULL, row);
}

void mtx_search_iq1_m(const float *x, uint8_t *row, int64_t n, const float *importance) {
  const mtx_search_grid *g = mtx_search_grid_get(MTX_GRID_IQ1);
  for (int64_t i = 0; g && i < n; i += BLOCK, row += 56) encode_m(g, x + i, importance ? importance + i : NULL, row);
}
