// SPDX-License-Identifier: MIT
// exaone: EXAONE 3. Llama's shape with rotary halves.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  rope.factors = mtx_g_vector_opt(g, -1, "rope_freqs", rope.n_rot / 2);
  mtx_layer l = mtx_layer_default(&rope);
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_exaone = {.names = {"exaone"}, .build = build};
