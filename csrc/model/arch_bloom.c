// SPDX-License-Identifier: MIT
// bloom: BLOOM, BLOOMZ. ALiBi instead of positions, normalised embeddings, plain GELU.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  h->norm = MTX_NORM_LAYER;
  mtx_layer l = mtx_layer_default(NULL);
  l.ffn = MTX_FFN_PLAIN;
  l.act = MTX_UNARY_GELU;
  l.attn.alibi_max_bias = 8.0f;
  return mtx_block_decoder(g, h, mtx_block_norm(g, h, -1, "token_embd_norm", mtx_block_embed(g, h, 1.0f)), &l);
}

const mtx_arch mtx_arch_bloom = {.names = {"bloom"}, .build = build};
