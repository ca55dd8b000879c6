// SPDX-License-Identifier: MIT
// gemma: Gemma 1. Llama's shape with GELU, embeddings times sqrt(n_embd), tied output.
#include <math.h>

#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  mtx_layer l = mtx_layer_default(&rope);
  l.act = MTX_UNARY_GELU;
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, sqrtf((float)h->n_embd)), &l);
}

const mtx_arch mtx_arch_gemma = {.names = {"gemma"}, .build = build};
