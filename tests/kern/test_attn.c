// SPDX-License-Identifier: MIT
// Attention kernels: every tier bit-equal to scalar, scalar near a float64
// reference, a query's result the same alone and in a tile.
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "kern/attn.h"
#include "kern/kern.h"

enum { MAX_PAGES = 6, MAX_Q = 40, P = MTX_PAGE_TOKENS };

static uint64_t rng = 88172645463325252u;
static float uniform(void) {
  rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
  return (float)((double)(rng >> 11) / 4503599627370496.0 - 1.0);
}

typedef struct {
  mtx_kv_type type;
  int dk, dv, n_tokens, n_q, window;
  float softcap, slope, spread;
  bool sink;
} shape;

static size_t head_bytes(mtx_kv_type t, int n) {
  static const size_t size[] = {4, 2, 2, 1};
  size_t b = (size_t)n * P * size[t];
  if (t == MTX_KV_Q8_0) b += (size_t)((n + 31) / 32) * P * 4;
  return (b + 63) / 64 * 64;
}

typedef struct {
  uint8_t *page[MAX_PAGES];
  float k[MAX_PAGES * P * 80], v[MAX_PAGES * P * 80], q[MAX_Q * 80], out[MAX_Q * 80];
  mtx_attn_query query[MAX_Q];
  mtx_attn_tile tile;
} scene;

static void make(scene *s, const shape *h, const mtx_attn_kernels *kern) {
  size_t kb = head_bytes(h->type, h->dk), vb = head_bytes(h->type, h->dv);
  for (int i = 0; i < MAX_PAGES; i++) {
    s->page[i] = aligned_alloc(64, kb + vb);
    memset(s->page[i], 0, kb + vb);
  }
  for (int t = 0; t < h->n_tokens; t++) {
    for (int d = 0; d < h->dk; d++) s->k[t * h->dk + d] = uniform() * h->spread;
    for (int d = 0; d < h->dv; d++) s->v[t * h->dv + d] = uniform();
    kern->store(h->type, s->k + t * h->dk, s->v + t * h->dv, h->dk, h->dv, t % P, s->page[t / P], s->page[t / P] + kb);
  }
  for (int i = 0; i < h->n_q * h->dk; i++) s->q[i] = uniform();
  for (int i = 0; i < h->n_q; i++) {
    int64_t pos = h->n_tokens - 1 - (h->n_q - 1 - i) / 3;
    s->query[i] = (mtx_attn_query){.q = s->q + i * h->dk, .out = s->out + i * h->dv, .begin = h->window && pos + 1 > h->window ? pos + 1 - h->window : 0,
                                   .end = pos + 1, .pos = pos, .slope = h->slope, .sink = h->sink ? 0.7f : -INFINITY};
  }
  s->tile = (mtx_attn_tile){.type = h->type, .dk = h->dk, .dv = h->dv, .scale = 0.3f, .softcap = h->softcap, .pages = s->page, .v_off = kb,
                            .n = h->n_q, .query = s->query,
                            .scratch = aligned_alloc(64, (mtx_attn_scratch_floats(h->dk, h->dv, MAX_Q) * 4 + 63) / 64 * 64)};
}

static void drop(scene *s) {
  for (int i = 0; i < MAX_PAGES; i++) free(s->page[i]);
  free(s->tile.scratch);
}

static double reference(const scene *s, const shape *h, int i, int d) {
  const mtx_attn_query *q = &s->query[i];
  double sum = h->sink ? exp(0.7) : 0, out = 0;
  for (int64_t t = q->begin; t < q->end; t++) {
    double x = 0;
    for (int j = 0; j < h->dk; j++) x += (double)q->q[j] * s->k[t * h->dk + j];
    x *= 0.3f;
    if (h->softcap != 0) x = h->softcap * tanh(x / h->softcap);
    x -= h->slope * fabs((double)(q->pos - t));
    sum += exp(x);
    out += exp(x) * s->v[t * h->dv + d];
  }
  return out / sum;
}

static void check_shape(const shape *h) {
  static scene a, b;
  static const float tolerance[] = {2e-6f, 2e-3f, 2e-2f, 2e-2f};
  uint64_t seed = rng;
  make(&a, h, &mtx_attn_scalar);
  mtx_attn_scalar.tile(&a.tile);
  double worst = 0;
  for (int i = 0; i < h->n_q; i++)
    for (int d = 0; d < h->dv; d++) worst = fmax(worst, fabs(reference(&a, h, i, d) - a.out[i * h->dv + d]));
  // A score of hundreds carries its own rounding into the exponent.
  CHECK(worst <= tolerance[h->type] * fmax(1.0, h->spread), "type %d dk %d dv %d tokens %d: off by %g", h->type, h->dk, h->dv, h->n_tokens, worst);
#if defined(__x86_64__)
  static const struct { mtx_tier tier; const mtx_attn_kernels *kernels; } tiers[] = {{MTX_TIER_AVX2, &mtx_attn_avx2}, {MTX_TIER_AVX512, &mtx_attn_avx512}};
#else
  static const struct { mtx_tier tier; const mtx_attn_kernels *kernels; } tiers[] = {{MTX_TIER_NEON, &mtx_attn_neon}};
#endif
  for (int t = 0; t < (int)(sizeof tiers / sizeof *tiers); t++) {
    if (!mtx_tier_available(tiers[t].tier)) continue;
    rng = seed;
    make(&b, h, tiers[t].kernels);
    for (int i = 0; i < (h->n_tokens + P - 1) / P; i++)
      CHECK(memcmp(a.page[i], b.page[i], head_bytes(h->type, h->dk) + head_bytes(h->type, h->dv)) == 0, "tier %d stores other bytes", (int)tiers[t].tier);
    tiers[t].kernels->tile(&b.tile);
    CHECK(memcmp(a.out, b.out, (size_t)(h->n_q * h->dv) * 4) == 0, "tier %d type %d dk %d dv %d: other bits", (int)tiers[t].tier, h->type, h->dk, h->dv);
    for (int i = 0; i < h->n_q; i++) {  // alone
      mtx_attn_tile one = b.tile;
      float out[80];
      mtx_attn_query q = b.query[i];
      q.out = out;
      one.n = 1;
      one.query = &q;
      tiers[t].kernels->tile(&one);
      CHECK(memcmp(out, b.out + i * h->dv, (size_t)h->dv * 4) == 0, "query %d differs alone", i);
    }
    drop(&b);
  }
  drop(&a);
}

int main(void) {
  mtx_kern_init(MTX_TIER_AMX);
  static const int dims[][2] = {{64, 64}, {8, 8}, {80, 24}, {48, 32}, {33, 17}};
  static const int tokens[] = {1, 31, 32, 33, 100, 192};
  for (int type = 0; type < MTX_KV_N_TYPES; type++)
    for (int d = 0; d < 5; d++)
      for (int t = 0; t < 6; t++) {
        shape h = {.type = (mtx_kv_type)type, .dk = dims[d][0], .dv = dims[d][1], .n_tokens = tokens[t], .spread = 1.0f};
        int most = 3 * tokens[t];
        h.n_q = most < MAX_Q ? most : MAX_Q - d;
        check_shape(&h);
        h.window = 20;
        h.softcap = 5.0f;
        check_shape(&h);
        h.slope = 0.25f;
        h.softcap = 0.0f;
        h.sink = true;
        check_shape(&h);
      }
  shape extreme = {.type = MTX_KV_F32, .dk = 64, .dv = 64, .n_tokens = 100, .n_q = 24, .spread = 200.0f};
  check_shape(&extreme);
  return check_report();
}
