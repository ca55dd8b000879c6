// SPDX-License-Identifier: MIT
// Whole models in quantised types (tests/golden/quantised, a sample of the 29 mixes;
// `make golden` writes them) against the reference's logits of the same weights expanded to float. Activations
// are rounded to 8 bits here, so the distance may be what such rounding costs.
#include <stdlib.h>

#include "check.h"
#include "engine/step.h"
#include "kern/kern.h"

enum { N = 24, WIDTH = 64 };

static double distance(const char *name, const int32_t *token) {
  char path[128];
  float ref[N * WIDTH];
  snprintf(path, sizeof path, "tests/golden/quantised/q256-%s.deq-logits.f32", name);
  FILE *f = fopen(path, "rb");
  size_t n = f ? fread(ref, sizeof *ref, N * WIDTH, f) : 0;
  if (f) fclose(f);
  CHECK(n == N * WIDTH, "%s is missing or short", path);
  snprintf(path, sizeof path, "build/golden/quantised/q256-%s.gguf", name);
  mtx_model *m;
  mtx_context *c;
  mtx_err err = {0};
  if (n != N * WIDTH || mtx_model_open(&m, path, NULL, &err)) {
    CHECK(false, "%s: %s", path, err.msg);
    return 1;
  }
  mtx_row rows[N];
  int seq;
  const float *out;
  double num = 0, den = 0;
  if (mtx_context_open(&c, m, &(mtx_context_opts){.n_ctx = N, .kv_type = MTX_KV_F32}, &err) || mtx_kv_seq_new(mtx_context_kv(c), &seq, &err)) exit(2);
  for (int i = 0; i < N; i++) rows[i] = (mtx_row){.token = token[i], .seq = seq, .want = true};
  CHECK(mtx_context_step(c, rows, N, &out, &err) == MTX_OK, "%s", err.msg);
  for (int i = 0; i < N * WIDTH; i++) num += ((double)ref[i] - out[i]) * ((double)ref[i] - out[i]), den += (double)ref[i] * ref[i];
  mtx_context_close(c);
  mtx_model_close(m);
  return num / den;
}

int main(void) {
  mtx_kern_init(MTX_TIER_AMX);
  FILE *f = fopen("tests/golden/quantised/runs.txt", "r");
  char line[512], name[32];
  int32_t token[N];
  int n = 0, runs = 0;
  double native;
  while (f && fgets(line, sizeof line, f)) {
    if (strncmp(line, "tokens ", 7) == 0)
      for (char *p = strtok(line + 7, " \n"); p && n < N; p = strtok(NULL, " \n")) token[n++] = atoi(p);
    if (sscanf(line, "run %31s %lf", name, &native) != 2) continue;
    double e = distance(name, token);
    CHECK(e <= 3e-3, "%s: NMSE %g", name, e);
    printf("ok %s nmse %.2g (the reference's own kernels: %.2g)\n", name, e, native);
    runs++;
  }
  CHECK(f && n == N && runs == 6, "tests/golden/quantised/runs.txt is missing or damaged");
  if (f) fclose(f);
  return check_report();
}
