// SPDX-License-Identifier: MIT
// baichuan: Baichuan 1 and 2. Llama's shape; the 7B models (32 layers) rotate, the 13B models
// (40 layers) have ALiBi. The layer count is all that tells them apart, as in llama.cpp.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NORM;
  mtx_layer l = mtx_layer_default(h->n_layer == 32 ? &rope : NULL);
  if (h->n_layer == 40) l.attn.alibi_max_bias = 8.0f;
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_baichuan = {.names = {"baichuan"}, .build = build};
