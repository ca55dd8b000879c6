// SPDX-License-Identifier: MIT
// Builder: positions and attention, and what the KV cache keeps of them.
#include <string.h>

#include "graph/graph_build.h"

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
  if (!mtx_gb_check(g, x && r->n_rot > 0 && r->n_rot % 2 == 0 && head_off + r->n_rot <= head_n && heads * head_n == mtx_g_width(g, x), "rope")) return 0;
  mtx_val table = rope_table(g, r);
  mtx_val y;
  mtx_step_desc *s = mtx_gb_step1(g, MTX_OP_ROPE, x, heads * head_n, &y);
  s->in[1] = table;
  s->heads = heads;
  s->head_n = head_n;
  s->head_off = head_off;
  s->u.rope = *r;
  return y;
}

mtx_val mtx_g_temperature(mtx_graph *g, mtx_val x, const mtx_temperature *t) {
  if (!mtx_gb_check(g, x != 0 && t->every > 0.0f && t->offset >= 0.0f && mtx_gb_domain(g, x) == MTX_DOM_ROWS, "temperature")) return 0;
  mtx_val y;
  mtx_step_desc *s = mtx_gb_step1(g, MTX_OP_TEMPERATURE, x, mtx_g_width(g, x), &y);
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
  if (!mtx_gb_check(g, q && k && v && a->n_head_kv > 0 && a->n_head % a->n_head_kv == 0 && mtx_g_width(g, q) == (int64_t)a->n_head * a->dk &&
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
  s = mtx_gb_step1(g, MTX_OP_ATTENTION, q, (int64_t)a->n_head * a->dv, &y);
  s->kv_layer = layer;
  s->u.attn = *a;
  return y;
}

mtx_val mtx_g_attention_shared(mtx_graph *g, mtx_val q, int nth, const mtx_attn *a) {
  const mtx_kv_layout *kv = &g->plan->kv;
  if (!mtx_gb_check(g, q && nth >= 0 && nth < kv->n_layers, "attention")) return 0;
  const mtx_kv_layer *l = &kv->layer[nth];
  if (!mtx_gb_check(g, l->n_head_kv == a->n_head_kv && l->dk == a->dk && l->dv == a->dv && kv->window[l->group] == (a->causal ? a->window : 0) &&
                a->n_head % a->n_head_kv == 0 && mtx_g_width(g, q) == (int64_t)a->n_head * a->dk, "attention"))
    return 0;
  mtx_val y;
  mtx_step_desc *s = mtx_gb_step1(g, MTX_OP_ATTENTION, q, (int64_t)a->n_head * a->dv, &y);
  s->kv_layer = nth;
  s->u.attn = *a;
  return y;
}
