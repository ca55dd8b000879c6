// SPDX-License-Identifier: MIT
// starcoder2: StarCoder 2. Layer norms, plain GELU, biases everywhere.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  h->norm = MTX_NORM_LAYER;
  mtx_layer l = mtx_layer_default(&rope);
  l.ffn = MTX_FFN_PLAIN;
  l.act = MTX_UNARY_GELU;
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_starcoder2 = {.names = {"starcoder2"}, .build = build};
