// SPDX-License-Identifier: MIT
// Inside the CPU backend: what the op files share.
#ifndef MTX_BACKEND_CPU_H
#define MTX_BACKEND_CPU_H

#include <stdatomic.h>

#include "backend/apart.h"
#include "backend/crew.h"
#include "backend/exec.h"
#include "base/barrier.h"

typedef struct mtx_cpu {
  mtx_backend base;
  const mtx_plan *plan;
  int max_rows;
  mtx_crew crew;                  // how many threads run a step
  _Atomic int *where;             // [crew.n_max] cores that they were last seen on
  float *dom[MTX_DOM_COUNT];      // memory of each domain's buffers
  int64_t cap[MTX_DOM_COUNT];     // rows of each domain
  float *scratch;                 // crew.n_max * scratch_floats
  size_t scratch_floats;
  // Expert lists of the MoE layer being run: slots sorted by expert.
  int32_t *slot_row, *slot_of;    // [slots]: row of a sorted slot; sorted place of (row, rank)
  int32_t *slot_expert;           // [rows * n_used] expert of (row, rank)
  int32_t *expert_first;          // [n_expert + 1] first sorted slot
  _Atomic int32_t *ticket;        // [plan steps] next piece of work of a step that threads share as they come
  // Rows with adapters (cpu_lora.c); nothing is held until one comes.
  float *lora_t, *lora_x;         // [max_rows * lora_floats] A x of each row; [lora_threads * lora_x_floats] decoded columns
  int64_t lora_floats;
  size_t lora_x_floats;
  int lora_threads;
  mtx_barrier barrier;
  const mtx_exec *x;              // the step being run
} mtx_cpu;

// One thread's view of a running step.
typedef struct mtx_work {
  mtx_cpu *c;
  const mtx_exec *x;
  int ith, nth;
  float *scratch;                 // this thread's
  uint64_t *slept_ns;             // this thread's sleep at barriers so far
  _Atomic int32_t *ticket;        // of this plan step
  const mtx_step_desc *own;       // matmul: the step before it, whose rows this thread makes for itself, or NULL
} mtx_work;

// All threads of the step come together.
static inline void mtx_cpu_meet(const mtx_work *w) {
  if (w->nth == 1) return;
  mtx_apart_note(w->c->where, w->ith);
  uint64_t ns = mtx_barrier_wait(&w->c->barrier, (unsigned)w->nth);
  if (!ns) return;
  *w->slept_ns += ns;
  mtx_apart_move(w->c->where, w->ith, w->nth);
}

enum { MTX_OWN_ROWS = 4 };        // most rows that every thread makes for itself instead of waiting for the others

typedef void (*mtx_cpu_op)(const mtx_step_desc *s, const mtx_work *w);

// Floats between two rows of a value, its first row, and how many rows it has now.
static inline int64_t mtx_val_stride(const mtx_cpu *c, mtx_val v) { return c->plan->buf[c->plan->val[v].buf].n; }
static inline float *mtx_val_ptr(const mtx_cpu *c, mtx_val v) {
  const mtx_plan_val *pv = &c->plan->val[v];
  const mtx_plan_buf *b = &c->plan->buf[pv->buf];
  return (b->output ? c->x->outputs : b->hidden ? c->x->hidden : c->dom[b->dom] + b->off * c->cap[b->dom]) + pv->off;
}
static inline int64_t mtx_val_rows(const mtx_cpu *c, mtx_val v) {
  switch (c->plan->buf[c->plan->val[v].buf].dom) {
    case MTX_DOM_ROWS: return c->x->n_rows;
    case MTX_DOM_OUTS: return c->x->n_outs;
    case MTX_DOM_HEAD: return c->x->n_head;
    default: return (int64_t)c->x->n_rows * c->plan->n_slots;
  }
}
static inline int64_t mtx_val_n(const mtx_cpu *c, mtx_val v) { return c->plan->val[v].n; }

// The ith of nth nearly equal parts of [0, n), cut at multiples of `grain`.
static inline void mtx_share(int64_t n, int64_t grain, int ith, int nth, int64_t *a, int64_t *b) {
  int64_t units = (n + grain - 1) / grain;
  int64_t u0 = units * ith / nth, u1 = units * (ith + 1) / nth;
  *a = u0 * grain;
  *b = u1 * grain < n ? u1 * grain : n;
}

// The op files.
void mtx_cpu_embed(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_embed_pos(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_norm(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_unary(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_glu(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_add(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_mul(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_scale(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_softcap(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_clamp(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_xielu(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_vec(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_copy(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_temperature(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_select(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_rope_table(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_rope(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_encode(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_matmul(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_matmul_heads(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_kv_store(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_attention(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_moe_route(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_moe_gather(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_moe_matmul(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_moe_sum(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_conv(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_ssm_scan(const mtx_step_desc *s, const mtx_work *w);
void mtx_cpu_delta_rule(const mtx_step_desc *s, const mtx_work *w);

// Row r of a step that mtx_step_desc.own_rows marks, into dst; tmp: as many floats as the step's input has.
void mtx_cpu_own_row(const mtx_step_desc *s, const mtx_work *w, int64_t r, float *tmp, float *dst);
// What a step that mtx_step_desc.own_heads marks does for KV head h of n_head_kv, in row r.
void mtx_cpu_own_head(const mtx_step_desc *s, const mtx_work *w, int64_t r, int h, int n_head_kv);
// Is a step's attention done with all that its heads need first (mtx_step_desc.own_heads)?
bool mtx_cpu_heads_alone(const mtx_exec *x, const mtx_attn *a);
void mtx_cpu_kv_store_head(const mtx_step_desc *s, const mtx_work *w, int64_t r, int h);

// cpu_lora.c. Has any row of the step adapters for its weights? All threads get the same answer.
bool mtx_cpu_lora_touches(const mtx_step_desc *s, const mtx_work *w);
// t = scale A x of those rows; all threads together, which meet afterwards. act: the step's n_cols columns, `stride` bytes apart.
void mtx_cpu_lora_down(const mtx_step_desc *s, const mtx_work *w, const void *act, size_t stride, int64_t n_cols);
// Adds B t to groups [g0, g1) of the step's ith product.
void mtx_cpu_lora_up(const mtx_step_desc *s, const mtx_work *w, int i, int64_t n_cols, int64_t g0, int64_t g1);
void mtx_cpu_lora_row(const mtx_step_desc *s, const mtx_work *w, int64_t r, float *y);  // to row r of a look-up
mtx_code mtx_cpu_use_lora(mtx_backend *b, int64_t row_floats, mtx_err *err);
void mtx_cpu_lora_free(mtx_cpu *c);

// Scratch floats a thread needs for this plan's ops.
size_t mtx_cpu_attention_scratch(const mtx_step_desc *s);
size_t mtx_cpu_matmul_scratch(const mtx_plan *p, const mtx_step_desc *s);
size_t mtx_cpu_own_rows_scratch(const mtx_plan *p, const mtx_step_desc *s);

#endif
