// SPDX-License-Identifier: MIT
// Q2_K .. Q6_K: a scale (and an offset) for each run, these themselves in few bits: see search.h.
#include <math.h>
#include <string.h>

#include "quant/encode.h"
#include "quant/k_scales.h"
#include "quant/search.h"

enum { BLOCK = 256, MAX_RUNS = 16 };

// ---------------------------------------------------------------- Q2_K, Q4_K, Q5_K: scale and offset

typedef struct {
  int run;         // elements with one scale and offset
  int top;         // the largest code
  int top_scale;   // the largest scale or offset
  mtx_search_steps steps;  // without importance
} affine_type;

static const affine_type Q2 = {16, 3, 15, {-0.5f, 0.1f, 15, true}};
static const affine_type Q4 = {32, 15, 63, {-1.0f, 0.1f, 20, false}};
static const affine_type Q5 = {32, 31, 63, {-0.5f, 0.1f, 15, false}};

typedef struct {
  uint8_t code[BLOCK], scale[MAX_RUNS], offset[MAX_RUNS];
  uint16_t d, dmin;  // half floats
} affine_block;

static void plain_weights(const affine_type *t, const float *x, float *weight) {
  float mean = t->run == 32 ? sqrtf(mtx_search_squares(x, 32) / 32.0f) : 0.0f;
  for (int j = 0; j < t->run; j++) weight[j] = mean + fabsf(x[j]);
}

// value / d in [0, top]; d is the largest value / top.
static uint16_t by_largest(const float *value, int n, int top, uint8_t *out) {
  float max = 0.0f;
  for (int r = 0; r < n; r++) max = value[r] > max ? value[r] : max;
  float inverse = max > 0.0f ? (float)top / max : 0.0f;
  for (int r = 0; r < n; r++) out[r] = (uint8_t)mtx_search_nearest(inverse * value[r]);
  return mtx_f32_to_f16(max / (float)top);
}

static void encode_affine(const affine_type *t, const float *x, const float *importance, affine_block *b) {
  int n_runs = BLOCK / t->run;
  float scale[MAX_RUNS], offset[MAX_RUNS], weight[32], sum_w[MAX_RUNS];
  float sigma2 = importance ? (t->run == 32 ? 2.0f : 1.0f) * mtx_search_squares(x, BLOCK) / (float)BLOCK : 0.0f;
  for (int r = 0; r < n_runs; r++) {
    const float *run = x + t->run * r;
    if (importance) mtx_search_weights(run, importance + t->run * r, sigma2, t->run, weight);
    else plain_weights(t, run, weight);
    sum_w[r] = 0.0f;
    for (int j = 0; j < t->run; j++) sum_w[r] += weight[j];
    scale[r] = mtx_search_affine(run, weight, t->run, t->top, importance ? &mtx_search_fine : &t->steps, b->code + t->run * r, &offset[r]);
  }
  if (importance) {
    b->d = mtx_f32_to_f16(mtx_search_positive(scale, sum_w, n_runs, t->top_scale, b->scale));
    b->dmin = mtx_f32_to_f16(mtx_search_positive(offset, sum_w, n_runs, t->top_scale, b->offset));
  } else {
    b->d = by_largest(scale, n_runs, t->top_scale, b->scale);
    b->dmin = by_largest(offset, n_runs, t->top_scale, b->offset);
  }
  for (int r = 0; r < n_runs; r++) {
    if (t->top_scale == 15) {  // one byte holds both: what does not fit spills over, as in ggml
      uint8_t both = (uint8_t)(b->scale[r] | b->offset[r] << 4);
      b->scale[r] = both & 15, b->offset[r] = both >> 4;
    } else {
      b->scale[r] = b->scale[r] < 63 ? b->scale[r] : 63;
      b->offset[r] = b->offset[r] < 63 ? b->offset[r] : 63;
    }
    float d = mtx_f16_to_f32(b->d) * (float)b->scale[r], min = mtx_f16_to_f32(b->dmin) * (float)b->offset[r];
    if (d == 0.0f) continue;
    for (int j = t->run * r; j < t->run * (r + 1); j++)
      b->code[j] = (uint8_t)mtx_search_clamp(mtx_search_nearest((x[j] + min) / d), 0, t->top);
  }
}

// Two bits of 256 codes: byte j of a half holds elements j, j + 32, j + 64, j + 96 of it.
static void pack_pairs(const uint8_t *code, int shift, uint8_t *dst) {
  for (int j = 0; j < 64; j++) {
    const uint8_t *c = code + 128 * (j / 32) + j % 32;
    dst[j] = (uint8_t)((c[0] >> shift & 3) | (c[32] >> shift & 3) << 2 | (c[64] >> shift & 3) << 4 | (c[96] >> shift & 3) << 6);
  }
}

// Bit `bit` of 256 codes: bit s of byte j belongs to element j of run s.
static void pack_bits(const uint8_t *code, int bit, uint8_t *dst) {
  memset(dst, 0, 32);
  for (int j = 0; j < BLOCK; j++) dst[j % 32] = (uint8_t)(dst[j % 32] | (code[j] >> bit & 1) << j / 32);
}

void mtx_search_q2_k(const float *x, uint8_t *row, int64_t n, const float *importance) {
  affine_block b;
  for (int64_t i = 0; i < n; i += BLOCK, row += 84) {
    encode_affine(&Q2, x + i, importance ? importance + i : NULL, &b);
    for (int r = 0; r < 16; r++) row[r] = (uint8_t)(b.scale[r] | b.offset[r] << 4);
    pack_pairs(b.code, 0, row + 16);
    mtx_store_u16(row + 80, b.d);
    mtx_store_u16(row + 82, b.dmin);
  }
}

