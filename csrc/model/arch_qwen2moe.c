// SPDX-License-Identifier: MIT
// qwen2moe: Qwen 1.5 and 2 with experts, one of them shared and weighed per token.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_experts e = mtx_experts_read(h, MTX_GATE_SOFTMAX, false);
  if (!e.n_ff_shared) e.n_ff_shared = h->n_ff[0];
  mtx_layer l = mtx_layer_default(&rope);
  l.experts = &e;
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_qwen2moe = {.names = {"qwen2moe"}, .build = build};
