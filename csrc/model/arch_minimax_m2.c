// SPDX-License-Identifier: MIT
// minimax-m2: MiniMax M2. Experts chosen by sigmoid with a bias, half of each head rotated, q and k normalised
// over all heads.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_experts e = mtx_experts_read(h, MTX_GATE_SIGMOID, true);
  e.n_ff = h->n_ff[0];
  mtx_layer l = mtx_layer_default(&rope);
  l.qk_norm = MTX_QK_NORM_ROPE;
  l.experts = &e;
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_minimax_m2 = {.names = {"minimax-m2"}, .build = build};
