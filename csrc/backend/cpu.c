// SPDX-License-Identifier: MIT
// The CPU backend: one parallel region per step of the engine, all threads walk
// the plan together with a barrier after each op.
#include "backend/cpu.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kern/attn.h"

static const mtx_cpu_op ops[MTX_OP_COUNT] = {
    [MTX_OP_EMBED] = mtx_cpu_embed,           [MTX_OP_EMBED_POS] = mtx_cpu_embed_pos, [MTX_OP_ENCODE] = mtx_cpu_encode,
    [MTX_OP_MATMUL] = mtx_cpu_matmul,         [MTX_OP_MATMUL_HEADS] = mtx_cpu_matmul_heads,
    [MTX_OP_NORM] = mtx_cpu_norm,             [MTX_OP_UNARY] = mtx_cpu_unary,         [MTX_OP_GLU] = mtx_cpu_glu,
    [MTX_OP_ADD] = mtx_cpu_add,               [MTX_OP_MUL] = mtx_cpu_mul,             [MTX_OP_SCALE] = mtx_cpu_scale,
    [MTX_OP_SOFTCAP] = mtx_cpu_softcap,       [MTX_OP_CLAMP] = mtx_cpu_clamp,         [MTX_OP_VEC] = mtx_cpu_vec,             [MTX_OP_COPY] = mtx_cpu_copy,
    [MTX_OP_ROPE_TABLE] = mtx_cpu_rope_table, [MTX_OP_ROPE] = mtx_cpu_rope,           [MTX_OP_KV_STORE] = mtx_cpu_kv_store,
    [MTX_OP_ATTENTION] = mtx_cpu_attention,   [MTX_OP_TEMPERATURE] = mtx_cpu_temperature, [MTX_OP_XIELU] = mtx_cpu_xielu,
    [MTX_OP_SELECT] = mtx_cpu_select,       [MTX_OP_MOE_ROUTE] = mtx_cpu_moe_route,
    [MTX_OP_MOE_GATHER] = mtx_cpu_moe_gather, [MTX_OP_MOE_MATMUL] = mtx_cpu_moe_matmul,
    [MTX_OP_MOE_SUM] = mtx_cpu_moe_sum,       [MTX_OP_CONV] = mtx_cpu_conv,           [MTX_OP_SSM_SCAN] = mtx_cpu_ssm_scan,
    [MTX_OP_DELTA_RULE] = mtx_cpu_delta_rule,
};

static uint64_t now_ns(void) { return mtx_clock_ns(CLOCK_MONOTONIC); }

static uint64_t step_bytes(const mtx_plan *p, const mtx_step_desc *s) {
  uint64_t n = 0;
  if (s->op == MTX_OP_MATMUL)
    for (int i = 0; i < s->n_w; i++) n += p->weight[s->w[i]].mat[0].group_bytes * (uint64_t)mtx_weight_n_groups(&p->weight[s->w[i]].mat[0]);
  return n;
}

static const mtx_attn *attention_behind(const mtx_step_desc *s) {
  while (s->own_heads) s++;
  return &s->u.attn;
}

// Returns the nanoseconds that this thread slept at barriers.
static uint64_t walk(mtx_cpu *c, const mtx_exec *x, int ith, int nth) {
  uint64_t slept_ns = 0;
  mtx_work w = {.slept_ns = &slept_ns, .c = c, .x = x, .ith = ith, .nth = nth, .scratch = c->scratch + (size_t)ith * c->scratch_floats};
  mtx_backend_profile *prof = ith == 0 ? c->base.profile : NULL;
  for (int i = 0; i < c->plan->n_steps; i++) {
    const mtx_step_desc *s = &c->plan->step[i];
    if (s->own_heads && mtx_cpu_heads_alone(x, attention_behind(s))) continue;
    if (s->own_rows && mtx_val_rows(c, s->out[0]) <= MTX_OWN_ROWS && nth > 1) {
      w.own = s;
      continue;
    }
    uint64_t t0 = prof ? now_ns() : 0;
    w.ticket = &c->ticket[i];
    ops[s->op](s, &w);
    w.own = NULL;
    mtx_cpu_meet(&w);
    if (prof) {
      prof->ns[s->op] += now_ns() - t0;
      prof->calls[s->op]++;
      prof->bytes[s->op] += step_bytes(c->plan, s);
    }
  }
  return slept_ns;
}

// walk, and how long since start_ns this thread wanted to run and had no core.
static uint64_t walk_lost(mtx_cpu *c, const mtx_exec *x, int ith, int nth, uint64_t start_ns) {
  uint64_t ran_ns = mtx_clock_ns(CLOCK_THREAD_CPUTIME_ID), known_ns = walk(c, x, ith, nth);
  known_ns += mtx_clock_ns(CLOCK_THREAD_CPUTIME_ID) - ran_ns;
  uint64_t all_ns = now_ns() - start_ns;
  return all_ns > known_ns ? all_ns - known_ns : 0;
}

