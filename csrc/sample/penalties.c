// SPDX-License-Identifier: MIT
// Stages that change the logits of single tokens: bias, repetition, DRY.
#include <math.h>
#include <stdlib.h>

#include "sample/work.h"

void mtx_stage_bias(mtx_sampler *s, mtx_sample_work *w, int64_t n_generated) {
  for (int32_t i = 0; i < s->o.n_logit_bias; i++) {
    if (s->bias[i].n_tokens && n_generated >= s->bias[i].n_tokens) continue;
    float *x = mtx_work_find(w, s->bias[i].id);
    if (x) *x += s->bias[i].bias;
  }
}

static const int32_t *last(const int32_t *history, int64_t *n, int32_t keep) {
  if (keep < 0 || *n <= keep) return history;
  history += *n - keep;
  *n = keep;
  return history;
}

void mtx_stage_penalties(mtx_sampler *s, mtx_sample_work *w, const int32_t *history, int64_t n) {
  const mtx_sampler_opts *o = &s->o;
  if (o->repeat_penalty == 1 && o->presence_penalty == 0 && o->frequency_penalty == 0) return;
  history = last(history, &n, o->repeat_last_n);
  for (int64_t i = 0; i < n; i++)
    if (history[i] >= 0 && history[i] < w->n_vocab) w->count[history[i]]++;
  for (int64_t i = 0; i < n; i++) {
    if (history[i] < 0 || history[i] >= w->n_vocab) continue;
    int32_t *count = &w->count[history[i]];
    if (!*count) continue;
    float *x = mtx_work_find(w, history[i]);
    if (x) {
      double v = *x > 0 ? *x / o->repeat_penalty : *x * o->repeat_penalty;
      *x = (float)(v - *count * o->frequency_penalty - o->presence_penalty);
    }
    *count = 0;
  }
}

static bool breaks(const mtx_sampler *s, int32_t token) {
  int32_t lo = 0, hi = s->o.n_dry_breakers;
  while (lo < hi) {
    int32_t mid = lo + (hi - lo) / 2;
    if (s->breakers[mid] < token) lo = mid + 1;
    else hi = mid;
  }
  return lo < s->o.n_dry_breakers && s->breakers[lo] == token;
}

// DRY (github.com/oobabooga/textgen pull 5677): a token that would prolong a
// repeat of the newest `len` tokens loses multiplier * base^(len - allowed).
// z[i] = how many of the newest tokens also stand before position i, newest
// first (the Z function of the reversed history), so all repeats cost one pass.
mtx_code mtx_stage_dry(mtx_sampler *s, mtx_sample_work *w, const int32_t *history, int64_t n, mtx_err *err) {
  const mtx_sampler_opts *o = &s->o;
  if (o->dry_multiplier <= 0) return MTX_OK;
  history = last(history, &n, o->dry_last_n);
  int64_t limit = 0;
  while (limit < n && !breaks(s, history[n - 1 - limit])) limit++;
  if (limit < o->dry_allowed_length || n < 2) return MTX_OK;
  if (w->n_hist < n) {
    int64_t cap = n * 2;
    int32_t *hist = realloc(w->hist, (size_t)cap * sizeof *hist);
    if (!hist) return mtx_fail(err, MTX_ENOMEM, "no memory for DRY over %lld tokens", (long long)n);
    w->hist = hist;
    w->n_hist = cap;
  }
  const int32_t *r = history + n - 1;  // r[-i] is the i-th newest
  int32_t *z = w->hist;
  int64_t left = 0, right = 0;
  for (int64_t i = 1; i < n; i++) {
    int64_t k = i < right ? (right - i < z[i - left] ? right - i : z[i - left]) : 0;
    while (i + k < n && r[-k] == r[-(i + k)]) k++;
    z[i] = (int32_t)k;
    if (i + k > right) left = i, right = i + k;
    int64_t len = k < limit ? k : limit;
    int32_t next = r[-(i - 1)];
    if (len >= o->dry_allowed_length && next >= 0 && next < w->n_vocab && len > w->count[next])
      w->count[next] = (int32_t)len;
  }
  for (int64_t i = 0; i < n; i++) {
    int32_t t = history[i];
    if (t < 0 || t >= w->n_vocab || !w->count[t]) continue;
    double penalty = o->dry_multiplier;
    for (int32_t e = w->count[t] - o->dry_allowed_length; e > 0 && penalty < 1e30; e--) penalty *= o->dry_base;
    float *x = mtx_work_find(w, t);
    if (x) *x = (float)(*x - penalty);
    w->count[t] = 0;
  }
  return MTX_OK;
}
