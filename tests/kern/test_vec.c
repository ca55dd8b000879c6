// SPDX-License-Identifier: MIT
// Row kernels: scalar against libm in double precision, every tier against scalar bit for bit.
//
// Lengths are chosen around the vector (16) and the step of the sums (64).
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "check.h"
#include "kern/kern.h"
#include "kern/vec.h"
#include "quant/half.h"

enum { MAX_N = 400 };
static const int lengths[] = {1, 2, 8, 15, 16, 17, 31, 48, 63, 64, 65, 127, 128, 200, 320, 399};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

static uint64_t rng = 88172645463325252u;
static uint32_t rnd(void) {
  rng ^= rng << 13;
  rng ^= rng >> 7;
  rng ^= rng << 17;
  return (uint32_t)(rng >> 32);
}

// kind 0: -8..8; 1: any bits; 2: -100..100; 3: some -inf
static void fill(float *x, int n, int kind) {
  for (int i = 0; i < n; i++) {
    x[i] = (float)(int32_t)rnd() * 0x1p-28f;
    if (kind == 1) x[i] = mtx_f32_from_bits(rnd());
    if (kind == 2) x[i] *= 12.5f;
    if (kind == 3 && rnd() % 3 == 0) x[i] = -INFINITY;
  }
}

static int same(const float *a, const float *b, int n) {
  for (int i = 0; i < n; i++)
    if (!(a[i] != a[i] && b[i] != b[i]) && memcmp(a + i, b + i, sizeof *a)) return 0;
  return 1;
}

static double ulps(float got, double want) {
  int e;
  frexp(want, &e);
  double ulp = ldexp(1.0, e - 24 < -149 ? -149 : e - 24);
  return fabs(got - want) / ulp;
}

// ---- accuracy ---------------------------------------------------------------

static double exact(mtx_unary f, double x) {
  switch (f) {
    case MTX_UNARY_EXP: return exp(x);
    case MTX_UNARY_SILU: return x / (1 + exp(-x));
    case MTX_UNARY_GELU: return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case MTX_UNARY_GELU_ERF: return 0.5 * x * erfc(-x * 0.70710678118654752440);
    case MTX_UNARY_GELU_QUICK: return x / (1 + exp(-1.702 * x));
    case MTX_UNARY_TANH: return tanh(x);
    case MTX_UNARY_SIGMOID: return 1 / (1 + exp(-x));
    case MTX_UNARY_RELU: return x > 0 ? x : 0;
    case MTX_UNARY_RELU2: return x > 0 ? x * x : 0;
    case MTX_UNARY_SOFTPLUS: return log1p(exp(x));
    case MTX_UNARY_SQR: return x * x;
    default: return x;
  }
}

static void test_accuracy(void) {
  static const struct { mtx_unary f; double max_ulps, abs; float lo, hi; } cases[] = {
    {MTX_UNARY_EXP, 2, 0, -103, 88.5f}, {MTX_UNARY_TANH, 2, 0, -12, 12}, {MTX_UNARY_SIGMOID, 3, 0, -80, 80},
    {MTX_UNARY_SILU, 4, 0, -80, 80}, {MTX_UNARY_GELU_QUICK, 64, 1e-30, -40, 40},
    {MTX_UNARY_GELU, 8, 2e-7, -8, 8}, {MTX_UNARY_GELU_ERF, 8, 4e-7, -8, 8}, {MTX_UNARY_SOFTPLUS, 4, 0, -80, 80},
    {MTX_UNARY_RELU, 0, 0, -9, 9}, {MTX_UNARY_RELU2, 1, 0, -9, 9}, {MTX_UNARY_SQR, 1, 0, -9, 9}, {MTX_UNARY_NONE, 0, 0, -9, 9},
  };
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
    double worst = 0;
    float at = 0;
    for (int j = 0; j <= 200000; j++) {
      float x = cases[i].lo + (cases[i].hi - cases[i].lo) * (float)j / 200000.0f, y;
      if (j % 7 == 0) x *= 1e-3f;
      mtx_vec.unary(cases[i].f, &x, &y, 1);
      double want = exact(cases[i].f, x), e = ulps(y, want);
      if (fabs(y - want) <= cases[i].abs) e = 0;
      if (e > worst) worst = e, at = x;
    }
    CHECK(worst <= cases[i].max_ulps, "unary %d: %g ulp at %g", cases[i].f, worst, at);
  }
}

