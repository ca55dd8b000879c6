// SPDX-License-Identifier: MIT
// Candidates of a row: selection without sorting, softmax, cuts.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sample/real.h"
#include "sample/work.h"

// Three digits of 11, 11 and 10 bits: each pass adds up weights per digit among
// the keys that match the digits found so far, then walks down from the top.
mtx_cut mtx_select(double bucket[2048], const float *key, const double *w, int32_t n, double target) {
  static const int shift[3] = {21, 10, 0}, width[3] = {11, 11, 10};
  uint32_t prefix = 0, mask = 0;
  double above = 0;
  for (int d = 0; d < 3; d++) {
    int size = 1 << width[d];
    memset(bucket, 0, (size_t)size * sizeof *bucket);
    for (int32_t i = 0; i < n; i++) {
      uint32_t k = mtx_float_key(key[i]);
      if ((k & mask) == prefix) bucket[(k >> shift[d]) & (uint32_t)(size - 1)] += w ? w[i] : 1;
    }
    int at = size - 1, last = -1;
    for (; at >= 0; at--) {
      if (bucket[at] <= 0) continue;
      last = at;
      if (above + bucket[at] >= target) break;
      above += bucket[at];
    }
    if (at < 0) {  // rounding: the whole weight is below the target
      at = last < 0 ? 0 : last;
      above -= bucket[at];
    }
    prefix |= (uint32_t)at << shift[d];
    mask |= (uint32_t)(size - 1) << shift[d];
  }
  mtx_cut cut = {prefix, 0};
  for (int32_t i = 0; i < n; i++) {
    if (mtx_float_key(key[i]) != prefix) continue;
    cut.n_ties++;
    above += w ? w[i] : 1;
    if (above >= target) break;
  }
  return cut;
}

void mtx_work_cut(mtx_sample_work *w, const float *key, mtx_cut cut) {
  int32_t n = 0;
  for (int32_t i = 0; i < w->n; i++) {
    uint32_t k = mtx_float_key(key[i]);
    if (k < cut.key || (k == cut.key && cut.n_ties-- <= 0)) continue;
    mtx_work_move(w, n++, i);
  }
  mtx_work_shrink(w, n);
}

void mtx_work_keep_above(mtx_sample_work *w, int32_t best, double bound) {
  int32_t n = 0;
  for (int32_t i = 0; i < w->n; i++)
    if ((double)w->x[i] >= bound || i == best) mtx_work_move(w, n++, i);
  mtx_work_shrink(w, n);
}

// In sixteen lanes: one chain of comparisons would wait for each of them.
static float max_of(const float *x, int32_t n) {
  float m[16], max = -INFINITY;
  int32_t i = 0;
  for (int k = 0; k < 16; k++) m[k] = -INFINITY;
  for (; i + 16 <= n; i += 16)
    for (int k = 0; k < 16; k++) m[k] = x[i + k] > m[k] ? x[i + k] : m[k];
  for (; i < n; i++) max = x[i] > max ? x[i] : max;
  for (int k = 0; k < 16; k++) max = m[k] > max ? m[k] : max;
  return max;
}

float mtx_work_max(const mtx_sample_work *w) { return max_of(w->x, w->n); }

// Two passes: the first one vectorises, the second ends early.
int32_t mtx_work_best(const mtx_sample_work *w) {
  float max = mtx_work_max(w);
  int32_t best = 0;
  while (best + 1 < w->n && w->x[best] != max) best++;
  return best;
}

void mtx_work_keep_best(mtx_sample_work *w) {
  mtx_work_move(w, 0, mtx_work_best(w));
  w->p[0] = 1;
  mtx_work_shrink(w, 1);
}

float *mtx_work_find(mtx_sample_work *w, int32_t id) {
  if (w->n == w->n_vocab) return &w->x[id];
  int32_t lo = 0, hi = w->n;
  while (lo < hi) {
    int32_t mid = lo + (hi - lo) / 2;
    if (w->id[mid] < id) lo = mid + 1;
    else hi = mid;
  }
  return lo < w->n && w->id[lo] == id ? &w->x[lo] : NULL;
}

void mtx_work_softmax(mtx_sample_work *w) {
  w->max = mtx_work_max(w);
  for (int32_t i = 0; i < w->n; i++) w->p[i] = mtx_exp((double)w->x[i] - w->max);
  w->sum = 0;
  for (int32_t i = 0; i < w->n; i++) w->sum += w->p[i];
}

double mtx_work_entropy(const mtx_sample_work *w) {
  double h = 0, log_sum = mtx_log(w->sum);
  for (int32_t i = 0; i < w->n; i++)
    if (w->p[i] > 0) h -= w->p[i] * ((double)w->x[i] - w->max - log_sum);
  return h / w->sum;
}

