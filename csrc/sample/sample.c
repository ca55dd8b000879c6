// SPDX-License-Identifier: MIT
// Samplers: options, life, and the chain. See sample.h.
#include "sample/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sample/work.h"

static const char *const stage_names[MTX_STAGE_N] = {
    "logit_bias", "penalties", "dry",     "top_n_sigma", "top_k", "typical_p", "top_p",
    "min_p",      "top_a",     "epsilon", "eta",         "xtc",   "temperature"};

const char *mtx_stage_name(mtx_stage s) { return s >= 0 && s < MTX_STAGE_N ? stage_names[s] : "unknown"; }

bool mtx_stage_parse(const char *name, mtx_stage *out) {
  for (int i = 0; i < MTX_STAGE_N; i++)
    if (!strcmp(name, stage_names[i])) {
      *out = (mtx_stage)i;
      return true;
    }
  return false;
}

void mtx_sampler_opts_init(mtx_sampler_opts *o) {
  *o = (mtx_sampler_opts){
      .temperature = 1, .dynatemp_exponent = 1, .top_p = 1, .typical_p = 1, .xtc_threshold = 0.1,
      .repeat_penalty = 1, .repeat_last_n = 64, .dry_base = 1.75, .dry_allowed_length = 2, .dry_last_n = -1,
      .mirostat_tau = 5, .mirostat_eta = 0.1, .adaptive_target = -1, .adaptive_decay = 0.9, .n_order = MTX_STAGE_N};
  for (int i = 0; i < MTX_STAGE_N; i++) o->order[i] = (mtx_stage)i;
}

static mtx_code check_range(const char *name, double v, double low, double high, mtx_err *err) {
  if (v >= low && v <= high) return MTX_OK;
  return mtx_fail_at(err, MTX_EINVAL, NULL, name, 0, "%g is out of range; it must be between %g and %g", v, low, high);
}

static mtx_code check_opts(const mtx_sampler_opts *o, int32_t n_vocab, mtx_err *err) {
  const struct { const char *name; double v, low, high; } range[] = {
      {"temperature", o->temperature, 0, 1e6},
      {"dynatemp_range", o->dynatemp_range, 0, 1e6},
      {"dynatemp_exponent", o->dynatemp_exponent, 0, 100},
      {"top_k", o->top_k, 0, INT32_MAX},
      {"top_p", o->top_p, 0, 1},
      {"min_p", o->min_p, 0, 1},
      {"typical_p", o->typical_p, 0, 1},
      {"top_n_sigma", o->top_n_sigma, -1e6, 1e6},
      {"top_a", o->top_a, 0, 1e6},
      {"epsilon", o->epsilon, 0, 1},
      {"eta", o->eta, 0, 1},
      {"xtc_probability", o->xtc_probability, 0, 1},
      {"xtc_threshold", o->xtc_threshold, 0, 1},
      {"repeat_penalty", o->repeat_penalty, 1e-6, 1e6},
      {"presence_penalty", o->presence_penalty, -1e6, 1e6},
      {"frequency_penalty", o->frequency_penalty, -1e6, 1e6},
      {"repeat_last_n", o->repeat_last_n, -1, INT32_MAX},
      {"dry_multiplier", o->dry_multiplier, 0, 1e6},
      {"dry_base", o->dry_base, 1, 1e6},
      {"dry_allowed_length", o->dry_allowed_length, 1, INT32_MAX},
      {"dry_last_n", o->dry_last_n, -1, INT32_MAX},
      {"mirostat", o->mirostat, 0, 2},
      {"mirostat_tau", o->mirostat_tau, 0, 1e6},
      {"mirostat_eta", o->mirostat_eta, 0, 1},
      {"adaptive_target", o->adaptive_target, -1, 1},
      {"adaptive_decay", o->adaptive_decay, 0, 0.99},
  };
  for (size_t i = 0; i < sizeof range / sizeof *range; i++) {
    mtx_code rc = check_range(range[i].name, range[i].v, range[i].low, range[i].high, err);
    if (rc) return rc;
  }
  if (o->n_order < 0 || o->n_order > MTX_STAGE_N)
    return mtx_fail_at(err, MTX_EINVAL, NULL, "order", 0, "names %d stages; there are %d", o->n_order, MTX_STAGE_N);
  for (int32_t i = 0; i < o->n_order; i++)
    for (int32_t j = 0; j < i; j++)
      if (o->order[i] == o->order[j])
        return mtx_fail_at(err, MTX_EINVAL, NULL, "order", 0, "names %s twice", mtx_stage_name(o->order[i]));
  for (int32_t i = 0; i < o->n_logit_bias; i++) {
    const mtx_logit_bias *b = &o->logit_bias[i];
    if (b->id < 0 || b->id >= n_vocab)
      return mtx_fail_at(err, MTX_EINVAL, NULL, "logit_bias", 0, "token %d does not exist; the vocabulary has %d", b->id, n_vocab);
    if (isnan(b->bias) || b->bias == INFINITY)
      return mtx_fail_at(err, MTX_EINVAL, NULL, "logit_bias", 0, "of token %d is no number", b->id);
    if (b->n_tokens < 0)
      return mtx_fail_at(err, MTX_EINVAL, NULL, "logit_bias", 0, "of token %d expires after %d tokens", b->id, b->n_tokens);
  }
  return MTX_OK;
}

