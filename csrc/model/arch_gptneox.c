// SPDX-License-Identifier: MIT
// gptneox: GPT-NeoX, Pythia, RedPajama, Dolly. Part of each head rotated, layer norms, plain GELU;
// attention and feed-forward mostly side by side, each with its own norm.
#include "model/arch.h"

static mtx_val build(mtx_graph *g, mtx_hparams *h) {
  mtx_rope rope = h->rope;
  rope.mode = MTX_ROPE_NEOX;
  h->norm = MTX_NORM_LAYER;
  mtx_layer l = mtx_layer_default(&rope);
  l.parallel = mtx_h_bool(h, "use_parallel_residual", true);
  l.ffn = MTX_FFN_PLAIN;
  l.act = MTX_UNARY_GELU;
  return mtx_block_decoder(g, h, mtx_block_embed(g, h, 1.0f), &l);
}

const mtx_arch mtx_arch_gptneox = {.names = {"gptneox"}, .build = build};
