// SPDX-License-Identifier: MIT
// LoRA adapters against llama.cpp (tests/golden/lora): logits within tolerance, whatever shares the step. Sequences with
// different adapters in one step have the bits they have alone; scale 0 is the base model.
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "engine/step.h"
#include "golden_arch.h"
#include "kern/kern.h"
#include "nmse.h"

#define GOLDEN_LORA "tests/golden/lora"

enum { MAX_PARTS = 4, MAX_CASES = 32, MAX_TOKENS = 64 };

typedef struct {
  char name[64], model[64], adapter[MAX_PARTS][64];
  float scale[MAX_PARTS];
  int n;
  double tolerance;
} lora_case;

static golden_model *models;
static int n_models;

static int read_cases(lora_case *c) {
  FILE *f = fopen(GOLDEN_LORA "/cases.txt", "r");
  char line[512];
  int n = 0;
  while (f && fgets(line, sizeof line, f) && n < MAX_CASES) {
    lora_case *x = &c[n];
    int at;
    if (line[0] == '#') continue;
    memset(x, 0, sizeof *x);
    if (sscanf(line, "case %63s %63s %lf | %n", x->name, x->model, &x->tolerance, &at) != 3) break;
    for (int used; x->n < MAX_PARTS && sscanf(line + at, "%63s %f %n", x->adapter[x->n], &x->scale[x->n], &used) == 2; at += used) x->n++;
    n++;
  }
  if (f) fclose(f);
  return n;
}

static bool is_quantised(const char *model) { return !strncmp(model, "q256", 4); }

// The tokens that the reference read: of golden/arch's run NAME, of golden/quantised's runs.
static int read_tokens(const char *name, int32_t *token) {
  FILE *f = fopen(is_quantised(name) ? "tests/golden/quantised/runs.txt" : GOLDEN_ARCH "/runs.txt", "r");
  char line[2048], run[64] = "";
  int n = 0;
  while (f && fgets(line, sizeof line, f) && !n) {
    sscanf(line, "run %63s", run);
    if (strncmp(line, "tokens ", 7) || (!is_quantised(name) && strcmp(run, name))) continue;
    int used;
    for (const char *p = line + 7; n < MAX_TOKENS && sscanf(p, "%d%n", &token[n], &used) == 1; p += used) n++;
  }
  if (f) fclose(f);
  return n;
}

static mtx_model *open_model(const char *name) {
  char path[TEMP_PATH];
  mtx_model *m = NULL;
  mtx_err err = {0};
  if (is_quantised(name)) snprintf(path, sizeof path, "build/golden/quantised/%s.gguf", name);
  else if (!golden_arch_write(models, n_models, name, path)) return NULL;
  CHECK(mtx_model_open(&m, path, NULL, &err) == MTX_OK, "%s: %s", name, err.msg);
  if (!is_quantised(name)) unlink(path);
  return m;
}

static mtx_adapter *open_adapter(const mtx_model *m, const char *name) {
  char path[128];
  mtx_adapter *a = NULL;
  mtx_err err = {0};
  snprintf(path, sizeof path, GOLDEN_LORA "/%s.gguf", name);
  CHECK(mtx_adapter_open(&a, m, path, NULL, &err) == MTX_OK, "%s: %s: %s", path, err.key, err.msg);
  return a;
}

static mtx_lora *open_set(const mtx_model *m, const lora_case *c) {
  mtx_adapter *a[MAX_PARTS] = {0};
  mtx_lora *l = NULL;
  mtx_err err = {0};
  for (int i = 0; i < c->n; i++) a[i] = open_adapter(m, c->adapter[i]);
  CHECK(mtx_lora_new(&l, m, a, c->scale, c->n, &err) == MTX_OK, "%s: %s", c->name, err.msg);
  for (int i = 0; i < c->n; i++) mtx_adapter_unref(a[i]);  // the set keeps them
  return l;
}

