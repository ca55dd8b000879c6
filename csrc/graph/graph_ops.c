// SPDX-License-Identifier: MIT
// Builder, part two: the ops of rows. Each checks its shapes and appends steps. (Attention, experts and recurrent layers:
// graph_attn.c, graph_moe.c, graph_recurrent.c.)
#include "graph/graph_build.h"

static const char *const op_names[] = {
#define X(name, text) text,
#include "graph/ops.def"
#undef X
};

const char *mtx_op_name(mtx_op op) { return op < MTX_OP_COUNT ? op_names[op] : "?"; }

mtx_step_desc *mtx_gb_step1(mtx_graph *g, mtx_op op, mtx_val x, int64_t n, mtx_val *out) {
  *out = mtx_gb_new(g, mtx_gb_bad(g) ? MTX_DOM_ROWS : mtx_gb_domain(g, x), n);
  mtx_step_desc *s = mtx_gb_step(g, op);
  s->in[0] = x;
  s->out[0] = *out;
  return s;
}

bool mtx_gb_check(mtx_graph *g, bool ok, const char *what) {
  if (!ok) mtx_g_fail(g, MTX_EFORMAT, NULL, "shapes do not fit in %s", what);
  return ok && !mtx_gb_bad(g);
}

mtx_val mtx_g_embed(mtx_graph *g, mtx_wid table, float scale) {
  if (!mtx_gb_check(g, table != 0, "embed")) return 0;
  mtx_val y = mtx_gb_new(g, MTX_DOM_ROWS, g->plan->weight[table].k);
  mtx_step_desc *s = mtx_gb_step(g, MTX_OP_EMBED);
  s->w[0] = table;
  s->out[0] = y;
  s->f[0] = scale;
  return y;
}

mtx_val mtx_g_embed_pos(mtx_graph *g, mtx_wid table, int offset) {
  if (!mtx_gb_check(g, table != 0, "embed_pos")) return 0;
  mtx_val y = mtx_gb_new(g, MTX_DOM_ROWS, g->plan->weight[table].k);
  mtx_step_desc *s = mtx_gb_step(g, MTX_OP_EMBED_POS);
  s->w[0] = table;
  s->out[0] = y;
  s->flag = offset;
  return y;
}

mtx_act_format mtx_gb_act(mtx_graph *g, mtx_wid w) {
  mtx_weight probe;
  const mtx_plan_weight *p = &g->plan->weight[w];
  mtx_weight_init(&probe, p->type, p->n_out, p->k, NULL);
  return probe.act;
}

mtx_val mtx_gb_encoded(mtx_graph *g, mtx_val x, mtx_act_format act) {
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
  mtx_step_desc *s = mtx_gb_step1(g, MTX_OP_ENCODE, x, (int64_t)(mtx_act_bytes(act, v.n) / sizeof(float)), &y);
  s->n = v.n;
  return y;
}

mtx_val mtx_g_matmul(mtx_graph *g, mtx_wid w, mtx_val x, mtx_wid bias) {
  if (!mtx_gb_check(g, w != 0 && x != 0 && g->plan->weight[w].k == mtx_g_width(g, x), "matmul")) return 0;
  mtx_val in = mtx_gb_encoded(g, x, mtx_gb_act(g, w));
  mtx_val y;
  mtx_step_desc *s = mtx_gb_step1(g, MTX_OP_MATMUL, in, g->plan->weight[w].n_out, &y);
  s->w[0] = w;
  s->b[0] = bias;
  s->n_w = 1;
  return y;
}

mtx_val mtx_g_matmul_heads(mtx_graph *g, mtx_wid w, mtx_val x, int64_t head_n, int64_t head_off) {
  if (!mtx_gb_check(g, w != 0 && x != 0, "matmul_heads")) return 0;
  const mtx_plan_weight *pw = &g->plan->weight[w];
  int64_t heads = pw->n_mats, n_out = pw->n_out, k = pw->k;
  if (!mtx_gb_check(g, (heads - 1) * head_n + head_off + k <= mtx_g_width(g, x), "matmul_heads")) return 0;
  mtx_val y;
  mtx_step_desc *s = mtx_gb_step1(g, MTX_OP_MATMUL_HEADS, x, heads * n_out, &y);
  s->w[0] = w;
  s->heads = heads;
  s->head_n = head_n;
  s->head_off = head_off;
  return y;
}

