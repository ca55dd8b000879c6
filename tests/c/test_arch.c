// SPDX-License-Identifier: MIT
// Every golden model of an architecture that this build knows: logits against the
// reference within its tolerance, and bit-identical whether the sequence is read
// whole, in chunks, token by token, with one thread or two. Golden models of
// other architectures must be refused by name. `test_arch NAME` runs one.
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "engine/step.h"
#include "golden_arch.h"
#include "kern/kern.h"
#include "nmse.h"

enum { MAX_TOKENS = 256 };

typedef struct {
  char name[64], arch[64], kind[32], file[96];
  double tolerance;
  int n_tokens, rows, width;
  int32_t token[MAX_TOKENS];
} run;

static bool is_known(const char *arch) {
  for (const char *const *n = mtx_model_architectures(); *n; n++)
    if (strcmp(*n, arch) == 0) return true;
  return false;
}

// Reads the sequence in steps of `chunk` rows; returns rows x width floats or NULL.
static float *evaluate(const mtx_model *m, const run *r, int chunk, int n_threads) {
  mtx_context *c;
  mtx_err err = {0};
  mtx_context_opts o = {.n_ctx = MAX_TOKENS, .kv_type = MTX_KV_F32, .n_threads = n_threads, .max_rows = MAX_TOKENS, .max_seqs = 2};
  float *all = NULL;
  int seq = -1;
  if (mtx_context_open(&c, m, &o, &err) || mtx_kv_seq_new(mtx_context_kv(c), &seq, &err)) goto fail;
  all = malloc((size_t)r->n_tokens * (size_t)r->width * sizeof *all);
  for (int at = 0; at < r->n_tokens; at += chunk) {
    mtx_row rows[MAX_TOKENS];
    int n = r->n_tokens - at < chunk ? r->n_tokens - at : chunk;
    for (int i = 0; i < n; i++) rows[i] = (mtx_row){.token = r->token[at + i], .seq = seq, .want = true};
    const float *out;
    if (mtx_context_step(c, rows, n, &out, &err)) goto fail;
    memcpy(all + (size_t)at * (size_t)r->width, out, (size_t)n * (size_t)r->width * sizeof *all);
  }
  mtx_kv_seq_free(mtx_context_kv(c), seq);
  CHECK(mtx_kv_check(mtx_context_kv(c)), "%s: pages leaked", r->name);
  mtx_context_close(c);
  return all;
fail:
  fprintf(stderr, "%s: %s %s\n", r->name, err.key, err.msg);
  mtx_context_close(c);
  free(all);
  return NULL;
}

static float *read_floats(const char *file, size_t n) {
  char path[256];
  snprintf(path, sizeof path, GOLDEN_ARCH "/%s", file);
  FILE *f = fopen(path, "rb");
  float *x = malloc(n * sizeof *x);
  bool ok = f && fread(x, sizeof *x, n, f) == n;
  if (f) fclose(f);
  if (ok) return x;
  free(x);
  return NULL;
}

// The hidden state times the head's matrix, by hand in double precision.
static float *through_head(const mtx_model *m, const run *r, const float *hidden, int64_t k) {
  const mtx_gguf *g = mtx_model_gguf(m);
  const mtx_gguf_tensor *t = mtx_gguf_tensor_find(g, "output.weight"), *b = mtx_gguf_tensor_find(g, "output.bias");
  if (!t) t = mtx_gguf_tensor_find(g, "token_embd.weight");
  float *row = malloc((size_t)k * sizeof *row), *out = malloc((size_t)r->n_tokens * (size_t)r->width * sizeof *out), softcap = 0, scale = 1;
  char key[96];
  snprintf(key, sizeof key, "%s.final_logit_softcapping", r->arch);
  (void)mtx_gguf_get_f32(g, key, false, &softcap, NULL);
  snprintf(key, sizeof key, "%s.logit_scale", r->arch);
  (void)mtx_gguf_get_f32(g, key, false, &scale, NULL);
  if (strncmp(r->arch, "granite", 7) == 0 || strcmp(r->arch, "minicpm") == 0) scale = 1 / scale;  // these divide by it
  const mtx_qtype *type = mtx_qtype_get(t->type);
  size_t row_bytes = t->n_bytes / (size_t)r->width;
  for (int o = 0; o < r->width; o++) {
    type->decode((const uint8_t *)t->data + (size_t)o * row_bytes, row, k);
    float bias = 0;
    if (b) mtx_qtype_get(b->type)->decode((const float *)b->data + o, &bias, 1);
    for (int i = 0; i < r->n_tokens; i++) {
      double s = bias;
      for (int64_t j = 0; j < k; j++) s += (double)row[j] * hidden[i * k + j];
      s *= scale;
      if (softcap != 0) s = softcap * tanh(s / softcap);
      out[(size_t)i * (size_t)r->width + (size_t)o] = (float)s;
    }
  }
  free(row);
  return out;
}

