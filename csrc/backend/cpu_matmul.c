// SPDX-License-Identifier: MIT
// Matrix products, plain, per head and per expert; routing of experts.
//
// Threads share the output rows of a product in groups; each walks all columns of
// its groups, so a packed group is read from memory once.
#include <math.h>
#include <string.h>

#include "backend/cpu.h"
#include "kern/vec.h"

static void add_bias(float *y, int64_t ldy, int64_t n_cols, const float *bias, int64_t r0, int64_t r1) {
  if (!bias) return;
  for (int64_t c = 0; c < n_cols; c++) mtx_vec.add(y + c * ldy + r0, bias + r0, y + c * ldy + r0, r1 - r0);
}

static int64_t rows_end(const mtx_weight *m, int64_t g) {
  int64_t r = g * MTX_GROUP;
  return r < m->n_out ? r : m->n_out;
}

static int64_t n_groups(const mtx_step_desc *s, const mtx_work *w, int i) { return mtx_weight_n_groups(&w->c->plan->weight[s->w[i]].mat[0]); }

// The columns that a step's matrices multiply: act[stride bytes] each.
typedef struct {
  const void *act;
  size_t stride;
  int64_t n;
  bool lora;              // some have adapters for these matrices (cpu_lora.c)
} columns;

static size_t own_row_floats(const mtx_plan *p, const mtx_step_desc *s) {
  return (size_t)(p->val[s->encoded ? s->encoded : s->out[0]].n + 15) / 16 * 16;
}

static size_t own_tmp_floats(const mtx_plan *p, const mtx_step_desc *s) { return (size_t)(p->val[s->in[0]].n + 15) / 16 * 16; }

size_t mtx_cpu_own_rows_scratch(const mtx_plan *p, const mtx_step_desc *s) {
  return own_tmp_floats(p, s) + MTX_OWN_ROWS * own_row_floats(p, s);
}

static columns columns_of(const mtx_step_desc *s, const mtx_work *w) {
  int64_t n = mtx_val_rows(w->c, s->out[0]);
  if (!w->own) return (columns){.act = mtx_val_ptr(w->c, s->in[0]), .stride = (size_t)mtx_val_stride(w->c, s->in[0]) * sizeof(float), .n = n};
  size_t row = own_row_floats(w->c->plan, w->own);
  float *dst = w->scratch + own_tmp_floats(w->c->plan, w->own);
  for (int64_t r = 0; r < n; r++) mtx_cpu_own_row(w->own, w, r, w->scratch, dst + (size_t)r * row);
  return (columns){.act = dst, .stride = row * sizeof(float), .n = n};
}

// Groups [g0, g1) of the step's ith matrix.
static void matmul_groups(const mtx_step_desc *s, const mtx_work *w, const columns *x, int i, int64_t g0, int64_t g1) {
  const mtx_plan *p = w->c->plan;
  const mtx_weight *m = &p->weight[s->w[i]].mat[0];
  float *y = mtx_val_ptr(w->c, s->out[i]);
  int64_t ldy = mtx_val_stride(w->c, s->out[i]);
  mtx_matmul(m, g0, g1, x->act, x->stride, x->n, y, ldy, s->accumulate[i]);
  add_bias(y, ldy, x->n, s->b[i] ? p->weight[s->b[i]].vec : NULL, g0 * MTX_GROUP, rows_end(m, g1));
  if (x->lora) mtx_cpu_lora_up(s, w, i, x->n, g0, g1);
}

// Groups [a, b) of the step's matrices laid end to end.
static void matmul_part(const mtx_step_desc *s, const mtx_work *w, const columns *x, int64_t a, int64_t b) {
  int64_t first = 0;
  for (int i = 0; i < s->n_w; i++) {
    int64_t n = n_groups(s, w, i), g0 = a > first ? a - first : 0, g1 = b - first < n ? b - first : n;
    if (g0 < g1) matmul_groups(s, w, x, i, g0, g1);
    first += n;
  }
}

