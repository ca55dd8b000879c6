// SPDX-License-Identifier: MIT
// Stages that cut candidates or scale all logits: see sample.h for their options.
#include <math.h>

#include "sample/real.h"
#include "sample/work.h"

// Keeps candidates whose p (of sum 1) is at least `least`; the best one always stays.
static void keep_likely(mtx_sample_work *w, double least) {
  double p = least * w->sum;
  if (p > 1e-300) mtx_work_keep_above(w, mtx_work_best(w), w->max + mtx_log(p));
}

// A heap of the k best so far, worst on top: almost every candidate costs one comparison.
static void top_k_heap(mtx_sample_work *w, int32_t k) {
  float *heap = w->key;
  int32_t n = 0, n_equal = 0;
  for (int32_t i = 0; i < w->n; i++) {
    float v = w->x[i];
    if (n == k && v <= heap[0]) continue;
    int32_t at;
    if (n < k) {  // sift up
      for (at = n++; at > 0 && heap[(at - 1) / 2] > v; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    } else {      // replace the worst, sift down
      for (at = 0;;) {
        int32_t c = 2 * at + 1;
        if (c + 1 < n && heap[c + 1] < heap[c]) c++;
        if (c >= n || heap[c] >= v) break;
        heap[at] = heap[c];
        at = c;
      }
    }
    heap[at] = v;
  }
  float kth = heap[0];
  for (int32_t i = 0; i < n; i++) n_equal += heap[i] == kth;
  mtx_work_cut(w, w->x, (mtx_cut){mtx_float_key(kth), n_equal});
}

static void top_k(mtx_sample_work *w, int32_t k) {
  if (k <= 0 || k >= w->n) return;
  if (k == 1) mtx_work_keep_best(w);
  else if (k <= 256) top_k_heap(w, k);
  else mtx_work_cut(w, w->x, mtx_select(w->bucket, w->x, NULL, w->n, k));
}

static void top_p(mtx_sample_work *w, double p) {
  if (p >= 1) return;
  mtx_work_softmax(w);
  mtx_work_cut(w, w->x, mtx_select(w->bucket, w->x, w->p, w->n, p * w->sum));
}

static void typical_p(mtx_sample_work *w, double p) {
  if (p >= 1) return;
  mtx_work_softmax(w);
  double h = mtx_work_entropy(w), log_sum = mtx_log(w->sum);
  for (int32_t i = 0; i < w->n; i++) w->key[i] = -(float)fabs((double)w->x[i] - w->max - log_sum + h);
  mtx_work_cut(w, w->key, mtx_select(w->bucket, w->key, w->p, w->n, p * w->sum));
}

static void min_p(mtx_sample_work *w, double p) {
  if (p <= 0) return;
  if (p >= 1) {
    mtx_work_keep_best(w);
  } else {
    int32_t best = mtx_work_best(w);
    mtx_work_keep_above(w, best, w->x[best] + mtx_log(p));
  }
}

static void top_n_sigma(mtx_sample_work *w, double n) {
  if (n <= 0) return;
  double sum = 0, sum2 = 0;
  int32_t count = 0;
  for (int32_t i = 0; i < w->n; i++)
    if (w->x[i] > -INFINITY) sum += w->x[i], count++;
  double mean = sum / count;
  for (int32_t i = 0; i < w->n; i++)
    if (w->x[i] > -INFINITY) sum2 += (w->x[i] - mean) * (w->x[i] - mean);
  int32_t best = mtx_work_best(w);
  mtx_work_keep_above(w, best, w->x[best] - n * sqrt(sum2 / count));
}

static void top_a(mtx_sample_work *w, double a) {
  if (a <= 0) return;
  mtx_work_softmax(w);
  keep_likely(w, a / (w->sum * w->sum));  // max(p) = 1 / sum
}

static void epsilon(mtx_sample_work *w, double e) {
  if (e <= 0) return;
  mtx_work_softmax(w);
  keep_likely(w, e);
}

static void eta(mtx_sample_work *w, double e) {
  if (e <= 0) return;
  mtx_work_softmax(w);
  double bound = sqrt(e) * mtx_exp(-mtx_work_entropy(w));
  keep_likely(w, e < bound ? e : bound);
}

// With the given probability: of the tokens at or above the threshold only the least likely stays.
static void xtc(mtx_sampler *s, mtx_sample_work *w) {
  if (s->o.xtc_probability <= 0 || s->o.xtc_threshold > 0.5) return;
  if (mtx_rng_unit(&s->rng) >= s->o.xtc_probability) return;
  mtx_work_softmax(w);
  double bound = s->o.xtc_threshold * w->sum;
  int32_t least = -1, n_above = 0, n = 0;
  for (int32_t i = 0; i < w->n; i++) {
    if (w->p[i] < bound) continue;
    n_above++;
    if (least < 0 || w->p[i] < w->p[least]) least = i;
  }
  if (n_above < 2) return;
  for (int32_t i = 0; i < w->n; i++)
    if (w->p[i] < bound || i == least) mtx_work_move(w, n++, i);
  mtx_work_shrink(w, n);
}

static void temperature(mtx_sampler *s, mtx_sample_work *w) {
  double t = s->o.temperature;
  if (s->o.dynatemp_range > 0 && w->n > 1) {
    double low = t - s->o.dynatemp_range > 0 ? t - s->o.dynatemp_range : 0, high = t + s->o.dynatemp_range;
    mtx_work_softmax(w);
    int32_t n = 0;
    for (int32_t i = 0; i < w->n; i++) n += w->p[i] > 0;
    double share = n > 1 ? mtx_work_entropy(w) / mtx_log(n) : 0;
    t = low + (high - low) * mtx_pow(share, s->o.dynatemp_exponent);
    if (t < 1e-6) {
      mtx_work_keep_best(w);
      return;
    }
  }
  if (t == 1) return;
  double max = w->x[mtx_work_best(w)], origin = fabs(max) / t > 1e30 ? max : 0;  // a tiny t must not overflow
  for (int32_t i = 0; i < w->n; i++) w->x[i] = (float)(((double)w->x[i] - origin) / t);
}

void mtx_stage_cut(mtx_sampler *s, mtx_sample_work *w, mtx_stage stage) {
  const mtx_sampler_opts *o = &s->o;
  switch (stage) {
    case MTX_STAGE_TOP_N_SIGMA: top_n_sigma(w, o->top_n_sigma); break;
    case MTX_STAGE_TOP_K: top_k(w, o->top_k); break;
    case MTX_STAGE_TYPICAL_P: typical_p(w, o->typical_p); break;
    case MTX_STAGE_TOP_P: top_p(w, o->top_p); break;
    case MTX_STAGE_MIN_P: min_p(w, o->min_p); break;
    case MTX_STAGE_TOP_A: top_a(w, o->top_a); break;
    case MTX_STAGE_EPSILON: epsilon(w, o->epsilon); break;
    case MTX_STAGE_ETA: eta(w, o->eta); break;
    case MTX_STAGE_XTC: xtc(s, w); break;
    case MTX_STAGE_TEMPERATURE: temperature(s, w); break;
    default: break;
  }
}
