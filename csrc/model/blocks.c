// SPDX-License-Identifier: MIT
// Pieces that most decoder architectures share: see arch.h.
#include <math.h>
#include <stdio.h>

#include "model/arch.h"

mtx_val mtx_block_embed(mtx_graph *g, mtx_hparams *h, float scale) {
  return mtx_g_embed(g, mtx_g_table(g, -1, "token_embd", h->n_vocab, h->n_embd), scale);
}

mtx_val mtx_block_add_positions(mtx_graph *g, mtx_hparams *h, mtx_val x) {
  return mtx_g_add(g, x, mtx_g_embed_pos(g, mtx_g_table(g, -1, "position_embd", h->n_ctx_train, h->n_embd), 0));
}

// Chunks of `chunk` floats (0 = the whole row), with the tensor's weights and bias.
static mtx_val norm_chunks(mtx_graph *g, mtx_hparams *h, int il, const char *name, mtx_val x, int64_t chunk) {
  int64_t n = mtx_g_width(g, x);
  if (h->norm == MTX_NORM_LAYER_BARE) return mtx_g_layer_norm(g, x, chunk, 0, 0, h->ln_eps);
  mtx_wid w = mtx_g_vector(g, il, name, n), b = mtx_g_bias(g, il, name, n);
  if (h->norm == MTX_NORM_LAYER) return mtx_g_layer_norm(g, x, chunk, w, b, h->ln_eps);
  mtx_val y = mtx_g_rms_norm(g, x, chunk, w, h->rms_eps);
  return b ? mtx_g_add_vec(g, y, b, n) : y;
}

mtx_val mtx_block_norm(mtx_graph *g, mtx_hparams *h, int il, const char *name, mtx_val x) { return norm_chunks(g, h, il, name, x, 0); }

mtx_val mtx_block_logits(mtx_graph *g, mtx_hparams *h, mtx_val x) {
  mtx_wid out = mtx_g_matrix_opt(g, -1, "output", h->n_vocab, h->n_embd);
  if (!out) out = mtx_g_matrix(g, -1, "token_embd", h->n_vocab, h->n_embd);
  return mtx_g_matmul(g, out, x, mtx_g_bias(g, -1, "output", h->n_vocab));
}

mtx_val mtx_block_head(mtx_graph *g, mtx_hparams *h, mtx_val x) {
  mtx_val last = mtx_block_norm(g, h, -1, "output_norm", mtx_g_select(g, x));
  mtx_g_hidden(g, last);
  return mtx_block_logits(g, h, last);
}

static mtx_val projection(mtx_graph *g, int il, const char *name, int64_t n_out, mtx_val x) {
  return mtx_g_matmul(g, mtx_g_matrix(g, il, name, n_out, mtx_g_width(g, x)), x, mtx_g_bias(g, il, name, n_out));
}

// ---- attention -------------------------------------------------------------------

mtx_qkv mtx_block_qkv(mtx_graph *g, mtx_hparams *h, int il, mtx_val x) {
  int64_t nq = (int64_t)h->n_head[il] * h->dk, nk = (int64_t)h->n_head_kv[il] * h->dk, nv = (int64_t)h->n_head_kv[il] * h->dv;
  if (mtx_g_has(g, il, "attn_qkv")) {
    mtx_val all = projection(g, il, "attn_qkv", nq + nk + nv, x);
    return (mtx_qkv){mtx_g_view(g, all, 0, nq), mtx_g_view(g, all, nq, nk), mtx_g_view(g, all, nq + nk, nv)};
  }
  mtx_qkv a;
  a.q = projection(g, il, "attn_q", nq, x);
  a.k = projection(g, il, "attn_k", nk, x);
  a.v = projection(g, il, "attn_v", nv, x);
  return a;
}

void mtx_block_rope_qk(mtx_graph *g, mtx_hparams *h, int il, mtx_qkv *a, const mtx_rope *r) {
  a->q = mtx_g_rope(g, a->q, h->n_head[il], h->dk, 0, r);
  a->k = mtx_g_rope(g, a->k, h->n_head_kv[il], h->dk, 0, r);
}