// Pairs of groups [a, b) of gate and up, and the activation of their rows: whole blocks of 32.
static void gated_part(const mtx_step_desc *s, const mtx_work *w, const columns *x, int64_t a, int64_t b) {
  mtx_cpu *c = w->c;
  int64_t n = n_groups(s, w, 0), g1 = 2 * b < n ? 2 * b : n, r0 = 2 * a * MTX_GROUP, r1 = rows_end(&c->plan->weight[s->w[0]].mat[0], g1);
  for (int i = 0; i < 2; i++) matmul_groups(s, w, x, i, 2 * a, g1);
  for (int64_t r = 0; r < x->n; r++) {
    float *y = mtx_val_ptr(c, s->glu) + r * mtx_val_stride(c, s->glu);
    mtx_vec.glu(s->unary, mtx_val_ptr(c, s->out[0]) + r * mtx_val_stride(c, s->out[0]) + r0,
                mtx_val_ptr(c, s->out[1]) + r * mtx_val_stride(c, s->out[1]) + r0, y + r0, r1 - r0);
    if (s->encoded)
      mtx_act_encode(MTX_ACT_Q8, y, mtx_val_n(c, s->glu), r0 / 32, r1 / 32, mtx_val_ptr(c, s->encoded) + r * mtx_val_stride(c, s->encoded));
  }
}

// With many columns threads take pieces as they come, so that one that lost its
// core for a moment does not hold up the others by its whole share. With few, each
// takes one long piece: the memory is then read as a stream.
void mtx_cpu_matmul(const mtx_step_desc *s, const mtx_work *w) {
  int64_t total = 0;
  for (int i = 0; i < s->n_w; i++) total += n_groups(s, w, i);
  if (s->glu) total = (n_groups(s, w, 0) + 1) / 2;
  if (mtx_val_rows(w->c, s->out[0]) == 0) return;
  columns x = columns_of(s, w);
  if (w->x->lora && (x.lora = mtx_cpu_lora_touches(s, w))) {
    mtx_cpu_lora_down(s, w, x.act, x.stride, x.n);
    mtx_cpu_meet(w);
  }
  int pieces = w->nth == 1 ? 1 : x.n < 16 ? w->nth : 8 * w->nth;
  int64_t piece = (total + pieces - 1) / pieces;
  for (int64_t a; (a = atomic_fetch_add_explicit(w->ticket, 1, memory_order_relaxed) * piece) < total;)
    (s->glu ? gated_part : matmul_part)(s, w, &x, a, a + piece < total ? a + piece : total);
}

// ---- one matrix per head -----------------------------------------------------------

enum { HEAD_COLS = 16 };  // columns encoded at a time

size_t mtx_cpu_matmul_scratch(const mtx_plan *p, const mtx_step_desc *s) {
  if (s->op != MTX_OP_MATMUL_HEADS) return 0;
  return HEAD_COLS * mtx_act_bytes(MTX_ACT_Q8, p->weight[s->w[0]].k) / sizeof(float);
}

void mtx_cpu_matmul_heads(const mtx_step_desc *s, const mtx_work *w) {
  const mtx_plan_weight *pw = &w->c->plan->weight[s->w[0]];
  const float *x = mtx_val_ptr(w->c, s->in[0]);
  float *y = mtx_val_ptr(w->c, s->out[0]);
  int64_t ldx = mtx_val_stride(w->c, s->in[0]), ldy = mtx_val_stride(w->c, s->out[0]), n_cols = mtx_val_rows(w->c, s->in[0]), a, b;
  mtx_share(s->heads, 1, w->ith, w->nth, &a, &b);
  for (int64_t h = a; h < b; h++) {
    const mtx_weight *m = &pw->mat[h];
    const float *xh = x + h * s->head_n + s->head_off;
    float *yh = y + h * pw->n_out;
    int64_t groups = mtx_weight_n_groups(m);
    if (m->act == MTX_ACT_F32) {
      mtx_matmul(m, 0, groups, xh, (size_t)ldx * sizeof(float), n_cols, yh, ldy, false);
      continue;
    }
    size_t bytes = mtx_act_bytes(m->act, m->k);
    for (int64_t c = 0; c < n_cols; c += HEAD_COLS) {
      int64_t n = n_cols - c < HEAD_COLS ? n_cols - c : HEAD_COLS;
      for (int64_t i = 0; i < n; i++)
        mtx_act_encode(m->act, xh + (c + i) * ldx, m->k, 0, (m->k + 31) / 32, (uint8_t *)w->scratch + (size_t)i * bytes);
      mtx_matmul(m, 0, groups, w->scratch, bytes, n, yh + c * ldy, ldy, false);
    }
  }
}

