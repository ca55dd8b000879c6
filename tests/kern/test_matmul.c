// SPDX-License-Identifier: MIT
// Matrix products: scalar against a float64 sum over the decoded weights, every tier against scalar.
//
// Weights are random block bytes of every type that decodes, tame (finite, of
// moderate size) for the comparison with float64, wild (any bits, so NaN, infinite
// and subnormal scales) for the comparison of tiers. Tiers, splits of the columns
// and splits of the groups must give the same bits; any NaN equals any other.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "check.h"
#include "kern/cpu.h"
#include "kern/dispatch.h"
#include "kern/kern.h"
#include "kern/matmul.h"
#include "kern/tiers.h"
#include "quant/half.h"
#include "tile_matmul.h"
#if defined(__x86_64__)
#include "tile_trap.h"
#endif

// Golden README, "Dots": the sum of |products| times this bounds the error of an f32 sum.
static const double TOLERANCE = 1e-5;

static uint64_t rng = 0x9E3779B97F4A7C15u;
static uint32_t rnd(void) {
  rng ^= rng << 13;
  rng ^= rng >> 7;
  rng ^= rng << 17;
  return (uint32_t)(rng >> 32);
}
static float rnd_float(void) { return (float)(int32_t)rnd() * 0x1p-30f; }  // -2..2

typedef enum { TAME, WILD, ZEROS, ONES, MAXIMAL, N_WEIGHT_KINDS } weight_kind;
typedef enum { NORMAL, ZERO, HUGE_VALUES, TINY, SPIKE, NOT_A_NUMBER, INFINITE, N_ACT_KINDS } act_kind;

static void fill_block(const mtx_qtype *t, weight_kind kind, uint8_t *p) {
  float f[256];
  for (;;) {
    float max = 0.0f;
    int finite = 1;
    for (uint32_t i = 0; i < t->block_bytes; i++)
      p[i] = kind == ZEROS ? 0 : kind == ONES ? 0xFF : kind == MAXIMAL ? 0x7B : (uint8_t)rnd();
    if (kind != TAME) return;
    t->decode(p, f, t->block);
    for (uint32_t i = 0; i < t->block; i++) {
      finite &= isfinite(f[i]) != 0;
      max = fabsf(f[i]) > max ? fabsf(f[i]) : max;
    }
    if (finite && max < 1000.0f && (max > 1e-3f || t->block == 1)) return;
  }
}

static void *aligned(size_t n) {
  void *p = aligned_alloc(64, (n + 63) & ~(size_t)63);
  if (!p) exit(1);
  memset(p, 0xA5, (n + 63) & ~(size_t)63);
  return p;
}

static void fill_act(act_kind kind, float *x, int64_t k) {
  for (int64_t i = 0; i < k; i++) {
    x[i] = rnd_float();
    if (kind == ZERO) x[i] = 0.0f;
    if (kind == HUGE_VALUES) x[i] *= 1e30f;
    if (kind == TINY) x[i] *= 1e-37f;
  }
  if (kind == SPIKE) x[rnd() % (uint64_t)k] = 3e4f;
  if (kind == NOT_A_NUMBER) x[rnd() % (uint64_t)k] = NAN;
  if (kind == INFINITE) x[rnd() % (uint64_t)k] = -INFINITY;
}

static int same(float a, float b) { return (a != a && b != b) || memcmp(&a, &b, sizeof a) == 0; }

typedef struct {
  const mtx_qtype *t;
  int64_t n_out, k, n_cols;
  uint8_t *src, *packed, *act;
  size_t row_bytes, stride;
  float *x, *y, *ref;
  mtx_weight w;
} problem;

static void problem_new(problem *p, const mtx_qtype *t, int64_t n_out, int64_t k, int64_t n_cols, weight_kind wk, act_kind ak) {
  uint64_t row;
  *p = (problem){.t = t, .n_out = n_out, .k = k, .n_cols = n_cols};
  CHECK(mtx_qtype_row_bytes(t, (uint64_t)k, &row), "%s", t->name);
  p->row_bytes = (size_t)row;
  p->src = aligned(p->row_bytes * (size_t)n_out);
  for (size_t i = 0; i < p->row_bytes * (size_t)n_out; i += t->block_bytes) fill_block(t, wk, p->src + i);
  size_t bytes = mtx_weight_bytes(t, n_out, k);
  CHECK(bytes > 0, "%s cannot be packed", t->name);
  p->packed = aligned(bytes);
  mtx_weight_init(&p->w, t, n_out, k, p->packed);
  CHECK(p->w.group_bytes * (size_t)mtx_weight_n_groups(&p->w) == bytes);
  mtx_weight_pack(&p->w, p->src, 0, mtx_weight_n_groups(&p->w));
  p->stride = mtx_act_bytes(p->w.act, k);
  p->x = aligned(sizeof(float) * (size_t)(k * n_cols));
  p->act = aligned(p->stride * (size_t)n_cols);
  p->y = aligned(sizeof(float) * (size_t)(n_out * n_cols + 16));
  p->ref = aligned(sizeof(float) * (size_t)(n_out * n_cols + 16));
  for (int64_t c = 0; c < n_cols; c++) fill_act(ak, p->x + c * k, k);
}