mtx_attn mtx_block_attn_params(const mtx_hparams *h, int il, float scale, int window) {
  return (mtx_attn){.n_head = h->n_head[il], .n_head_kv = h->n_head_kv[il], .dk = h->dk, .dv = h->dv,
                    .scale = scale != 0.0f ? scale : 1.0f / sqrtf((float)h->dk), .window = window, .causal = true};
}

mtx_val mtx_block_attn_out(mtx_graph *g, mtx_hparams *h, int il, mtx_val x) { return projection(g, il, "attn_output", h->n_embd, x); }

// A norm of queries or keys: one head's weights for all, weights for each head, or one norm over the row.
static mtx_val head_norm(mtx_graph *g, mtx_hparams *h, int il, const char *name, mtx_val x) {
  char full[64];
  snprintf(full, sizeof full, "blk.%d.%s.weight", il, name);
  const mtx_gguf_tensor *t = mtx_gguf_tensor_find(h->file, full);
  if (t && t->n_dims == 1 && t->ne[0] == (uint64_t)h->dk) {
    mtx_wid w = mtx_g_vector(g, il, name, h->dk), b = mtx_g_bias(g, il, name, h->dk);
    return h->norm == MTX_NORM_LAYER ? mtx_g_layer_norm(g, x, h->dk, w, b, h->ln_eps) : mtx_g_rms_norm(g, x, h->dk, w, h->rms_eps);
  }
  return norm_chunks(g, h, il, name, x, t && t->n_dims > 1 ? h->dk : 0);
}

static void norm_qk(mtx_graph *g, mtx_hparams *h, int il, mtx_qkv *a) {
  a->q = head_norm(g, h, il, "attn_q_norm", a->q);
  a->k = head_norm(g, h, il, "attn_k_norm", a->k);
}

mtx_val mtx_block_attention(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, const mtx_layer *l) {
  mtx_qkv a = mtx_block_qkv(g, h, il, x);
  if (l->clamp_qkv > 0.0f) {
    a.q = mtx_g_clamp(g, a.q, -l->clamp_qkv, l->clamp_qkv);
    a.k = mtx_g_clamp(g, a.k, -l->clamp_qkv, l->clamp_qkv);
    a.v = mtx_g_clamp(g, a.v, -l->clamp_qkv, l->clamp_qkv);
  }
  if (l->qk_norm == MTX_QK_NORM_ROPE) norm_qk(g, h, il, &a);
  if (l->rope) mtx_block_rope_qk(g, h, il, &a, l->rope);
  if (l->qk_norm == MTX_QK_ROPE_NORM) norm_qk(g, h, il, &a);
  if (l->qk_norm == MTX_QK_ROPE_NORM_BARE) {
    a.q = mtx_g_rms_norm(g, a.q, h->dk, 0, h->rms_eps);
    a.k = mtx_g_rms_norm(g, a.k, h->dk, 0, h->rms_eps);
  }
  if (l->temperature.scale != 0.0f) a.q = mtx_g_temperature(g, a.q, &l->temperature);
  mtx_attn p = mtx_block_attn_params(h, il, l->attn.scale, l->attn.window);
  p.chunked = l->attn.chunked;
  p.softcap = l->attn.softcap;
  p.alibi_max_bias = l->attn.alibi_max_bias;
  p.sinks = l->attn.sinks;
  p.causal = h->causal;
  mtx_val y = mtx_g_attention(g, a.q, a.k, a.v, &p);
  if (l->out_gate) {
    mtx_wid gate = mtx_g_matrix(g, il, "attn_gate", mtx_g_width(g, y), mtx_g_width(g, x));
    y = mtx_g_glu(g, MTX_UNARY_SIGMOID, mtx_g_matmul(g, gate, x, 0), y);
  }
  return mtx_block_attn_out(g, h, il, y);
}

// ---- feed-forward ----------------------------------------------------------------

static mtx_val feed_forward(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, mtx_ffn_kind kind, mtx_unary f, const char *suffix, int64_t ff) {
  char gate_name[64], up_name[64], down_name[64];
  snprintf(gate_name, sizeof gate_name, "ffn_gate%s", suffix);
  snprintf(up_name, sizeof up_name, "ffn_up%s", suffix);
  snprintf(down_name, sizeof down_name, "ffn_down%s", suffix);
  mtx_val gate = kind == MTX_FFN_GATED ? projection(g, il, gate_name, ff, x) : 0;
  mtx_val up = projection(g, il, up_name, kind == MTX_FFN_JOINED ? 2 * ff : ff, x), y;
  if (kind == MTX_FFN_JOINED) y = mtx_g_glu(g, f, mtx_g_view(g, up, 0, ff), mtx_g_view(g, up, ff, ff));
  else y = gate ? mtx_g_glu(g, f, gate, up) : mtx_g_unary(g, f, up);
  return projection(g, il, down_name, h->n_embd, y);
}

