// SPDX-License-Identifier: MIT
// Builder, part one: the graph's life, weights by name, values and buffers.
#include "graph/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph_build.h"

bool mtx_gb_bad(const mtx_graph *g) { return g->err.code != MTX_OK; }

static void fail_nomem(mtx_graph *g) {
  if (!mtx_gb_bad(g)) mtx_fail(&g->err, MTX_ENOMEM, "not enough memory to build the model's graph");
}

// Grows *arr so that index n exists; new items are zeroed.
static bool grow(mtx_graph *g, void **arr, int *cap, int n, size_t item) {
  if (n < *cap) return true;
  int want = *cap ? *cap * 2 : 64;
  void *p = realloc(*arr, (size_t)want * item);
  if (!p) {
    fail_nomem(g);
    return false;
  }
  memset((char *)p + (size_t)*cap * item, 0, (size_t)(want - *cap) * item);
  *arr = p;
  *cap = want;
  return true;
}

mtx_graph *mtx_graph_new(const mtx_gguf *f) {
  mtx_graph *g = calloc(1, sizeof *g);
  if (!g) return NULL;
  g->file = f;
  g->plan = calloc(1, sizeof *g->plan);
  g->tensor_used = calloc(mtx_gguf_n_tensors(f) + 1, 1);
  if (!g->plan || !g->tensor_used) {
    fail_nomem(g);
    return g;
  }
  // Index 0 of values and weights means "none"; buffer 0 belongs to value 0.
  if (grow(g, (void **)&g->plan->val, &g->cap_vals, 0, sizeof *g->plan->val)) g->plan->n_vals = 1;
  if (grow(g, (void **)&g->plan->buf, &g->cap_bufs, 0, sizeof *g->plan->buf)) g->plan->n_bufs = 1;
  if (grow(g, (void **)&g->plan->weight, &g->cap_weights, 0, sizeof *g->plan->weight)) g->plan->n_weights = 1;
  return g;
}

void mtx_g_fail(mtx_graph *g, mtx_code code, const char *key, const char *fmt, ...) {
  if (mtx_gb_bad(g)) return;
  char msg[400];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(msg, sizeof msg, fmt, ap);
  va_end(ap);
  mtx_fail_at(&g->err, code, mtx_gguf_path(g->file), key, 0, "%s", msg);
}

// ---- values ------------------------------------------------------------------

mtx_val mtx_gb_new(mtx_graph *g, mtx_domain dom, int64_t n) {
  if (mtx_gb_bad(g)) return 0;
  mtx_plan *p = g->plan;
  if (n <= 0 || n > INT32_MAX) {
    mtx_g_fail(g, MTX_EFORMAT, NULL, "a row of %lld floats is not possible", (long long)n);
    return 0;
  }
  if (!grow(g, (void **)&p->buf, &g->cap_bufs, p->n_bufs, sizeof *p->buf)) return 0;
  if (!grow(g, (void **)&p->val, &g->cap_vals, p->n_vals, sizeof *p->val)) return 0;
  p->buf[p->n_bufs] = (mtx_plan_buf){.dom = dom, .n = n, .first = -1, .last = -1};
  p->val[p->n_vals] = (mtx_plan_val){.buf = p->n_bufs++, .off = 0, .n = (int32_t)n};
  return p->n_vals++;
}

mtx_domain mtx_gb_domain(mtx_graph *g, mtx_val v) { return g->plan->buf[g->plan->val[v].buf].dom; }
int64_t mtx_g_width(const mtx_graph *g, mtx_val x) { return g->plan ? g->plan->val[x].n : 0; }

mtx_val mtx_g_view(mtx_graph *g, mtx_val x, int64_t off, int64_t n) {
  if (mtx_gb_bad(g)) return 0;
  mtx_plan *p = g->plan;
  mtx_plan_val base = p->val[x];
  if (off < 0 || n <= 0 || off + n > base.n) {
    mtx_g_fail(g, MTX_EFORMAT, NULL, "a slice [%lld, +%lld) leaves its row of %d floats", (long long)off, (long long)n, base.n);
    return 0;
  }
  if (!grow(g, (void **)&p->val, &g->cap_vals, p->n_vals, sizeof *p->val)) return 0;
  p->val[p->n_vals] = (mtx_plan_val){.buf = base.buf, .off = (int32_t)(base.off + off), .n = (int32_t)n};
  return p->n_vals++;
}

