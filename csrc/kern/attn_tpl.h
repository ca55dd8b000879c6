// SPDX-License-Identifier: MIT
// Body of the attention kernels, included after a tier's lanes.h (see attn.h).
// ATTN_ROWS: queries that share the loads of one pass (register budget);
// ATTN_VARIANTS: the functions for 1 to ATTN_ROWS queries and their tables.
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kern/attn.h"
#include "kern/lane_math.h"

enum { P = MTX_PAGE_TOKENS };

static inline int round16(int n) { return (n + 15) / 16 * 16; }

// ---- pages to floats -----------------------------------------------------------

static inline void q8_lanes(const int8_t *q, const float *scale, float *dst) {
  for (int i = 0; i < 16; i++) dst[i] = (float)q[i] * scale[i];
}

// K of one head as [dk][P] floats; F32 pages are used in place.
static const float *load_k(mtx_kv_type type, const uint8_t *src, int dk, float *dst) {
  int n = dk * P;
  switch (type) {
    case MTX_KV_F32: return (const float *)src;
    case MTX_KV_F16:
      for (int i = 0; i < n; i += 16) vf_store(dst + i, vf_load_f16((const uint16_t *)src + i));
      break;
    case MTX_KV_BF16:
      for (int i = 0; i < n; i += 16) vf_store(dst + i, vf_load_bf16((const uint16_t *)src + i));
      break;
    default: {
      const float *scale = (const float *)(src + n);
      for (int d = 0; d < dk; d++)
        for (int j = 0; j < P; j += 16)
          q8_lanes((const int8_t *)src + d * P + j, scale + d / 32 * P + j, dst + d * P + j);
    }
  }
  return dst;
}

// Tokens [j0, j1) of V as rows of dvp floats, padded with zeros.
static const float *load_v(mtx_kv_type type, const uint8_t *src, int dv, int j0, int j1, float *dst) {
  int dvp = round16(dv), nb = (dv + 31) / 32;
  if (type == MTX_KV_F32 && dv == dvp) return (const float *)src;
  const float *scale = (const float *)(src + (size_t)P * (size_t)dv);
  for (int j = j0; j < j1; j++) {
    float *row = dst + j * dvp;
    int d = 0;
    if (type == MTX_KV_F16)
      for (; d + 16 <= dv; d += 16) vf_store(row + d, vf_load_f16((const uint16_t *)src + j * dv + d));
    for (; d < dv; d++) {
      size_t i = (size_t)j * (size_t)dv + (size_t)d;
      row[d] = type == MTX_KV_F32    ? ((const float *)src)[i]
               : type == MTX_KV_F16  ? mtx_f16_to_f32(((const uint16_t *)src)[i])
               : type == MTX_KV_BF16 ? mtx_bf16_to_f32(((const uint16_t *)src)[i])
                                     : (float)((const int8_t *)src)[i] * scale[j * nb + d / 32];
    }
    for (; d < dvp; d++) row[d] = 0.0f;
  }
  return dst;
}

static size_t k_bytes(const mtx_attn_tile *t) {
  static const size_t size[MTX_KV_N_TYPES] = {4, 2, 2, 1};
  return (size_t)t->dk * P * size[t->type];
}

// Asks for the next page while this one is unpacked: pages lie anywhere, so the
// hardware cannot guess them.
static void prefetch_page(const mtx_attn_tile *t, const uint8_t *base) {
  size_t nk = k_bytes(t), nv = nk / (size_t)t->dk * (size_t)t->dv;
  for (size_t i = 0; i < nk; i += 64) __builtin_prefetch(base + t->k_off + i, 0, 2);
  for (size_t i = 0; i < nv; i += 64) __builtin_prefetch(base + t->v_off + i, 0, 2);
}

// ---- scores and values -----------------------------------------------------------

// s[r][0..P) = q_r . k for R queries: R x 2 accumulators, d in order.
// ASK(k): what is loaded from memory is asked for in the page `ahead` bytes on.
#define SCORES_AS(NAME, R, T, LOAD, ASK)                                                \
  static void NAME##_##R(const float *const *q, const T *k, int dk, float *s, intptr_t ahead) { \
    vf a[R], b[R];                                                                     \
    for (int r = 0; r < R; r++) a[r] = b[r] = vf_zero();                            \
    for (int d = 0; d < dk; d++) {                                                      \
      vf k0 = LOAD(k + d * P), k1 = LOAD(k + d * P + 16);                               \
      ASK(k + d * P);                                                                   \
      for (int r = 0; r < R; r++) {                                                     \
        vf x = vf_set1(q[r][d]);                                                       \
        a[r] = vf_fma(x, k0, a[r]);                                                    \
        b[r] = vf_fma(x, k1, b[r]);                                                    \
      }                                                                                 \
    }                                                                                   \
    for (int r = 0; r < R; r++) vf_store(s + r * P, a[r]), vf_store(s + r * P + 16, b[r]); \
  }

