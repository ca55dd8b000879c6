// SPDX-License-Identifier: MIT
// Opening adapters and making sets of them: see adapter.h.
#include "model/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sysinfo.h"

struct mtx_adapter {
  atomic_int refs;
  uint64_t model_id;
  mtx_lora_pair *pair;      // one for each weight of the model's plan
  void *mem;
  mtx_adapter_info info;
};

#define A_END ".lora_a"
#define B_END ".lora_b"

// Both halves of a pair while the file is read.
typedef struct { const mtx_gguf_tensor *a, *b; } halves;

typedef struct {
  const mtx_gguf *file;
  const mtx_plan *plan;
  const mtx_model_opts *opts;
  halves *half;             // one for each weight of the plan
  mtx_err *err;
} reader;

static bool ends_with(mtx_str s, const char *end) {
  size_t n = strlen(end);
  return s.len >= n && memcmp(s.ptr + s.len - n, end, n) == 0;
}

static mtx_code fail_tensor(const reader *r, mtx_code code, mtx_str name, const char *what) {
  char key[128];
  snprintf(key, sizeof key, "%.*s", (int)(name.len < 127 ? name.len : 127), name.ptr);
  return mtx_fail_at(r->err, code, mtx_gguf_path(r->file), key, 0, "%s", what);
}

// ---- which weight, and can mtx add to it? ----------------------------------------------

typedef enum { USED_NOT = 0, USED_MATRIX = 1, USED_TABLE = 2, USED_OTHERWISE = 4 } usage;

static unsigned usage_of(const mtx_plan *p, mtx_wid w) {
  unsigned u = USED_NOT;
  for (int i = 0; i < p->n_steps; i++)
    for (int k = 0; k < MTX_STEP_MAX_W; k++) {
      const mtx_step_desc *s = &p->step[i];
      if (s->b[k] == w) u |= USED_OTHERWISE;
      if (s->w[k] == w) u |= s->op == MTX_OP_MATMUL ? USED_MATRIX : s->op == MTX_OP_EMBED ? USED_TABLE : USED_OTHERWISE;
    }
  return u;
}

static mtx_wid weight_of(const mtx_plan *p, mtx_str name) {
  for (int i = 1; i < p->n_weights; i++) {
    mtx_str n = p->weight[i].tensor->name;
    if (n.len == name.len && memcmp(n.ptr, name.ptr, n.len) == 0) return i;
  }
  return 0;
}

static mtx_code take_tensor(mtx_adapter *x, reader *r, const mtx_model *m, const mtx_gguf_tensor *t) {
  bool a = ends_with(t->name, A_END);
  if (!a && !ends_with(t->name, B_END)) {
    x->info.n_unused++;
    if (ends_with(t->name, "_norm.weight")) return MTX_OK;
    return fail_tensor(r, MTX_EFORMAT, t->name, "a LoRA adapter holds tensors that end with " A_END " or " B_END);
  }
  mtx_str base = {t->name.ptr, t->name.len - strlen(A_END)};
  mtx_wid w = weight_of(r->plan, base);
  if (!w) {
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)base.len, base.ptr);
    bool there = mtx_gguf_tensor_find(mtx_model_gguf(m), name) != NULL;
    return there ? fail_tensor(r, MTX_EUNSUPPORTED, base, "mtx does not use this tensor of the base model, so an adapter cannot add to it")
                 : fail_tensor(r, MTX_EFORMAT, base, "the base model has no such tensor; the adapter belongs to another model");
  }
  if (t->type != 0 && t->type != 1 && t->type != 8 && t->type != 30)
    return fail_tensor(r, MTX_EUNSUPPORTED, t->name, "mtx reads adapters of the types F32, F16, BF16 and Q8_0");
  if (a) r->half[w].a = t;
  else r->half[w].b = t;
  return MTX_OK;
}

static mtx_code fail_shape(const reader *r, mtx_str base, const halves *h, bool table, const mtx_plan_weight *w) {
  char key[128];
  snprintf(key, sizeof key, "%.*s", (int)(base.len < 127 ? base.len : 127), base.ptr);
  const char *want = table ? "lora_a rank x %lld and lora_b rank x %lld" : "lora_a %lld x rank and lora_b rank x %lld";
  char text[128];
  snprintf(text, sizeof text, want, (long long)(table ? w->n_out : w->k), (long long)(table ? w->k : w->n_out));
  return mtx_fail_at(r->err, MTX_EFORMAT, mtx_gguf_path(r->file), key, 0,
                     "the base model asks for %s; the adapter has %llu x %llu and %llu x %llu (is it for another model?)", text,
                     (unsigned long long)h->a->ne[0], (unsigned long long)h->a->ne[1], (unsigned long long)h->b->ne[0], (unsigned long long)h->b->ne[1]);
}

