// SPDX-License-Identifier: MIT
// The end of the chain: one candidate is drawn.
#include <math.h>
#include <stdlib.h>

#include "sample/real.h"
#include "sample/work.h"

// By the p of the candidates, added up in order of id.
static int32_t draw(mtx_sampler *s, const mtx_sample_work *w) {
  double u = mtx_rng_unit(&s->rng) * w->sum, sum = 0;
  int32_t last = 0;
  for (int32_t i = 0; i < w->n; i++) {
    if (w->p[i] <= 0) continue;
    sum += w->p[i];
    last = i;
    if (sum > u) return i;
  }
  return last;
}

int32_t mtx_draw_plain(mtx_sampler *s, mtx_sample_work *w) {
  mtx_work_softmax(w);
  return draw(s, w);
}

static double surprise(const mtx_sample_work *w, int32_t i) {  // bits
  return -((double)w->x[i] - w->max - mtx_log(w->sum)) * 1.4426950408889634;
}

static int falling(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x < y) - (x > y);
}

// Mirostat 1: estimates Zipf's exponent from the 100 most likely tokens and from
// it the k whose expected surprise is mu.
static void cut_mirostat1(mtx_sampler *s, mtx_sample_work *w) {
  enum { M = 100 };
  double p[M + 1], num = 0, den = 0;
  int32_t m = 0, want = w->n < M ? w->n : M;
  mtx_cut cut = mtx_select(w->bucket, w->x, NULL, w->n, want);
  for (int32_t i = 0; i < w->n && m < want; i++) {
    uint32_t k = mtx_float_key(w->x[i]);
    if (k < cut.key || (k == cut.key && cut.n_ties-- <= 0)) continue;
    p[m++] = w->p[i];
  }
  qsort(p, (size_t)m, sizeof *p, falling);
  for (int32_t i = 0; i + 1 < m && p[i + 1] > 0; i++) {
    double t = mtx_log((double)(i + 2) / (i + 1)), b = mtx_log(p[i] / p[i + 1]);
    num += t * b;
    den += t * t;
  }
  double zipf = den > 0 ? num / den : 1, e = zipf - 1, k = w->n;
  if (zipf > 0 && e != 0) {
    double v = e * mtx_pow(2, s->mu) / (1 - mtx_pow(s->n_vocab, -e));
    k = v > 0 ? mtx_pow(v, 1 / zipf) : 1;
  }
  if (!(k < w->n)) return;
  int32_t keep = k < 1 ? 1 : (int32_t)k;
  mtx_work_cut(w, w->x, mtx_select(w->bucket, w->x, NULL, w->n, keep));
}

// Mirostat 2: removes what surprises more than mu.
static void cut_mirostat2(mtx_sampler *s, mtx_sample_work *w) {
  mtx_work_keep_above(w, mtx_work_best(w), w->max + mtx_log(w->sum) - s->mu * 0.6931471805599453);
}

int32_t mtx_draw_mirostat(mtx_sampler *s, mtx_sample_work *w) {
  mtx_work_softmax(w);
  if (s->o.mirostat == 1) cut_mirostat1(s, w);
  else cut_mirostat2(s, w);
  mtx_work_softmax(w);
  int32_t i = draw(s, w);
  s->mu -= s->o.mirostat_eta * (surprise(w, i) - s->o.mirostat_tau);
  return i;
}

static double clamp01(double v) { return v < 0 ? 0 : v > 1 ? 1 : v; }

// Adaptive-p: prefers candidates whose probability is near a target, which moves
// against the mean of what was drawn lately. Curve and constants (width 0.3,
// peak 5, sharpness 10) as published with llama.cpp's sampler of that name.
int32_t mtx_draw_adaptive(mtx_sampler *s, mtx_sample_work *w) {
  mtx_work_softmax(w);
  double sum = w->sum, max = w->max;
  double target = clamp01(2 * s->o.adaptive_target - s->ema_sum / s->ema_weight);
  for (int32_t i = 0; i < w->n; i++) {
    double d = fabs(w->p[i] / sum - target) / 0.3;
    w->key[i] = w->x[i];
    if (w->p[i] > 0) w->x[i] = (float)(5 - 10 * d * d / (1 + d));
  }
  mtx_work_softmax(w);
  int32_t i = draw(s, w);
  s->ema_sum = mtx_exp((double)w->key[i] - max) / sum + s->o.adaptive_decay * s->ema_sum;
  s->ema_weight = 1 + s->o.adaptive_decay * s->ema_weight;
  return i;
}