// o[r] = o[r] * corr[r] + sum over j in [j0, j1) of p[r][j] * v[j], j in order, for
// N x 16 floats of R rows at a time: R x N accumulators.
#define VALUES_PART(R, N, T, LOAD, ASK)                                                         \
  for (; d + 16 * N <= dvp; d += 16 * N) {                                                   \
    vf a[R][N];                                                                             \
    for (int r = 0; r < R; r++)                                                              \
      for (int i = 0; i < N; i++) a[r][i] = vf_mul(vf_load(o[r] + d + 16 * i), vf_set1(corr[r])); \
    for (int j = j0; j < j1; j++) {                                                          \
      const T *row = v + j * dvp + d;                                                        \
      vf x[N];                                                                              \
      for (int i = 0; i < N; i++) x[i] = LOAD(row + 16 * i);                             \
      for (int i = 0; i < N; i += 2) ASK(row + 16 * i);                                      \
      for (int r = 0; r < R; r++) {                                                          \
        vf w = vf_set1(p[r * P + j]);                                                       \
        for (int i = 0; i < N; i++) a[r][i] = vf_fma(w, x[i], a[r][i]);                     \
      }                                                                                      \
    }                                                                                        \
    for (int r = 0; r < R; r++)                                                              \
      for (int i = 0; i < N; i++) vf_store(o[r] + d + 16 * i, a[r][i]);                     \
  }

#define VALUES_AS(NAME, R, N, T, LOAD, ASK)                                                                            \
  static void NAME##_##R(const float *p, const T *v, int dvp, int j0, int j1, const float *corr, float *const *o, intptr_t ahead) { \
    int d = 0;                                                                                                         \
    VALUES_PART(R, N, T, LOAD, ASK)                                                                                    \
    VALUES_PART(R, 1, T, LOAD, ASK)                                                                                    \
  }

// On floats, and straight from half-precision pages: when one pass is all that a
// page is needed for (decoding), unpacking it first would cost more than it saves.
// What is asked for goes to the second-level cache: the few lines that may be under way to the first
// are the limit otherwise, and decoding over 500 tokens took 1.7 times as long (Zen 4).
#define ASK_NOT(p) (void)ahead
#define ASK_AHEAD(p) __builtin_prefetch((const void *)((intptr_t)(p) + ahead), 0, 2)
#define SCORES(R) SCORES_AS(scores, R, float, vf_load, ASK_NOT) SCORES_AS(scores_f16, R, uint16_t, vf_load_f16, ASK_AHEAD)
#define VALUES(R, N) VALUES_AS(values, R, N, float, vf_load, ASK_NOT) VALUES_AS(values_f16, R, N, uint16_t, vf_load_f16, ASK_AHEAD)

typedef void (*scores_fn)(const float *const *q, const float *k, int dk, float *s, intptr_t ahead);
typedef void (*values_fn)(const float *p, const float *v, int dvp, int j0, int j1, const float *corr, float *const *o, intptr_t ahead);
typedef void (*scores_f16_fn)(const float *const *q, const uint16_t *k, int dk, float *s, intptr_t ahead);
typedef void (*values_f16_fn)(const float *p, const uint16_t *v, int dvp, int j0, int j1, const float *corr, float *const *o, intptr_t ahead);

ATTN_VARIANTS

// ---- one tile --------------------------------------------------------------------

// What a query carries from page to page: the largest score, and the sum of
// probabilities lane by lane (added up once, at the end).
typedef struct {
  float m;
  float *sum;
} row_state;

static inline vf softcap16(vf s, float cap) { return vf_mul(vf_set1(cap), v_tanh(vf_div(s, vf_set1(cap)))); }

static inline vf iota(int base) {
  float f[16];
  for (int i = 0; i < 16; i++) f[i] = (float)(base + i);
  return vf_load(f);
}

