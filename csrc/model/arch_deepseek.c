// SPDX-License-Identifier: MIT
// deepseek: DeepSeek MoE 16B. Llama's attention; shared and routed experts behind a dense layer.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NORM;
  mtx_experts e = mtx_experts_read(h, MTX_GATE_SOFTMAX, false);
  mtx_layer l = mtx_layer_default(&rope);
  l.experts = &e;
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_deepseek = {.names = {"deepseek"}, .build = build};
