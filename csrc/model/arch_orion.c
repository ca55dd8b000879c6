// SPDX-License-Identifier: MIT
// orion: Orion 14B. Llama's shape with layer norms and rotary halves.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  h->norm = MTX_NORM_LAYER;
  mtx_layer l = mtx_layer_default(&rope);
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_orion = {.names = {"orion"}, .build = build};
