// SPDX-License-Identifier: MIT
// One-dimensional searches for a scale (and an offset): see search.h.
#include "quant/search.h"

#include <math.h>
#include <string.h>

#include "quant/encode.h"

const mtx_search_steps mtx_search_fine = {-0.9f, 0.05f, 36, false};

float mtx_search_squares(const float *x, int64_t n) {
  float sum = 0.0f;
  for (int64_t j = 0; j < n; j++) sum += x[j] * x[j];
  return sum;
}

void mtx_search_weights(const float *x, const float *importance, float sigma2, int n, float *weight) {
  for (int j = 0; j < n; j++) weight[j] = importance[j] * sqrtf(sigma2 + x[j] * x[j]);
}

// Sums of a least-squares fit x ~ scale l: scale = xl / ll.
typedef struct { float xl, ll; } fit;

static inline void fit_add(fit *f, float w, float x, int l) {
  f->xl += w * x * (float)l;
  f->ll += w * (float)l * (float)l;
}

static inline int symmetric_code(float v, int limit) { return mtx_search_clamp(mtx_search_nearest(v), -limit, limit - 1); }

static fit fit_symmetric(const float *x, const float *weight, int n, int limit, float inverse) {
  fit f = {0.0f, 0.0f};
  for (int j = 0; j < n; j++) fit_add(&f, weight ? weight[j] : x[j] * x[j], x[j], symmetric_code(inverse * x[j], limit));
  return f;
}

float mtx_search_symmetric(const float *x, const float *weight, int n, int limit, uint8_t *code) {
  float peak = mtx_encode_peak(x, n);
  if (fabsf(peak) < MTX_SEARCH_ZERO) {
    memset(code, 0, (size_t)n);
    return 0.0f;
  }
  float inverse = -(float)limit / peak;
  fit f = fit_symmetric(x, weight, n, limit, inverse);
  float scale = f.ll != 0.0f ? f.xl / f.ll : 0.0f, best = scale * f.xl;
  for (int step = -9; step <= 9; step++) {
    if (step == 0) continue;
    float other = -((float)limit + 0.1f * (float)step) / peak;
    f = fit_symmetric(x, weight, n, limit, other);
    if (!(f.ll > 0.0f && f.xl * f.xl > best * f.ll)) continue;
    inverse = other;
    scale = f.xl / f.ll;
    best = scale * f.xl;
  }
  for (int j = 0; j < n; j++) code[j] = (uint8_t)(symmetric_code(inverse * x[j], limit) + limit);
  return scale;
}

// Up to five passes over the elements; one moves to the code that is best beside the others when that makes the fit
// better. weight NULL: x^2. With `bytes` a code below zero is kept as its low byte, and elements need others beside them.
static void improve(fit *f, const float *x, const float *weight, int n, int lo, int hi, bool bytes, int *code) {
  for (int pass = 0, changed = 1; pass < 5 && changed; pass++) {
    changed = 0;
    for (int j = 0; j < n; j++) {
      float w = weight ? weight[j] : x[j] * x[j];
      fit other = {f->xl - w * x[j] * (float)code[j], f->ll - w * (float)code[j] * (float)code[j]};
      if (!(other.xl > 0.0f) || (bytes && !(other.ll > 0.0f))) continue;
      int to = mtx_search_clamp(mtx_search_nearest(x[j] * other.ll / other.xl), lo, hi);
      if (to == code[j]) continue;
      fit_add(&other, w, x[j], to);
      if (!(other.ll > 0.0f && other.xl * other.xl * f->ll > f->xl * f->xl * other.ll)) continue;
      code[j] = bytes ? (uint8_t)to : to;
      *f = other;
      changed = 1;
    }
  }
}

float mtx_search_in_turn(const float *x, int n, int limit, uint8_t *code) {
  float peak = mtx_encode_peak(x, n);
  if (fabsf(peak) < MTX_SEARCH_ZERO) {
    memset(code, 0, (size_t)n);
    return 0.0f;
  }
  float inverse = -(float)limit / peak;
  int l[32];
  fit f = {0.0f, 0.0f};
  for (int j = 0; j < n; j++) {
    l[j] = symmetric_code(inverse * x[j], limit);
    fit_add(&f, x[j] * x[j], x[j], l[j]);
  }
  improve(&f, x, NULL, n, -limit, limit - 1, false, l);
  for (int j = 0; j < n; j++) code[j] = (uint8_t)(l[j] + limit);
  return f.ll > 0.0f ? f.xl / f.ll : 0.0f;
}

