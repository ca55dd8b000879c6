// SPDX-License-Identifier: MIT
// Low-rank additions to products and look-ups, for the rows whose sequences have adapters (graph/lora.h).
//
// A product is widened to two passes: all threads make t = s A x of those rows, meet, and then each adds B t to
// the outputs that it makes anyway. Columns that were encoded for a quantised W are decoded again, so an adapter
// sees what W sees. Neighbouring rows with the same adapters share a product; every row's bits are those
// it has alone, since a product's do not depend on the number of columns.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/cpu.h"
#include "kern/matmul.h"

enum { COLS = 16 };  // columns of a piece of work in the first pass

static const mtx_lora *lora_of(const mtx_step_desc *s, const mtx_work *w, int64_t col) {
  const mtx_exec *x = w->x;
  bool rows = w->c->plan->buf[w->c->plan->val[s->out[0]].buf].dom == MTX_DOM_ROWS;
  return x->seq[x->row_seq[rows ? col : x->out_row[col]]].lora;
}

// Columns [c, end) have the same adapters; returns them.
static const mtx_lora *next_run(const mtx_step_desc *s, const mtx_work *w, int64_t c, int64_t n, int64_t *end) {
  const mtx_lora *l = lora_of(s, w, c);
  for (*end = c + 1; *end < n && mtx_lora_same(l, lora_of(s, w, *end));) ++*end;
  return l;
}

static int64_t padded(int rank) { return (rank + MTX_GROUP - 1) / MTX_GROUP * MTX_GROUP; }

// Where A x of the step's ith weight and the set's jth adapter begins in a row of t.
static int64_t place(const mtx_step_desc *s, const mtx_lora *l, int i, int j) {
  int64_t at = 0;
  for (int k = 0; k <= i; k++)
    for (int m = 0; m < (k < i ? l->n : j); m++) at += padded(l->part[m].pair[s->w[k]].rank);
  return at;
}

bool mtx_cpu_lora_touches(const mtx_step_desc *s, const mtx_work *w) {
  int64_t n = mtx_val_rows(w->c, s->out[0]);
  for (int64_t c = 0, end; c < n; c = end) {
    const mtx_lora *l = next_run(s, w, c, n, &end);
    for (int i = 0; l && i < s->n_w; i++)
      for (int j = 0; j < l->n; j++)
        if (l->part[j].pair[s->w[i]].rank) return true;
  }
  return false;
}

// ---- first pass ------------------------------------------------------------------------

static void decode(const mtx_q8 *b, int64_t k, float *x) {
  for (int64_t i = 0; i < k / 32; i++)
    for (int j = 0; j < 32; j++) x[32 * i + j] = b[i].d * (float)b[i].q[j];
}

// Group g of A times columns [c, c + n), which lie at x; scaled, into t.
static void down_group(const mtx_work *w, const mtx_lora_pair *p, float scale, int64_t g, const float *x, size_t stride, int64_t n, float *t) {
  int64_t ldt = w->c->lora_floats, r1 = (g + 1) * MTX_GROUP < p->rank ? (g + 1) * MTX_GROUP : p->rank;
  mtx_matmul(&p->a, g, g + 1, x, stride, n, t, ldt, false);
  for (int64_t c = 0; c < n; c++) mtx_vec.scale(t + c * ldt + g * MTX_GROUP, scale, t + c * ldt + g * MTX_GROUP, r1 - g * MTX_GROUP);
}

// Work is numbered as it comes; each thread does every nth.
static bool mine(const mtx_work *w, int64_t *number) { return (*number)++ % w->nth == w->ith; }

// All pairs of columns [c, c + n), which have the adapters l. number NULL: this thread does all of it.
static void down_piece(const mtx_step_desc *s, const mtx_work *w, const mtx_lora *l, const uint8_t *act, size_t stride, int64_t c, int64_t n,
                       int64_t *number) {
  const mtx_weight *m = &w->c->plan->weight[s->w[0]].mat[0];
  const bool encoded = m->act != MTX_ACT_F32;
  const float *x = (const float *)(const void *)(act + (size_t)c * stride);
  float *plain = w->c->lora_x + (size_t)w->ith * w->c->lora_x_floats;
  bool decoded = false;
  for (int i = 0; i < s->n_w; i++)
    for (int j = 0; j < l->n; j++) {
      const mtx_lora_pair *p = &l->part[j].pair[s->w[i]];
      for (int64_t g = 0; g < padded(p->rank) / MTX_GROUP; g++) {
        if (number && !mine(w, number)) continue;
        for (int64_t k = 0; encoded && !decoded && k < n; k++) decode((const mtx_q8 *)(const void *)(act + (size_t)(c + k) * stride), m->k, plain + k * m->k);
        decoded = true;
        down_group(w, p, p->scale * l->part[j].scale, g, encoded ? plain : x, encoded ? (size_t)m->k * sizeof(float) : stride, n,
                   w->c->lora_t + c * w->c->lora_floats + place(s, l, i, j));
      }
    }
}

