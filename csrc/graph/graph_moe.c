// SPDX-License-Identifier: MIT
// Builder: mixtures of experts.
#include "graph/graph_build.h"

// x copied to one row per (row, expert) slot, times the slot's weight if there are weights.
static mtx_val gathered(mtx_graph *g, mtx_val x, mtx_val weights) {
  if (mtx_gb_bad(g)) return 0;
  mtx_val y = mtx_gb_new(g, MTX_DOM_SLOTS, mtx_g_width(g, x));
  mtx_step_desc *s = mtx_gb_step(g, MTX_OP_MOE_GATHER);
  s->in[0] = x;
  s->in[1] = weights;
  s->out[0] = y;
  s->n = g->plan->n_slots;
  return y;
}

// Slots in the form that matrix w multiplies; without weights a row is encoded once for all its experts.
static mtx_val expert_input(mtx_graph *g, mtx_val x, mtx_val weights, mtx_wid w) {
  mtx_act_format act = mtx_gb_act(g, w);
  return weights ? mtx_gb_encoded(g, gathered(g, x, weights), act) : gathered(g, mtx_gb_encoded(g, x, act), 0);
}

static mtx_val expert_matmul(mtx_graph *g, mtx_wid w, mtx_wid bias, mtx_val x) {
  mtx_val y;
  mtx_step_desc *s = mtx_gb_step1(g, MTX_OP_MOE_MATMUL, x, g->plan->weight[w].n_out, &y);
  s->w[0] = w;
  s->b[0] = bias;
  s->n_w = 1;
  return y;
}

// What an expert makes of its input before "down".
static mtx_val expert_hidden(mtx_graph *g, mtx_val x, mtx_val weights, const mtx_moe *m, mtx_unary f, const mtx_expert_weights *w) {
  const mtx_plan *p = g->plan;
  mtx_val xs = expert_input(g, x, weights, w->up), gate = 0;
  if (mtx_gb_bad(g)) return 0;
  mtx_val up = expert_matmul(g, w->up, w->up_bias, xs);
  if (w->gate) {
    mtx_val gs = mtx_gb_act(g, w->gate) == mtx_gb_act(g, w->up) ? xs : expert_input(g, x, weights, w->gate);
    gate = expert_matmul(g, w->gate, w->gate_bias, gs);
  } else if (p->weight[w->up].n_out == 2 * p->weight[w->down].k) {
    int64_t ff = p->weight[w->down].k;  // gate and up rows of an expert in one matrix
    gate = mtx_g_view(g, up, 0, ff);
    up = mtx_g_view(g, up, ff, ff);
  }
  if (!gate) return mtx_g_unary(g, f, up);
  return m->glu_limit > 0.0f ? mtx_g_glu_clamped(g, f, gate, up, m->glu_limit) : mtx_g_glu(g, f, gate, up);
}

mtx_val mtx_g_moe(mtx_graph *g, mtx_val x, mtx_val router_logits, const mtx_moe *m, mtx_unary f, const mtx_expert_weights *w) {
  if (!mtx_gb_check(g, x && router_logits && w->up && w->down && m->n_used > 0 && m->n_used <= m->n_expert && m->n_expert <= 1024 &&
                mtx_g_width(g, router_logits) == m->n_expert && g->plan->weight[w->up].n_mats == m->n_expert, "moe"))
    return 0;
  mtx_plan *p = g->plan;
  if (p->n_slots && p->n_slots != m->n_used) {
    mtx_g_fail(g, MTX_EUNSUPPORTED, NULL, "layers use different numbers of experts (%d and %d)", p->n_slots, m->n_used);
    return 0;
  }
  p->n_slots = m->n_used;
  mtx_val weights;
  mtx_gb_step1(g, MTX_OP_MOE_ROUTE, router_logits, m->n_used, &weights)->u.moe = *m;
  mtx_val h = expert_hidden(g, x, m->weigh_input ? weights : 0, m, f, w);
  if (mtx_gb_bad(g)) return 0;
  mtx_val d = expert_matmul(g, w->down, w->down_bias, mtx_gb_encoded(g, h, mtx_gb_act(g, w->down)));
  mtx_val y = mtx_gb_new(g, MTX_DOM_ROWS, p->weight[w->down].n_out);
  mtx_step_desc *s = mtx_gb_step(g, MTX_OP_MOE_SUM);
  s->in[0] = d;
  s->in[1] = m->weigh_input ? 0 : weights;
  s->out[0] = y;
  s->n = m->n_used;
  return y;
}