// Turns raw scores of the page that starts at token t0 into probabilities relative
// to the running maximum; tokens outside [lo, hi) get exactly 0. Returns the factor
// that older sums must be multiplied by.
static float soften(const mtx_attn_tile *t, const mtx_attn_query *q, int64_t t0, int lo, int hi, float *s, row_state *st) {
  vf x[2];
  const vf none = vf_set1(-INFINITY);
  for (int h = 0; h < 2; h++) {
    x[h] = vf_mul(vf_load(s + 16 * h), vf_set1(t->scale));
    if (t->softcap != 0.0f) x[h] = softcap16(x[h], t->softcap);
    if (q->slope == 0.0f && lo == 0 && hi == P) continue;
    vf idx = iota(16 * h);
    if (q->slope != 0.0f) {
      vf dist = vf_sub(idx, vf_set1((float)(q->pos - t0)));
      dist = vf_abs(dist);
      x[h] = vf_fma(vf_set1(-q->slope), dist, x[h]);
    }
    x[h] = vf_sel_lt(idx, vf_set1((float)hi), x[h], none);
    x[h] = vf_sel_lt(idx, vf_set1((float)lo), none, x[h]);
  }
  float page_max = lanes_max(vf_max(x[0], x[1]));
  float m = page_max > st->m ? page_max : st->m;
  // A row of -inf scores (or NaN) keeps m at -inf: subtracting it would make NaN of nothing.
  float ref = m == -INFINITY ? 0.0f : m;
  vf p0 = v_exp(vf_sub(x[0], vf_set1(ref))), p1 = v_exp(vf_sub(x[1], vf_set1(ref)));
  vf_store(s, p0);
  vf_store(s + 16, p1);
  vf sum = vf_add(p0, p1);
  if (m == st->m) {
    vf_store(st->sum, vf_add(vf_load(st->sum), sum));
    return 1.0f;
  }
  float corr[16];
  vf_store(corr, v_exp(vf_set1(st->m == -INFINITY ? -INFINITY : st->m - ref)));
  vf_store(st->sum, vf_fma(vf_load(st->sum), vf_set1(corr[0]), sum));
  st->m = m;
  return corr[0];
}

// A page against n <= ATTN_ROWS queries, each of which sees part [lo, hi) of it.
// The part all see is done together; what only some see comes before or after it,
// so every query adds its tokens in order and touches no token it does not see.
// The page's keys and values are floats (k, v), or half floats (k16, v16) when k is NULL.
static void page_rows(const mtx_attn_tile *t, int r0, int n, const float *k, const float *v, const uint16_t *k16, const uint16_t *v16, intptr_t ahead, int64_t t0,
                      const int *lo, const int *hi, row_state *st, float *s, float *o, int dvp) {
  const float *q[ATTN_ROWS];
  float *row[ATTN_ROWS], corr[ATTN_ROWS];
  int all_lo = 0, all_hi = P;
  for (int i = 0; i < n; i++) {
    q[i] = t->query[r0 + i].q;
    row[i] = o + (size_t)(r0 + i) * (size_t)dvp;
    if (lo[i] > all_lo) all_lo = lo[i];
    if (hi[i] < all_hi) all_hi = hi[i];
  }
  if (all_hi < all_lo) all_hi = all_lo;
  if (k) scores_of[n - 1](q, k, t->dk, s, 0);
  else scores_f16_of[n - 1](q, k16, t->dk, s, ahead);
  for (int i = 0; i < n; i++) {
    corr[i] = soften(t, &t->query[r0 + i], t0, lo[i], hi[i], s + i * P, &st[r0 + i]);
    if (lo[i] < all_lo) {
      int to = hi[i] < all_lo ? hi[i] : all_lo;
      if (v) values_1(s + i * P, v, dvp, lo[i], to, &corr[i], &row[i], 0);
      else values_f16_1(s + i * P, v16, dvp, lo[i], to, &corr[i], &row[i], ahead);
      corr[i] = 1.0f;
    }
  }
  if (all_lo < all_hi) {
    if (v) values_of[n - 1](s, v, dvp, all_lo, all_hi, corr, row, 0);
    else values_f16_of[n - 1](s, v16, dvp, all_lo, all_hi, corr, row, ahead);
    for (int i = 0; i < n; i++) corr[i] = 1.0f;
  }
  for (int i = 0; i < n; i++) {
    int from = lo[i] > all_hi ? lo[i] : all_hi;
    if (from >= hi[i]) continue;
    if (v) values_1(s + i * P, v, dvp, from, hi[i], &corr[i], &row[i], 0);
    else values_f16_1(s + i * P, v16, dvp, from, hi[i], &corr[i], &row[i], ahead);
  }
}

static inline int clamp_page(int64_t x) { return x < 0 ? 0 : x > P ? P : (int)x; }