static void problem_free(problem *p) {
  free(p->src), free(p->packed), free(p->x), free(p->act), free(p->y), free(p->ref);
}

static void encode(problem *p) {
  for (int64_t c = 0; c < p->n_cols; c++)
    mtx_act_encode(p->w.act, p->x + c * p->k, p->k, 0, (p->k + 31) / 32, p->act + (size_t)c * p->stride);
}

static int all_same(const float *a, const float *b, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (!same(a[i], b[i])) return 0;
  return 1;
}

// Row r, column c in float64, from decoded weights and the activation as it is encoded.
static double reference(const problem *p, int64_t r, int64_t c, double *abs_sum) {
  float *w = aligned(sizeof(float) * (size_t)p->k);
  p->t->decode(p->src + (size_t)r * p->row_bytes, w, p->k);
  double sum = 0;
  *abs_sum = 0;
  for (int64_t i = 0; i < p->k; i++) {
    const mtx_q8 *q = (const mtx_q8 *)(const void *)(p->act + (size_t)c * p->stride) + i / 32;
    double a = p->w.act == MTX_ACT_F32 ? p->x[c * p->k + i] : (double)q->d * q->q[i % 32];
    sum += (double)w[i] * a;
    *abs_sum += fabs((double)w[i] * a);
  }
  free(w);
  return sum;
}

static void test_scalar(const mtx_qtype *t, int64_t n_out, int64_t k, int64_t n_cols) {
  problem p;
  mtx_kern_init(MTX_TIER_SCALAR);
  problem_new(&p, t, n_out, k, n_cols, TAME, NORMAL);
  encode(&p);
  mtx_matmul(&p.w, 0, mtx_weight_n_groups(&p.w), p.act, p.stride, n_cols, p.y, n_out, false);
  double worst = 0;
  for (int64_t c = 0; c < n_cols; c++)
    for (int64_t r = 0; r < n_out; r++) {
      double scale, want = reference(&p, r, c, &scale), e = fabs(p.y[c * n_out + r] - want) / scale;
      worst = e > worst || e != e ? e : worst;
    }
  CHECK(worst <= TOLERANCE, "%s [%d, %d] x %d: relative error %g", t->name, (int)n_out, (int)k, (int)n_cols, worst);
  problem_free(&p);
}

// A packed row gives back the file's floats.
static void test_row(const mtx_qtype *t, weight_kind kind) {
  problem p;
  int64_t k = 2 * (t->block < 32 ? 32 : t->block);
  problem_new(&p, t, 19, k, 1, kind, NORMAL);
  float *a = aligned(sizeof(float) * (size_t)k), *b = aligned(sizeof(float) * (size_t)k);
  int ok = 1;
  for (int64_t r = 0; r < 19; r++) {
    t->decode(p.src + (size_t)r * p.row_bytes, a, k);
    mtx_weight_row(&p.w, r, b);
    ok &= all_same(a, b, k);
  }
  CHECK(ok, "%s: rows of the packed matrix differ from the file", t->name);
  free(a), free(b);
  problem_free(&p);
}

static void check_splits(problem *p, const char *tier) {
  int64_t n = p->n_out * p->n_cols, groups = mtx_weight_n_groups(&p->w);
  memset(p->y, 0xFF, sizeof(float) * (size_t)n);
  for (int64_t g = groups - 1; g >= 0; g--)
    for (int64_t c = 0, m; c < p->n_cols; c += m) {
      m = 1 + rnd() % 3;
      if (m > p->n_cols - c) m = p->n_cols - c;
      mtx_matmul(&p->w, g, g + 1, p->act + (size_t)c * p->stride, p->stride, m, p->y + c * p->n_out, p->n_out, false);
    }
  CHECK(all_same(p->y, p->ref, n), "%s on %s: a split changes the result ([%d, %d] x %d)", p->t->name, tier, (int)p->n_out, (int)p->k, (int)p->n_cols);
  for (int64_t i = 0; i < n; i++) p->y[i] = (float)i;
  p->y[n] = 12345.0f;
  mtx_matmul(&p->w, 0, groups, p->act, p->stride, p->n_cols, p->y, p->n_out, true);
  int ok = 1;
  for (int64_t i = 0; i < n; i++) ok &= same(p->y[i], (float)i + p->ref[i]);
  CHECK(ok, "%s on %s: accumulate", p->t->name, tier);
  CHECK(p->y[n] == 12345.0f, "%s on %s: wrote past the last row", p->t->name, tier);
}