static void test_edges(void) {
  const float in[] = {INFINITY, -INFINITY, 0.0f, -0.0f, 89.0f, -104.5f, 1e30f, -1e30f};
  float e[8], x[3] = {1, NAN, 2}, y[3];
  mtx_vec.unary(MTX_UNARY_EXP, in, e, 8);
  CHECK(e[0] == INFINITY && e[1] == 0 && e[2] == 1 && e[3] == 1 && e[4] == INFINITY && e[5] == 0 && e[6] == INFINITY && e[7] == 0);
  for (int f = 0; f < MTX_UNARY_N; f++) {
    mtx_vec.unary((mtx_unary)f, x, y, 3);
    CHECK(y[1] != y[1] && y[0] == y[0] && y[2] == y[2], "unary %d loses a NaN", f);
  }
  mtx_vec.clamp(x, 0, 1, y, 3);
  CHECK(y[1] != y[1] && y[2] == 1);
  CHECK(isnan(mtx_vec.max(x, 3)) && mtx_vec.max(x, 0) == -INFINITY && mtx_vec.max(x, 1) == 1);
  float none[5] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
  mtx_vec.softmax(none, 1, none, 5);
  CHECK(none[0] == 0 && none[4] == 0, "softmax of nothing");
  mtx_vec.softmax(x, 1, y, 3);
  CHECK(y[1] != y[1], "softmax loses a NaN");
}

static void test_rows_against_double(void) {
  float x[MAX_N], w[MAX_N], b[MAX_N], y[MAX_N];
  for (int l = 0; l < N_LENGTHS; l++) {
    int n = lengths[l];
    fill(x, n, 0), fill(w, n, 0), fill(b, n, 0);
    double s = 0, ss = 0, dot = 0, var = 0, big = -INFINITY, es = 0, worst[4] = {0};
    for (int i = 0; i < n; i++) s += x[i], ss += (double)x[i] * x[i], dot += (double)x[i] * w[i], big = x[i] > big ? x[i] : big;
    for (int i = 0; i < n; i++) var += (x[i] - s / n) * (x[i] - s / n), es += exp(0.5 * (x[i] - big));
    CHECK(fabs(mtx_vec.sum(x, n) - s) < 1e-3 && fabs(mtx_vec.dot(x, w, n) - dot) < 1e-2 && mtx_vec.max(x, n) == (float)big);
    mtx_vec.rmsnorm(x, w, 1e-5f, y, n);
    for (int i = 0; i < n; i++) worst[0] = fmax(worst[0], fabs(y[i] - x[i] / sqrt(ss / n + 1e-5) * w[i]));
    mtx_vec.layernorm(x, w, b, 1e-2f, y, n);
    for (int i = 0; i < n; i++) worst[1] = fmax(worst[1], fabs(y[i] - ((x[i] - s / n) / sqrt(var / n + 1e-2) * w[i] + b[i])));
    mtx_vec.l2norm(x, 1e-6f, y, n);
    for (int i = 0; i < n; i++) worst[2] = fmax(worst[2], fabs(y[i] - x[i] / sqrt(ss)));
    mtx_vec.softmax(x, 0.5f, y, n);
    for (int i = 0; i < n; i++) worst[3] = fmax(worst[3], fabs(y[i] - exp(0.5 * (x[i] - big)) / es));
    CHECK(worst[0] < 2e-5 && worst[1] < 5e-5 && worst[2] < 1e-6 && worst[3] < 1e-6, "n = %d: %g %g %g %g", n, worst[0], worst[1], worst[2], worst[3]);
  }
}

static void test_rope(void) {
  float x[2][24], c[3], s[3];
  for (int i = 0; i < 3; i++) c[i] = cosf((float)i + 1), s[i] = sinf((float)i + 1);
  for (int neox = 0; neox < 2; neox++) {
    for (int i = 0; i < 24; i++) x[neox][i] = (float)i;
    mtx_vec.rope(x[neox], 2, 12, 6, c, s, neox);
    double worst = 0;
    for (int h = 0; h < 2; h++)
      for (int i = 0; i < 3; i++) {
        int a = 12 * h + (neox ? i : 2 * i), b = neox ? a + 3 : a + 1;
        worst = fmax(worst, fabs(x[neox][a] - (a * cos(i + 1) - b * sin(i + 1))));
        worst = fmax(worst, fabs(x[neox][b] - (a * sin(i + 1) + b * cos(i + 1))));
      }
    CHECK(worst < 1e-5, "neox %d: %g", neox, worst);
    CHECK(x[neox][6] == 6 && x[neox][11] == 11 && x[neox][18] == 18, "beyond n_rot");
  }
}

// ---- tiers ---------------------------------------------------------------------

enum { N_OUTPUTS = 24 + 2 * MTX_UNARY_N };
typedef struct { float v[N_OUTPUTS][MAX_N + 16]; int n; } outputs;

