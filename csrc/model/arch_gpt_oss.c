// SPDX-License-Identifier: MIT
// gpt-oss: GPT-OSS 20B and 120B. Sliding-window and global layers in turn, a learned sink in
// every head's softmax, experts with biases and a clamped gate.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_experts e = mtx_experts_read(h, MTX_GATE_SOFTMAX_SELECTED, false);
  e.route.gate = MTX_GATE_SOFTMAX_SELECTED;
  e.route.glu_limit = 7.0f;
  mtx_layer l = mtx_layer_default(&rope);
  l.ffn_norm = "post_attention_norm";
  l.act = MTX_UNARY_GELU_QUICK;  // x * sigmoid(1.702 x)
  l.experts = &e;
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer && !h->err.code; il++) {
    l.attn.window = mtx_h_local(h, il, 2) ? h->window : 0;
    l.attn.sinks = mtx_g_vector(g, il, "attn_sinks", h->n_head[il]);
    x = mtx_block_layer(g, h, il, x, &l);
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_gpt_oss = {.names = {"gpt-oss"}, .build = build};
