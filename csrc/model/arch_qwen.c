// SPDX-License-Identifier: MIT
// qwen: Qwen 1. Llama's shape with q, k, v in one matrix with bias; the file counts gate and up together.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  for (int il = 0; il < h->n_layer; il++) h->n_ff[il] /= 2;
  mtx_layer l = mtx_layer_default(&rope);
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_qwen = {.names = {"qwen"}, .build = build};
