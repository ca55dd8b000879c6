// SPDX-License-Identifier: MIT
// From a row of logits to a token.
//
// A sampler is one request's options, random numbers and running state. Work
// space is shared by all samplers of a thread, so that nothing is allocated per
// token. Use, per token:
//   mtx_sample_load(w, logits);            copies the row
//   mtx_sample_guide(w, other, scale);     only with guidance
//   mtx_sample_mask(w, bits);              only with a grammar
//   mtx_sampler_pick(s, w, history, n, &token, err);
//
// Rules: a default changes nothing, bit for bit. temperature 0 is greedy, and so
// are top_k 1 and min_p 1; among equals the lowest id wins. The final draw adds
// probabilities in order of id, in double, with our own exp (real.h) and random
// numbers (rng.h): a seed gives the same tokens on every machine.
#ifndef MTX_SAMPLE_SAMPLE_H
#define MTX_SAMPLE_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef enum {
  MTX_STAGE_LOGIT_BIAS,
  MTX_STAGE_PENALTIES,    // repetition, presence, frequency
  MTX_STAGE_DRY,
  MTX_STAGE_TOP_N_SIGMA,
  MTX_STAGE_TOP_K,
  MTX_STAGE_TYPICAL_P,
  MTX_STAGE_TOP_P,
  MTX_STAGE_MIN_P,
  MTX_STAGE_TOP_A,
  MTX_STAGE_EPSILON,
  MTX_STAGE_ETA,
  MTX_STAGE_XTC,
  MTX_STAGE_TEMPERATURE,
  MTX_STAGE_N,
} mtx_stage;

const char *mtx_stage_name(mtx_stage s);  // "logit_bias", "top_k", ...
bool mtx_stage_parse(const char *name, mtx_stage *out);

typedef struct mtx_logit_bias {
  int32_t id;
  float bias;        // -INFINITY bans
  int32_t n_tokens;  // acts on so many generated tokens, then expires; 0 = never
} mtx_logit_bias;

typedef struct mtx_sampler_opts {
  double temperature;        // 1; 0 = greedy. Bias, penalties and DRY still act then.
  double dynatemp_range;     // 0 = off: temperature moves within +- range by entropy
  double dynatemp_exponent;  // 1
  int32_t top_k;             // 0 = off
  double top_p;              // 1 = off
  double min_p;              // 0 = off
  double typical_p;          // 1 = off (Meister et al. 2022)
  double top_n_sigma;        // 0 = off (Tang et al. 2024)
  double top_a;              // 0 = off: keeps p >= top_a * max(p)^2
  double epsilon;            // 0 = off (Hewitt et al. 2022): keeps p >= epsilon
  double eta;                // 0 = off (same paper): keeps p >= min(eta, sqrt(eta) exp(-entropy))
  double xtc_probability;    // 0 = off
  double xtc_threshold;      // 0.1; above 0.5 XTC never acts
  double repeat_penalty;     // 1 = off; positive logits are divided, others multiplied
  double presence_penalty;   // 0 = off
  double frequency_penalty;  // 0 = off
  int32_t repeat_last_n;     // 64 tokens that the three look at; -1 = all
  double dry_multiplier;     // 0 = off
  double dry_base;           // 1.75
  int32_t dry_allowed_length;  // 2
  int32_t dry_last_n;        // -1 = all
  const int32_t *dry_breakers; int32_t n_dry_breakers;  // tokens no repeat reaches across (copied)
  int32_t mirostat;          // 0, 1 or 2 (Basu et al. 2020); replaces every stage that cuts candidates
  double mirostat_tau;       // 5
  double mirostat_eta;       // 0.1
  double adaptive_target;    // -1 = off; 0..1: prefers tokens near this probability (adaptive-p)
  double adaptive_decay;     // 0.9
  const mtx_logit_bias *logit_bias; int32_t n_logit_bias;  // copied
  mtx_stage order[MTX_STAGE_N]; int32_t n_order;  // stages left out do not act, except logit_bias
  uint64_t seed;
} mtx_sampler_opts;

void mtx_sampler_opts_init(mtx_sampler_opts *o);  // the defaults named above, usual order

typedef struct mtx_sampler mtx_sampler;

// MTX_EINVAL names the option that is out of range (ids beyond n_vocab too).
mtx_code mtx_sampler_open(mtx_sampler **out, const mtx_sampler_opts *o, int32_t n_vocab, mtx_err *err);
void mtx_sampler_close(mtx_sampler *s);

typedef struct mtx_sample_work mtx_sample_work;
mtx_code mtx_sample_work_open(mtx_sample_work **out, int32_t n_vocab, mtx_err *err);
void mtx_sample_work_close(mtx_sample_work *w);

void mtx_sample_load(mtx_sample_work *w, const float *logits);
// Classifier-free guidance (Sanchez et al. 2023, "Stay on topic with classifier-free
// guidance", equation 7), over log-probabilities: the loaded row becomes
// u + scale * (c - u), c = its log-softmax, u = that of the other prompt's row.
// Where u is -infinity c stays. Scale 1 would give c, so callers leave it out.
void mtx_sample_guide(mtx_sample_work *w, const float *uncond, double scale);
// bits: bit (id & 63) of word id / 64 set = allowed.
void mtx_sample_mask(mtx_sample_work *w, const uint64_t *bits);
// The loaded row, for callers that change it themselves.
float *mtx_sample_row(mtx_sample_work *w);

// history: prompt and generated tokens, newest last. Updates the sampler's state as
// if the token were accepted. MTX_ENUMERIC: a logit is NaN or +infinity, or none is left.
mtx_code mtx_sampler_pick(mtx_sampler *s, mtx_sample_work *w, const int32_t *history, int64_t n_history,
                          int32_t *token, mtx_err *err);
// After pick: the candidates that were left and their probabilities (ascending id).
int32_t mtx_sample_candidates(const mtx_sample_work *w, const int32_t **ids, const double **p);

typedef struct mtx_logprob { int32_t id; double logprob; } mtx_logprob;
// Log-softmax of the logits as the model gave them, before any sampler: of `token`,
// and the n most likely in descending order (equals: lowest id first) into top[n].
// Returns how many were written. Banned tokens have logprob -1e30, never infinity.
int32_t mtx_sample_logprobs(mtx_sample_work *w, const float *logits, int32_t token, double *logprob,
                            mtx_logprob *top, int32_t n);

#endif