static int rising(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

mtx_code mtx_sampler_open(mtx_sampler **out, const mtx_sampler_opts *o, int32_t n_vocab, mtx_err *err) {
  *out = NULL;
  mtx_code rc = check_opts(o, n_vocab, err);
  if (rc) return rc;
  mtx_sampler *s = calloc(1, sizeof *s);
  if (!s) return mtx_fail(err, MTX_ENOMEM, "no memory for a sampler");
  s->o = *o;
  s->n_vocab = n_vocab;
  s->n_prompt = -1;
  size_t n_bias = (size_t)o->n_logit_bias * sizeof *s->bias, n_break = (size_t)o->n_dry_breakers * sizeof *s->breakers;
  s->bias = malloc(n_bias + 1);
  s->breakers = malloc(n_break + 1);
  if (!s->bias || !s->breakers) {
    mtx_sampler_close(s);
    return mtx_fail(err, MTX_ENOMEM, "no memory for a sampler");
  }
  if (n_bias) memcpy(s->bias, o->logit_bias, n_bias);
  if (n_break) memcpy(s->breakers, o->dry_breakers, n_break);
  if (n_break) qsort(s->breakers, (size_t)o->n_dry_breakers, sizeof *s->breakers, rising);
  s->o.logit_bias = s->bias;
  s->o.dry_breakers = s->breakers;
  mtx_rng_seed(&s->rng, o->seed);
  s->mu = 2 * o->mirostat_tau;
  s->ema_weight = 1 / (1 - o->adaptive_decay);  // as if the target had been met so far
  s->ema_sum = o->adaptive_target * s->ema_weight;
  *out = s;
  return MTX_OK;
}

void mtx_sampler_close(mtx_sampler *s) {
  if (!s) return;
  free(s->bias);
  free(s->breakers);
  free(s);
}

// NaN and +infinity have no place in a softmax; nor has a row without a candidate.
static mtx_code check_row(const mtx_sample_work *w, mtx_err *err) {
  int bad = 0;
  for (int32_t i = 0; i < w->n; i++) bad |= !(w->x[i] < INFINITY);
  if (bad) return mtx_fail(err, MTX_ENUMERIC, "the model gave a logit that is not a finite number");
  if (mtx_work_max(w) == -INFINITY)
    return mtx_fail(err, MTX_ENUMERIC, "no token is left: the grammar and logit_bias together ban all of them");
  return MTX_OK;
}

static bool in_order(const mtx_sampler_opts *o, mtx_stage stage) {
  for (int32_t i = 0; i < o->n_order; i++)
    if (o->order[i] == stage) return true;
  return false;
}

mtx_code mtx_sampler_pick(mtx_sampler *s, mtx_sample_work *w, const int32_t *history, int64_t n_history,
                          int32_t *token, mtx_err *err) {
  const mtx_sampler_opts *o = &s->o;
  bool greedy = o->temperature == 0;
  if (s->n_prompt < 0) s->n_prompt = n_history;
  int64_t n_generated = n_history - s->n_prompt;
  if (!in_order(o, MTX_STAGE_LOGIT_BIAS)) mtx_stage_bias(s, w, n_generated);
  mtx_code rc = check_row(w, err);
  for (int32_t i = 0; i < o->n_order && !rc; i++) {
    mtx_stage stage = o->order[i];
    if (stage == MTX_STAGE_LOGIT_BIAS) {
      mtx_stage_bias(s, w, n_generated);
      if (o->n_logit_bias) rc = check_row(w, err);
    } else if (stage == MTX_STAGE_PENALTIES) {
      mtx_stage_penalties(s, w, history, n_history);
    } else if (stage == MTX_STAGE_DRY) {
      rc = mtx_stage_dry(s, w, history, n_history, err);
    } else if (!greedy && (o->mirostat == 0 || stage == MTX_STAGE_TEMPERATURE)) {
      mtx_stage_cut(s, w, stage);
    }
  }
  if (rc) return rc;
  int32_t i = 0;
  if (greedy) mtx_work_keep_best(w);
  else if (o->mirostat) i = mtx_draw_mirostat(s, w);
  else if (o->adaptive_target >= 0) i = mtx_draw_adaptive(s, w);
  else i = mtx_draw_plain(s, w);
  *token = w->id[i];
  return MTX_OK;
}
