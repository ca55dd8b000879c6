// SPDX-License-Identifier: MIT
// Builder, part two: the ops. Each checks its shapes and appends steps.
#include <string.h>

#include "graph/graph_build.h"

static const char *const op_names[] = {
#define X(name, text) text,
#include "graph/ops.def"
#undef X
};

const char *mtx_op_name(mtx_op op) { return op < MTX_OP_COUNT ? op_names[op] : "?"; }

// A one-input step whose output is a fresh row of n floats in x's domain.
static mtx_step_desc *step1(mtx_graph *g, mtx_op op, mtx_val x, int64_t n, mtx_val *out) {
  *out = mtx_gb_new(g, mtx_gb_bad(g) ? MTX_DOM_ROWS : mtx_gb_domain(g, x), n);
  mtx_step_desc *s = mtx_gb_step(g, op);
  s->in[0] = x;
  s->out[0] = *out;
  return s;
}

static bool check(mtx_graph *g, bool ok, const char *what) {
  if (!ok) mtx_g_fail(g, MTX_EFORMAT, NULL, "shapes do not fit in %s", what);
  return ok && !mtx_gb_bad(g);
}

mtx_val mtx_g_embed(mtx_graph *g, mtx_wid table, float scale) {
  if (!check(g, table != 0, "embed")) return 0;
  mtx_val y = mtx_gb_new(g, MTX_DOM_ROWS, g->plan->weight[table].k);
  mtx_step_desc *s = mtx_gb_step(g, MTX_OP_EMBED);
  s->w[0] = table;
  s->out[0] = y;
  s->f[0] = scale;
  return y;
}

mtx_val mtx_g_embed_pos(mtx_graph *g, mtx_wid table, int offset) {
  if (!check(g, table != 0, "embed_pos")) return 0;
  mtx_val y = mtx_gb_new(g, MTX_DOM_ROWS, g->plan->weight[table].k);
  mtx_step_desc *s = mtx_gb_step(g, MTX_OP_EMBED_POS);
  s->w[0] = table;
  s->out[0] = y;
  s->flag = offset;
  return y;
}

static mtx_act_format act_of(mtx_graph *g, mtx_wid w) {
  mtx_weight probe;
  const mtx_plan_weight *p = &g->plan->weight[w];
  mtx_weight_init(&probe, p->type, p->n_out, p->k, NULL);
  return probe.act;
}

// x as a matmul of type `act` wants it: x itself, or its (cached) encoding.
static mtx_val encoded(mtx_graph *g, mtx_val x, mtx_act_format act) {
  if (act == MTX_ACT_F32 || mtx_gb_bad(g)) return x;
  mtx_plan *p = g->plan;
  mtx_plan_val v = p->val[x];
  for (int i = p->n_steps - 1; i >= 0 && i > p->n_steps - 24; i--) {
    const mtx_step_desc *s = &p->step[i];
    if (s->op != MTX_OP_ENCODE) continue;
    mtx_plan_val e = p->val[s->in[0]];
    if (e.buf == v.buf && e.off == v.off && e.n == v.n) return s->out[0];
  }
  mtx_val y;
  mtx_step_desc *s = step1(g, MTX_OP_ENCODE, x, (int64_t)(mtx_act_bytes(act, v.n) / sizeof(float)), &y);
  s->n = v.n;
  return y;
}

mtx_val mtx_g_matmul(mtx_graph *g, mtx_wid w, mtx_val x, mtx_wid bias) {
  if (!check(g, w != 0 && x != 0 && g->plan->weight[w].k == mtx_g_width(g, x), "matmul")) return 0;
  mtx_val in = encoded(g, x, act_of(g, w));
  mtx_val y;
  mtx_step_desc *s = step1(g, MTX_OP_MATMUL, in, g->plan->weight[w].n_out, &y);
  s->w[0] = w;
  s->b[0] = bias;
  s->n_w = 1;
  return y;
}

