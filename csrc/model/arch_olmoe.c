// SPDX-License-Identifier: MIT
// olmoe: OLMoE. Experts in every layer, q and k normalised over all heads. dots1: dots.llm1, with norms per head,
// dense layers in front and shared experts.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_experts e = mtx_experts_read(h, MTX_GATE_SOFTMAX, false);
  mtx_layer l = mtx_layer_default(&rope);
  l.qk_norm = MTX_QK_NORM_ROPE;
  l.experts = &e;
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_olmoe = {.names = {"olmoe", "dots1"}, .build = build};