// ---- experts -------------------------------------------------------------------------

// Index of the largest score not yet taken; the lowest index wins a tie.
static int best(const float *score, const uint8_t *taken, int n) {
  int at = -1;
  for (int i = 0; i < n; i++)
    if (!taken[i] && (at < 0 || score[i] > score[at])) at = i;
  return at;
}

// DeepSeek-V3: only experts of the best groups may be chosen; a group's score is
// the sum of its two best experts.
static void limit_groups(const mtx_moe *m, const float *score, uint8_t *taken) {
  int per = m->n_expert / m->n_group;
  float group[64];
  uint8_t kept[64] = {0};
  for (int g = 0; g < m->n_group; g++) {
    float a = -INFINITY, b = -INFINITY;
    for (int i = 0; i < per; i++) {
      float x = score[g * per + i];
      if (x > a) b = a, a = x;
      else if (x > b) b = x;
    }
    group[g] = a + (per > 1 ? b : 0.0f);
  }
  uint8_t done[64] = {0};
  for (int i = 0; i < m->n_group_used; i++) {
    int g = best(group, done, m->n_group);
    done[g] = kept[g] = 1;
  }
  for (int i = 0; i < m->n_expert; i++) taken[i] = !kept[i / per];
}

static void route_row(const mtx_moe *m, const float *logits, const float *select_bias, const float *expert_scale, float *weight, int32_t *expert) {
  float prob[1024], score[1024];
  uint8_t taken[1024] = {0};
  int n = m->n_expert;
  if (m->gate == MTX_GATE_SOFTMAX) mtx_vec.softmax(logits, 1.0f, prob, n);
  else if (m->gate == MTX_GATE_SIGMOID) mtx_vec.unary(MTX_UNARY_SIGMOID, logits, prob, n);
  else memcpy(prob, logits, (size_t)n * sizeof *prob);
  for (int i = 0; i < n; i++) score[i] = prob[i] + (select_bias ? select_bias[i] : 0.0f);
  if (m->n_group > 1) limit_groups(m, score, taken);
  float sum = 0.0f;
  for (int k = 0; k < m->n_used; k++) {
    int e = best(score, taken, n);
    if (e < 0) e = 0;  // every score is NaN: the row's output is NaN anyway
    taken[e] = 1;
    expert[k] = e;
    weight[k] = prob[e];
    sum += prob[e];
  }
  if (m->gate == MTX_GATE_SOFTMAX_SELECTED) mtx_vec.softmax(weight, 1.0f, weight, m->n_used);
  else if (m->norm) {
    float d = fmaxf(sum, 6.103515625e-5f);  // llama.cpp's floor: the smallest normal half
    for (int k = 0; k < m->n_used; k++) weight[k] /= d;
  }
  for (int k = 0; k < m->n_used; k++) weight[k] *= expert_scale ? m->scale * expert_scale[expert[k]] : m->scale;
}

// Sorts slots by expert, rows in order within one.
static void build_lists(mtx_cpu *c, const mtx_exec *x, const mtx_moe *m) {
  int64_t n = (int64_t)x->n_rows * m->n_used;
  int32_t *first = c->expert_first, at[1024];
  memset(first, 0, (size_t)(m->n_expert + 1) * sizeof *first);
  for (int64_t i = 0; i < n; i++) first[c->slot_expert[i] + 1]++;
  for (int e = 0; e < m->n_expert; e++) first[e + 1] += first[e], at[e] = first[e];
  for (int64_t i = 0; i < n; i++) {
    int32_t p = at[c->slot_expert[i]]++;
    c->slot_of[i] = p;
    c->slot_row[p] = (int32_t)(i / m->n_used);
  }
}

