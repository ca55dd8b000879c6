// SPDX-License-Identifier: MIT
// IQ4_NL, IQ4_XS: the scale with which sixteen fixed values fit 32 elements best. See search.h.
#include <math.h>
#include <string.h>

#include "quant/codebooks.h"
#include "quant/encode.h"
#include "quant/search.h"

// Code of the value nearest to v; half way the larger one.
static inline int nearest_value(float v) {
  int code = 0;
  for (int step = 8; step > 0; step /= 2) {
    int to = code + step;
    if (v + v >= (float)(mtx_iq4_values[to - 1] + mtx_iq4_values[to])) code = to;
  }
  return code;
}

// Sums of the fit x ~ d value: d = qx / qq.
typedef struct { float qx, qq; } fit;

static fit fit_values(const float *x, const float *weight, float inverse) {
  fit f = {0.0f, 0.0f};
  for (int j = 0; j < 32; j++) {
    float q = (float)mtx_iq4_values[nearest_value(inverse * x[j])];
    f.qx += weight[j] * q * x[j];
    f.qq += weight[j] * q * q;
  }
  return f;
}

// Best scale of 32 elements; sigma2 counts only with importance.
static float best_scale(const float *x, const float *importance, float sigma2) {
  float weight[32], peak = mtx_encode_peak(x, 32);
  if (fabsf(peak) < MTX_SEARCH_ZERO) return 0.0f;
  if (importance) mtx_search_weights(x, importance, sigma2, 32, weight);
  else for (int j = 0; j < 32; j++) weight[j] = x[j] * x[j];
  float lowest = (float)mtx_iq4_values[0];
  fit f = fit_values(x, weight, 1.0f / (-peak / lowest));
  float d = f.qq > 0.0f ? f.qx / f.qq : 0.0f, best = d * f.qx;
  for (int step = -7; step <= 7; step++) {
    f = fit_values(x, weight, (float)(step + mtx_iq4_values[0]) / peak);
    if (!(f.qq > 0.0f && f.qx * f.qx > best * f.qq)) continue;
    d = f.qx / f.qq;
    best = d * f.qx;
  }
  return d;
}

static void put_codes(const float *x, float d, uint8_t *dst) {
  uint8_t code[32];
  float inverse = d != 0.0f ? 1.0f / d : 0.0f;
  for (int j = 0; j < 32; j++) code[j] = (uint8_t)nearest_value(inverse * x[j]);
  mtx_encode_nibbles(code, 16, dst);
}

static float sigma2_of(const float *x, int n) { return mtx_search_squares(x, n) * (2.0f / (float)n); }

void mtx_search_iq4_nl(const float *x, uint8_t *row, int64_t n, const float *importance) {
  for (int64_t i = 0; i < n; i += 32, row += 18) {
    float d = best_scale(x + i, importance ? importance + i : NULL, sigma2_of(x + i, 32));
    mtx_store_u16(row, mtx_f32_to_f16(d));
    put_codes(x + i, d, row + 2);
  }
}

static void encode_xs(const float *x, const float *importance, uint8_t *block) {
  float scale[8], sigma2 = sigma2_of(x, 256);
  for (int r = 0; r < 8; r++) scale[r] = best_scale(x + 32 * r, importance ? importance + 32 * r : NULL, sigma2);
  float d = -mtx_encode_peak(scale, 8) / 32.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
  int high = 0;
  memset(block + 4, 0, 4);
  for (int r = 0; r < 8; r++) {
    int l = mtx_search_clamp(mtx_search_nearest(inverse * scale[r]), -32, 31);
    put_codes(x + 32 * r, d * (float)l, block + 8 + 16 * r);
    l += 32;
    block[4 + r / 2] = (uint8_t)(block[4 + r / 2] | (l & 15) << 4 * (r % 2));
    high |= l >> 4 << 2 * r;
  }
  mtx_store_u16(block, mtx_f32_to_f16(d));
  mtx_store_u16(block + 2, (uint16_t)high);
}

void mtx_search_iq4_xs(const float *x, uint8_t *row, int64_t n, const float *importance) {
  for (int64_t i = 0; i < n; i += 256, row += 136) encode_xs(x + i, importance ? importance + i : NULL, row);
}