// ---- work space ---------------------------------------------------------------

mtx_code mtx_sample_work_open(mtx_sample_work **out, int32_t n_vocab, mtx_err *err) {
  *out = NULL;
  if (n_vocab < 1) return mtx_fail(err, MTX_EINVAL, "a vocabulary of %d tokens cannot be sampled", n_vocab);
  mtx_sample_work *w = calloc(1, sizeof *w);
  size_t n = (size_t)n_vocab;
  if (w) {
    w->n_vocab = w->n = n_vocab;
    w->id = malloc(n * sizeof *w->id);
    w->x = malloc(n * sizeof *w->x);
    w->p = calloc(n, sizeof *w->p);
    w->key = malloc(n * sizeof *w->key);
    w->count = calloc(n, sizeof *w->count);
  }
  if (!w || !w->id || !w->x || !w->p || !w->key || !w->count) {
    mtx_sample_work_close(w);
    return mtx_fail(err, MTX_ENOMEM, "no memory to sample from %d tokens", n_vocab);
  }
  w->n_moved = n_vocab;
  *out = w;
  return MTX_OK;
}

void mtx_sample_work_close(mtx_sample_work *w) {
  if (!w) return;
  free(w->id);
  free(w->x);
  free(w->p);
  free(w->key);
  free(w->count);
  free(w->hist);
  free(w);
}

void mtx_sample_load(mtx_sample_work *w, const float *logits) {
  for (int32_t i = 0; i < w->n_moved; i++) w->id[i] = i;
  w->n_moved = 0;
  w->n = w->n_vocab;
  memcpy(w->x, logits, (size_t)w->n_vocab * sizeof *logits);
}

void mtx_sample_mask(mtx_sample_work *w, const uint64_t *bits) {
  for (int32_t base = 0; base < w->n_vocab; base += 64) {
    uint64_t word = bits[base / 64];
    if (word == ~(uint64_t)0) continue;
    int32_t n = w->n_vocab - base < 64 ? w->n_vocab - base : 64;
    for (int32_t i = 0; i < n; i++)
      if (!(word >> i & 1)) w->x[base + i] = -INFINITY;
  }
}

float *mtx_sample_row(mtx_sample_work *w) { return w->x; }

int32_t mtx_sample_candidates(const mtx_sample_work *w, const int32_t **ids, const double **p) {
  *ids = w->id;
  *p = w->p;
  return w->n;
}

// ---- log probabilities ----------------------------------------------------------

static int by_logprob(const void *a, const void *b) {
  const mtx_logprob *x = a, *y = b;
  if (x->logprob != y->logprob) return x->logprob > y->logprob ? -1 : 1;
  return (x->id > y->id) - (x->id < y->id);
}

// log of the sum of e^x; *max gets the largest. Uses w->p.
static double log_sum_exp(mtx_sample_work *w, const float *x, double *max) {
  double sum = 0;
  *max = max_of(x, w->n_vocab);
  for (int32_t i = 0; i < w->n_vocab; i++) w->p[i] = mtx_exp((double)x[i] - *max);
  for (int32_t i = 0; i < w->n_vocab; i++) sum += w->p[i];
  return mtx_log(sum);
}

void mtx_sample_guide(mtx_sample_work *w, const float *uncond, double scale) {
  double c_max, u_max, c_log = log_sum_exp(w, w->x, &c_max), u_log = log_sum_exp(w, uncond, &u_max);
  for (int32_t i = 0; i < w->n_vocab; i++) {
    double c = (double)w->x[i] - c_max - c_log, u = (double)uncond[i] - u_max - u_log;
    w->x[i] = (float)(u == -INFINITY || c == -INFINITY ? c : u + scale * (c - u));
  }
}

int32_t mtx_sample_logprobs(mtx_sample_work *w, const float *logits, int32_t token, double *logprob,
                            mtx_logprob *top, int32_t n) {
  double max, log_sum = log_sum_exp(w, logits, &max);
  if (logprob) *logprob = isfinite(logits[token]) ? (double)logits[token] - max - log_sum : -1e30;
  if (n > w->n_vocab) n = w->n_vocab;
  if (n <= 0) return 0;
  mtx_cut cut = mtx_select(w->bucket, logits, NULL, w->n_vocab, n);
  int32_t k = 0;
  for (int32_t i = 0; i < w->n_vocab && k < n; i++) {
    uint32_t key = mtx_float_key(logits[i]);
    if (key < cut.key || (key == cut.key && cut.n_ties-- <= 0)) continue;
    top[k++] = (mtx_logprob){i, isfinite(logits[i]) ? (double)logits[i] - max - log_sum : -1e30};
  }
  qsort(top, (size_t)k, sizeof *top, by_logprob);
  return k;
}