static void put_affine_head(const affine_block *b, uint8_t *block) {
  mtx_store_u16(block, b->d);
  mtx_store_u16(block + 2, b->dmin);
  mtx_k_scales_put(b->scale, b->offset, block + 4);
}

void mtx_search_q4_k(const float *x, uint8_t *row, int64_t n, const float *importance) {
  affine_block b;
  for (int64_t i = 0; i < n; i += BLOCK, row += 144) {
    encode_affine(&Q4, x + i, importance ? importance + i : NULL, &b);
    put_affine_head(&b, row);
    for (int k = 0; k < 4; k++) mtx_encode_nibbles(b.code + 64 * k, 32, row + 16 + 32 * k);
  }
}

void mtx_search_q5_k(const float *x, uint8_t *row, int64_t n, const float *importance) {
  affine_block b;
  for (int64_t i = 0; i < n; i += BLOCK, row += 176) {
    encode_affine(&Q5, x + i, importance ? importance + i : NULL, &b);
    put_affine_head(&b, row);
    pack_bits(b.code, 4, row + 16);
    for (int k = 0; k < 4; k++) mtx_encode_nibbles(b.code + 64 * k, 32, row + 48 + 32 * k);
  }
}

// ---------------------------------------------------------------- Q3_K, Q6_K: a scale for each 16

// Codes again, now that the scale is what the file will say.
static void recode(const float *x, float d, int limit, uint8_t *code) {
  if (d == 0.0f) return;
  for (int j = 0; j < 16; j++) code[j] = (uint8_t)(mtx_search_clamp(mtx_search_nearest(x[j] / d), -limit, limit - 1) + limit);
}

static void encode_q3_k(const float *x, const float *importance, uint8_t *block) {
  float scale[16], weight[16], sum_w[16];
  uint8_t code[BLOCK], quantised[16];
  float sigma2 = importance ? 2.0f * mtx_search_squares(x, BLOCK) / (float)BLOCK : 0.0f;
  for (int r = 0; r < 16; r++) {
    if (!importance) {
      scale[r] = mtx_search_in_turn(x + 16 * r, 16, 4, code + 16 * r);
      continue;
    }
    mtx_search_weights(x + 16 * r, importance + 16 * r, sigma2, 16, weight);
    sum_w[r] = 0.0f;
    for (int j = 0; j < 16; j++) sum_w[r] += weight[j];
    scale[r] = mtx_search_symmetric(x + 16 * r, weight, 16, 4, code + 16 * r);
  }
  uint16_t d = 0;
  float peak = mtx_encode_peak(scale, 16);
  memset(quantised, 0, sizeof quantised);
  if (importance) {
    d = mtx_f32_to_f16(mtx_search_symmetric(scale, sum_w, 16, 32, quantised));
  } else if (peak != 0.0f) {
    float inverse = -32.0f / peak;
    for (int r = 0; r < 16; r++) quantised[r] = (uint8_t)(mtx_search_clamp((int8_t)mtx_search_nearest(inverse * scale[r]), -32, 31) + 32);
    d = mtx_f32_to_f16(1.0f / inverse);
  }
  for (int r = 0; r < 16; r++) recode(x + 16 * r, mtx_f16_to_f32(d) * (float)(quantised[r] - 32), 4, code + 16 * r);
  pack_bits(code, 2, block);
  pack_pairs(code, 0, block + 32);
  mtx_encode_nibbles(quantised, 8, block + 96);
  for (int k = 0; k < 4; k++)
    block[104 + k] = (uint8_t)(quantised[k] >> 4 | quantised[k + 4] >> 4 << 2 | quantised[k + 8] >> 4 << 4 | quantised[k + 12] >> 4 << 6);
  mtx_store_u16(block + 108, d);
}

void mtx_search_q3_k(const float *x, uint8_t *row, int64_t n, const float *importance) {
  for (int64_t i = 0; i < n; i += BLOCK, row += 110) encode_q3_k(x + i, importance ? importance + i : NULL, row);
}

static void encode_q6_k(const float *x, const float *importance, uint8_t *block) {
  float scale[16];
  uint8_t code[BLOCK];
  for (int r = 0; r < 16; r++)
    scale[r] = mtx_search_symmetric(x + 16 * r, importance ? importance + 16 * r : NULL, 16, 32, code + 16 * r);
  float peak = mtx_encode_peak(scale, 16);
  if (fabsf(peak) < MTX_SEARCH_ZERO) {
    memset(block, 0, 210);
    return;
  }
  float inverse = -128.0f / peak;
  uint16_t d = mtx_f32_to_f16(1.0f / inverse);
  for (int r = 0; r < 16; r++) {
    int l = mtx_search_nearest(inverse * scale[r]);
    int8_t s = (int8_t)(l < 127 ? l : 127);
    block[192 + r] = (uint8_t)s;
    recode(x + 16 * r, mtx_f16_to_f32(d) * (float)s, 32, code + 16 * r);
  }
  for (int h = 0; h < 2; h++) mtx_encode_nibbles(code + 128 * h, 64, block + 64 * h);
  pack_pairs(code, 4, block + 128);
  mtx_store_u16(block + 208, d);
}

void mtx_search_q6_k(const float *x, uint8_t *row, int64_t n, const float *importance) {
  for (int64_t i = 0; i < n; i += BLOCK, row += 210) encode_q6_k(x + i, importance ? importance + i : NULL, row);
}