// Sequences of the same tokens, each with its own adapters, read side by side in steps of `chunk` tokens each.
static float *evaluate(const mtx_model *m, const int32_t *token, int n, mtx_lora *const *lora, int n_seqs, int chunk, int n_threads) {
  mtx_context *c;
  mtx_err err = {0};
  mtx_context_opts o = {.n_ctx = MAX_TOKENS, .kv_type = MTX_KV_F32, .n_threads = n_threads, .max_rows = 512, .max_seqs = 16, .kv_tokens = 16 * MAX_TOKENS};
  CHECK(mtx_context_open(&c, m, &o, &err) == MTX_OK, "%s", err.msg);
  const size_t width = (size_t)mtx_model_get_info(m)->n_out;
  float *all = malloc((size_t)n_seqs * (size_t)n * width * sizeof *all);
  int seq[16];
  for (int s = 0; s < n_seqs; s++) CHECK(mtx_kv_seq_new(mtx_context_kv(c), &seq[s], &err) == MTX_OK, "%s", err.msg);
  for (int at = 0; at < n; at += chunk) {
    mtx_row rows[512];
    int n_rows = 0, len = n - at < chunk ? n - at : chunk;
    for (int s = 0; s < n_seqs; s++)
      for (int i = 0; i < len; i++) rows[n_rows++] = (mtx_row){.token = token[at + i], .seq = seq[s], .want = MTX_WANT_OUTPUT, .lora = lora[s]};
    const float *out;
    CHECK(mtx_context_step(c, rows, n_rows, &out, &err) == MTX_OK, "%s", err.msg);
    for (int s = 0; s < n_seqs; s++)
      memcpy(all + ((size_t)s * (size_t)n + (size_t)at) * width, out + (size_t)s * (size_t)len * width, (size_t)len * width * sizeof *all);
  }
  mtx_context_close(c);
  return all;
}

static void check_case(const lora_case *c) {
  static const int chunks[] = {64, 7, 1};
  char path[128];
  int32_t token[MAX_TOKENS];
  int n = read_tokens(c->model, token);
  mtx_model *m = open_model(c->model);
  size_t size = m ? (size_t)n * (size_t)mtx_model_get_info(m)->n_out : 0;
  mtx_lora *l = m ? open_set(m, c) : NULL, *none = NULL;
  snprintf(path, sizeof path, GOLDEN_LORA "/%s.logits.f32", c->name);
  FILE *f = fopen(path, "rb");
  float *ref = malloc(size * sizeof *ref);
  bool ok = f && fread(ref, sizeof *ref, size, f) == size;
  if (f) fclose(f);
  CHECK(ok && n && l, "%s cannot be tested", c->name);
  if (ok && n && l) {
    float *one = evaluate(m, token, n, &l, 1, 64, 1);
    double e = nmse(ref, one, size);
    CHECK(e <= c->tolerance, "%s: NMSE %g, allowed %g", c->name, e, c->tolerance);
    printf("ok %s nmse %.2g\n", c->name, e);
    for (int k = 0; k < 3; k++)
      for (int threads = 1; threads <= 2; threads++) {
        float *part = evaluate(m, token, n, &l, 1, chunks[k], threads);
        CHECK(memcmp(part, one, size * sizeof *part) == 0, "%s: other bits in chunks of %d with %d threads", c->name, chunks[k], threads);
        free(part);
      }
    // Beside sequences without adapters and with them.
    float *base = evaluate(m, token, n, &none, 1, 64, 1);
    mtx_lora *mixed[] = {NULL, l, l, NULL, NULL, l};
    for (int k = 0; k < 3; k++)
      for (int threads = 1; threads <= 2; threads++) {
        float *both = evaluate(m, token, n, mixed, 6, chunks[k], threads);
        for (int s = 0; s < 6; s++)
          CHECK(memcmp(both + (size_t)s * size, mixed[s] ? one : base, size * sizeof *both) == 0, "%s: sequence %d of a mixed step of %d tokens has other bits (%d threads)",
                c->name, s, chunks[k], threads);
        free(both);
      }
    free(base);
    free(one);
  }
  free(ref);
  mtx_lora_unref(l);
  mtx_model_close(m);
}

int main(void) {
  static lora_case c[MAX_CASES];
  mtx_kern_init(MTX_TIER_NEON > MTX_TIER_AMX ? MTX_TIER_NEON : MTX_TIER_AMX);
  models = golden_arch_models(&n_models);
  int n = read_cases(c);
  CHECK(n == 16, "%d cases read of " GOLDEN_LORA "/cases.txt", n);
  for (int i = 0; i < n; i++) check_case(&c[i]);
  golden_arch_free(models, n_models);
  return check_report();
}