// Rank of the pair of weight w, 0 when the adapter has none; *table: the pair changes an embedding table.
static mtx_code check_pair(const reader *r, mtx_wid w, int *rank, bool *table) {
  const halves *h = &r->half[w];
  const mtx_plan_weight *pw = &r->plan->weight[w];
  mtx_str base = pw->tensor->name;
  *rank = 0;
  if (!h->a && !h->b) return MTX_OK;
  if (!h->b) return fail_tensor(r, MTX_EFORMAT, h->a->name, "its other half, " B_END ", is missing");
  if (!h->a) return fail_tensor(r, MTX_EFORMAT, h->b->name, "its other half, " A_END ", is missing");
  unsigned u = usage_of(r->plan, w);
  *table = u & USED_TABLE;
  if (u == (USED_TABLE | USED_MATRIX))
    return fail_tensor(r, MTX_EUNSUPPORTED, base, "this table is also the model's output matrix (tied); mtx cannot add to it");
  if (u & USED_OTHERWISE || !u)
    return fail_tensor(r, MTX_EUNSUPPORTED, base, "mtx adds adapters to plain matrices and to the token table only, not to experts, heads or vectors");
  uint64_t n = h->b->ne[0];  // lora_b's rows are as long as the rank is large
  bool fits = h->a->ne[2] == 1 && h->a->ne[3] == 1 && h->b->ne[2] == 1 && h->b->ne[3] == 1 &&
              (*table ? h->a->ne[0] == n && h->a->ne[1] == (uint64_t)pw->n_out && h->b->ne[1] == (uint64_t)pw->k
                      : h->a->ne[0] == (uint64_t)pw->k && h->a->ne[1] == n && h->b->ne[1] == (uint64_t)pw->n_out);
  if (!fits) return fail_shape(r, base, h, *table, pw);
  if (n < 1 || n > MTX_LORA_MAX_RANK) {
    char text[80];
    snprintf(text, sizeof text, "rank %llu is not possible; 1 to %d are", (unsigned long long)n, MTX_LORA_MAX_RANK);
    return fail_tensor(r, MTX_EFORMAT, base, text);
  }
  *rank = (int)n;
  return MTX_OK;
}

// ---- packing --------------------------------------------------------------------------

static const mtx_qtype *packed_type(const mtx_gguf_tensor *t) { return mtx_qtype_get(t->type == 8 ? 0 : t->type); }

static uint64_t packed_bytes(const mtx_gguf_tensor *t) { return mtx_weight_bytes(packed_type(t), (int64_t)t->ne[1], (int64_t)t->ne[0]); }

static mtx_code pack(const reader *r, const mtx_gguf_tensor *t, mtx_weight *w, uint8_t **at) {
  mtx_weight_init(w, packed_type(t), (int64_t)t->ne[1], (int64_t)t->ne[0], *at);
  *at += packed_bytes(t);
  const void *src = t->data;
  float *plain = NULL;
  if (t->type == 8) {
    plain = malloc(t->ne[0] * t->ne[1] * sizeof *plain);
    if (!plain) return mtx_fail_at(r->err, MTX_ENOMEM, mtx_gguf_path(r->file), NULL, 0, "not enough memory for an adapter");
    mtx_qtype_get(t->type)->decode(src, plain, (int64_t)(t->ne[0] * t->ne[1]));
    src = plain;
  }
  mtx_weight_pack(w, src, 0, mtx_weight_n_groups(w));
  free(plain);
  mtx_gguf_tensor_release(r->file, t);
  return MTX_OK;
}

static mtx_code read_pairs(mtx_adapter *x, reader *r) {
  uint64_t bytes = 0;
  mtx_code code;
  for (int w = 1; w < r->plan->n_weights; w++) {
    int rank;
    bool table = false;
    if ((code = check_pair(r, w, &rank, &table))) return code;
    if (!rank) continue;
    x->pair[w] = (mtx_lora_pair){.rank = rank, .scale = x->info.alpha != 0.0f ? x->info.alpha / (float)rank : 1.0f};
    bytes += packed_bytes(r->half[w].a) + packed_bytes(r->half[w].b);
    x->info.n_pairs++;
    if (rank > x->info.max_rank) x->info.max_rank = rank;
  }
  if (!x->info.n_pairs) return mtx_fail_at(r->err, MTX_EFORMAT, mtx_gguf_path(r->file), NULL, 0, "the adapter holds no pair of " A_END " and " B_END " tensors");
  uint64_t free_bytes = mtx_free_memory();
  if (!(r->opts && r->opts->no_memory_check) && free_bytes && bytes + bytes / 5 > free_bytes)
    return mtx_fail_at(r->err, MTX_ENOMEM, mtx_gguf_path(r->file), NULL, 0, "the adapter needs %llu bytes (with a margin of 1.2: %llu), %llu are free",
                       (unsigned long long)bytes, (unsigned long long)(bytes + bytes / 5), (unsigned long long)free_bytes);
  uint8_t *at = x->mem = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (!at) return mtx_fail_at(r->err, MTX_ENOMEM, mtx_gguf_path(r->file), NULL, 0, "not enough memory for an adapter of %llu bytes", (unsigned long long)bytes);
  x->info.weight_bytes = bytes;
  for (int w = 1; w < r->plan->n_weights; w++)
    if (x->pair[w].rank && ((code = pack(r, r->half[w].a, &x->pair[w].a, &at)) || (code = pack(r, r->half[w].b, &x->pair[w].b, &at)))) return code;
  return MTX_OK;
}

