// SPDX-License-Identifier: MIT
// Inside of sampling: the candidates of one row, and what stages do to them.
//
// Candidates stay in ascending order of id from the first stage to the draw;
// every stage removes some of them or changes their logits. Nothing is sorted:
// a cut is found by radix selection (select.c), so a stage is linear in the
// number of candidates.
#ifndef MTX_SAMPLE_WORK_H
#define MTX_SAMPLE_WORK_H

#include "sample/rng.h"
#include "sample/sample.h"

struct mtx_sample_work {
  int32_t n_vocab;
  int32_t n;           // candidates
  int32_t n_moved;     // id[0..n_moved) may differ from 0, 1, 2, ...
  int32_t *id;         // [n_vocab] ascending
  float *x;            // [n_vocab] logit
  double *p;           // [n_vocab] exp(x - max), not normalised
  double max, sum;     // of x; of p
  float *key;          // [n_vocab] scratch for selection
  int32_t *count;      // [n_vocab] zero between calls
  int32_t *hist;       // [n_hist] scratch as long as a history
  int64_t n_hist;
  double bucket[2048]; // weights of one radix digit
};

struct mtx_sampler {
  mtx_sampler_opts o;  // its pointers point to the copies below
  int32_t *breakers;   // sorted
  mtx_logit_bias *bias;
  mtx_rng rng;
  double mu;           // mirostat
  double ema_sum, ema_weight;  // adaptive-p
  int32_t n_vocab;
  int64_t n_prompt;    // history at the first pick; -1 before it
};

// Monotone map of floats to unsigned integers (no NaN; both zeros are one).
static inline uint32_t mtx_float_key(float f) {
  union { float f; uint32_t u; } v = {f + 0.0f};
  return v.u & 0x80000000u ? ~v.u : v.u | 0x80000000u;
}

typedef struct mtx_cut { uint32_t key; int32_t n_ties; } mtx_cut;

// Walks the n keys from the largest down, adding weights (1 each when w is NULL),
// until `target` is reached: kept are keys above cut.key and the first n_ties that
// equal it. At least one is kept.
mtx_cut mtx_select(double bucket[2048], const float *key, const double *w, int32_t n, double target);

void mtx_work_softmax(mtx_sample_work *w);       // fills max, p, sum
double mtx_work_entropy(const mtx_sample_work *w);  // nats, after softmax
float mtx_work_max(const mtx_sample_work *w);    // the largest logit; NaN is passed over
int32_t mtx_work_best(const mtx_sample_work *w); // its index, the first of equals

// The three ways candidates are kept.
void mtx_work_cut(mtx_sample_work *w, const float *key, mtx_cut cut);  // what the cut says
void mtx_work_keep_above(mtx_sample_work *w, int32_t best, double bound);  // logits >= bound, and index `best` whatever it is
void mtx_work_keep_best(mtx_sample_work *w);     // the largest logit alone, lowest id

// Candidate i becomes number n of those that stay (n <= i); then the rest goes.
static inline void mtx_work_move(mtx_sample_work *w, int32_t n, int32_t i) {
  w->id[n] = w->id[i];
  w->x[n] = w->x[i];
  w->p[n] = w->p[i];
}
static inline void mtx_work_shrink(mtx_sample_work *w, int32_t n) {
  if (w->n_moved < n) w->n_moved = n;
  w->n = n;
}

float *mtx_work_find(mtx_sample_work *w, int32_t id);  // its logit, NULL when no candidate

// Changes of single logits.
void mtx_stage_bias(mtx_sampler *s, mtx_sample_work *w, int64_t n_generated);
void mtx_stage_penalties(mtx_sampler *s, mtx_sample_work *w, const int32_t *history, int64_t n);
mtx_code mtx_stage_dry(mtx_sampler *s, mtx_sample_work *w, const int32_t *history, int64_t n, mtx_err *err);

// Every other stage.
void mtx_stage_cut(mtx_sampler *s, mtx_sample_work *w, mtx_stage stage);

// How the token is drawn at the end; returns an index of candidates.
int32_t mtx_draw_plain(mtx_sampler *s, mtx_sample_work *w);
int32_t mtx_draw_mirostat(mtx_sampler *s, mtx_sample_work *w);
int32_t mtx_draw_adaptive(mtx_sampler *s, mtx_sample_work *w);

#endif
