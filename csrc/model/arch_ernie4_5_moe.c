// SPDX-License-Identifier: MIT
// ernie4_5-moe: ERNIE 4.5 with experts in every interleave_moe_layer_step-th layer behind the dense ones.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NORM;
  uint32_t every = mtx_h_need(h, "interleave_moe_layer_step", 1, MTX_MAX_LAYERS);
  mtx_experts e = mtx_experts_read(h, MTX_GATE_SOFTMAX, true);
  mtx_layer l = mtx_layer_default(&rope);
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer && !h->err.code; il++) {
    l.experts = il >= e.n_dense && (uint32_t)(il + 1) % every == 0 ? &e : NULL;
    x = mtx_block_layer(g, h, il, x, &l);
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_ernie4_5_moe = {.names = {"ernie4_5-moe"}, .build = build};
