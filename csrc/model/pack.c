// SPDX-License-Identifier: MIT
// Packing: see pack.h. Work is cut into pieces of about a megabyte that threads
// take as they come; a tensor whose last piece is done gives its file pages back,
// so that no weight is resident twice for long.
#include "model/pack.h"

#include <omp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PIECE_BYTES = 1 << 20, ALIGN = 4096 };

static uint64_t matrix_bytes(const mtx_plan_weight *w) {
  uint64_t one = mtx_weight_bytes(w->type, w->n_out, w->k);
  return (one + 63) / 64 * 64;
}

mtx_code mtx_pack_size(const mtx_plan *p, uint64_t *bytes, mtx_err *err) {
  uint64_t total = 0;
  for (int i = 1; i < p->n_weights; i++) {
    const mtx_plan_weight *w = &p->weight[i];
    uint64_t n = 0, v = w->n_out * (uint64_t)w->k * (uint64_t)w->n_mats * sizeof(float);
    if ((w->use & MTX_WEIGHT_MATRIX) && __builtin_mul_overflow(matrix_bytes(w), (uint64_t)w->n_mats, &n)) goto overflow;
    if ((w->use & MTX_WEIGHT_VECTOR) && __builtin_add_overflow(n, v, &n)) goto overflow;
    if (__builtin_add_overflow(total, (n + ALIGN - 1) / ALIGN * ALIGN, &total)) goto overflow;
  }
  *bytes = total;
  return MTX_OK;
overflow:
  return mtx_fail(err, MTX_EFORMAT, "the sizes of this model's weights overflow");
}

typedef struct {
  mtx_plan_weight *w;
  int mat;
  int64_t g0, g1;
} piece;

typedef struct {
  piece *list;
  int n, cap;
} pieces;

static bool add_pieces(pieces *l, mtx_plan_weight *w) {
  for (int m = 0; m < w->n_mats; m++) {
    int64_t groups = mtx_weight_n_groups(&w->mat[m]), step = PIECE_BYTES / (int64_t)(w->mat[m].group_bytes + 1) + 1;
    for (int64_t g = 0; g < groups; g += step) {
      if (l->n == l->cap) {
        int cap = l->cap ? l->cap * 2 : 1024;
        piece *p = realloc(l->list, (size_t)cap * sizeof *p);
        if (!p) return false;
        l->list = p;
        l->cap = cap;
      }
      l->list[l->n++] = (piece){w, m, g, g + step < groups ? g + step : groups};
    }
  }
  return true;
}

static uint64_t tensor_n(const mtx_gguf_tensor *t) { return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; }

static bool lay_out(mtx_plan *p, const mtx_packed *out, pieces *l) {
  uint8_t *at = out->mem;
  for (int i = 1; i < p->n_weights; i++) {
    mtx_plan_weight *w = &p->weight[i];
    if (w->use & MTX_WEIGHT_MATRIX) {
      w->mat = calloc((size_t)w->n_mats, sizeof *w->mat);
      if (!w->mat) return false;
      for (int m = 0; m < w->n_mats; m++) {
        mtx_weight_init(&w->mat[m], w->type, w->n_out, w->k, at);
        at += matrix_bytes(w);
      }
      if (!add_pieces(l, w)) return false;
    }
    if (w->use & MTX_WEIGHT_VECTOR) {
      w->vec = malloc((size_t)tensor_n(w->tensor) * sizeof(float));
      if (!w->vec) return false;
      w->type->decode(w->tensor->data, w->vec, (int64_t)tensor_n(w->tensor));
    }
    at = (uint8_t *)out->mem + ((size_t)(at - (uint8_t *)out->mem) + ALIGN - 1) / ALIGN * ALIGN;
  }
  return true;
}

