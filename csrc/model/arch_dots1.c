// SPDX-License-Identifier: MIT
// dots1: dots.llm1. Experts as in DeepSeek V3, plain attention with q and k normalised per head.
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

const mtx_arch mtx_arch_dots1 = {.names = {"dots1"}, .build = build};
