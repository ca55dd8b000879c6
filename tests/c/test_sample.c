// SPDX-License-Identifier: MIT
// Samplers against tests/golden/sample/cases.txt (plain Python, see make.py
// there), and the rules that hold for all of them.
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "sample/real.h"
#include "sample/rng.h"
#include "sample/sample.h"

enum { MAX_VOCAB = 2048, MAX_HIST = 512 };

typedef struct {
  char name[64];
  mtx_sampler_opts o;
  int32_t n_vocab, n_hist, hist[MAX_HIST], breakers[64];
  float logits[MAX_VOCAB];
  mtx_logit_bias bias[64];
} case_t;

static void set_opt(mtx_sampler_opts *o, const char *k, double v) {
#define DOUBLE(f) if (!strcmp(k, #f)) { o->f = v; return; }
#define INT(f) if (!strcmp(k, #f)) { o->f = (int32_t)v; return; }
  DOUBLE(temperature) DOUBLE(dynatemp_range) DOUBLE(dynatemp_exponent) INT(top_k) DOUBLE(top_p) DOUBLE(min_p)
  DOUBLE(typical_p) DOUBLE(top_n_sigma) DOUBLE(top_a) DOUBLE(epsilon) DOUBLE(eta) DOUBLE(xtc_probability)
  DOUBLE(xtc_threshold) DOUBLE(repeat_penalty) DOUBLE(presence_penalty) DOUBLE(frequency_penalty) INT(repeat_last_n)
  DOUBLE(dry_multiplier) DOUBLE(dry_base) INT(dry_allowed_length) INT(dry_last_n) INT(mirostat) DOUBLE(mirostat_tau)
  DOUBLE(mirostat_eta) DOUBLE(adaptive_target) DOUBLE(adaptive_decay)
  CHECK(0, "unknown option %s", k);
}

static int scan_int(FILE *f) {
  int v = -1;
  if (fscanf(f, "%d", &v) != 1) CHECK(0, "golden file is cut short");
  return v;
}

// Compares the first pick's candidates, then all draws.
static void run_case(FILE *f, case_t *c, mtx_sample_work *w) {
  mtx_sampler *s;
  mtx_err err = {0};
  int32_t token, n_expect = scan_int(f);
  static int32_t want_id[MAX_VOCAB];
  static double want_p[MAX_VOCAB];
  for (int i = 0; i < n_expect; i++) {
    want_id[i] = scan_int(f);
    if (fscanf(f, "%lf", &want_p[i]) != 1) CHECK(0, "%s: no number", c->name);
  }
  unsigned long long seed;
  if (fscanf(f, " draws %llu", &seed) != 1) CHECK(0, "%s: no draws", c->name);
  int n_draws = scan_int(f);
  c->o.seed = seed;
  c->o.logit_bias = c->bias;
  c->o.dry_breakers = c->breakers;
  CHECK(mtx_sampler_open(&s, &c->o, c->n_vocab, &err) == MTX_OK, "%s: %s", c->name, err.msg);
  for (int d = 0; d < n_draws; d++) {
    mtx_sample_load(w, c->logits);
    CHECK(mtx_sampler_pick(s, w, c->hist, c->n_hist, &token, &err) == MTX_OK, "%s: %s", c->name, err.msg);
    if (d == 0) {
      const int32_t *id;
      const double *p;
      int32_t n = mtx_sample_candidates(w, &id, &p);
      double sum = 0;
      for (int32_t i = 0; i < n; i++) sum += p[i];
      int bad = n != n_expect;
      for (int32_t i = 0; i < n && !bad; i++)
        bad = id[i] != want_id[i] || fabs(p[i] / sum - want_p[i]) > 2e-6 * want_p[i] + 1e-9;
      CHECK(!bad, "%s: %d candidates, want %d", c->name, n, n_expect);
    }
    int want = scan_int(f);
    CHECK(token == want, "%s draw %d: %d, want %d", c->name, d, token, want);
  }
  mtx_sampler_close(s);
}