void mtx_cpu_moe_route(const mtx_step_desc *s, const mtx_work *w) {
  const mtx_moe *m = &s->u.moe;
  const float *bias = m->select_bias ? w->c->plan->weight[m->select_bias].vec : NULL;
  const float *scale = m->expert_scale ? w->c->plan->weight[m->expert_scale].vec : NULL;
  int64_t a, b;
  mtx_share(w->x->n_rows, 1, w->ith, w->nth, &a, &b);
  for (int64_t r = a; r < b; r++)
    route_row(m, mtx_val_ptr(w->c, s->in[0]) + r * mtx_val_stride(w->c, s->in[0]), bias, scale,
              mtx_val_ptr(w->c, s->out[0]) + r * mtx_val_stride(w->c, s->out[0]), w->c->slot_expert + r * m->n_used);
  mtx_cpu_meet(w);
  if (w->ith == 0) build_lists(w->c, w->x, m);
}

void mtx_cpu_moe_gather(const mtx_step_desc *s, const mtx_work *w) {
  int64_t a, b, n = mtx_val_n(w->c, s->out[0]);
  mtx_share(mtx_val_rows(w->c, s->out[0]), 1, w->ith, w->nth, &a, &b);
  for (int64_t i = a; i < b; i++) {
    int64_t row = i / s->n;
    const float *x = mtx_val_ptr(w->c, s->in[0]) + row * mtx_val_stride(w->c, s->in[0]);
    float *y = mtx_val_ptr(w->c, s->out[0]) + w->c->slot_of[i] * mtx_val_stride(w->c, s->out[0]);
    if (s->in[1]) mtx_vec.scale(x, (mtx_val_ptr(w->c, s->in[1]) + row * mtx_val_stride(w->c, s->in[1]))[i % s->n], y, n);
    else memcpy(y, x, (size_t)n * sizeof(float));
  }
}

void mtx_cpu_moe_matmul(const mtx_step_desc *s, const mtx_work *w) {
  const mtx_plan *p = w->c->plan;
  const float *x = mtx_val_ptr(w->c, s->in[0]);
  int64_t ldx = mtx_val_stride(w->c, s->in[0]);
  for (int i = 0; i < s->n_w; i++) {
    const mtx_plan_weight *pw = &p->weight[s->w[i]];
    float *y = mtx_val_ptr(w->c, s->out[i]);
    int64_t ldy = mtx_val_stride(w->c, s->out[i]), a, b;
    mtx_share(mtx_weight_n_groups(&pw->mat[0]), 1, w->ith, w->nth, &a, &b);
    for (int e = 0; e < pw->n_mats && a < b; e++) {
      int64_t p0 = w->c->expert_first[e], p1 = w->c->expert_first[e + 1];
      if (p0 == p1) continue;
      mtx_matmul(&pw->mat[e], a, b, x + p0 * ldx, (size_t)ldx * sizeof(float), p1 - p0, y + p0 * ldy, ldy, false);
      const float *bias = s->b[i] ? p->weight[s->b[i]].vec + (int64_t)e * pw->n_out : NULL;
      add_bias(y + p0 * ldy, ldy, p1 - p0, bias, a * MTX_GROUP, rows_end(&pw->mat[e], b));
    }
  }
}

void mtx_cpu_moe_sum(const mtx_step_desc *s, const mtx_work *w) {
  int64_t a, b, n = mtx_val_n(w->c, s->out[0]);
  mtx_share(w->x->n_rows, 1, w->ith, w->nth, &a, &b);
  for (int64_t r = a; r < b; r++) {
    float *y = mtx_val_ptr(w->c, s->out[0]) + r * mtx_val_stride(w->c, s->out[0]);
    const float *weight = s->in[1] ? mtx_val_ptr(w->c, s->in[1]) + r * mtx_val_stride(w->c, s->in[1]) : NULL;
    for (int64_t k = 0; k < s->n; k++) {
      const float *x = mtx_val_ptr(w->c, s->in[0]) + w->c->slot_of[r * s->n + k] * mtx_val_stride(w->c, s->in[0]);
      if (k == 0) mtx_vec.scale(x, weight ? weight[0] : 1.0f, y, n);
      else mtx_vec.add_scaled(x, weight ? weight[k] : 1.0f, y, n);
    }
  }
}