mtx_val mtx_g_matmul_heads(mtx_graph *g, mtx_wid w, mtx_val x, int64_t head_n, int64_t head_off) {
  if (!check(g, w != 0 && x != 0, "matmul_heads")) return 0;
  const mtx_plan_weight *pw = &g->plan->weight[w];
  int64_t heads = pw->n_mats, n_out = pw->n_out, k = pw->k;
  if (!check(g, (heads - 1) * head_n + head_off + k <= mtx_g_width(g, x), "matmul_heads")) return 0;
  mtx_val y;
  mtx_step_desc *s = step1(g, MTX_OP_MATMUL_HEADS, x, heads * n_out, &y);
  s->w[0] = w;
  s->heads = heads;
  s->head_n = head_n;
  s->head_off = head_off;
  return y;
}

static mtx_val norm(mtx_graph *g, mtx_val x, int64_t chunk, mtx_wid w, mtx_wid b, float eps, int kind) {
  if (!check(g, x != 0, "norm")) return 0;
  int64_t n = mtx_g_width(g, x);
  if (chunk == 0) chunk = n;
  if (!check(g, n % chunk == 0, "norm")) return 0;
  mtx_val y;
  mtx_step_desc *s = step1(g, MTX_OP_NORM, x, n, &y);
  s->w[0] = w;
  s->b[0] = b;
  s->n = chunk;
  s->f[0] = eps;
  s->flag = kind;
  // The scale may be shared by all chunks or have a value for every float of the row.
  s->m = w && g->plan->weight[w].tensor->ne[0] * g->plan->weight[w].tensor->ne[1] == (uint64_t)n ? n : chunk;
  return y;
}

mtx_val mtx_g_rms_norm(mtx_graph *g, mtx_val x, int64_t chunk, mtx_wid w, float eps) { return norm(g, x, chunk, w, 0, eps, 0); }
mtx_val mtx_g_layer_norm(mtx_graph *g, mtx_val x, int64_t chunk, mtx_wid w, mtx_wid b, float eps) { return norm(g, x, chunk, w, b, eps, 1); }
mtx_val mtx_g_l2_norm(mtx_graph *g, mtx_val x, int64_t chunk, float eps) { return norm(g, x, chunk, 0, 0, eps, 2); }

mtx_val mtx_g_unary(mtx_graph *g, mtx_unary f, mtx_val x) {
  if (!check(g, x != 0, "unary")) return 0;
  mtx_val y;
  step1(g, MTX_OP_UNARY, x, mtx_g_width(g, x), &y)->unary = f;
  return y;
}

mtx_val mtx_g_glu(mtx_graph *g, mtx_unary f, mtx_val gate, mtx_val up) {
  if (!check(g, gate && up && mtx_g_width(g, gate) == mtx_g_width(g, up), "glu")) return 0;
  mtx_val y;
  mtx_step_desc *s = step1(g, MTX_OP_GLU, gate, mtx_g_width(g, gate), &y);
  s->in[1] = up;
  s->unary = f;
  return y;
}

mtx_val mtx_g_glu_clamped(mtx_graph *g, mtx_unary f, mtx_val gate, mtx_val up, float limit) {
  mtx_val y = mtx_g_glu(g, f, gate, up);
  if (!mtx_gb_bad(g)) g->plan->step[g->plan->n_steps - 1].f[0] = limit;
  return y;
}

mtx_val mtx_g_add(mtx_graph *g, mtx_val a, mtx_val b) {
  if (!check(g, a && b && mtx_g_width(g, a) == mtx_g_width(g, b), "add")) return 0;
  mtx_val y;
  step1(g, MTX_OP_ADD, a, mtx_g_width(g, a), &y)->in[1] = b;
  return y;
}

mtx_val mtx_g_mul(mtx_graph *g, mtx_val a, mtx_val b) {
  if (!check(g, a && b && mtx_g_width(g, a) % mtx_g_width(g, b) == 0, "mul")) return 0;
  mtx_val y;
  mtx_step_desc *s = step1(g, MTX_OP_MUL, a, mtx_g_width(g, a), &y);
  s->in[1] = b;
  s->n = mtx_g_width(g, a) / mtx_g_width(g, b);
  return y;
}

// y = op(x) with two numbers.
static mtx_val with_numbers(mtx_graph *g, mtx_op op, mtx_val x, float a, float b) {
  if (!check(g, x != 0, mtx_op_name(op))) return 0;
  mtx_val y;
  mtx_step_desc *s = step1(g, op, x, mtx_g_width(g, x), &y);
  s->f[0] = a;
  s->f[1] = b;
  return y;
}