static void tile(const mtx_attn_tile *t) {
  int dvp = round16(t->dv);
  float *kbuf = t->scratch, *vbuf = kbuf + (size_t)t->dk * P, *s = vbuf + (size_t)dvp * P, *o = s + (size_t)t->n * P;
  row_state st[MTX_ATTN_MAX_TILE];
  bool direct = t->type == MTX_KV_F16 && t->dv == dvp && t->n <= 2 * ATTN_ROWS;
  int64_t first = INT64_MAX, last = 0;
  for (int r = 0; r < t->n; r++) {
    const mtx_attn_query *q = &t->query[r];
    st[r] = (row_state){q->sink, o + (size_t)t->n * (size_t)dvp + (size_t)r * 16};
    memset(st[r].sum, 0, 16 * sizeof(float));
    if (q->sink != -INFINITY) st[r].sum[0] = 1.0f;
    memset(o + (size_t)r * (size_t)dvp, 0, (size_t)dvp * sizeof *o);
    if (q->begin < first) first = q->begin;
    if (q->end > last) last = q->end;
  }
  for (int64_t page = first / P; page * P < last; page++) {
    const uint8_t *base = t->pages[page];
    int64_t t0 = page * P;
    const uint8_t *next = t0 + P < last ? t->pages[page + 1] : t->then ? t->then : base;
    intptr_t ahead = (intptr_t)next - (intptr_t)base;
    if (!direct && next != base) prefetch_page(t, next);
    const uint16_t *k16 = (const uint16_t *)(base + t->k_off), *v16 = (const uint16_t *)(base + t->v_off);
    const float *k = direct ? NULL : load_k(t->type, base + t->k_off, t->dk, kbuf);
    const float *v = direct ? NULL : load_v(t->type, base + t->v_off, t->dv, clamp_page(first - t0), clamp_page(last - t0), vbuf);
    int lo[ATTN_ROWS] = {0}, hi[ATTN_ROWS] = {0}, n = 0, r0 = 0;
    for (int r = 0; r <= t->n; r++) {
      int a = 0, b = 0;
      if (r < t->n) a = clamp_page(t->query[r].begin - t0), b = clamp_page(t->query[r].end - t0);
      if (n > 0 && (n == ATTN_ROWS || a >= b)) {
        page_rows(t, r0, n, k, v, k16, v16, ahead, t0, lo, hi, st, s, o, dvp);
        n = 0;
      }
      if (a >= b) continue;
      if (n == 0) r0 = r;
      lo[n] = a;
      hi[n++] = b;
    }
  }
  for (int r = 0; r < t->n; r++) {
    float inv = 1.0f / lanes_sum(vf_load(st[r].sum));
    const float *src = o + (size_t)r * (size_t)dvp;
    for (int d = 0; d < t->dv; d++) t->query[r].out[d] = src[d] * inv;
  }
}

// ---- storing ---------------------------------------------------------------------

static void store_q8(const float *x, int n, int8_t *q, size_t q_step, float *scale, size_t scale_step) {
  for (int b = 0; b < n; b += 32) {
    int m = n - b < 32 ? n - b : 32;
    float amax = 0.0f;
    for (int i = 0; i < m; i++) amax = fmaxf(amax, fabsf(x[b + i]));
    float d = amax / 127.0f, inv = amax > 0.0f ? 127.0f / amax : 0.0f;
    scale[(size_t)(b / 32) * scale_step] = d;
    for (int i = 0; i < m; i++) {
      float y = nearbyintf(x[b + i] * inv);
      q[(size_t)(b + i) * q_step] = (int8_t)(y >= -127.0f && y <= 127.0f ? y : 0.0f);
    }
  }
}

static void store(mtx_kv_type type, const float *k, const float *v, int dk, int dv, int slot, uint8_t *page_k, uint8_t *page_v) {
  switch (type) {
    case MTX_KV_F32:
      for (int d = 0; d < dk; d++) ((float *)page_k)[d * P + slot] = k[d];
      memcpy((float *)page_v + (size_t)slot * (size_t)dv, v, (size_t)dv * sizeof *v);
      break;
    case MTX_KV_F16: {
      uint16_t h[16], *kd = (uint16_t *)page_k, *vd = (uint16_t *)page_v + (size_t)slot * (size_t)dv;
      int d = 0;
      for (; d + 16 <= dk; d += 16) {
        vf_store_f16(h, vf_load(k + d));
        for (int i = 0; i < 16; i++) kd[(d + i) * P + slot] = h[i];
      }
      for (; d < dk; d++) kd[d * P + slot] = mtx_f32_to_f16(k[d]);
      for (d = 0; d + 16 <= dv; d += 16) vf_store_f16(vd + d, vf_load(v + d));
      for (; d < dv; d++) vd[d] = mtx_f32_to_f16(v[d]);
      break;
    }
    case MTX_KV_BF16:
      for (int d = 0; d < dk; d++) ((uint16_t *)page_k)[d * P + slot] = mtx_f32_to_bf16(k[d]);
      for (int d = 0; d < dv; d++) ((uint16_t *)page_v)[slot * dv + d] = mtx_f32_to_bf16(v[d]);
      break;
    default:
      store_q8(k, dk, (int8_t *)page_k + slot, P, (float *)(page_k + (size_t)dk * P) + slot, P);
      store_q8(v, dv, (int8_t *)page_v + (size_t)slot * (size_t)dv, 1, (float *)(page_v + (size_t)dv * P) + (size_t)slot * (size_t)((dv + 31) / 32), 1);
  }
}
