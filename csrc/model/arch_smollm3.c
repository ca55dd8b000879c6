// SPDX-License-Identifier: MIT
// smollm3: SmolLM 3. Llama's shape; every fourth layer has no positions.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NORM;
  mtx_layer l = mtx_layer_default(&rope);
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer; il++) {
    l.rope = (il + 1) % 4 ? &rope : NULL;
    x = mtx_block_layer(g, h, il, x, &l);
  }
  return mtx_block_head(g, h, x);
}

const mtx_arch mtx_arch_smollm3 = {.names = {"smollm3"}, .build = build};