// ---- metadata ---------------------------------------------------------------------------

// A copy of a string of the metadata, "" when it is absent; NULL without memory or (err filled) when it is no string.
static char *text_of(const reader *r, const char *key, mtx_code *code) {
  mtx_str s = {0};
  *code = mtx_gguf_get_str(r->file, key, false, &s, r->err);
  if (*code == MTX_ENOTFOUND) *code = MTX_OK;
  if (*code) return NULL;
  char *copy = strndup(s.len ? s.ptr : "", s.len);
  if (!copy) *code = mtx_fail(r->err, MTX_ENOMEM, "not enough memory for an adapter");
  return copy;
}

static mtx_code need_text(const reader *r, const char *key, const char *want, const char *hint) {
  mtx_str s;
  mtx_code code = mtx_gguf_get_str(r->file, key, true, &s, r->err);
  if (code) return code;
  if (s.len == strlen(want) && memcmp(s.ptr, want, s.len) == 0) return MTX_OK;
  return mtx_fail_at(r->err, MTX_EUNSUPPORTED, mtx_gguf_path(r->file), key, 0, "it is '%.*s', not '%s'%s", (int)(s.len < 64 ? s.len : 64), s.ptr, want, hint);
}

static mtx_code read_facts(mtx_adapter *x, const reader *r, const char *arch) {
  mtx_code code;
  mtx_adapter_info *i = &x->info;
  if (!mtx_gguf_find(r->file, "general.type"))
    return mtx_fail_at(r->err, MTX_ENOTFOUND, mtx_gguf_path(r->file), "general.type", 0, "the key is not there; this file is no adapter");
  if ((code = need_text(r, "general.type", "adapter", "; this file is no adapter")) || (code = need_text(r, "adapter.type", "lora", "")) ||
      (code = need_text(r, "general.architecture", arch, ": the adapter belongs to another model")))
    return code;
  if (mtx_gguf_find(r->file, "adapter.alora.invocation_tokens"))
    return mtx_fail_at(r->err, MTX_EUNSUPPORTED, mtx_gguf_path(r->file), "adapter.alora.invocation_tokens", 0,
                       "an activated LoRA works from its invocation tokens on only; mtx does not do that");
  code = mtx_gguf_get_f32(r->file, "adapter.lora.alpha", false, &i->alpha, r->err);
  if (code && code != MTX_ENOTFOUND) return code;
  if (!isfinite(i->alpha)) return mtx_fail_at(r->err, MTX_EFORMAT, mtx_gguf_path(r->file), "adapter.lora.alpha", 0, "it is no finite number");
  if (!(i->name = text_of(r, "general.name", &code)) || !(i->task_name = text_of(r, "adapter.lora.task_name", &code)) ||
      !(i->prompt_prefix = text_of(r, "adapter.lora.prompt_prefix", &code)))
    return code;
  if (!(i->path = strdup(mtx_gguf_path(r->file)))) return mtx_fail(r->err, MTX_ENOMEM, "not enough memory for an adapter");
  i->file_bytes = mtx_gguf_file_bytes(r->file);
  return mtx_gguf_checksum(r->file, &i->checksum, r->err);
}

// ---- life ---------------------------------------------------------------------------------

mtx_code mtx_adapter_read(mtx_adapter **out, const mtx_model *m, const mtx_gguf *file, const mtx_model_opts *opts, mtx_err *err) {
  *out = NULL;
  const mtx_plan *p = mtx_model_plan(m);
  mtx_code code = MTX_ENOMEM;
  mtx_adapter *x = calloc(1, sizeof *x);
  reader r = {.file = file, .plan = p, .opts = opts, .half = calloc((size_t)p->n_weights, sizeof *r.half), .err = err};
  if (x) {
    x->refs = 1;
    x->model_id = mtx_model_id(m);
    x->pair = calloc((size_t)p->n_weights, sizeof *x->pair);
  }
  if (!x || !r.half || !x->pair) {
    mtx_fail(err, code, "not enough memory for an adapter");
    goto fail;
  }
  if ((code = read_facts(x, &r, mtx_model_get_info(m)->arch))) goto fail;
  for (uint64_t i = 0; i < mtx_gguf_n_tensors(file); i++)
    if ((code = take_tensor(x, &r, m, mtx_gguf_tensor_at(file, i)))) goto fail;
  if ((code = read_pairs(x, &r)) || (code = mtx_gguf_check(file, err))) goto fail;
  free(r.half);
  *out = x;
  return MTX_OK;
fail:
  free(r.half);
  mtx_adapter_unref(x);
  return code;
}