static void cpu_run(mtx_backend *b, const mtx_exec *x) {
  mtx_cpu *c = (mtx_cpu *)b;
  c->x = x;
  memset((void *)c->ticket, 0, (size_t)c->plan->n_steps * sizeof *c->ticket);
  uint64_t start_ns = now_ns(), lost_ns = 0;
  int n = mtx_crew_begin(&c->crew, start_ns);
  if (n == 1) {
    walk(c, x, 0, 1);
    return;
  }
#pragma omp parallel num_threads(n) reduction(+ : lost_ns)
  {
    lost_ns += walk_lost(c, x, omp_get_thread_num(), omp_get_num_threads(), start_ns);
  }
  uint64_t end_ns = now_ns();
  mtx_crew_end(&c->crew, end_ns, end_ns - start_ns, lost_ns);
}

static void *map_floats(size_t n) {
  if (n == 0) n = 16;
  void *p = mmap(NULL, n * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

static void unmap_floats(void *p, size_t n) {
  if (p) munmap(p, (n ? n : 16) * sizeof(float));
}

static void cpu_close(mtx_backend *b) {
  if (!b) return;
  mtx_cpu *c = (mtx_cpu *)b;
  for (int d = 0; d < MTX_DOM_COUNT; d++) unmap_floats(c->dom[d], (size_t)(c->plan->floats[d] * c->cap[d]));
  mtx_cpu_lora_free(c);
  free(c->scratch);
  free((void *)c->where);
  free((void *)c->ticket);
  free(c->slot_row);
  free(c->slot_of);
  free(c->slot_expert);
  free(c->expert_first);
  free(c);
}

// Makes room for n threads; false without memory.
static bool hire(mtx_cpu *c, int n) {
  float *s = aligned_alloc(64, c->scratch_floats * sizeof(float) * (size_t)n);
  _Atomic int *where = malloc((size_t)n * sizeof *where);
  if (!s || !where) {
    free(s);
    free((void *)where);
    return false;
  }
  for (int i = 0; i < n; i++) atomic_init(&where[i], -1);
  free(c->scratch);
  free((void *)c->where);
  c->scratch = s;
  c->where = where;
  mtx_crew_init(&c->crew, n);
  return true;
}

static void cpu_set_threads(mtx_backend *b, int n) {
  mtx_cpu *c = (mtx_cpu *)b;
  if (n < 1 || n == c->crew.n_max) return;
  (void)hire(c, n);  // without memory the old count goes on working
}

static size_t scratch_need(const mtx_plan *p) {
  size_t need = 1024;
  for (int i = 0; i < p->n_steps; i++) {
    const mtx_step_desc *s = &p->step[i];
    size_t n = s->op == MTX_OP_ATTENTION ? mtx_cpu_attention_scratch(s)
               : s->op == MTX_OP_NORM || s->op == MTX_OP_DELTA_RULE ? (size_t)p->val[s->out[0]].n
               : s->op == MTX_OP_SSM_SCAN                         ? (size_t)s->n
                                         : mtx_cpu_matmul_scratch(p, s);
    if (s->own_rows) n = mtx_cpu_own_rows_scratch(p, s);
    if (n > need) need = n;
  }
  return (need + 15) / 16 * 16;
}

mtx_code mtx_backend_open_cpu(mtx_backend **out, const mtx_plan *p, int max_rows, int n_threads, mtx_err *err) {
  *out = NULL;
  mtx_cpu *c = calloc(1, sizeof *c);
  if (!c) goto fail;
  c->base = (mtx_backend){.name = "cpu", .run = cpu_run, .set_threads = cpu_set_threads, .use_lora = mtx_cpu_use_lora, .close = cpu_close};
  c->plan = p;
  c->max_rows = max_rows;
  c->cap[MTX_DOM_ROWS] = c->cap[MTX_DOM_OUTS] = c->cap[MTX_DOM_HEAD] = max_rows;
  c->cap[MTX_DOM_SLOTS] = (int64_t)max_rows * p->n_slots;
  for (int d = 0; d < MTX_DOM_COUNT; d++) {
    c->dom[d] = map_floats((size_t)(p->floats[d] * c->cap[d]));
    if (!c->dom[d]) goto fail;
    c->base.bytes += (uint64_t)(p->floats[d] * c->cap[d]) * sizeof(float);
  }
  c->scratch_floats = scratch_need(p);
  c->ticket = calloc((size_t)p->n_steps, sizeof *c->ticket);
  if (!hire(c, n_threads) || !c->ticket) goto fail;
  if (p->n_slots) {
    size_t n = (size_t)c->cap[MTX_DOM_SLOTS];
    c->slot_row = malloc(n * sizeof(int32_t));
    c->slot_of = malloc(n * sizeof(int32_t));
    c->slot_expert = malloc(n * sizeof(int32_t));
    c->expert_first = malloc(1026 * sizeof(int32_t));
    if (!c->slot_row || !c->slot_of || !c->slot_expert || !c->expert_first) goto fail;
  }
  *out = &c->base;
  return MTX_OK;
fail:
  if (c) cpu_close(&c->base);
  return mtx_fail(err, MTX_ENOMEM, "not enough memory for activation buffers of %d rows; use fewer rows per step", max_rows);
}
