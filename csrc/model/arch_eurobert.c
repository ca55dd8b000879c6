// SPDX-License-Identifier: MIT
// eurobert: EuroBERT. Llama's shape as an encoder: every token sees every other. Result as in bert.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  h->causal = h->has_logits = false;
  mtx_layer l = mtx_layer_default(&rope);
  mtx_val x = mtx_block_embed(g, h, 1.0f);
  for (int il = 0; il < h->n_layer; il++) x = mtx_block_layer(g, h, il, x, &l);
  return mtx_block_norm(g, h, -1, "output_norm", mtx_g_select(g, x));
}

const mtx_arch mtx_arch_eurobert = {.names = {"eurobert"}, .build = build};
