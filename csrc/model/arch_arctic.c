// SPDX-License-Identifier: MIT
// arctic: Snowflake Arctic. A dense layer with residual, and experts beside it that read the layer's input.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NORM;
  mtx_experts e = mtx_experts_read(h, MTX_GATE_SOFTMAX, true);
  // Dense layers are n_embd wide; feed_forward_length is that of an expert.
  for (int il = 0; il < h->n_layer; il++) h->n_ff[il] = h->n_embd;
  mtx_layer l = mtx_layer_default(&rope);
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer && !h->err.code; il++) {
    mtx_val n = mtx_block_norm(g, h, il, "ffn_norm_exps", x);
    x = mtx_g_add(g, mtx_block_layer(g, h, il, x, &l), mtx_block_experts(g, h, il, n, &e, MTX_UNARY_SILU));
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_arctic = {.names = {"arctic"}, .build = build};