// Every function once; rows of out are compared between tiers.
static void run_all(const float *a, const float *b, int n, outputs *out) {
  memset(out, 0, sizeof *out);
  float (*v)[MAX_N + 16] = out->v;
  int r = 0;
  v[r][0] = mtx_vec.dot(a, b, n), v[r][1] = mtx_vec.sum(a, n), v[r++][2] = mtx_vec.max(a, n);
  mtx_vec.add(a, b, v[r++], n);
  mtx_vec.sub(a, b, v[r++], n);
  mtx_vec.mul(a, b, v[r++], n);
  mtx_vec.scale(a, 0.37f, v[r++], n);
  memcpy(v[r], b, sizeof *b * (size_t)n);
  mtx_vec.add_scaled(a, 0.37f, v[r++], n);
  mtx_vec.affine(a, 0.37f, -1.1f, v[r++], n);
  mtx_vec.clamp(a, -1.5f, 2.5f, v[r++], n);
  mtx_vec.softcap(a, 30.0f, v[r++], n);
  mtx_vec.rmsnorm(a, b, 1e-6f, v[r++], n);
  mtx_vec.rmsnorm(a, NULL, 1e-6f, v[r++], n);
  mtx_vec.layernorm(a, b, a, 1e-5f, v[r++], n);
  mtx_vec.layernorm(a, NULL, NULL, 1e-5f, v[r++], n);
  mtx_vec.l2norm(a, 1e-6f, v[r++], n);
  float max = mtx_vec.max(a, n);
  v[r][n] = mtx_vec.exp_sum(a, max, v[r], n), r++;
  mtx_vec.softmax(a, 0.125f, v[r++], n);
  for (int neox = 0; neox < 2; neox++) {
    memcpy(v[r], a, sizeof *a * (size_t)n);
    if (n >= 2) mtx_vec.rope(v[r], 1, 0, n & ~1, b, b + n / 2, neox);
    r++;
  }
  uint16_t half[MAX_N];
  mtx_vec.to_f16(a, half, n);
  mtx_vec.from_f16(half, v[r++], n);
  mtx_vec.to_bf16(a, half, n);
  mtx_vec.from_bf16(half, v[r++], n);
  for (int f = 0; f < MTX_UNARY_N; f++) {
    mtx_vec.unary((mtx_unary)f, a, v[r++], n);
    mtx_vec.glu((mtx_unary)f, a, b, v[r++], n);
  }
  out->n = r;
}

static void test_tiers(void) {
  static outputs ref, got;
  float a[MAX_N + 1], b[MAX_N + 1];
  for (int kind = 0; kind < 4; kind++)
    for (int l = 0; l < N_LENGTHS; l++) {
      int n = lengths[l];
      fill(a, n, kind), fill(b, n, kind == 3 ? 0 : kind);
      mtx_kern_init(MTX_TIER_SCALAR);
      run_all(a, b, n, &ref);
      for (int tier = MTX_TIER_SCALAR + 1; tier <= MTX_TIER_NEON; tier++) {
        if (!mtx_tier_available((mtx_tier)tier)) continue;
        mtx_kern_init((mtx_tier)tier);
        run_all(a, b, n, &got);
        for (int r = 0; r < ref.n; r++)
          CHECK(same(ref.v[r], got.v[r], MAX_N + 16), "%s: output %d differs, n = %d, kind %d", mtx_tier_name((mtx_tier)tier), r, n, kind);
      }
    }
}

// All halves through both conversions, on every tier.
static void test_halves(void) {
  static uint16_t in[65536], out[65536];
  static float f[65536];
  for (int i = 0; i < 65536; i++) in[i] = (uint16_t)i;
  mtx_vec.from_f16(in, f, 65536);
  mtx_vec.to_f16(f, out, 65536);
  int bad = 0;
  for (int i = 0; i < 65536; i++) {
    float want = mtx_f16_to_f32((uint16_t)i);
    bad += want == want ? f[i] != want || out[i] != i : f[i] == f[i];
  }
  CHECK(bad == 0, "f16: %d wrong", bad);
  mtx_vec.from_bf16(in, f, 65536);
  mtx_vec.to_bf16(f, out, 65536);
  bad = 0;
  for (int i = 0; i < 65536; i++) bad += f[i] == f[i] ? out[i] != i : !(out[i] & 0x7F);
  CHECK(bad == 0, "bf16: %d wrong", bad);
}

int main(void) {
  for (int tier = MTX_TIER_SCALAR; tier <= MTX_TIER_NEON; tier++) {
    if (!mtx_tier_available((mtx_tier)tier)) continue;
    mtx_kern_init((mtx_tier)tier);
    printf("tier %s\n", mtx_tier_name((mtx_tier)tier));
    test_accuracy();
    test_edges();
    test_rows_against_double();
    test_rope();
    test_halves();
  }
  test_tiers();
  return check_report();
}