mtx_val mtx_g_scale(mtx_graph *g, mtx_val x, float mul, float add) { return with_numbers(g, MTX_OP_SCALE, x, mul, add); }
mtx_val mtx_g_softcap(mtx_graph *g, mtx_val x, float cap) { return with_numbers(g, MTX_OP_SOFTCAP, x, cap, 0.0f); }
mtx_val mtx_g_clamp(mtx_graph *g, mtx_val x, float lo, float hi) { return with_numbers(g, MTX_OP_CLAMP, x, lo, hi); }

mtx_val mtx_g_xielu(mtx_graph *g, mtx_val x, const mtx_xielu *c) {
  mtx_val y = with_numbers(g, MTX_OP_XIELU, x, c->pos, c->neg);
  if (mtx_gb_bad(g)) return 0;
  mtx_step_desc *s = &g->plan->step[g->plan->n_steps - 1];
  s->f[2] = c->linear;
  s->f[3] = c->eps;
  return y;
}

static mtx_val vec(mtx_graph *g, mtx_val x, mtx_wid v, int64_t chunk, int kind) {
  if (!check(g, x && v && mtx_g_width(g, x) % chunk == 0, "vec")) return 0;
  mtx_val y;
  mtx_step_desc *s = step1(g, MTX_OP_VEC, x, mtx_g_width(g, x), &y);
  s->w[0] = v;
  s->n = chunk;
  s->flag = kind;
  return y;
}

mtx_val mtx_g_mul_vec(mtx_graph *g, mtx_val x, mtx_wid v, int64_t chunk) { return vec(g, x, v, chunk, 0); }
mtx_val mtx_g_add_vec(mtx_graph *g, mtx_val x, mtx_wid v, int64_t chunk) { return vec(g, x, v, chunk, 1); }

void mtx_g_copy_into(mtx_graph *g, mtx_val dst, int64_t dst_head, int64_t dst_off, mtx_val x, int64_t x_head, int64_t n, int64_t heads) {
  if (!check(g, dst && x && (heads - 1) * dst_head + dst_off + n <= mtx_g_width(g, dst) && (heads - 1) * x_head + n <= mtx_g_width(g, x), "copy"))
    return;
  mtx_step_desc *s = mtx_gb_step(g, MTX_OP_COPY);
  s->in[0] = x;
  s->out[0] = dst;
  s->n = n;
  s->m = dst_head;
  s->heads = heads;
  s->head_n = x_head;
  s->head_off = dst_off;
}

static mtx_val rope_table(mtx_graph *g, const mtx_rope *r) {
  for (int i = 0; i < g->n_rope_steps; i++) {
    const mtx_step_desc *s = &g->plan->step[g->rope_steps[i]];
    if (memcmp(&s->u.rope, r, sizeof *r) == 0) return s->out[0];
  }
  if (g->n_rope_steps == 8) {
    mtx_g_fail(g, MTX_EINTERNAL, NULL, "more than 8 kinds of rotary embedding in one model");
    return 0;
  }
  mtx_val t = mtx_gb_new(g, MTX_DOM_ROWS, r->n_rot);
  mtx_step_desc *s = mtx_gb_step(g, MTX_OP_ROPE_TABLE);
  s->out[0] = t;
  s->u.rope = *r;
  if (!mtx_gb_bad(g)) g->rope_steps[g->n_rope_steps++] = g->plan->n_steps - 1;
  return t;
}

mtx_val mtx_g_rope(mtx_graph *g, mtx_val x, int64_t heads, int64_t head_n, int64_t head_off, const mtx_rope *r) {
  if (!check(g, x && r->n_rot > 0 && r->n_rot % 2 == 0 && head_off + r->n_rot <= head_n && heads * head_n == mtx_g_width(g, x), "rope")) return 0;
  mtx_val table = rope_table(g, r);
  mtx_val y;
  mtx_step_desc *s = step1(g, MTX_OP_ROPE, x, heads * head_n, &y);
  s->in[1] = table;
  s->heads = heads;
  s->head_n = head_n;
  s->head_off = head_off;
  s->u.rope = *r;
  return y;
}

