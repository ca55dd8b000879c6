// SPDX-License-Identifier: MIT
// nemotron_h and nemotron_h_moe: Nemotron-H, Nemotron Nano 2 and 3. A layer is one thing: a Mamba-2 mixer,
// attention without positions, or a feed-forward network (squared ReLU, or experts without a gate).
#include "model/arch.h"

static mtx_experts read_experts(mtx_hparams *h, int il) {
  int first = h->n_ff[0];
  h->n_ff[0] = h->n_expert_used ? h->n_ff[il] / h->n_expert_used : 0;  // what files without expert_feed_forward_length mean
  mtx_experts e = mtx_experts_read(h, MTX_GATE_SIGMOID, false);
  h->n_ff[0] = first;
  e.no_gate = true;
  return e;
}

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  if (h->rms_eps == 0.0f) h->rms_eps = h->ln_eps;  // its files name the epsilon of its RMS norms so
  mtx_experts e = {0};
  mtx_layer l = mtx_layer_default(NULL);
  mtx_h_drop_nextn(h);
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer && !h->err.code; il++) {
    mtx_val n = mtx_block_norm(g, h, il, "attn_norm", x), y;
    if (h->n_ff[il] == 0) {
      y = h->n_head_kv[il] ? mtx_block_attention(g, h, il, n, &l) : mtx_block_mamba2(g, h, il, n, true);
    } else if (h->n_expert) {
      if (!e.n_ff) e = read_experts(h, il);
      e.latent = mtx_g_has(g, il, "ffn_latent_down");
      y = mtx_block_experts(g, h, il, n, &e, MTX_UNARY_RELU2);
    } else {
      y = mtx_block_ffn(g, h, il, n, MTX_FFN_PLAIN, MTX_UNARY_RELU2);
    }
    x = mtx_g_add(g, x, y);
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_nemotron_h = {.names = {"nemotron_h", "nemotron_h_moe"}, .build = build};