// Hidden states of a decoder: what the head makes of them are the reference's
// logits, and neither they nor the logits change when a step gives some of both.
static void check_hidden(const run *r, const mtx_model *m, const float *ref, const float *logits) {
  int64_t k = mtx_model_get_info(m)->n_embed;
  size_t n = (size_t)r->n_tokens * (size_t)k;
  float *all = malloc(n * sizeof *all);
  for (int mode = 0; mode < 3; mode++) {  // all at once; mixed with logits; mixed, in chunks
    mtx_context *c;
    mtx_err err = {0};
    int seq = -1, chunk = mode == 2 ? 7 : r->n_tokens;
    mtx_context_opts o = {.n_ctx = MAX_TOKENS, .kv_type = MTX_KV_F32, .n_threads = 1, .max_rows = MAX_TOKENS, .max_seqs = 2};
    CHECK(mtx_context_open(&c, m, &o, &err) == MTX_OK && mtx_kv_seq_new(mtx_context_kv(c), &seq, &err) == MTX_OK, "%s", err.msg);
    for (int at = 0; at < r->n_tokens; at += chunk) {
      mtx_row rows[MAX_TOKENS];
      int n_rows = r->n_tokens - at < chunk ? r->n_tokens - at : chunk;
      for (int i = 0; i < n_rows; i++) rows[i] = (mtx_row){.token = r->token[at + i], .seq = seq, .want = mode && (at + i) % 3 == 0 ? MTX_WANT_OUTPUT : MTX_WANT_HIDDEN};
      const float *out, *hidden;
      CHECK(mtx_context_step(c, rows, n_rows, &out, &err) == MTX_OK, "%s: %s", r->name, err.msg);
      hidden = mtx_context_hidden(c);
      for (int i = at; i < at + n_rows; i++) {
        bool head = mode && i % 3 == 0;
        if (head) {
          CHECK(memcmp(out, logits + (size_t)i * (size_t)r->width, (size_t)r->width * sizeof *out) == 0, "%s: other logits of token %d", r->name, i);
          out += r->width;
        } else {
          if (mode == 0) memcpy(all + i * k, hidden, (size_t)k * sizeof *all);
          else CHECK(memcmp(all + i * k, hidden, (size_t)k * sizeof *all) == 0, "%s: other hidden state of token %d", r->name, i);
          hidden += k;
        }
      }
    }
    mtx_context_close(c);
  }
  float *made = through_head(m, r, all, k);
  double e = nmse(ref, made, (size_t)r->n_tokens * (size_t)r->width);
  CHECK(e <= r->tolerance, "%s: hidden states through the head: NMSE %g, allowed %g", r->name, e, r->tolerance);
  free(made);
  free(all);
}

// What every thread makes for itself must not be read from where the product behind it is added.
static void check_plan(const run *r, const mtx_model *m) {
  const mtx_plan *p = mtx_model_plan(m);
  for (int i = 0; i + 1 < p->n_steps; i++)
    for (int k = 0; p->step[i].own_rows && k < p->step[i + 1].n_w; k++)
      CHECK(p->val[p->step[i + 1].out[k]].buf != p->val[p->step[i].in[0]].buf, "%s: step %d is read while it is written", r->name, i);
}