// Act, y and packed bytes at addresses that suit only their elements, columns an odd number of words apart;
// groups shared by threads, each of which must have its tiles.
static void check_places(problem *p, const char *tier) {
  int64_t groups = mtx_weight_n_groups(&p->w), ldy = p->n_out + 1;
  size_t stride = p->stride + 4, bytes = p->w.group_bytes * (size_t)groups;
  uint8_t *act = aligned(stride * (size_t)p->n_cols + 4), *data = aligned(bytes + 4);
  float *y = aligned(sizeof(float) * (size_t)(ldy * p->n_cols + 1));
  for (int64_t c = 0; c < p->n_cols; c++) memcpy(act + 4 + (size_t)c * stride, p->act + (size_t)c * p->stride, p->stride);
  memcpy(data + 4, p->packed, bytes);
  mtx_weight w = p->w;
  w.data = data + 4;
#pragma omp parallel for schedule(static, 1) num_threads(3)
  for (int64_t g = 0; g < groups; g++) mtx_matmul(&w, g, g + 1, act + 4, stride, p->n_cols, y + 1, ldy, false);
  int ok = 1;
  for (int64_t c = 0; c < p->n_cols; c++) ok &= all_same(y + 1 + c * ldy, p->ref + c * p->n_out, p->n_out);
  CHECK(ok, "%s on %s: addresses or threads change the result", p->t->name, tier);
  free(act), free(data), free(y);
}

// Every tier that this CPU has, and the variants that a tier hides on this CPU.
typedef struct { const char *name; mtx_tier tier; const mtx_mm_ops *over; bool model; } variant;
static variant variants[10];
static int n_variants;

static void find_variants(void) {
  for (int t = MTX_TIER_SCALAR; t <= MTX_TIER_NEON; t++)
    if (mtx_tier_available((mtx_tier)t)) variants[n_variants++] = (variant){.name = mtx_tier_name((mtx_tier)t), .tier = (mtx_tier)t};
#if defined(__x86_64__)
  if (mtx_cpu_get()->avx512_vnni) variants[n_variants++] = (variant){"avx512 without vnni", MTX_TIER_AVX512, &mtx_mm_avx512, false};
  CHECK(mtx_cpu_get()->amx == mtx_tier_available(MTX_TIER_AMX), "this CPU's tiles compute something else");
  // The objects of the tier, on a CPU that can run all of them but the tiles.
  if (mtx_cpu_get()->avx512_vbmi && !mtx_cpu_get()->amx) {
    tile_trap_install();
    variants[n_variants++] = (variant){"amx, its tiles emulated", MTX_TIER_AVX512, &mtx_mm_amx, true};
  }
#elif defined(__aarch64__)
  if (mtx_cpu_get()->dotprod) variants[n_variants++] = (variant){"neon without dotprod", MTX_TIER_NEON, &mtx_mm_neon, false};
#endif
  variants[n_variants++] = (variant){"amx in plain C", MTX_TIER_SCALAR, &mm_on_tile_model, true};
  for (int i = 0; i < n_variants; i++) printf("%s\n", variants[i].name);
}

static void use_variant(const variant *v) {
  CHECK(mtx_kern_init(v->tier) == v->tier, "%s", v->name);
  for (int i = 0; v->over && i < MTX_PACK_N; i++)
    if (v->over->fn[i]) mtx_mm.fn[i] = v->over->fn[i];
}