mtx_code mtx_adapter_open(mtx_adapter **out, const mtx_model *m, const char *path, const mtx_model_opts *opts, mtx_err *err) {
  mtx_gguf *file;
  *out = NULL;
  mtx_code code = mtx_gguf_open(&file, path, 0, err);
  if (code) return code;
  code = mtx_adapter_read(out, m, file, opts, err);
  mtx_gguf_close(file);
  return code;
}

mtx_adapter *mtx_adapter_ref(mtx_adapter *a) {
  atomic_fetch_add(&a->refs, 1);
  return a;
}

void mtx_adapter_unref(mtx_adapter *a) {
  if (!a || atomic_fetch_sub(&a->refs, 1) > 1) return;
  free(a->pair);
  free(a->mem);
  free(a->info.path);
  free(a->info.name);
  free(a->info.task_name);
  free(a->info.prompt_prefix);
  free(a);
}

const mtx_adapter_info *mtx_adapter_get_info(const mtx_adapter *a) { return &a->info; }

// ---- sets -------------------------------------------------------------------------------

static int by_identity(const void *x, const void *y) {
  const mtx_lora_part *a = x, *b = y;
  uint64_t ca = a->adapter->info.checksum, cb = b->adapter->info.checksum;
  return ca != cb ? (ca > cb) - (ca < cb) : (a->scale > b->scale) - (a->scale < b->scale);
}

static int64_t row_floats(const mtx_lora *l, const mtx_plan *p) {
  int64_t most = 0;
  for (int i = 0; i < p->n_steps; i++) {
    int64_t n = 0;
    for (int k = 0; k < MTX_STEP_MAX_W; k++)
      for (int j = 0; j < l->n; j++) n += (l->part[j].pair[p->step[i].w[k]].rank + MTX_GROUP - 1) / MTX_GROUP * MTX_GROUP;
    if (n > most) most = n;
  }
  return most;
}

mtx_code mtx_lora_new(mtx_lora **out, const mtx_model *m, mtx_adapter *const *adapter, const float *scale, int n, mtx_err *err) {
  *out = NULL;
  if (n > MTX_LORA_MAX) return mtx_fail_at(err, MTX_EINVAL, NULL, "lora", 0, "%d adapters at once; %d are possible", n, MTX_LORA_MAX);
  for (int i = 0; i < n; i++) {
    if (!isfinite(scale[i])) return mtx_fail_at(err, MTX_EINVAL, NULL, "lora", 0, "a scale is no finite number");
    if (adapter[i]->model_id != mtx_model_id(m)) return mtx_fail_at(err, MTX_EINVAL, NULL, "lora", 0, "the adapter is of another model");
    for (int k = 0; k < i; k++)
      if (adapter[k] == adapter[i]) return mtx_fail_at(err, MTX_EINVAL, NULL, "lora", 0, "an adapter is named twice");
  }
  mtx_lora *l = calloc(1, sizeof *l);
  if (!l) return mtx_fail(err, MTX_ENOMEM, "not enough memory for a set of adapters");
  l->refs = 1;
  l->model_id = mtx_model_id(m);
  for (int i = 0; i < n; i++)
    if (scale[i] != 0.0f) l->part[l->n++] = (mtx_lora_part){mtx_adapter_ref(adapter[i]), adapter[i]->pair, scale[i]};
  if (!l->n) {
    free(l);
    return MTX_OK;
  }
  qsort(l->part, (size_t)l->n, sizeof *l->part, by_identity);
  l->row_floats = row_floats(l, mtx_model_plan(m));
  l->label[0] = MTX_LORA_MARK;
  for (int i = 0; i < l->n; i++) {
    uint32_t bits;
    memcpy(&bits, &l->part[i].scale, sizeof bits);
    size_t at = strlen(l->label);
    snprintf(l->label + at, sizeof l->label - at, "%s%016llx:%08x", i ? "," : "", (unsigned long long)l->part[i].adapter->info.checksum, bits);
  }
  *out = l;
  return MTX_OK;
}

mtx_lora *mtx_lora_ref(mtx_lora *l) {
  if (l) atomic_fetch_add(&l->refs, 1);
  return l;
}

void mtx_lora_unref(mtx_lora *l) {
  if (!l || atomic_fetch_sub(&l->refs, 1) > 1) return;
  for (int i = 0; i < l->n; i++) mtx_adapter_unref(l->part[i].adapter);
  free(l);
}