void mtx_cpu_lora_down(const mtx_step_desc *s, const mtx_work *w, const void *act, size_t stride, int64_t n_cols) {
  // Many columns are shared out piece by piece, so that each is decoded once; few by groups of A.
  const bool by_piece = n_cols >= COLS * w->nth;
  int64_t number = 0;
  for (int64_t c = 0, end; c < n_cols; c = end) {
    const mtx_lora *l = next_run(s, w, c, n_cols, &end);
    for (int64_t at = c; l && at < end; at += COLS)
      if (!by_piece || mine(w, &number)) down_piece(s, w, l, act, stride, at, end - at < COLS ? end - at : COLS, by_piece ? NULL : &number);
  }
}

// ---- second pass -----------------------------------------------------------------------

void mtx_cpu_lora_up(const mtx_step_desc *s, const mtx_work *w, int i, int64_t n_cols, int64_t g0, int64_t g1) {
  float *y = mtx_val_ptr(w->c, s->out[i]);
  int64_t ldy = mtx_val_stride(w->c, s->out[i]), ldt = w->c->lora_floats;
  for (int64_t c = 0, end; c < n_cols; c = end) {
    const mtx_lora *l = next_run(s, w, c, n_cols, &end);
    for (int j = 0; l && j < l->n; j++) {
      const mtx_lora_pair *p = &l->part[j].pair[s->w[i]];
      if (p->rank)
        mtx_matmul(&p->b, g0, g1, w->c->lora_t + c * ldt + place(s, l, i, j), (size_t)ldt * sizeof(float), end - c, y + c * ldy, ldy, true);
    }
  }
}

// ---- look-ups --------------------------------------------------------------------------

void mtx_cpu_lora_row(const mtx_step_desc *s, const mtx_work *w, int64_t r, float *y) {
  const mtx_lora *l = w->x->seq[w->x->row_seq[r]].lora;
  float *t = w->c->lora_t + r * w->c->lora_floats;
  for (int j = 0; l && j < l->n; j++) {
    const mtx_lora_pair *p = &l->part[j].pair[s->w[0]];
    if (!p->rank) continue;
    mtx_weight_row(&p->a, w->x->token[r], t);
    mtx_vec.scale(t, p->scale * l->part[j].scale, t, p->rank);
    mtx_matmul(&p->b, 0, mtx_weight_n_groups(&p->b), t, (size_t)p->rank * sizeof(float), 1, y, p->b.n_out, true);
  }
}

// ---- memory ----------------------------------------------------------------------------

static float *map_floats(size_t n) {
  void *p = mmap(NULL, n * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

void mtx_cpu_lora_free(mtx_cpu *c) {
  if (c->lora_t) munmap(c->lora_t, (size_t)c->max_rows * (size_t)c->lora_floats * sizeof(float));
  if (c->lora_x) munmap(c->lora_x, (size_t)c->lora_threads * c->lora_x_floats * sizeof(float));
  c->lora_t = c->lora_x = NULL;
}

mtx_code mtx_cpu_use_lora(mtx_backend *b, int64_t row_floats, mtx_err *err) {
  mtx_cpu *c = (mtx_cpu *)b;
  if (c->lora_t && c->lora_x && c->lora_floats >= row_floats && c->lora_threads >= c->crew.n_max) return MTX_OK;
  int64_t k = 1;
  for (int i = 1; i < c->plan->n_weights; i++)
    if (c->plan->weight[i].mat && c->plan->weight[i].k > k) k = c->plan->weight[i].k;
  if (row_floats < c->lora_floats) row_floats = c->lora_floats;
  mtx_cpu_lora_free(c);
  c->lora_floats = row_floats;
  c->lora_threads = c->crew.n_max;
  c->lora_x_floats = (size_t)(COLS * k + 15) / 16 * 16;
  c->lora_t = map_floats((size_t)c->max_rows * (size_t)c->lora_floats);
  c->lora_x = map_floats((size_t)c->lora_threads * c->lora_x_floats);
  return c->lora_t && c->lora_x ? MTX_OK : mtx_fail(err, MTX_ENOMEM, "not enough memory for the adapters' activations of %d rows", c->max_rows);
}