mtx_val mtx_g_alloc(mtx_graph *g, int64_t n) { return mtx_gb_new(g, MTX_DOM_ROWS, n); }

mtx_step_desc *mtx_gb_step(mtx_graph *g, mtx_op op) {
  static _Thread_local mtx_step_desc scratch;
  mtx_plan *p = g->plan;
  if (mtx_gb_bad(g) || !grow(g, (void **)&p->step, &g->cap_steps, p->n_steps, sizeof *p->step)) {
    memset(&scratch, 0, sizeof scratch);
    return &scratch;
  }
  mtx_step_desc *s = &p->step[p->n_steps++];
  memset(s, 0, sizeof *s);
  s->op = op;
  return s;
}

// ---- weights -----------------------------------------------------------------

static void full_name(char dst[128], int il, const char *name, const char *suffix) {
  if (il >= 0) snprintf(dst, 128, "blk.%d.%s%s", il, name, suffix);
  else snprintf(dst, 128, "%s%s", name, suffix);
}

static mtx_wid find_weight(const mtx_plan *p, const mtx_gguf_tensor *t) {
  for (int i = p->n_weights - 1; i > 0; i--)
    if (p->weight[i].tensor == t) return i;
  return 0;
}

static void mark_used(mtx_graph *g, const mtx_gguf_tensor *t) {
  g->tensor_used[t - mtx_gguf_tensor_at(g->file, 0)] = 1;
}

static void shape_text(char *dst, size_t cap, const mtx_gguf_tensor *t) {
  size_t n = 0;
  for (uint32_t i = 0; i < t->n_dims && n < cap; i++)
    n += (size_t)snprintf(dst + n, cap - n, "%s%llu", i ? " x " : "", (unsigned long long)t->ne[i]);
}

// Looks the tensor up and checks that it has dims [d0, d1, d2] (in file order;
// trailing 1s are optional). Returns its weight id with `use` added.
static mtx_wid weight(mtx_graph *g, const char *full, unsigned use, uint64_t d0, uint64_t d1, uint64_t d2, bool required) {
  if (mtx_gb_bad(g)) return 0;
  const mtx_gguf_tensor *t = mtx_gguf_tensor_find(g->file, full);
  if (!t) {
    if (required) mtx_g_fail(g, MTX_EFORMAT, full, "the file lacks this tensor; it is incomplete or of another architecture version");
    return 0;
  }
  bool fits = use == MTX_WEIGHT_VECTOR ? t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3] == d0 * d1 * d2
                                       : t->ne[0] == d0 && t->ne[1] == d1 && t->ne[2] == d2 && t->ne[3] == 1;
  if (!fits) {
    char have[96];
    shape_text(have, sizeof have, t);
    mtx_g_fail(g, MTX_EFORMAT, full, "tensor has shape %s, the model's settings ask for %llu x %llu x %llu", have,
               (unsigned long long)d0, (unsigned long long)d1, (unsigned long long)d2);
    return 0;
  }
  if (t->scatter && use != MTX_WEIGHT_MATRIX) {
    mtx_g_fail(g, MTX_EFORMAT, full, "a tensor whose rows lie in another order can only be multiplied by");
    return 0;
  }
  mark_used(g, t);
  mtx_plan *p = g->plan;
  mtx_wid id = find_weight(p, t);
  if (!id) {
    if (!grow(g, (void **)&p->weight, &g->cap_weights, p->n_weights, sizeof *p->weight)) return 0;
    id = p->n_weights++;
    p->weight[id] = (mtx_plan_weight){.tensor = t, .type = mtx_qtype_get(t->type), .n_out = (int64_t)d1, .k = (int64_t)d0, .n_mats = (int)d2};
  }
  mtx_plan_weight *w = &p->weight[id];
  if (!w->type || !w->type->decode) {
    mtx_g_fail(g, MTX_EUNSUPPORTED, full, "tensor type %s (id %u) holds no weights that mtx can read", w->type ? w->type->name : "unknown", t->type);
    return 0;
  }
  if ((use & MTX_WEIGHT_MATRIX) && mtx_weight_bytes(w->type, w->n_out, w->k) == 0) {
    mtx_g_fail(g, MTX_EUNSUPPORTED, full, "mtx cannot multiply by a %s matrix with rows of %lld", w->type->name, (long long)w->k);
    return 0;
  }
  w->use |= use;
  return id;
}

