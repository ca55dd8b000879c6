// SPDX-License-Identifier: MIT
// qwen35 and qwen35moe: Qwen 3.5; qwen3next: Qwen 3 Next. Hybrids: gated delta net layers with a fixed-size state, and
// every few layers full attention with gated output.
#include <math.h>
#include <string.h>

#include "model/arch.h"

typedef struct {
  int n_k, n_v, dk, dv, n_taps;  // key heads, value heads, their floats, convolution taps
  bool grouped;                  // value heads of one key head stand together (Qwen 3 Next)
} delta_net;

static delta_net read_delta(mtx_hparams *h) {
  delta_net d = {.n_k = (int)mtx_h_need(h, "ssm.group_count", 1, 4096), .n_v = (int)mtx_h_need(h, "ssm.time_step_rank", 1, 4096),
                 .dk = (int)mtx_h_need(h, "ssm.state_size", 1, 1024), .n_taps = (int)mtx_h_need(h, "ssm.conv_kernel", 2, 16)};
  d.dv = (int)mtx_h_need(h, "ssm.inner_size", 1, 1 << 20) / d.n_v;
  d.grouped = strcmp(h->arch, "qwen3next") == 0;
  if (d.n_v % d.n_k) mtx_h_fail(h, MTX_EFORMAT, "ssm.group_count", "%d key heads do not divide %d value heads", d.n_k, d.n_v);
  return d;
}

// Unit length per head, then one copy for each value head: head i uses key head i mod n_k, or the i-th group's.
static mtx_val spread(mtx_graph *g, mtx_hparams *h, mtx_val x, const delta_net *d) {
  mtx_val u = mtx_g_l2_norm(g, x, d->dk, h->rms_eps);
  if (d->n_k == d->n_v) return u;
  mtx_val y = mtx_g_alloc(g, (int64_t)d->n_v * d->dk);
  for (int i = 0, n = d->n_v / d->n_k; i < n; i++)
    if (d->grouped) mtx_g_copy_into(g, y, (int64_t)n * d->dk, (int64_t)i * d->dk, u, d->dk, d->dk, d->n_k);
    else mtx_g_copy_into(g, y, d->dk, (int64_t)i * d->n_k * d->dk, u, d->dk, d->dk, d->n_k);
  return y;
}

// beta and alpha before their activations, one number per value head each.
static void beta_alpha(mtx_graph *g, mtx_hparams *h, int il, mtx_val x, const delta_net *d, mtx_val *beta, mtx_val *alpha) {
  mtx_wid bias = mtx_g_bias(g, il, "ssm_dt", d->n_v);
  if (!d->grouped) {
    *beta = mtx_g_matmul(g, mtx_g_matrix(g, il, "ssm_beta", d->n_v, h->n_embd), x, 0);
    *alpha = mtx_g_matmul(g, mtx_g_matrix(g, il, "ssm_alpha", d->n_v, h->n_embd), x, bias);
    return;
  }
  // One matrix: for each key head the betas of its value heads, then their alphas.
  int64_t n = d->n_v / d->n_k;
  mtx_val both = mtx_g_matmul(g, mtx_g_matrix(g, il, "ssm_ba", 2 * (int64_t)d->n_v, h->n_embd), x, 0);
  *beta = mtx_g_alloc(g, d->n_v);
  mtx_val a = mtx_g_alloc(g, d->n_v);
  mtx_g_copy_into(g, *beta, n, 0, both, 2 * n, n, d->n_k);
  mtx_g_copy_into(g, a, n, 0, mtx_g_view(g, both, n, 2 * (int64_t)d->n_v - n), 2 * n, n, d->n_k);
  *alpha = bias ? mtx_g_add_vec(g, a, bias, d->n_v) : a;
}