static void run_guide(FILE *f) {
  static float cond[MAX_VOCAB], uncond[MAX_VOCAB];
  double scale, want;
  if (fscanf(f, "%lf", &scale) != 1) CHECK(0, "guide without a scale");
  int n = scan_int(f);
  for (int i = 0; i < n; i++) CHECK(fscanf(f, "%f", &cond[i]) == 1);
  for (int i = 0; i < n; i++) CHECK(fscanf(f, "%f", &uncond[i]) == 1);
  mtx_sample_work *w;
  CHECK(mtx_sample_work_open(&w, n, NULL) == MTX_OK);
  mtx_sample_load(w, cond);
  mtx_sample_guide(w, uncond, scale);
  const float *x = mtx_sample_row(w);
  for (int i = 0; i < n; i++)
    CHECK(fscanf(f, "%lf", &want) == 1 && fabs(x[i] - want) < 2e-6 * fabs(want) + 1e-6, "scale %g, token %d: %g, want %g", scale, i, x[i], want);
  cond[1] = uncond[2] = -INFINITY;
  mtx_sample_load(w, cond);
  mtx_sample_guide(w, uncond, scale);
  CHECK(x[1] == -INFINITY && x[2] < 0 && x[2] > -100, "an impossible token stays so, and what the other row forbids is left alone");
  mtx_sample_work_close(w);
}

static void test_golden(void) {
  FILE *f = fopen("tests/golden/sample/cases.txt", "r");
  CHECK(f != NULL, "tests/golden/sample/cases.txt is missing");
  if (!f) return;
  static case_t c;
  mtx_sample_work *w = NULL;
  char word[64], line[64];
  int n_cases = 0, n_rng = 0, n_guide = 0;
  while (fscanf(f, "%63s", word) == 1) {
    if (!strcmp(word, "#")) {
      if (fscanf(f, "%*[^\n]") < 0) break;
    } else if (!strcmp(word, "rng")) {
      unsigned long long seed, v;
      mtx_rng r;
      if (fscanf(f, "%llu", &seed) != 1) break;
      mtx_rng_seed(&r, seed);
      for (int i = 0; i < 8; i++) CHECK(fscanf(f, "%llu", &v) == 1 && mtx_rng_next(&r) == v, "seed %llu", seed);
      n_rng++;
    } else if (!strcmp(word, "guide")) {
      run_guide(f);
      n_guide++;
    } else if (!strcmp(word, "case")) {
      if (fscanf(f, "%63s", c.name) != 1) break;
      mtx_sampler_opts_init(&c.o);
      n_cases++;
    } else if (!strcmp(word, "opt")) {
      double v;
      if (fscanf(f, "%63s %lf", line, &v) != 2) break;
      set_opt(&c.o, line, v);
    } else if (!strcmp(word, "order")) {
      c.o.n_order = scan_int(f);
      for (int i = 0; i < c.o.n_order; i++)
        CHECK(fscanf(f, "%63s", line) == 1 && mtx_stage_parse(line, &c.o.order[i]), "stage %s", line);
    } else if (!strcmp(word, "logits")) {
      c.n_vocab = scan_int(f);
      for (int i = 0; i < c.n_vocab; i++) CHECK(fscanf(f, "%f", &c.logits[i]) == 1);
      mtx_sample_work_close(w);
      CHECK(mtx_sample_work_open(&w, c.n_vocab, NULL) == MTX_OK);
    } else if (!strcmp(word, "history")) {
      c.n_hist = scan_int(f);
      for (int i = 0; i < c.n_hist; i++) c.hist[i] = scan_int(f);
    } else if (!strcmp(word, "breakers")) {
      c.o.n_dry_breakers = scan_int(f);
      for (int i = 0; i < c.o.n_dry_breakers; i++) c.breakers[i] = scan_int(f);
    } else if (!strcmp(word, "bias")) {
      c.o.n_logit_bias = scan_int(f);
      for (int i = 0; i < c.o.n_logit_bias; i++) {
        c.bias[i].id = scan_int(f);
        if (fscanf(f, "%f", &c.bias[i].bias) != 1) break;
      }
    } else if (!strcmp(word, "expect")) {
      run_case(f, &c, w);
    } else {
      CHECK(0, "unknown word %s", word);
      break;
    }
  }
  CHECK(n_cases > 180 && n_rng == 4 && n_guide == 4, "%d cases", n_cases);
  mtx_sample_work_close(w);
  fclose(f);
}