// Packs groups [g0, g1) of one matrix. Rows that lie in another order are put right first, a piece at a time.
static bool pack_piece(const piece *x) {
  const mtx_weight *m = &x->w->mat[x->mat];
  const mtx_gguf_tensor *t = x->w->tensor;
  uint64_t mat_bytes = t->n_bytes / (uint64_t)x->w->n_mats, row_bytes = mat_bytes / (uint64_t)m->n_out;
  if (!t->scatter || !(t->scatter->n_half_heads || t->scatter->transposed)) {
    mtx_weight_pack(m, t->scatter ? t->scatter->mat[x->mat] : (const uint8_t *)t->data + (uint64_t)x->mat * mat_bytes, x->g0, x->g1);
    return true;
  }
  int64_t r0 = x->g0 * MTX_GROUP, r1 = x->g1 * MTX_GROUP < m->n_out ? x->g1 * MTX_GROUP : m->n_out;
  mtx_weight part = *m;  // the matrix from its row r0 on
  part.n_out -= r0;
  part.data = (uint8_t *)m->data + (size_t)x->g0 * m->group_bytes;
  uint8_t *rows = malloc((size_t)(r1 - r0) * row_bytes);
  if (!rows) return false;
  mtx_gguf_rows(t, (uint64_t)x->mat, (uint64_t)r0, (uint64_t)(r1 - r0), rows);
  mtx_weight_pack(&part, rows, 0, x->g1 - x->g0);
  free(rows);
  return true;
}

static bool stopped(const mtx_model_opts *o) { return o && o->stop && atomic_load(o->stop); }

// False: memory ran out.
static bool run_pieces(const pieces *l, const mtx_gguf *file, const mtx_model_opts *o, int n_threads, uint64_t total) {
  atomic_int next = 0;
  atomic_bool short_of_memory = false;
  atomic_uint_fast64_t done = 0;
#pragma omp parallel num_threads(n_threads)
  for (int i; !stopped(o) && (i = atomic_fetch_add(&next, 1)) < l->n;) {
    const piece *x = &l->list[i];
    const mtx_weight *m = &x->w->mat[x->mat];
    if (!pack_piece(x)) atomic_store(&short_of_memory, true);
    uint64_t now = atomic_fetch_add(&done, (uint64_t)(x->g1 - x->g0) * m->group_bytes) + 1;
    // Pieces are taken in order, so the tensor before this one is nearly done:
    // releasing early costs a re-read of a few pages at most, never data.
    if (i > 0 && l->list[i - 1].w != x->w) mtx_gguf_tensor_release(file, l->list[i - 1].w->tensor);
    if (omp_get_thread_num() == 0 && o && o->progress) o->progress(o->user, now < total ? now : total, total);
  }
  if (l->n) mtx_gguf_tensor_release(file, l->list[l->n - 1].w->tensor);
  if (o && o->progress) o->progress(o->user, total, total);
  return !atomic_load(&short_of_memory);
}

mtx_code mtx_pack_weights(mtx_plan *p, const mtx_gguf *file, const mtx_model_opts *o, int n_threads, mtx_packed *out, mtx_err *err) {
  uint64_t total;
  mtx_code code = mtx_pack_size(p, &total, err);
  if (code) return code;
  pieces l = {0};
  out->bytes = total ? (size_t)total : 1;
  out->mem = mmap(NULL, out->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (out->mem == MAP_FAILED) {
    out->mem = NULL;
    return mtx_fail_at(err, MTX_ENOMEM, mtx_gguf_path(file), NULL, 0, "cannot map %llu bytes for the weights", (unsigned long long)total);
  }
#ifdef MADV_HUGEPAGE
  madvise(out->mem, out->bytes, MADV_HUGEPAGE);
#endif
  if (!lay_out(p, out, &l)) {
    code = mtx_fail_at(err, MTX_ENOMEM, mtx_gguf_path(file), NULL, 0, "not enough memory for the model's tables");
  } else {
    if (!run_pieces(&l, file, o, n_threads, total)) code = mtx_fail_at(err, MTX_ENOMEM, mtx_gguf_path(file), NULL, 0, "not enough memory to put the weights in order");
    if (stopped(o)) code = mtx_fail_at(err, MTX_ECANCELLED, mtx_gguf_path(file), NULL, 0, "loading was cancelled");
  }
  free(l.list);
  return code;
}

void mtx_packed_free(mtx_packed *m) {
  if (m->mem) munmap(m->mem, m->bytes);
  *m = (mtx_packed){0};
}