static void test_tiers(const mtx_qtype *t, int64_t n_out, int64_t k, int64_t n_cols, weight_kind wk, act_kind ak) {
  problem p;
  problem_new(&p, t, n_out, k, n_cols, wk, ak);
  int64_t n = n_out * n_cols, groups = mtx_weight_n_groups(&p.w);
  uint8_t *act = aligned(p.stride * (size_t)n_cols);
  for (int i = 0; i < n_variants; i++) {
    const char *name = variants[i].name;
    use_variant(&variants[i]);
    encode(&p);
    if (i == 0) {
      memcpy(act, p.act, p.stride * (size_t)n_cols);
      mtx_matmul(&p.w, 0, groups, p.act, p.stride, n_cols, p.ref, n_out, false);
    } else {
      long n_products = tile_model.n_products;
      mtx_matmul(&p.w, 0, groups, p.act, p.stride, n_cols, p.y, n_out, false);
      bool tiles = variants[i].model && n_cols >= 16 && p.w.act == MTX_ACT_Q8;
      CHECK(tiles == (tile_model.n_products > n_products), "%s on %s, %d columns: tiles unused", t->name, name, (int)n_cols);
      CHECK(!tile_model.configured, "%s on %s: tiles were not released", t->name, name);
      CHECK(all_same(p.y, p.ref, n), "%s on %s differs from scalar ([%d, %d] x %d, weights %d, activation %d)", t->name, name,
            (int)n_out, (int)k, (int)n_cols, wk, ak);
      if (ak != NOT_A_NUMBER && ak != INFINITE) {
        size_t used = p.w.act == MTX_ACT_F32 ? sizeof(float) * (size_t)k : sizeof(mtx_q8) * (size_t)(k / 32);
        int ok = 1;
        for (int64_t c = 0; c < n_cols; c++) ok &= !memcmp(act + (size_t)c * p.stride, p.act + (size_t)c * p.stride, used);
        CHECK(ok, "activation on %s differs from scalar", name);
      }
    }
    check_splits(&p, name);
    check_places(&p, name);
  }
  if (ak == NOT_A_NUMBER || ak == INFINITE) {
    int ok = 1;
    for (int64_t i = 0; i < n; i++) ok &= !isfinite(p.ref[i]);
    CHECK(ok, "%s: a bad activation must show in every row", t->name);
  }
  free(act);
  problem_free(&p);
}

static void test_refusals(void) {
  const mtx_qtype *q4 = mtx_qtype_by_name("Q4_K"), *i8 = mtx_qtype_by_name("I8"), *f32 = mtx_qtype_by_name("F32");
  CHECK(mtx_weight_bytes(q4, 16, 128) == 0, "k is no multiple of 256");
  CHECK(mtx_weight_bytes(i8, 16, 128) == 0, "I8 holds no weights");
  CHECK(mtx_weight_bytes(q4, 0, 256) == 0 && mtx_weight_bytes(q4, 16, 0) == 0 && mtx_weight_bytes(q4, -1, 256) == 0);
  CHECK(mtx_weight_bytes(f32, INT64_MAX, INT64_MAX) == 0, "overflow");
  CHECK(mtx_weight_bytes(f32, INT64_MAX / 2, 1024) == 0, "overflow");
}

int main(void) {
  static const int64_t rows[] = {1, 15, 16, 17, 33}, tile_cols[] = {16, 31, 32, 64, 81};
  printf("CPU: %s\n", mtx_cpu_get()->name);
  find_variants();
  test_refusals();
  for (int i = 0; i < mtx_qtype_count(); i++) {
    const mtx_qtype *t = mtx_qtype_at(i);
    if (!t->decode) continue;
    int failed_before = check_n_failed;
    int64_t unit = t->block < 32 ? 32 : t->block;
    double file = (double)t->block_bytes / t->block * 16 * 1024;
    CHECK((double)mtx_weight_bytes(t, 16, 1024) <= 1.04 * file, "%s: packed form is too large", t->name);
    test_row(t, TAME);
    test_row(t, WILD);
    test_scalar(t, 33, 4 * unit, 3);
    test_scalar(t, 16, 1024, 1);
    for (int n_cols = 1; n_cols <= 9; n_cols++)
      test_tiers(t, rows[n_cols % 5], unit * (1 + n_cols % 3), n_cols, TAME, NORMAL);
    for (int r = 0; r < 5; r++) test_tiers(t, rows[r], 9 * unit, 17, TAME, SPIKE);
    for (int wk = 0; wk < N_WEIGHT_KINDS; wk++)
      for (int ak = 0; ak < N_ACT_KINDS; ak++) test_tiers(t, 18, unit, wk % 2 ? 17 : 7, (weight_kind)wk, (act_kind)ak);
    if (t->block == 1)
      for (int k = 1; k < 8; k++) test_tiers(t, 17, k, 5, TAME, NORMAL);
    for (int r = 0; r < 5; r++) test_tiers(t, rows[r], unit * (1 + r % 3), tile_cols[r], TAME, NORMAL);
    if (!strcmp(t->name, "Q8_0") || !strcmp(t->name, "Q6_K")) test_tiers(t, 3, 2048, 130, TAME, NORMAL);  // two parts of columns on tiles
    test_tiers(t, 20, 1280, 70, TAME, NORMAL);  // more than one tile of a type in file layout, more than one part of columns
    if (check_n_failed == failed_before) printf("ok %s\n", t->name);  // read by scripts/status.lua
  }
  return check_report();
}