// A stage left at its default gives the same draws as no stage at all.
static void test_defaults_change_nothing(void) {
  enum { N = 500 };
  float x[N];
  mtx_rng r;
  mtx_rng_seed(&r, 5);
  for (int i = 0; i < N; i++) x[i] = (float)(mtx_rng_unit(&r) * 8 - 4);
  mtx_sample_work *w;
  CHECK(mtx_sample_work_open(&w, N, NULL) == MTX_OK);
  int32_t hist[] = {1, 2, 3, 1, 2, 3, 1, 2}, first[50], token;
  for (int variant = 0; variant < 3; variant++) {
    mtx_sampler_opts o;
    mtx_sampler_opts_init(&o);
    o.seed = 9;
    if (variant == 1) o.n_order = 0;
    if (variant == 2)
      for (int i = 0; i < MTX_STAGE_N; i++) o.order[i] = (mtx_stage)(MTX_STAGE_N - 1 - i);
    mtx_sampler *s;
    CHECK(mtx_sampler_open(&s, &o, N, NULL) == MTX_OK);
    for (int d = 0; d < 50; d++) {
      mtx_sample_load(w, x);
      CHECK(mtx_sampler_pick(s, w, hist, 8, &token, NULL) == MTX_OK);
      CHECK(!memcmp(mtx_sample_row(w), x, sizeof x), "a default touched the row");
      if (variant == 0) first[d] = token;
      else CHECK(token == first[d]);
    }
    mtx_sampler_close(s);
  }
  mtx_sample_work_close(w);
}

static void test_greedy_ties(void) {
  float x[100];
  for (int i = 0; i < 100; i++) x[i] = i % 10 == 7 ? 3.0f : -1.0f;
  mtx_sample_work *w;
  CHECK(mtx_sample_work_open(&w, 100, NULL) == MTX_OK);
  for (int variant = 0; variant < 4; variant++) {
    for (uint64_t seed = 1; seed <= 5; seed++) {
      mtx_sampler_opts o;
      mtx_sampler_opts_init(&o);
      o.seed = seed;
      o.temperature = variant == 0 || variant == 3 ? 0 : 2;
      if (variant == 1) o.top_k = 1;
      if (variant == 2) o.min_p = 1;
      if (variant == 3) o.top_k = 40, o.min_p = 0.05, o.xtc_probability = 1, o.mirostat = 2;
      mtx_sampler *s;
      int32_t token;
      CHECK(mtx_sampler_open(&s, &o, 100, NULL) == MTX_OK);
      mtx_sample_load(w, x);
      CHECK(mtx_sampler_pick(s, w, NULL, 0, &token, NULL) == MTX_OK && token == 7, "variant %d: %d", variant, token);
      mtx_sampler_close(s);
    }
  }
  // top_k keeps the lowest ids among equals, by heap and by radix selection alike.
  for (int32_t k = 2; k <= 10; k++) {
    mtx_sampler_opts o;
    mtx_sampler_opts_init(&o);
    o.top_k = k;
    mtx_sampler *s;
    int32_t token, n;
    const int32_t *id;
    const double *p;
    CHECK(mtx_sampler_open(&s, &o, 100, NULL) == MTX_OK);
    mtx_sample_load(w, x);
    CHECK(mtx_sampler_pick(s, w, NULL, 0, &token, NULL) == MTX_OK);
    n = mtx_sample_candidates(w, &id, &p);
    CHECK(n == k && id[0] == 7 && id[k - 1] == 10 * k - 3);
    mtx_sampler_close(s);
  }
  mtx_sample_work_close(w);
}

