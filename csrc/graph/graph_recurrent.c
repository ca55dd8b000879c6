// SPDX-License-Identifier: MIT
// Builder: recurrent layers and the state they keep.
#include "graph/graph_build.h"

static int64_t take_state(mtx_graph *g, int64_t n_floats) {
  int64_t off = (int64_t)g->plan->kv.state_bytes;
  g->plan->kv.state_bytes += ((size_t)n_floats * sizeof(float) + 63) / 64 * 64;
  return off;
}

mtx_val mtx_g_conv(mtx_graph *g, mtx_val x, mtx_wid taps, int n_taps, mtx_wid bias, bool silu) {
  if (!mtx_gb_check(g, x && taps && n_taps >= 2 && n_taps <= 16, "conv")) return 0;
  mtx_val y;
  mtx_step_desc *s = mtx_gb_step1(g, MTX_OP_CONV, x, mtx_g_width(g, x), &y);
  s->w[0] = taps;
  s->b[0] = bias;
  s->m = n_taps;
  s->flag = silu;
  s->state_off = take_state(g, (n_taps - 1) * mtx_g_width(g, x));
  return y;
}

mtx_val mtx_g_ssm_scan(mtx_graph *g, mtx_val x, mtx_val dt, mtx_val B, mtx_val C, mtx_wid A, mtx_wid D, mtx_wid dt_bias, int n_head,
                       int n_group, int n_state) {
  int64_t n = x ? mtx_g_width(g, x) : 0;
  if (!mtx_gb_check(g, x && dt && B && C && A && n_head > 0 && n % n_head == 0 && mtx_g_width(g, dt) == n_head && n_group > 0 &&
                n_head % n_group == 0 && mtx_g_width(g, B) == (int64_t)n_group * n_state && mtx_g_width(g, C) == mtx_g_width(g, B), "ssm_scan"))
    return 0;
  mtx_val y;
  mtx_step_desc *s = mtx_gb_step1(g, MTX_OP_SSM_SCAN, x, n, &y);
  s->in[1] = dt;
  s->in[2] = B;
  s->in[3] = C;
  s->w[0] = A;
  s->w[1] = D;
  s->b[0] = dt_bias;
  s->heads = n_head;
  s->head_n = n / n_head;
  s->m = n_group;
  s->n = n_state;
  const mtx_gguf_tensor *a = g->plan->weight[A].tensor;
  s->flag = a->ne[0] * a->ne[1] == (uint64_t)n_head * (uint64_t)n_state && n_state > 1;
  if (!mtx_gb_check(g, s->flag || a->ne[0] * a->ne[1] == (uint64_t)n_head, "ssm_scan")) return 0;
  s->state_off = take_state(g, n * n_state);
  return y;
}

mtx_val mtx_g_delta_rule(mtx_graph *g, mtx_val q, mtx_val k, mtx_val v, mtx_val gate, mtx_val beta, int n_head, int dk, int dv) {
  if (!mtx_gb_check(g, q && k && v && gate && beta && mtx_g_width(g, q) == (int64_t)n_head * dk && mtx_g_width(g, k) == (int64_t)n_head * dk &&
                mtx_g_width(g, v) == (int64_t)n_head * dv && mtx_g_width(g, gate) == n_head && mtx_g_width(g, beta) == n_head, "delta_rule"))
    return 0;
  mtx_val y;
  mtx_step_desc *s = mtx_gb_step1(g, MTX_OP_DELTA_RULE, q, (int64_t)n_head * dv, &y);
  s->in[1] = k;
  s->in[2] = v;
  s->in[3] = gate;
  s->in[4] = beta;
  s->heads = n_head;
  s->n = dk;
  s->m = dv;
  s->state_off = take_state(g, (int64_t)n_head * dk * dv);
  return y;
}
