// SPDX-License-Identifier: MIT
// gpt2 and starcoder: GPT-2, Cerebras-GPT; StarCoder 1 and SantaCoder, whose heads share one key.
// Learned positions, layer norms, plain GELU.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  h->norm = MTX_NORM_LAYER;
  mtx_layer l = mtx_layer_default(NULL);
  l.ffn = MTX_FFN_PLAIN;
  l.act = MTX_UNARY_GELU;
  return mtx_block_decoder(g, h, mtx_block_add_positions(g, h, mtx_block_embed(g, h, 1.0f)), &l);
}

const mtx_arch mtx_arch_gpt2 = {.names = {"gpt2", "starcoder"}, .build = build};