static void test_numeric_errors(void) {
  enum { N = 70 };
  float x[N] = {0};
  mtx_sample_work *w;
  mtx_sampler *s;
  mtx_err err;
  int32_t token = -5;
  mtx_sampler_opts o;
  mtx_sampler_opts_init(&o);
  CHECK(mtx_sample_work_open(&w, N, NULL) == MTX_OK && mtx_sampler_open(&s, &o, N, NULL) == MTX_OK);
  const float bad[] = {NAN, INFINITY, -NAN};
  for (int i = 0; i < 3; i++) {
    x[37] = bad[i];
    mtx_sample_load(w, x);
    CHECK(mtx_sampler_pick(s, w, NULL, 0, &token, &err) == MTX_ENUMERIC && token == -5 && err.msg[0]);
  }
  x[37] = 0;
  uint64_t none[2] = {0, 0}, one[2] = {0, 1u << 3};
  mtx_sample_load(w, x);
  mtx_sample_mask(w, none);
  CHECK(mtx_sampler_pick(s, w, NULL, 0, &token, &err) == MTX_ENUMERIC && strstr(err.msg, "ban"));
  mtx_sample_load(w, x);
  mtx_sample_mask(w, one);
  CHECK(mtx_sampler_pick(s, w, NULL, 0, &token, &err) == MTX_OK && token == 67);
  mtx_sampler_close(s);

  mtx_logit_bias ban = {67, -INFINITY, 0};  // grammar allows one token, the bias bans it
  o.logit_bias = &ban;
  o.n_logit_bias = 1;
  CHECK(mtx_sampler_open(&s, &o, N, NULL) == MTX_OK);
  mtx_sample_load(w, x);
  mtx_sample_mask(w, one);
  CHECK(mtx_sampler_pick(s, w, NULL, 0, &token, &err) == MTX_ENUMERIC);
  double lp;
  mtx_logprob top[N];
  for (int i = 0; i < N; i++) x[i] = i == 5 ? -INFINITY : (float)(i % 7);
  CHECK(mtx_sample_logprobs(w, x, 5, &lp, top, 3) == 3 && lp == -1e30);
  CHECK(top[0].id == 6 && top[1].id == 13 && top[2].id == 20, "equals: lowest id first");
  mtx_sampler_close(s);
  mtx_sample_work_close(w);
}

// A bias with an end acts on the first generated tokens, also when some of them are taken back.
static void test_bias_expires(void) {
  float x[4] = {0, 3, 2, 1};
  mtx_logit_bias bias[] = {{1, -INFINITY, 2}, {2, -INFINITY, 1}};
  mtx_sampler_opts o;
  mtx_sampler_opts_init(&o);
  o.temperature = 0;
  o.logit_bias = bias;
  o.n_logit_bias = 2;
  mtx_sample_work *w;
  mtx_sampler *s;
  CHECK(mtx_sample_work_open(&w, 4, NULL) == MTX_OK && mtx_sampler_open(&s, &o, 4, NULL) == MTX_OK);
  int32_t hist[8] = {0}, token;
  const struct { int64_t n; int32_t want; } step[] = {{5, 3}, {6, 2}, {7, 1}, {6, 2}, {8, 1}};
  for (int i = 0; i < 5; i++) {
    mtx_sample_load(w, x);
    CHECK(mtx_sampler_pick(s, w, hist, step[i].n, &token, NULL) == MTX_OK && token == step[i].want, "after %d: %d", (int)step[i].n, token);
  }
  mtx_sampler_close(s);
  bias[0].n_tokens = -1;
  mtx_err err;
  CHECK(mtx_sampler_open(&s, &o, 4, &err) == MTX_EINVAL && !strcmp(err.key, "logit_bias"));
  mtx_sample_work_close(w);
}

static void test_logprobs(void) {
  enum { N = 300 };
  float x[N];
  mtx_rng r;
  mtx_rng_seed(&r, 3);
  double sum = 0, lp, total = 0;
  for (int i = 0; i < N; i++) x[i] = (float)(mtx_rng_unit(&r) * 20 - 10);
  for (int i = 0; i < N; i++) sum += exp(x[i]);
  mtx_sample_work *w;
  CHECK(mtx_sample_work_open(&w, N, NULL) == MTX_OK);
  mtx_logprob top[N];
  CHECK(mtx_sample_logprobs(w, x, 17, &lp, top, N + 5) == N);
  CHECK(fabs(lp - (x[17] - log(sum))) < 1e-9);
  for (int i = 0; i < N; i++) {
    CHECK(i == 0 || top[i].logprob <= top[i - 1].logprob);
    total += exp(top[i].logprob);
  }
  CHECK(fabs(total - 1) < 1e-9);
  mtx_sample_work_close(w);
}

