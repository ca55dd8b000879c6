// SPDX-License-Identifier: MIT
// phi2: Phi 1, 1.5 and 2. Attention and feed-forward side by side on one layer norm,
// part of each head rotated, plain GELU, biases everywhere.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  h->norm = MTX_NORM_LAYER;
  mtx_layer l = mtx_layer_default(&rope);
  l.ffn_norm = NULL;
  l.parallel = true;
  l.ffn = MTX_FFN_PLAIN;
  l.act = MTX_UNARY_GELU;
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_phi2 = {.names = {"phi2"}, .build = build};