static void check_run(const run *r, const mtx_model *m) {
  size_t n = (size_t)r->rows * (size_t)r->width;
  float *ref = read_floats(r->file, n);
  CHECK(ref, "%s is missing", r->file);
  const mtx_model_info *info = mtx_model_get_info(m);
  CHECK(info->n_out == r->width, "%s: width %d, golden %d", r->name, info->n_out, r->width);
  if (!ref || info->n_out != r->width) return;
  float *whole = evaluate(m, r, r->n_tokens, 1);
  CHECK(whole, "%s: evaluation failed", r->name);
  if (whole) {
    double e = nmse(ref, whole, n);
    CHECK(e <= r->tolerance, "%s: NMSE %g, allowed %g", r->name, e, r->tolerance);
    printf("ok %s nmse %.2g\n", r->name, e);
    static const int chunks[] = {256, 7, 3, 1};
    for (int i = info->causal ? 3 : 0; i >= 0; i--)
      for (int threads = 1; threads <= 2; threads++) {
        float *part = evaluate(m, r, chunks[i], threads);
        CHECK(part && memcmp(part, whole, n * sizeof *part) == 0, "%s: other bits in chunks of %d with %d threads", r->name, chunks[i], threads);
        free(part);
      }
    CHECK(info->n_embed > 0, "%s gives no embeddings", r->name);
    if (info->has_logits) check_hidden(r, m, ref, whole);
  }
  free(whole);
  free(ref);
}

static void run_one(const run *r, const golden_model *gm) {
  char path[TEMP_PATH];
  mtx_model *m;
  mtx_err err = {0};
  if (!golden_arch_write_one(gm, path)) {
    CHECK(false, "%s cannot be made", r->name);
    return;
  }
  mtx_code code = mtx_model_open(&m, path, NULL, &err);
  if (!is_known(r->arch)) {
    CHECK(code == MTX_EUNSUPPORTED && strcmp(err.key, "general.architecture") == 0 && strstr(err.msg, r->arch), "%s: %s", r->name, err.msg);
  } else {
    CHECK(code == MTX_OK, "%s: %s: %s", r->name, err.key, err.msg);
    if (code == MTX_OK) check_plan(r, m), check_run(r, m);
  }
  mtx_model_close(m);
  unlink(path);
}

int main(int argc, char **argv) {
  int n_models, n_runs = 0;
  golden_model *models = golden_arch_models(&n_models);
  mtx_kern_init(argc > 2 ? MTX_TIER_SCALAR : MTX_TIER_AMX);
  FILE *f = fopen(GOLDEN_ARCH "/runs.txt", "r");
  char line[4096];
  run r = {0};
  while (f && fgets(line, sizeof line, f)) {
    if (sscanf(line, "run %63s %63s %lf", r.name, r.arch, &r.tolerance) == 3) continue;
    if (strncmp(line, "tokens ", 7) == 0) {
      r.n_tokens = 0;
      for (char *p = strtok(line + 7, " \n"); p && r.n_tokens < MAX_TOKENS; p = strtok(NULL, " \n")) r.token[r.n_tokens++] = atoi(p);
    }
    if (sscanf(line, "out %31s %95s %d %d", r.kind, r.file, &r.rows, &r.width) != 4) continue;
    // Encoders list the last hidden states first; the pooled mean has a test of its own.
    if (strcmp(r.kind, "mean") == 0 || (argc > 1 && strcmp(argv[1], r.name) != 0)) continue;
    const golden_model *gm = golden_arch_find(models, n_models, r.name);
    CHECK(gm, "%s has no rules", r.name);
    if (gm) run_one(&r, gm), n_runs++;
  }
  CHECK(f && n_runs > 0, "tests/golden/arch/runs.txt is missing or names no such model");
  if (f) fclose(f);
  golden_arch_free(models, n_models);
  return check_report();
}