static void test_options(void) {
  const struct { const char *name; double v; } bad[] = {
      {"temperature", -1}, {"temperature", NAN}, {"temperature", INFINITY}, {"top_p", -1}, {"top_p", 1.5}, {"top_k", -1},
      {"min_p", 2}, {"repeat_penalty", 0}, {"mirostat", 3}, {"repeat_last_n", -2}, {"adaptive_decay", 1}, {"dry_base", 0.5}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    mtx_sampler_opts o;
    mtx_sampler_opts_init(&o);
    set_opt(&o, bad[i].name, bad[i].v);
    mtx_sampler *s;
    mtx_err err;
    CHECK(mtx_sampler_open(&s, &o, 10, &err) == MTX_EINVAL && !s && !strcmp(err.key, bad[i].name), "%s", bad[i].name);
  }
  mtx_sampler_opts o;
  mtx_sampler *s;
  mtx_err err;
  mtx_sampler_opts_init(&o);
  mtx_logit_bias b = {10, 1, 0};
  o.logit_bias = &b;
  o.n_logit_bias = 1;
  CHECK(mtx_sampler_open(&s, &o, 10, &err) == MTX_EINVAL && strstr(err.msg, "10"));
  mtx_sampler_opts_init(&o);
  o.order[1] = o.order[0];
  CHECK(mtx_sampler_open(&s, &o, 10, &err) == MTX_EINVAL && !strcmp(err.key, "order"));
  mtx_stage st;
  CHECK(!mtx_stage_parse("nucleus", &st));
  for (int i = 0; i < MTX_STAGE_N; i++) CHECK(mtx_stage_parse(mtx_stage_name((mtx_stage)i), &st) && (int)st == i);
}

static void test_real(void) {
  double worst = 0;
  mtx_rng r;
  mtx_rng_seed(&r, 1);
  for (int i = 0; i < 100000; i++) {
    double x = mtx_rng_unit(&r) * 100 - 90, e = exp(x), y = mtx_rng_unit(&r) * 1000 + 1e-9;
    worst = fmax(worst, fabs(mtx_exp(x) - e) / e);
    worst = fmax(worst, fabs(mtx_log(y) - log(y)) / fmax(1e-3, fabs(log(y))));
  }
  CHECK(worst < 1e-15 * 4, "%g", worst);
  CHECK(mtx_exp(0) == 1 && mtx_log(1) == 0 && mtx_exp(-1e9) == 0);
}

// Not a bench: only shows that a token costs no sort of the vocabulary.
static void test_cost(void) {
  enum { N = 150000, TIMES = 20 };
  float *x = malloc(N * sizeof *x);
  mtx_rng r;
  mtx_rng_seed(&r, 1);
  for (int i = 0; i < N; i++) x[i] = (float)(mtx_rng_unit(&r) + mtx_rng_unit(&r) + mtx_rng_unit(&r)) * 8;
  mtx_sample_work *w;
  CHECK(mtx_sample_work_open(&w, N, NULL) == MTX_OK);
  for (int variant = 0; variant < 3; variant++) {
    mtx_sampler_opts o;
    mtx_sampler_opts_init(&o);
    if (variant == 0) o.temperature = 0;
    if (variant == 1) o.top_k = 40, o.top_p = 0.95, o.min_p = 0.05, o.temperature = 0.8;
    if (variant == 2) o.top_p = 0.95;
    mtx_sampler *s;
    CHECK(mtx_sampler_open(&s, &o, N, NULL) == MTX_OK);
    int32_t token;
    clock_t start = clock();
    for (int i = 0; i < TIMES; i++) {
      mtx_sample_load(w, x);
      CHECK(mtx_sampler_pick(s, w, NULL, 0, &token, NULL) == MTX_OK);
    }
    double us = (double)(clock() - start) / CLOCKS_PER_SEC / TIMES * 1e6;
    printf("# 150000 tokens, %s: %.0f us\n", variant == 0 ? "greedy" : variant == 1 ? "usual" : "top_p", us);
    CHECK(us < 60000);
    mtx_sampler_close(s);
  }
  mtx_sample_work_close(w);
  free(x);
}

int main(void) {
  test_golden();
  test_defaults_change_nothing();
  test_greedy_ties();
  test_numeric_errors();
  test_bias_expires();
  test_logprobs();
  test_options();
  test_real();
  test_cost();
  return check_report();
}