float mtx_search_positive(const float *x, const float *weight, int n, int top, uint8_t *code) {
  float max = 0.0f;
  for (int j = 0; j < n; j++) max = x[j] > max ? x[j] : max;
  if (max < MTX_SEARCH_ZERO) {
    memset(code, 0, (size_t)n);
    return 0.0f;
  }
  // An element below zero (there are some where a sign was given up) wraps, as in ggml.
  float inverse = (float)top / max, scale = 1.0f / inverse, best = 0.0f;
  for (int j = 0; j < n; j++) {
    uint8_t l = (uint8_t)mtx_search_nearest(inverse * x[j]);
    float error = x[j] - scale * (float)l;
    best += weight[j] * error * error;
  }
  for (int step = -4; step <= 4; step++) {
    if (step == 0) continue;
    float other = (0.1f * (float)step + (float)top) / max, other_scale = 1.0f / other, sum = 0.0f;
    for (int j = 0; j < n; j++) {
      int l = mtx_search_nearest(other * x[j]);
      float error = x[j] - other_scale * (float)(l < top ? l : top);
      sum += weight[j] * error * error;
    }
    if (sum < best) best = sum, inverse = other;
  }
  fit f = {0.0f, 0.0f};
  int l[32];
  for (int j = 0; j < n; j++) {
    int nearest = mtx_search_clamp(mtx_search_nearest(inverse * x[j]), INT32_MIN, top);
    l[j] = (uint8_t)nearest;
    fit_add(&f, weight[j], x[j], nearest);
  }
  improve(&f, x, weight, n, INT32_MIN, top, true, l);
  for (int j = 0; j < n; j++) code[j] = (uint8_t)l[j];
  return f.ll > 0.0f ? f.xl / f.ll : 0.0f;
}

static float affine_error(const float *x, const float *weight, int n, float scale, float min, const uint8_t *code, bool absolute) {
  float sum = 0.0f;
  for (int j = 0; j < n; j++) {
    float error = scale * (float)code[j] + min - x[j];
    sum += weight[j] * (absolute ? fabsf(error) : error * error);
  }
  return sum;
}

float mtx_search_affine(const float *x, const float *weight, int n, int top, const mtx_search_steps *steps, uint8_t *code,
                        float *offset) {
  float min, max, sum_w = weight[0], sum_x = sum_w * x[0];
  mtx_encode_range(x, n, &min, &max);
  for (int j = 1; j < n; j++) {
    sum_w += weight[j];
    sum_x += weight[j] * x[j];
  }
  if (min > 0.0f) min = 0.0f;
  *offset = -min;
  if (max <= min) {
    memset(code, 0, (size_t)n);
    return 0.0f;
  }
  float inverse = (float)top / (max - min), scale = 1.0f / inverse;
  for (int j = 0; j < n; j++) code[j] = (uint8_t)mtx_search_clamp(mtx_search_nearest(inverse * (x[j] - min)), 0, top);
  float best = affine_error(x, weight, n, scale, min, code, steps->absolute);
  uint8_t other[32];
  for (int step = 0; step <= steps->n; step++) {
    inverse = (steps->first + steps->step * (float)step + (float)top) / (max - min);
    float sum_l = 0.0f, sum_ll = 0.0f, sum_xl = 0.0f;
    for (int j = 0; j < n; j++) {
      float v = inverse * (x[j] - min);
      other[j] = (uint8_t)(v > 0.0f ? mtx_search_nearest(v < (float)top ? v : (float)top) : 0);
      float wl = weight[j] * (float)other[j];
      sum_l += wl;
      sum_ll += wl * (float)other[j];
      sum_xl += wl * x[j];
    }
    float det = sum_w * sum_ll - sum_l * sum_l;
    if (!(det > 0.0f)) continue;
    float other_scale = (sum_w * sum_xl - sum_x * sum_l) / det, other_min = (sum_ll * sum_x - sum_l * sum_xl) / det;
    if (other_min > 0.0f) {
      other_min = 0.0f;
      other_scale = sum_xl / sum_ll;
    }
    float error = affine_error(x, weight, n, other_scale, other_min, other, steps->absolute);
    if (!(error < best)) continue;
    best = error;
    scale = other_scale;
    min = other_min;
    memcpy(code, other, (size_t)n);
  }
  *offset = -min;
  return scale;
}
