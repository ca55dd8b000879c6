// SPDX-License-Identifier: MIT
// openelm: OpenELM. Heads and feed-forward grow from layer to layer; q and k are normalised per head.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_layer l = mtx_layer_default(&rope);
  l.qk_norm = MTX_QK_NORM_ROPE;
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_openelm = {.names = {"openelm"}, .build = build};