mtx_val mtx_g_temperature(mtx_graph *g, mtx_val x, const mtx_temperature *t) {
  if (!check(g, x != 0 && t->every > 0.0f && t->offset >= 0.0f && mtx_gb_domain(g, x) == MTX_DOM_ROWS, "temperature")) return 0;
  mtx_val y;
  mtx_step_desc *s = step1(g, MTX_OP_TEMPERATURE, x, mtx_g_width(g, x), &y);
  s->f[0] = t->scale;
  s->f[1] = t->every;
  s->f[2] = t->offset;
  return y;
}

static int kv_group(mtx_graph *g, int window) {
  mtx_kv_layout *kv = &g->plan->kv;
  for (int i = 0; i < kv->n_groups; i++)
    if (kv->window[i] == window) return i;
  if (kv->n_groups == MTX_KV_MAX_GROUPS) {
    mtx_g_fail(g, MTX_EUNSUPPORTED, NULL, "more than %d different attention windows in one model", MTX_KV_MAX_GROUPS);
    return 0;
  }
  kv->window[kv->n_groups] = window;
  return kv->n_groups++;
}

mtx_val mtx_g_attention(mtx_graph *g, mtx_val q, mtx_val k, mtx_val v, const mtx_attn *a) {
  if (!check(g, q && k && v && a->n_head_kv > 0 && a->n_head % a->n_head_kv == 0 && mtx_g_width(g, q) == (int64_t)a->n_head * a->dk &&
                mtx_g_width(g, k) == (int64_t)a->n_head_kv * a->dk && mtx_g_width(g, v) == (int64_t)a->n_head_kv * a->dv, "attention"))
    return 0;
  mtx_kv_layout *kv = &g->plan->kv;
  if (kv->n_layers == MTX_KV_MAX_LAYERS) {
    mtx_g_fail(g, MTX_EUNSUPPORTED, NULL, "more than %d attention layers", MTX_KV_MAX_LAYERS);
    return 0;
  }
  int layer = kv->n_layers++;
  kv->layer[layer] = (mtx_kv_layer){.group = kv_group(g, a->causal ? a->window : 0), .n_head_kv = a->n_head_kv, .dk = a->dk, .dv = a->dv};
  mtx_step_desc *s = mtx_gb_step(g, MTX_OP_KV_STORE);
  s->in[0] = k;
  s->in[1] = v;
  s->kv_layer = layer;
  mtx_val y;
  s = step1(g, MTX_OP_ATTENTION, q, (int64_t)a->n_head * a->dv, &y);
  s->kv_layer = layer;
  s->u.attn = *a;
  return y;
}

mtx_val mtx_g_attention_shared(mtx_graph *g, mtx_val q, int nth, const mtx_attn *a) {
  const mtx_kv_layout *kv = &g->plan->kv;
  if (!check(g, q && nth >= 0 && nth < kv->n_layers, "attention")) return 0;
  const mtx_kv_layer *l = &kv->layer[nth];
  if (!check(g, l->n_head_kv == a->n_head_kv && l->dk == a->dk && l->dv == a->dv && kv->window[l->group] == (a->causal ? a->window : 0) &&
                a->n_head % a->n_head_kv == 0 && mtx_g_width(g, q) == (int64_t)a->n_head * a->dk, "attention"))
    return 0;
  mtx_val y;
  mtx_step_desc *s = step1(g, MTX_OP_ATTENTION, q, (int64_t)a->n_head * a->dv, &y);
  s->kv_layer = nth;
  s->u.attn = *a;
  return y;
}

mtx_val mtx_g_select(mtx_graph *g, mtx_val x) {
  if (!check(g, x != 0, "select")) return 0;
  mtx_val y = mtx_gb_new(g, MTX_DOM_OUTS, mtx_g_width(g, x));
  mtx_step_desc *s = mtx_gb_step(g, MTX_OP_SELECT);
  s->in[0] = x;
  s->out[0] = y;
  return y;
}

void mtx_g_hidden(mtx_graph *g, mtx_val x) {
  if (check(g, x != 0 && mtx_gb_domain(g, x) == MTX_DOM_OUTS, "hidden")) g->plan->hidden = x;
}