mtx_val mtx_block_ffn(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, mtx_ffn_kind kind, mtx_unary f) {
  return feed_forward(g, h, il, x, kind, f, "", h->n_ff[il]);
}

mtx_experts mtx_experts_read(mtx_hparams *h, mtx_gate gate, bool norm) {
  if (!h->n_expert) return (mtx_experts){0};
  if (!h->n_expert_used) mtx_h_fail(h, MTX_EFORMAT, "expert_used_count", "at least one of %d experts must be used", h->n_expert);
  static const mtx_gate gates[] = {MTX_GATE_SOFTMAX, MTX_GATE_SOFTMAX, MTX_GATE_SIGMOID, MTX_GATE_SOFTMAX_SELECTED};
  uint32_t kind = mtx_h_u32(h, "expert_gating_func", 0), shared = mtx_h_u32(h, "expert_shared_feed_forward_length", 0);
  if (kind >= sizeof gates / sizeof *gates) mtx_h_fail(h, MTX_EUNSUPPORTED, "expert_gating_func", "gating function %u is not known", kind);
  mtx_experts e = {.n_ff = (int)mtx_h_u32(h, "expert_feed_forward_length", (uint32_t)h->n_ff[0]), .n_dense = (int)mtx_h_u32(h, "leading_dense_block_count", 0)};
  uint32_t n_shared = mtx_h_u32(h, "expert_shared_count", shared ? 1 : 0);
  int64_t n_ff_shared = (int64_t)(shared ? shared : (uint32_t)e.n_ff) * n_shared;
  e.route = (mtx_moe){.gate = kind && kind < sizeof gates / sizeof *gates ? gates[kind] : gate, .norm = mtx_h_bool(h, "expert_weights_norm", norm),
                      .scale = mtx_h_f32(h, "expert_weights_scale", 1.0f), .n_group = (int)mtx_h_u32(h, "expert_group_count", 0),
                      .n_group_used = (int)mtx_h_u32(h, "expert_group_used_count", 0)};
  if (e.route.scale == 0.0f) e.route.scale = 1.0f;
  if (e.n_ff < 1 || e.n_ff > 1 << 24 || n_ff_shared > 1 << 24)
    mtx_h_fail(h, MTX_EFORMAT, "expert_feed_forward_length", "experts of %d and shared ones of %lld floats are not possible", e.n_ff, (long long)n_ff_shared);
  if (e.route.n_group > 64 || e.route.n_group_used > e.route.n_group || (e.route.n_group > 1 && h->n_expert % e.route.n_group))
    mtx_h_fail(h, MTX_EFORMAT, "expert_group_count", "%d experts cannot stand in %d groups with %d used", h->n_expert, e.route.n_group, e.route.n_group_used);
  e.n_ff_shared = (int)n_ff_shared;
  return e;
}

static int64_t latent_width(const mtx_hparams *h, int il) {
  char full[64];
  snprintf(full, sizeof full, "blk.%d.ffn_latent_down.weight", il);
  const mtx_gguf_tensor *t = mtx_gguf_tensor_find(h->file, full);
  return t ? (int64_t)t->ne[1] : h->n_embd;
}

