// SPDX-License-Identifier: MIT
// Adapters on every architecture: each golden model with an adapter for all matrices that take one says what the same
// model says with W + scale B A in its file. `test_lora_archs NAME` runs one.
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "engine/step.h"
#include "gguf/write.h"
#include "golden_arch.h"
#include "kern/kern.h"
#include "nmse.h"
#include "temp.h"

enum { N = 24, RANK = 3 };

#define ALPHA 6.0f
#define MAX_NMSE 1e-8

static uint32_t seed = 1;
static float small(float most) {
  seed = seed * 1664525u + 1013904223u;
  return most * ((float)(seed >> 8) / 8388608.0f - 1.0f);
}

// Does an adapter take this weight: a plain F32 matrix, used by products only?
static bool takes(const mtx_plan *p, mtx_wid w) {
  bool product = false, other = p->weight[w].tensor->type != 0 || p->weight[w].n_mats > 1;
  for (int i = 0; i < p->n_steps; i++)
    for (int k = 0; k < MTX_STEP_MAX_W; k++) {
      const mtx_step_desc *s = &p->step[i];
      if (s->w[k] == w) *(s->op == MTX_OP_MATMUL ? &product : &other) = true;
      other |= s->b[k] == w;
    }
  return product && !other;
}

typedef struct { float *a, *b, *sum; char name_a[160], name_b[160]; } pair;

// Writes an adapter for the model and the model with it merged; how many weights it changes.
static int write_files(const mtx_model *m, const char *adapter, const char *merged) {
  const mtx_gguf *g = mtx_model_gguf(m);
  const mtx_plan *p = mtx_model_plan(m);
  const char *arch = mtx_model_get_info(m)->arch;
  pair *x = calloc((size_t)p->n_weights, sizeof *x);
  mtx_gguf_writer *wa, *wm;
  mtx_err err = {0};
  int n = 0;
  bool ok = x && !mtx_gguf_writer_new(&wa, &err) && !mtx_gguf_writer_new(&wm, &err) && !mtx_gguf_put_all(wm, g, &err) &&
            !mtx_gguf_put_str(wa, "general.type", (mtx_str){"adapter", 7}, &err) && !mtx_gguf_put_str(wa, "adapter.type", (mtx_str){"lora", 4}, &err) &&
            !mtx_gguf_put_str(wa, "general.architecture", (mtx_str){arch, strlen(arch)}, &err) && !mtx_gguf_put_f32(wa, "adapter.lora.alpha", ALPHA, &err);
  for (uint64_t i = 0; ok && i < mtx_gguf_n_tensors(g); i++) {
    const mtx_gguf_tensor *t = mtx_gguf_tensor_at(g, i);
    mtx_wid w = 0;
    for (int k = 1; k < p->n_weights; k++)
      if (p->weight[k].tensor == t) w = k;
    if (!w || !takes(p, w)) {
      ok = !mtx_gguf_add_copy(wm, t, &err);
      continue;
    }
    int64_t k = p->weight[w].k, n_out = p->weight[w].n_out;
    pair *y = &x[n++];
    y->a = malloc((size_t)(k * RANK) * sizeof(float));
    y->b = malloc((size_t)(n_out * RANK) * sizeof(float));
    y->sum = malloc(t->n_bytes);
    for (int64_t j = 0; j < k * RANK; j++) y->a[j] = small(0.15f);
    for (int64_t j = 0; j < n_out * RANK; j++) y->b[j] = small(0.15f);
    for (int64_t r = 0; r < n_out; r++)
      for (int64_t c = 0; c < k; c++) {
        double d = 0;
        for (int j = 0; j < RANK; j++) d += (double)y->b[r * RANK + j] * y->a[j * k + c];
        y->sum[r * k + c] = (float)(((const float *)t->data)[r * k + c] + (double)(ALPHA / RANK) * d);
      }
    snprintf(y->name_a, sizeof y->name_a, "%.*s.lora_a", (int)t->name.len, t->name.ptr);
    snprintf(y->name_b, sizeof y->name_b, "%.*s.lora_b", (int)t->name.len, t->name.ptr);
    ok = !mtx_gguf_add(wm, t->name, 0, t->n_dims, t->ne, y->sum, t->n_bytes, &err) &&
         !mtx_gguf_add(wa, (mtx_str){y->name_a, strlen(y->name_a)}, 0, 2, (uint64_t[]){(uint64_t)k, RANK}, y->a, (uint64_t)(k * RANK) * sizeof(float), &err) &&
         !mtx_gguf_add(wa, (mtx_str){y->name_b, strlen(y->name_b)}, 0, 2, (uint64_t[]){RANK, (uint64_t)n_out}, y->b, (uint64_t)(n_out * RANK) * sizeof(float), &err);
  }
  ok = ok && !mtx_gguf_write(wa, adapter, &err) && !mtx_gguf_write(wm, merged, &err);
  CHECK(ok, "%s: %s %s", arch, err.key, err.msg);
  mtx_gguf_writer_free(wa);
  mtx_gguf_writer_free(wm);
  for (int i = 0; i < n; i++) free(x[i].a), free(x[i].b), free(x[i].sum);
  free(x);
  return ok ? n : 0;
}

