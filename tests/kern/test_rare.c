// SPDX-License-Identifier: MIT
// Packed low-bit and codebook types: what was packed decodes to the same floats,
// and products on every tier are the bits that matmul.h's steps give when they
// are taken one by one from mtx_qtype.unpack.
#include "kern/kern.h"
#include "kern/matmul.h"
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>

#include "check.h"

enum { N_ROWS = 21, K = 1024, N_COLS = 16, GOLDEN_ROWS = 8 };

// Rows of random block bytes (T.raw: all grid entries, signs, scales) with the quantised rows after
// them; 21 rows, so that the last group has lanes of padding.
static uint8_t *load_rows(const mtx_qtype *t, size_t row_bytes) {
  uint8_t *rows = malloc(N_ROWS * row_bytes);
  for (int part = 0; part < 3; part++) {
    char path[128];
    snprintf(path, sizeof path, "tests/golden/quant/%s.%s", t->name, part == 1 ? "q" : "raw");
    FILE *f = fopen(path, "rb");
    CHECK(f != NULL, "cannot open %s", path);
    size_t n = (size_t)(part < 2 ? GOLDEN_ROWS : N_ROWS - 2 * GOLDEN_ROWS) * row_bytes;
    CHECK(f && fread(rows + (size_t)(part * GOLDEN_ROWS) * row_bytes, 1, n, f) == n, "%s is short", path);
    if (f) fclose(f);
  }
  return rows;
}

static bool two_scales(const char *name) {
  static const char *const names[] = {"Q2_K", "Q3_K", "Q6_K", "NVFP4", "IQ2_XS", "IQ2_S", "IQ1_M"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i], name) == 0) return true;
  return false;
}

static float expected(const mtx_qtype *t, const uint8_t *row, const mtx_q8 *x) {
  float acc = 0.0f;
  for (int b = 0; b < K / 32; b++, x++) {
    int8_t q[32];
    float d[2], m[2];
    t->unpack(row, b, q, d, m);
    int32_t dot[2] = {0, 0};
    for (int j = 0; j < 32; j++) dot[j / 16] += q[j] * x->q[j];
    float s;
    if (two_scales(t->name)) {
      s = d[0] * (float)dot[0];
      s = fmaf(d[1], (float)dot[1], s);
      if (t->has_min) s = fmaf(-m[0], (float)x->n_lo, s);
      if (t->has_min) s = fmaf(-m[1], (float)x->n_hi, s);
    } else {
      s = d[0] * (float)(dot[0] + dot[1]);
      if (t->has_min) s = fmaf(-m[0], (float)x->n, s);
    }
    acc = fmaf(s, x->d, acc);
  }
  return acc;
}

static bool same(float a, float b) { return memcmp(&a, &b, sizeof a) == 0 || (a == 0.0f && b == 0.0f); }

static void test_type(const mtx_qtype *t, const float *x) {
  uint64_t row_bytes = 0;
  mtx_weight w;
  CHECK(mtx_qtype_row_bytes(t, K, &row_bytes));
  uint8_t *rows = load_rows(t, row_bytes);
  size_t bytes = mtx_weight_bytes(t, N_ROWS, K);
  CHECK(bytes >= 32 * row_bytes && bytes <= 32 * row_bytes * 104 / 100, "%s packs %d rows to %zu bytes", t->name, N_ROWS, bytes);
  void *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
  memset(data, 0xA5, bytes);
  mtx_weight_init(&w, t, N_ROWS, K, data);
  mtx_weight_pack(&w, rows, 0, 2);

  float got[K], want[K];
  int bad = 0;
  for (int r = 0; r < N_ROWS; r++) {
    mtx_weight_row(&w, r, got);
    t->decode(rows + (size_t)r * row_bytes, want, K);
    for (int j = 0; j < K; j++) bad += !same(got[j], want[j]);
  }
  CHECK(bad == 0, "%s: %d floats differ after packing", t->name, bad);

  size_t stride = mtx_act_bytes(MTX_ACT_Q8, K);
  uint8_t *act = aligned_alloc(64, N_COLS * stride);
  for (int tier = MTX_TIER_SCALAR; tier <= MTX_TIER_NEON; tier++) {
    if (!mtx_tier_available((mtx_tier)tier)) continue;
    CHECK(mtx_kern_init((mtx_tier)tier) == (mtx_tier)tier);
    for (int c = 0; c < N_COLS; c++) mtx_act_encode(MTX_ACT_Q8, x + 37 * c, K, 0, K / 32, act + (size_t)c * stride);
    for (int n_cols = 1; n_cols <= N_COLS; n_cols += 5) {
      float y[N_COLS * N_ROWS];
      mtx_matmul(&w, 0, 2, act, stride, n_cols, y, N_ROWS, false);
      bad = 0;
      for (int c = 0; c < n_cols; c++)
        for (int r = 0; r < N_ROWS; r++)
          bad += !same(y[c * N_ROWS + r], expected(t, rows + (size_t)r * row_bytes, (const mtx_q8 *)(const void *)(act + (size_t)c * stride)));
      CHECK(bad == 0, "%s on %s, %d columns: %d products differ", t->name, mtx_tier_name((mtx_tier)tier), n_cols, bad);
    }
  }
  free(act), free(data), free(rows);
}

int main(void) {
  static float x[K + 37 * N_COLS];
  FILE *f = fopen("tests/golden/quant/activation.f32", "rb");
  CHECK(f && fread(x, 4, K, f) == K, "activation.f32");
  if (f) fclose(f);
  for (int j = K; j < K + 37 * N_COLS; j++) x[j] = x[j - K] * 3.0f;
  static const char *const names[] = {"Q2_K", "Q3_K", "TQ2_0", "Q2_0", "Q1_0", "NVFP4", "IQ2_XXS", "IQ2_XS", "IQ2_S",
                                      "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M", "Q4_K", "Q6_K", "IQ4_XS", "MXFP4"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) test_type(mtx_qtype_by_name(names[i]), x);
  mtx_kern_init(MTX_TIER_AMX);
  return check_report();
}