mtx_val mtx_block_routed(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, mtx_val logits, const mtx_experts *e, mtx_unary f) {
  int64_t n_ff = e->n_ff;
  mtx_moe m = e->route;
  m.n_expert = h->n_expert;
  m.n_used = h->n_expert_used;
  m.select_bias = mtx_g_bias(g, il, "exp_probs_b", m.n_expert);
  m.expert_scale = mtx_g_floats(g, il, "ffn_down_exps.scale", m.n_expert, false);
  mtx_expert_weights w = {0};
  bool joined = mtx_g_has(g, il, "ffn_gate_up_exps");
  const char *up = joined ? "ffn_gate_up_exps" : "ffn_up_exps";
  if (joined) n_ff *= 2;
  if (e->latent) x = projection(g, il, "ffn_latent_down", latent_width(h, il), x);
  int64_t n = mtx_g_width(g, x);
  if (!joined && !e->no_gate) {
    w.gate = mtx_g_matrices(g, il, "ffn_gate_exps", m.n_expert, n_ff, n);
    w.gate_bias = mtx_g_bias(g, il, "ffn_gate_exps", m.n_expert * n_ff);
  }
  w.up = mtx_g_matrices(g, il, up, m.n_expert, n_ff, n);
  w.up_bias = mtx_g_bias(g, il, up, m.n_expert * n_ff);
  w.down = mtx_g_matrices(g, il, "ffn_down_exps", m.n_expert, n, e->n_ff);
  w.down_bias = mtx_g_bias(g, il, "ffn_down_exps", m.n_expert * n);
  mtx_val y = mtx_g_moe(g, x, logits, &m, f, &w);
  return e->latent ? projection(g, il, "ffn_latent_up", h->n_embd, y) : y;
}

mtx_val mtx_block_experts(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, const mtx_experts *e, mtx_unary f) {
  mtx_val y = mtx_block_routed(g, h, il, x, projection(g, il, "ffn_gate_inp", h->n_expert, x), e, f);
  if (!e->n_ff_shared) return y;
  mtx_val shared = feed_forward(g, h, il, x, e->no_gate ? MTX_FFN_PLAIN : MTX_FFN_GATED, f, "_shexp", e->n_ff_shared);
  if (mtx_g_has(g, il, "ffn_gate_inp_shexp")) {  // Qwen: its weight is learned per token
    mtx_val weight = mtx_g_matmul(g, mtx_g_matrix(g, il, "ffn_gate_inp_shexp", 1, mtx_g_width(g, x)), x, 0);
    shared = mtx_g_mul(g, shared, mtx_g_unary(g, MTX_UNARY_SIGMOID, weight));
  }
  return mtx_g_add(g, y, shared);
}

// ---- a whole layer ----------------------------------------------------------------

mtx_layer mtx_layer_default(const mtx_rope *rope) {
  return (mtx_layer){.attn_norm = "attn_norm", .ffn_norm = "ffn_norm", .residual_scale = 1.0f, .rope = rope, .act = MTX_UNARY_SILU};
}

static mtx_val normed(mtx_graph *g, mtx_hparams *h, int il, const char *name, mtx_val x) { return name ? mtx_block_norm(g, h, il, name, x) : x; }

void mtx_layer_post_norms(mtx_layer *l) {
  l->attn_post_norm = "post_attention_norm";
  l->ffn_post_norm = "post_ffw_norm";
}

static mtx_val residual(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, mtx_val y, const char *post_norm, const mtx_layer *l) {
  y = normed(g, h, il, post_norm, y);
  return mtx_g_add(g, x, l->residual_scale != 1.0f ? mtx_g_scale(g, y, l->residual_scale, 0.0f) : y);
}

mtx_val mtx_block_layer(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, const mtx_layer *l) {
  mtx_val attn_in = normed(g, h, il, l->attn_norm, x), ffn_in = attn_in;
  if (l->parallel && l->ffn_norm) ffn_in = mtx_block_norm(g, h, il, l->ffn_norm, x);
  mtx_val mixed = l->mixer ? l->mixer(g, h, il, attn_in) : mtx_block_attention(g, h, il, attn_in, l);
  x = residual(g, h, il, x, mixed, l->attn_post_norm, l);
  if (!l->parallel) ffn_in = normed(g, h, il, l->ffn_norm, x);
  mtx_val y = l->experts ? mtx_block_experts(g, h, il, ffn_in, l->experts, l->act) : mtx_block_ffn(g, h, il, ffn_in, l->ffn, l->act);
  return residual(g, h, il, x, y, l->ffn_post_norm, l);
}

mtx_val mtx_block_decoder(mtx_graph *g, mtx_hparams *h, mtx_val x, const mtx_layer *l) {
  mtx_layer dense = *l;
  dense.experts = NULL;
  for (int il = 0; il < h->n_layer && !h->err.code; il++) x = mtx_block_layer(g, h, il, x, l->experts && il < l->experts->n_dense ? &dense : l);
  return mtx_block_head(g, h, x);
}
