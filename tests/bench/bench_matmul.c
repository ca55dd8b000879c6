// SPDX-License-Identifier: MIT
// Speed of the matrix products: GMAC/s with many columns, GB/s of weights with one.
//
//   bench_matmul [TYPE|all [TIER [THREADS]]]     (default: the types of common models, best tier, 1 and 2 threads)
//
// A plain read of the same memory is measured between the runs, so the ratio
// stands in one line. Best of several runs: a shared machine only ever slows down.
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "kern/cpu.h"
#include "kern/kern.h"
#include "kern/vec.h"

enum { MATRIX_MB = 224, GEMM_K = 2048, GEMM_OUT = 2048, MAX_COLS = 512, RUNS = 5 };

// One thread is timed by its CPU time, which neighbours do not disturb as much; several by the wall clock.
static double now(void) {
  struct timespec t;
  clock_gettime(omp_get_max_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *huge(size_t n) {
  void *p = NULL;
  if (posix_memalign(&p, 2u << 20, n)) exit(1);
  madvise(p, n, MADV_HUGEPAGE);
  return p;
}

static void matmul(const mtx_weight *w, const void *act, size_t stride, int64_t n_cols, float *y) {
#pragma omp parallel
  {
    int64_t n = mtx_weight_n_groups(w), t = omp_get_thread_num(), nt = omp_get_num_threads();
    mtx_matmul(w, n * t / nt, n * (t + 1) / nt, act, stride, n_cols, y, w->n_out, false);
  }
}

static double read_gbs(const uint8_t *p, size_t n) {
  double best = 0;
  for (int r = 0; r < 3; r++) {
    double t0 = now(), sum = 0;
#pragma omp parallel reduction(+ : sum)
    {
      size_t t = (size_t)omp_get_thread_num(), nt = (size_t)omp_get_num_threads(), part = n / nt / 4096 * 4096;
      for (size_t i = 0; i < part; i += 4096) sum += mtx_vec.sum((const float *)(const void *)(p + t * part + i), 1024);
    }
    double g = (double)n / (now() - t0) * 1e-9;
    volatile double sink = sum;
    (void)sink;
    best = g > best ? g : best;
  }
  return best;
}

static void fill(const mtx_qtype *t, uint8_t *dst, size_t n) {
  uint64_t s = 12345;
  for (size_t i = 0; i + 8 <= n; i += 8) {
    s = s * 6364136223846793005u + 1442695040888963407u;
    uint64_t v = (s ^ s >> 29) & (t->block == 1 ? 0x3B803B803B803B80u : 0x3BFF3BFF3BFF3BFFu);  // half floats stay below 1
    memcpy(dst + i, &v, 8);
  }
}

static void bench(const mtx_qtype *t, uint8_t *memory, uint8_t *src, float *x, uint8_t *act, float *y) {
  uint64_t row;
  mtx_qtype_row_bytes(t, GEMM_K, &row);
  int64_t n_out = ((int64_t)MATRIX_MB << 20) / (int64_t)row / 16 * 16;
  while (mtx_weight_bytes(t, n_out, GEMM_K) > ((size_t)MATRIX_MB << 20)) n_out -= 16;
  mtx_weight w;
  mtx_weight_init(&w, t, n_out, GEMM_K, memory);
  fill(t, src, (size_t)row * GEMM_OUT);
  double t0 = now();
  // The same rows again and again: only the packed form must be large.
  for (int64_t g = 0; g < n_out / 16; g += GEMM_OUT / 16) {
    mtx_weight part;
    int64_t rows = n_out - g * 16 < GEMM_OUT ? n_out - g * 16 : GEMM_OUT;
    mtx_weight_init(&part, t, rows, GEMM_K, memory + (size_t)g * w.group_bytes);
    mtx_weight_pack(&part, src, 0, rows / 16);
  }
  double pack = (double)row * (double)n_out / (now() - t0) * 1e-9;
  size_t stride = mtx_act_bytes(w.act, GEMM_K);
  for (int c = 0; c < MAX_COLS; c++) mtx_act_encode(w.act, x + c * GEMM_K, GEMM_K, 0, GEMM_K / 32, act + (size_t)c * stride);

  size_t bytes = w.group_bytes * (size_t)(n_out / 16);
  double read = read_gbs(memory, bytes), gemv = 0, gemm[3] = {0};
  for (int r = 0; r < RUNS; r++) {
    t0 = now();
    matmul(&w, act, stride, 1, y);
    double g = (double)bytes / (now() - t0) * 1e-9;
    gemv = g > gemv ? g : gemv;
  }
  double again = read_gbs(memory, bytes);
  read = again > read ? again : read;
  static const int cols[3] = {8, 128, 512};
  mtx_weight_init(&w, t, GEMM_OUT, GEMM_K, memory);
  for (int i = 0; i < 3; i++)
    for (int r = 0; r < RUNS; r++) {
      int reps = 512 / cols[i] < 8 ? 512 / cols[i] : 8;
      t0 = now();
      for (int j = 0; j < reps; j++) matmul(&w, act, stride, cols[i], y);
      double g = (double)GEMM_OUT * GEMM_K * cols[i] * reps / (now() - t0) * 1e-9;
      gemm[i] = g > gemm[i] ? g : gemm[i];
    }
  printf("%-8s %-7s %2d  pack %5.2f GB/s  1 column %6.2f GB/s = %3.0f%% of a read (%5.1f)  GMAC/s x8 %6.1f  x128 %6.1f  x512 %6.1f\n", t->name,
         mtx_tier_name(mtx_kern_tier()), omp_get_max_threads(), pack, gemv, 100 * gemv / read, read, gemm[0], gemm[1], gemm[2]);
  fflush(stdout);
}

int main(int argc, char **argv) {
  static const char *const common[] = {"Q4_1", "Q8_0", "Q4_K", "Q6_K", "Q5_0", "Q4_0", "Q5_K", "IQ4_NL", "F16", "BF16", "F32"};
  const char *type = argc > 1 ? argv[1] : "common";
  mtx_tier cap = MTX_TIER_NEON;
  for (int t = 0; argc > 2 && t <= MTX_TIER_NEON; t++)
    if (!strcmp(argv[2], mtx_tier_name((mtx_tier)t))) cap = (mtx_tier)t;
  mtx_kern_init(cap);
  printf("CPU: %s\n", mtx_cpu_get()->name);
  uint8_t *memory = huge((size_t)MATRIX_MB << 20), *act = huge((size_t)MAX_COLS * GEMM_K * 4), *src = huge((size_t)GEMM_OUT * GEMM_K * 4);
  float *x = huge((size_t)MAX_COLS * GEMM_K * 4), *y = huge((size_t)MATRIX_MB << 20);
  memset(memory, 0, (size_t)MATRIX_MB << 20);
  for (int i = 0; i < MAX_COLS * GEMM_K; i++) x[i] = sinf((float)i);
  for (int threads = argc > 3 ? atoi(argv[3]) : 1; threads <= (argc > 3 ? atoi(argv[3]) : 2); threads++) {
    omp_set_num_threads(threads);
    if (!strcmp(type, "all")) {
      for (int i = 0; i < mtx_qtype_count(); i++)
        if (mtx_weight_bytes(mtx_qtype_at(i), 16, GEMM_K)) bench(mtx_qtype_at(i), memory, src, x, act, y);
    } else if (!strcmp(type, "common")) {
      for (unsigned i = 0; i < sizeof common / sizeof *common; i++) bench(mtx_qtype_by_name(common[i]), memory, src, x, act, y);
    } else {
      const mtx_qtype *t = mtx_qtype_by_name(type);
      if (!t || !mtx_weight_bytes(t, 16, GEMM_K)) {
        fprintf(stderr, "bench_matmul: no products by type %s\n", type);
        return 1;
      }
      bench(t, memory, src, x, act, y);
    }
  }
  return 0;
}