// ---- experts -------------------------------------------------------------------

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
  mtx_act_format act = act_of(g, w);
  return weights ? encoded(g, gathered(g, x, weights), act) : gathered(g, encoded(g, x, act), 0);
}

static mtx_val expert_matmul(mtx_graph *g, mtx_wid w, mtx_wid bias, mtx_val x) {
  mtx_val y;
  mtx_step_desc *s = step1(g, MTX_OP_MOE_MATMUL, x, g->plan->weight[w].n_out, &y);
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
    mtx_val gs = act_of(g, w->gate) == act_of(g, w->up) ? xs : expert_input(g, x, weights, w->gate);
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
  if (!check(g, x && router_logits && w->up && w->down && m->n_used > 0 && m->n_used <= m->n_expert && m->n_expert <= 1024 &&
                mtx_g_width(g, router_logits) == m->n_expert && g->plan->weight[w->up].n_mats == m->n_expert, "moe"))
    return 0;
  mtx_plan *p = g->plan;
  if (p->n_slots && p->n_slots != m->n_used) {
    mtx_g_fail(g, MTX_EUNSUPPORTED, NULL, "layers use different numbers of experts (%d and %d)", p->n_slots, m->n_used);
    return 0;
  }
  p->n_slots = m->n_used;
  mtx_val weights;
  step1(g, MTX_OP_MOE_ROUTE, router_logits, m->n_used, &weights)->u.moe = *m;
  mtx_val h = expert_hidden(g, x, m->weigh_input ? weights : 0, m, f, w);
  if (mtx_gb_bad(g)) return 0;
  mtx_val d = expert_matmul(g, w->down, w->down_bias, encoded(g, h, act_of(g, w->down)));
  mtx_val y = mtx_gb_new(g, MTX_DOM_ROWS, p->weight[w->down].n_out);
  mtx_step_desc *s = mtx_gb_step(g, MTX_OP_MOE_SUM);
  s->in[0] = d;
  s->in[1] = m->weigh_input ? 0 : weights;
  s->out[0] = y;
  s->n = m->n_used;
  return y;
}

// ---- recurrent layers ----------------------------------------------------------

static int64_t take_state(mtx_graph *g, int64_t n_floats) {
  int64_t off = (int64_t)g->plan->kv.state_bytes;
  g->plan->kv.state_bytes += ((size_t)n_floats * sizeof(float) + 63) / 64 * 64;
  return off;
}

mtx_val mtx_g_conv(mtx_graph *g, mtx_val x, mtx_wid taps, int n_taps, mtx_wid bias, bool silu) {
  if (!check(g, x && taps && n_taps >= 2 && n_taps <= 16, "conv")) return 0;
  mtx_val y;
  mtx_step_desc *s = step1(g, MTX_OP_CONV, x, mtx_g_width(g, x), &y);
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
  if (!check(g, x && dt && B && C && A && n_head > 0 && n % n_head == 0 && mtx_g_width(g, dt) == n_head && n_group > 0 &&
                n_head % n_group == 0 && mtx_g_width(g, B) == (int64_t)n_group * n_state && mtx_g_width(g, C) == mtx_g_width(g, B), "ssm_scan"))
    return 0;
  mtx_val y;
  mtx_step_desc *s = step1(g, MTX_OP_SSM_SCAN, x, n, &y);
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
  if (!check(g, s->flag || a->ne[0] * a->ne[1] == (uint64_t)n_head, "ssm_scan")) return 0;
  s->state_off = take_state(g, n * n_state);
  return y;
}

mtx_val mtx_g_delta_rule(mtx_graph *g, mtx_val q, mtx_val k, mtx_val v, mtx_val gate, mtx_val beta, int n_head, int dk, int dv) {
  if (!check(g, q && k && v && gate && beta && mtx_g_width(g, q) == (int64_t)n_head * dk && mtx_g_width(g, k) == (int64_t)n_head * dk &&
                mtx_g_width(g, v) == (int64_t)n_head * dv && mtx_g_width(g, gate) == n_head && mtx_g_width(g, beta) == n_head, "delta_rule"))
    return 0;
  mtx_val y;
  mtx_step_desc *s = step1(g, MTX_OP_DELTA_RULE, q, (int64_t)n_head * dv, &y);
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