static mtx_val norm(mtx_graph *g, mtx_val x, int64_t chunk, mtx_wid w, mtx_wid b, float eps, int kind) {
  if (!mtx_gb_check(g, x != 0, "norm")) return 0;
  int64_t n = mtx_g_width(g, x);
  if (chunk == 0) chunk = n;
  if (!mtx_gb_check(g, n % chunk == 0, "norm")) return 0;
  mtx_val y;
  mtx_step_desc *s = mtx_gb_step1(g, MTX_OP_NORM, x, n, &y);
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
  if (!mtx_gb_check(g, x != 0, "unary")) return 0;
  mtx_val y;
  mtx_gb_step1(g, MTX_OP_UNARY, x, mtx_g_width(g, x), &y)->unary = f;
  return y;
}

mtx_val mtx_g_glu(mtx_graph *g, mtx_unary f, mtx_val gate, mtx_val up) {
  if (!mtx_gb_check(g, gate && up && mtx_g_width(g, gate) == mtx_g_width(g, up), "glu")) return 0;
  mtx_val y;
  mtx_step_desc *s = mtx_gb_step1(g, MTX_OP_GLU, gate, mtx_g_width(g, gate), &y);
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
  if (!mtx_gb_check(g, a && b && mtx_g_width(g, a) == mtx_g_width(g, b), "add")) return 0;
  mtx_val y;
  mtx_gb_step1(g, MTX_OP_ADD, a, mtx_g_width(g, a), &y)->in[1] = b;
  return y;
}

mtx_val mtx_g_mul(mtx_graph *g, mtx_val a, mtx_val b) {
  if (!mtx_gb_check(g, a && b && mtx_g_width(g, a) % mtx_g_width(g, b) == 0, "mul")) return 0;
  mtx_val y;
  mtx_step_desc *s = mtx_gb_step1(g, MTX_OP_MUL, a, mtx_g_width(g, a), &y);
  s->in[1] = b;
  s->n = mtx_g_width(g, a) / mtx_g_width(g, b);
  return y;
}

// y = op(x) with two numbers.
static mtx_val with_numbers(mtx_graph *g, mtx_op op, mtx_val x, float a, float b) {
  if (!mtx_gb_check(g, x != 0, mtx_op_name(op))) return 0;
  mtx_val y;
  mtx_step_desc *s = mtx_gb_step1(g, op, x, mtx_g_width(g, x), &y);
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
  if (!mtx_gb_check(g, x && v && mtx_g_width(g, x) % chunk == 0, "vec")) return 0;
  mtx_val y;
  mtx_step_desc *s = mtx_gb_step1(g, MTX_OP_VEC, x, mtx_g_width(g, x), &y);
  s->w[0] = v;
  s->n = chunk;
  s->flag = kind;
  return y;
}

mtx_val mtx_g_mul_vec(mtx_graph *g, mtx_val x, mtx_wid v, int64_t chunk) { return vec(g, x, v, chunk, 0); }
mtx_val mtx_g_add_vec(mtx_graph *g, mtx_val x, mtx_wid v, int64_t chunk) { return vec(g, x, v, chunk, 1); }

void mtx_g_copy_into(mtx_graph *g, mtx_val dst, int64_t dst_head, int64_t dst_off, mtx_val x, int64_t x_head, int64_t n, int64_t heads) {
  if (!mtx_gb_check(g, dst && x && (heads - 1) * dst_head + dst_off + n <= mtx_g_width(g, dst) && (heads - 1) * x_head + n <= mtx_g_width(g, x), "copy"))
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

mtx_val mtx_g_select(mtx_graph *g, mtx_val x) {
  if (!mtx_gb_check(g, x != 0, "select")) return 0;
  mtx_val y = mtx_gb_new(g, MTX_DOM_OUTS, mtx_g_width(g, x));
  mtx_step_desc *s = mtx_gb_step(g, MTX_OP_SELECT);
  s->in[0] = x;
  s->out[0] = y;
  return y;
}

void mtx_g_hidden(mtx_graph *g, mtx_val x) {
  if (mtx_gb_check(g, x != 0 && mtx_gb_domain(g, x) == MTX_DOM_OUTS, "hidden")) g->plan->hidden = x;
}
