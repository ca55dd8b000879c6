// SPDX-License-Identifier: MIT
// falcon: Falcon 7B, 40B and 180B. Attention and feed-forward side by side, on one layer norm or
// (40B and up) on two; few key heads, plain GELU.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  h->norm = MTX_NORM_LAYER;
  mtx_layer l = mtx_layer_default(&rope);
  l.parallel = true;
  l.ffn_norm = NULL;
  l.ffn = MTX_FFN_PLAIN;
  l.act = MTX_UNARY_GELU;
  if (mtx_g_has(g, 0, "attn_norm_2")) {
    l.attn_norm = "attn_norm_2";
    l.ffn_norm = "attn_norm";
  }
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_falcon = {.names = {"falcon"}, .build = build};
