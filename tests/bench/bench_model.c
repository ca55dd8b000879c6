// SPDX-License-Identifier: MIT
// Prefill and decode speed of a model file: bench_model FILE [-p N] [-n N] [-s SEQS] [-t THREADS] [-r REPEATS] [-f] [-c TIER]
// Prints medians, and the time of a decode step outside the ops; -f adds the profile of every op. No Lua, no sampler: the core alone.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/sysinfo.h"
#include "engine/step.h"
#include "kern/kern.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const mtx_err *e) {
  char line[1024];
  mtx_err_format(e, line, sizeof line);
  fprintf(stderr, "%s\n", line);
  exit(1);
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *x, int n) {
  qsort(x, (size_t)n, sizeof *x, by_value);
  return x[n / 2];
}

static void profile(mtx_context *c, const char *what, double total) {
  mtx_profile_row rows[64];
  int n = mtx_context_profile_take(c, rows, 64);
  printf("%s, total %.1f ms\n", what, total * 1e3);
  for (int i = 0; i < n; i++)
    printf("  %-14s %8.2f ms %7llu calls %6.1f GB/s\n", rows[i].op, (double)rows[i].ns / 1e6, (unsigned long long)rows[i].calls,
           (double)rows[i].bytes / (double)(rows[i].ns + 1));
}

static int one_seq(mtx_context *c) {
  int seq;
  mtx_err e;
  if (mtx_kv_seq_new(mtx_context_kv(c), &seq, &e)) die(&e);
  return seq;
}

static double prefill(mtx_context *c, int seq, int n, int n_vocab) {
  mtx_err e;
  mtx_row *rows = calloc((size_t)n, sizeof *rows);
  for (int i = 0; i < n; i++) rows[i] = (mtx_row){.token = (i * 7919 + 13) % n_vocab, .seq = seq, .want = i == n - 1};
  double t = now();
  int max = mtx_context_max_rows(c);
  for (int at = 0; at < n; at += max)
    if (mtx_context_step(c, rows + at, n - at < max ? n - at : max, NULL, &e)) die(&e);
  t = now() - t;
  free(rows);
  return t;
}

// Microseconds of a decode step outside the ops, the median of n steps: the checks of rows, pages, the start of threads.
static double outside(mtx_context *c, int seq, int n) {
  double us[512];
  mtx_err e;
  if (n < 1) return 0;
  if (n > 512) n = 512;
  mtx_context_profile(c, true);
  for (int i = 0; i < n; i++) {
    mtx_profile_row rows[64];
    double t = now(), ops = 0;
    if (mtx_context_step(c, &(mtx_row){.token = 5, .seq = seq, .want = true}, 1, NULL, &e)) die(&e);
    t = now() - t;
    for (int k = mtx_context_profile_take(c, rows, 64); k > 0; k--) ops += 1e-9 * (double)rows[k - 1].ns;
    us[i] = 1e6 * (t - ops);
  }
  return median(us, n);
}

static double decode(mtx_context *c, const int *seq, int n_seqs, int n, int n_vocab) {
  mtx_err e;
  double t = now();
  for (int i = 0; i < n; i++) {
    mtx_row rows[64];
    for (int s = 0; s < n_seqs; s++) rows[s] = (mtx_row){.token = (i * 31 + s * 7 + 5) % n_vocab, .seq = seq[s], .want = true};
    if (mtx_context_step(c, rows, n_seqs, NULL, &e)) die(&e);
  }
  return now() - t;
}

int main(int argc, char **argv) {
  int p = 512, n = 64, s = 1, threads = 0, repeats = 5, want_profile = 0;
  mtx_tier cap = MTX_TIER_AMX;
  for (int o; (o = getopt(argc, argv, "p:n:s:t:r:fc:")) != -1;) {
    if (o == 'p') p = atoi(optarg);
    else if (o == 'n') n = atoi(optarg);
    else if (o == 's') s = atoi(optarg) < 64 ? atoi(optarg) : 64;
    else if (o == 't') threads = atoi(optarg);
    else if (o == 'r') repeats = atoi(optarg);
    else if (o == 'f') want_profile = 1;
    else if (o == 'c') for (mtx_tier t = MTX_TIER_SCALAR; t <= MTX_TIER_AMX; t++) cap = strcmp(optarg, mtx_tier_name(t)) == 0 ? t : cap;
  }
  if (optind >= argc) return fprintf(stderr, "usage: bench_model FILE [-p N] [-n N] [-s SEQS] [-t THREADS] [-r REPEATS] [-f] [-c TIER]\n"), 2;
  mtx_tier tier = mtx_kern_init(cap);
  mtx_err e;
  mtx_model *m;
  mtx_context *c;
  double t0 = now();
  if (mtx_model_open(&m, argv[optind], &(mtx_model_opts){.n_threads = threads}, &e)) die(&e);
  double t_load = now() - t0;
  int n_vocab = mtx_model_get_info(m)->n_vocab;
  if (mtx_context_open(&c, m, &(mtx_context_opts){.n_ctx = p + 2 * n + 64, .kv_tokens = (int64_t)(p + n + 64) * (s + 1), .max_seqs = s + 2, .n_threads = threads, .kv_type = MTX_KV_F16}, &e)) die(&e);
  printf("%s: tier %s, load %.0f ms, resident %.0f MB (file %.0f MB)\n", argv[optind], mtx_tier_name(tier), t_load * 1e3,
         (double)mtx_resident_memory() / 1e6, (double)mtx_model_get_info(m)->file_bytes / 1e6);
  double tp[100], tn[100], outside_us = 0;
  if (repeats > 99) repeats = 99;
  for (int r = 0; r <= repeats; r++) {  // the first pair is warm-up
    int seq[64];
    mtx_context_profile(c, want_profile && r == repeats);
    seq[0] = one_seq(c);
    tp[r] = prefill(c, seq[0], p, n_vocab);
    if (want_profile && r == repeats) profile(c, "prefill", tp[r]);
    for (int i = 1; i < s; i++) seq[i] = one_seq(c), prefill(c, seq[i], 16, n_vocab);
    if (want_profile && r == repeats) mtx_context_profile(c, true);
    tn[r] = decode(c, seq, s, n, n_vocab);
    if (want_profile && r == repeats) profile(c, "decode", tn[r]);
    if (r == repeats) outside_us = outside(c, seq[0], n);
    for (int i = 0; i < s; i++) mtx_kv_seq_free(mtx_context_kv(c), seq[i]);
  }
  printf("pp%d %.1f tokens/s, tg%d x %d %.1f tokens/s, %.0f us of a step outside the ops, resident %.0f MB\n", p,
         p / median(tp + 1, repeats), n, s, s * n / median(tn + 1, repeats), outside_us, (double)mtx_resident_memory() / 1e6);
  mtx_context_close(c);
  mtx_model_close(m);
  return 0;
}