static mtx_val recurrent(mtx_graph *g, mtx_hparams *h, int il, mtx_val x) {
  delta_net net = read_delta(h), *d = &net;
  if (h->err.code) return 0;
  int64_t n_key = (int64_t)d->n_k * d->dk, n_val = (int64_t)d->n_v * d->dv, n_conv = 2 * n_key + n_val, n = h->n_embd;
  mtx_val qkv = mtx_g_matmul(g, mtx_g_matrix(g, il, "attn_qkv", n_conv, n), x, 0);
  mtx_val z = mtx_g_matmul(g, mtx_g_matrix(g, il, "attn_gate", n_val, n), x, 0);
  mtx_val beta, alpha;
  beta_alpha(g, h, il, x, d, &beta, &alpha);
  beta = mtx_g_unary(g, MTX_UNARY_SIGMOID, beta);
  mtx_val gate = mtx_g_mul_vec(g, mtx_g_unary(g, MTX_UNARY_SOFTPLUS, alpha), mtx_g_floats(g, il, "ssm_a", d->n_v, true), d->n_v);
  mtx_val c = mtx_g_conv(g, qkv, mtx_g_vector(g, il, "ssm_conv1d", d->n_taps * n_conv), d->n_taps, 0, true);
  mtx_val q = mtx_g_scale(g, spread(g, h, mtx_g_view(g, c, 0, n_key), d), 1.0f / sqrtf((float)d->dk), 0.0f);
  mtx_val k = spread(g, h, mtx_g_view(g, c, n_key, n_key), d);
  mtx_val y = mtx_g_delta_rule(g, q, k, mtx_g_view(g, c, 2 * n_key, n_val), gate, beta, d->n_v, d->dk, d->dv);
  y = mtx_g_rms_norm(g, y, d->dv, mtx_g_vector(g, il, "ssm_norm", d->dv), h->rms_eps);
  return mtx_g_matmul(g, mtx_g_matrix(g, il, "ssm_out", n, n_val), mtx_g_glu(g, MTX_UNARY_SILU, z, y), 0);
}

static mtx_val attention(mtx_graph *g, mtx_hparams *h, int il, mtx_val x) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;  // the sections of its M-RoPE see one position for text
  int n_head = h->n_head[il], n_kv = h->n_head_kv[il], dk = h->dk;
  int64_t n_q = (int64_t)n_head * dk, n = h->n_embd;
  // Each head's query is followed by its output gate.
  mtx_val both = mtx_g_matmul(g, mtx_g_matrix(g, il, "attn_q", 2 * n_q, n), x, 0);
  mtx_val q = mtx_g_alloc(g, n_q), gate = mtx_g_alloc(g, n_q);
  mtx_g_copy_into(g, q, dk, 0, both, 2 * dk, dk, n_head);
  mtx_g_copy_into(g, gate, dk, 0, mtx_g_view(g, both, dk, 2 * n_q - dk), 2 * dk, dk, n_head);
  mtx_qkv a = {.q = mtx_g_rms_norm(g, q, dk, mtx_g_vector(g, il, "attn_q_norm", dk), h->rms_eps)};
  a.k = mtx_g_matmul(g, mtx_g_matrix(g, il, "attn_k", (int64_t)n_kv * dk, n), x, 0);
  a.v = mtx_g_matmul(g, mtx_g_matrix(g, il, "attn_v", (int64_t)n_kv * h->dv, n), x, 0);
  a.k = mtx_g_rms_norm(g, a.k, dk, mtx_g_vector(g, il, "attn_k_norm", dk), h->rms_eps);
  mtx_block_rope_qk(g, h, il, &a, &rope);
  mtx_attn p = mtx_block_attn_params(h, il, 0.0f, 0);
  mtx_val y = mtx_g_attention(g, a.q, a.k, a.v, &p);
  return mtx_block_attn_out(g, h, il, mtx_g_glu(g, MTX_UNARY_SIGMOID, gate, y));
}

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  int interval = (int)mtx_h_u32(h, "full_attention_interval", 4);
  if (interval < 1) mtx_h_fail(h, MTX_EFORMAT, "full_attention_interval", "must be at least 1");
  mtx_h_drop_nextn(h);
  mtx_experts e = {0};
  mtx_layer l = mtx_layer_default(NULL);
  l.ffn_norm = "post_attention_norm";
  if (h->n_expert) {
    e = mtx_experts_read(h, MTX_GATE_SOFTMAX, true);
    if (!e.n_ff_shared) e.n_ff_shared = h->n_ff[0];
    l.experts = &e;
  }
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer && !h->err.code; il++) {
    l.mixer = (il + 1) % interval ? recurrent : attention;
    x = mtx_block_layer(g, h, il, x, &l);
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_qwen35 = {.names = {"qwen35", "qwen35moe", "qwen3next"}, .build = build};