static float *evaluate(const mtx_model *m, const mtx_lora *lora) {
  const mtx_model_info *info = mtx_model_get_info(m);
  mtx_context *c;
  mtx_err err = {0};
  mtx_row rows[N];
  const float *out;
  int seq = -1;
  float *all = malloc((size_t)N * (size_t)info->n_out * sizeof *all);
  CHECK(mtx_context_open(&c, m, &(mtx_context_opts){.n_ctx = N, .kv_type = MTX_KV_F32, .n_threads = 2}, &err) == MTX_OK, "%s", err.msg);
  CHECK(mtx_kv_seq_new(mtx_context_kv(c), &seq, &err) == MTX_OK, "%s", err.msg);
  for (int i = 0; i < N; i++) rows[i] = (mtx_row){.token = 4 + i * 37 % (info->n_vocab - 4), .seq = seq, .want = MTX_WANT_OUTPUT, .lora = lora};
  CHECK(mtx_context_step(c, rows, N, &out, &err) == MTX_OK, "%s", err.msg);
  if (!err.code) memcpy(all, out, (size_t)N * (size_t)info->n_out * sizeof *all);
  mtx_context_close(c);
  return all;
}

// False when this build does not know the architecture.
static bool check_model(const golden_model *models, int n_models, const char *name) {
  char path[TEMP_PATH], adapter[TEMP_PATH], merged[TEMP_PATH];
  mtx_model *m, *other = NULL;
  mtx_adapter *a = NULL;
  mtx_lora *l = NULL;
  mtx_err err = {0};
  if (!golden_arch_write(models, n_models, name, path)) {
    CHECK(false, "%s cannot be made", name);
    return false;
  }
  mtx_code code = mtx_model_open(&m, path, NULL, &err);
  unlink(path);
  if (code) return false;
  temp_path(adapter);
  temp_path(merged);
  int n = write_files(m, adapter, merged);
  CHECK(n > 0, "%s: no matrix takes an adapter", name);
  CHECK(mtx_adapter_open(&a, m, adapter, NULL, &err) == MTX_OK, "%s: %s: %s", name, err.key, err.msg);
  CHECK(mtx_model_open(&other, merged, NULL, &err) == MTX_OK, "%s: %s: %s", name, err.key, err.msg);
  if (a && other && mtx_lora_new(&l, m, &a, (float[]){1}, 1, &err) == MTX_OK) {
    size_t size = (size_t)N * (size_t)mtx_model_get_info(m)->n_out;
    float *base = evaluate(m, NULL), *with = evaluate(m, l), *want = evaluate(other, NULL);
    double e = nmse(want, with, size), moved = nmse(want, base, size);
    CHECK(e <= MAX_NMSE && moved > 1e-3, "%s: NMSE %g, of the base %g", name, e, moved);
    printf("ok %s: %d weights, nmse %.2g (base %.2g)\n", name, n, e, moved);
    free(base);
    free(with);
    free(want);
  }
  mtx_lora_unref(l);
  mtx_adapter_unref(a);
  mtx_model_close(other);
  mtx_model_close(m);
  unlink(adapter);
  unlink(merged);
  return true;
}

int main(int argc, char **argv) {
  int n_models, n_known = 0;
  golden_model *models = golden_arch_models(&n_models);
  mtx_kern_init(MTX_TIER_NEON > MTX_TIER_AMX ? MTX_TIER_NEON : MTX_TIER_AMX);
  for (int i = 0; i < n_models; i++)
    if (argc < 2 || !strcmp(argv[1], models[i].name)) n_known += check_model(models, n_models, models[i].name);
  CHECK(argc > 1 || n_known >= 50, "%d models", n_known);
  golden_arch_free(models, n_models);
  return check_report();
}