mtx_wid mtx_g_matrix(mtx_graph *g, int il, const char *name, int64_t n_out, int64_t k) {
  char full[128];
  full_name(full, il, name, ".weight");
  return weight(g, full, MTX_WEIGHT_MATRIX, (uint64_t)k, (uint64_t)n_out, 1, true);
}

mtx_wid mtx_g_matrix_opt(mtx_graph *g, int il, const char *name, int64_t n_out, int64_t k) {
  return mtx_g_has(g, il, name) ? mtx_g_matrix(g, il, name, n_out, k) : 0;
}

mtx_wid mtx_g_matrices(mtx_graph *g, int il, const char *name, int64_t n_mats, int64_t n_out, int64_t k) {
  char full[128];
  full_name(full, il, name, ".weight");
  return weight(g, full, MTX_WEIGHT_MATRIX, (uint64_t)k, (uint64_t)n_out, (uint64_t)n_mats, true);
}

mtx_wid mtx_g_floats(mtx_graph *g, int il, const char *name, int64_t n, bool required) {
  char full[128];
  full_name(full, il, name, "");
  return weight(g, full, MTX_WEIGHT_VECTOR, (uint64_t)n, 1, 1, required);
}

mtx_wid mtx_g_vector(mtx_graph *g, int il, const char *name, int64_t n) {
  char full[128];
  full_name(full, il, name, ".weight");
  return weight(g, full, MTX_WEIGHT_VECTOR, (uint64_t)n, 1, 1, true);
}

mtx_wid mtx_g_vector_opt(mtx_graph *g, int il, const char *name, int64_t n) {
  return mtx_g_has(g, il, name) ? mtx_g_vector(g, il, name, n) : 0;
}

mtx_wid mtx_g_bias(mtx_graph *g, int il, const char *name, int64_t n) {
  char full[128];
  full_name(full, il, name, ".bias");
  return weight(g, full, MTX_WEIGHT_VECTOR, (uint64_t)n, 1, 1, false);
}

mtx_wid mtx_g_table(mtx_graph *g, int il, const char *name, int64_t n_rows, int64_t n) {
  char full[128];
  full_name(full, il, name, ".weight");
  return weight(g, full, MTX_WEIGHT_ROWS, (uint64_t)n, (uint64_t)n_rows, 1, true);
}

float mtx_g_number(mtx_graph *g, int il, const char *name, float def) {
  mtx_wid w = mtx_g_floats(g, il, name, 1, false);
  if (w && !mtx_gb_bad(g)) g->plan->weight[w].type->decode(g->plan->weight[w].tensor->data, &def, 1);
  return def;
}

bool mtx_g_has(mtx_graph *g, int il, const char *name) {
  char full[128];
  full_name(full, il, name, ".weight");
  return mtx_gguf_tensor_find(g->file, full) != NULL;
}

void mtx_g_ignore(mtx_graph *g, int il, const char *name) {
  char full[128];
  full_name(full, il, name, "");
  const mtx_gguf_tensor *t = mtx_gguf_tensor_find(g->file, full);
  if (t) mark_used(g, t);
}

// ---- the end -----------------------------------------------------------------

mtx_code mtx_graph_finish(mtx_graph *g, mtx_val result, bool causal, void (*unused)(void *user, mtx_str name), void *user,
                          mtx_plan **out, mtx_err *err) {
  *out = NULL;
  mtx_plan *p = g->plan;
  if (!mtx_gb_bad(g) && result == 0) mtx_g_fail(g, MTX_EINTERNAL, NULL, "the architecture built no output");
  if (!mtx_gb_bad(g)) {
    p->output = result;
    p->causal = causal;
    p->recurrent = p->kv.state_bytes > 0;
    mtx_plan_compile(p, &g->err);
  }
  if (!mtx_gb_bad(g)) {
    for (uint64_t i = 0; unused && i < mtx_gguf_n_tensors(g->file); i++)
      if (!g->tensor_used[i]) unused(user, mtx_gguf_tensor_at(g->file, i)->name);
    *out = p;
  } else {
    mtx_plan_free(p);
  }
  mtx_code code = g->err.code;
  if (err && code) *err = g->err;
  free(g->tensor_used);
  free(g);
  return code;
}

void mtx_plan_free(mtx_plan *p) {
  if (!p) return;
  for (int i = 0; i < p->n_weights; i++) {
    free(p->weight[i].mat);
    free(p->weight[i].vec);
  }
  free(p->step);
  free(p->val);
  free(p->buf);
  free(p->weight);
  free(p);
}
